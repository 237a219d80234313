"""PyTorch DDP training of torchvision models."""
