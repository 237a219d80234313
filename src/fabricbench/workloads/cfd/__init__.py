"""A compressible flow solver: the traditional HPC application beside training."""
