"""Where images come from: drawn once and kept on the device, or read from a folder by loader processes."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.workloads.ranks import Ranks

CLASSES = 1000
Batch = tuple[torch.Tensor, torch.Tensor]
"""Images (batch, 3, size, size) and labels (batch), on the device."""


class Batches(Protocol):
    """A rank's batches."""

    waits: bool
    """Whether a next batch has to be waited for."""

    def __init__(
        self, cell: Cell, ranks: Ranks, seed: int, device: torch.device, layout: torch.memory_format
    ) -> None:
        """This rank's share."""

    def first(self) -> Batch:
        """The batch to begin with."""

    def next(self) -> Batch:
        """The batch of the next step."""

    def facts(self) -> dict[str, Any]:
        """For the record."""

    def close(self) -> None:
        """End what runs beside the rank."""


class Synthetic:
    """One batch of noise, drawn once by the rank's own seed: no input is ever waited for."""

    waits = False

    def __init__(
        self, cell: Cell, ranks: Ranks, seed: int, device: torch.device, layout: torch.memory_format
    ) -> None:
        """Draw it and keep it on the device."""
        generator = torch.Generator().manual_seed(seed + ranks.rank)
        batch, size = cell.params["batch"], cell.params["image_size"]
        images = torch.randn(batch, 3, size, size, generator=generator)
        labels = torch.randint(0, CLASSES, (batch,), generator=generator)
        self._batch = images.to(device=device, memory_format=layout), labels.to(device)

    def first(self) -> Batch:
        """The batch."""
        return self._batch

    def next(self) -> Batch:
        """The same again."""
        return self._batch

    def facts(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}

    def close(self) -> None:
        """Nothing runs beside."""


class Unreadable(str):
    """Why an image can't be read; travels from a loader process in the batch's place."""


class Images(Dataset[Any]):
    """A folder's images and labels; in place of what can't be read, why (exceptions come as tracebacks)."""

    def __init__(self, folder: str, size: int) -> None:
        """Find classes and files, as torchvision's ImageFolder does."""
        from torchvision import transforms
        from torchvision.datasets import ImageFolder

        mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as every ImageNet recipe
        self.found = ImageFolder(folder, loader=str, allow_empty=True)
        self.prepare = transforms.Compose(
            [
                transforms.RandomResizedCrop(size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean, deviation),
            ]
        )

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.found.samples)

    def __getitem__(self, index: int) -> Any:
        """(image, label), or Unreadable."""
        from PIL import Image

        path, label = self.found.samples[index]
        try:
            with Image.open(path) as image:
                return self.prepare(image.convert("RGB")), label
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            what = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Unreadable(f"images: {path} can't be read as an image ({what}); mend or remove it")


def collate(items: list[Any]) -> Any:
    """A batch of items, or the first that is Unreadable."""
    bad = next((item for item in items if isinstance(item, Unreadable)), None)
    return torch.utils.data.default_collate(items) if bad is None else bad


class Folder:
    """A rank's share of a folder, shuffled anew each epoch, prepared by `loader_workers` processes."""

    waits = True

    def __init__(
        self, cell: Cell, ranks: Ranks, seed: int, device: torch.device, layout: torch.memory_format
    ) -> None:
        """Find the images; LaunchError where there are too few for one step, or too many classes."""
        self._folder, batch = cell.params["images"], cell.params["batch"]
        self._device, self._layout = device, layout
        images = self._find(cell.params["image_size"])
        if len(images) < (needed := batch * ranks.size):
            raise LaunchError(
                f"images: {self._folder} has {len(images)} images, fewer than one step's {needed} "
                f"({ranks.size} ranks × batch {batch}); lower the batch"
            )
        workers = cell.params.get("loader_workers", 2)
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            images, ranks.size, ranks.rank, seed=seed, drop_last=True
        )
        self._loader = DataLoader(
            images,
            batch_size=batch,
            sampler=self._sampler,
            num_workers=workers,
            collate_fn=collate,
            pin_memory=device.type == "cuda",
            drop_last=True,
            persistent_workers=workers > 0,
            generator=torch.Generator().manual_seed(seed + ranks.rank),
        )
        self._epoch = 0
        self._known = {"images": len(images), "classes": len(images.found.classes)}
        self._iterator: Iterator[Any] | None = None

    def _find(self, size: int) -> Images:
        try:
            images = Images(self._folder, size)
        except OSError as error:
            raise LaunchError(
                f"images: {self._folder} can't be read on this node ({error.strerror or error})"
            ) from None
        if len(images.found.classes) > CLASSES:
            raise LaunchError(
                f"images: {self._folder} has {len(images.found.classes)} classes, the models have {CLASSES}"
            )
        return images

    def first(self) -> Batch:
        """The first batch."""
        return self.next()

    def next(self) -> Batch:
        """The next batch, of the next epoch at the end of one; LaunchError that names an unreadable image."""
        batch = None if self._iterator is None else next(self._iterator, None)
        if batch is None:
            self._sampler.set_epoch(self._epoch)
            self._epoch += 1
            self._iterator = iter(self._loader)
            batch = next(self._iterator)
        if isinstance(batch, Unreadable):
            raise LaunchError(str(batch))
        images, labels = batch
        return (
            images.to(self._device, memory_format=self._layout, non_blocking=True),
            labels.to(self._device, non_blocking=True),
        )

    def facts(self) -> dict[str, Any]:
        """How many images and classes the folder has."""
        return self._known

    def close(self) -> None:
        """End the loader's processes."""
        self._iterator = None
        del self._loader
