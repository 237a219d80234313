"""Whether a folder holds images by class, as training reads them; told before anything runs."""

from pathlib import Path

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Of the files that torchvision's ImageFolder takes."""


def why_no_images(folder: str) -> str:
    """Why a folder on this machine isn't one of images by class; empty if it is. Stops at the first image."""
    path = Path(folder)
    if not path.is_dir():
        return "is no folder on this machine"
    classes = (child for child in path.iterdir() if child.is_dir())
    if any(file.suffix.lower() in ENDINGS for each in classes for file in each.rglob("*")):
        return ""
    return "has no folder with an image in it; each class is a folder of its images"
