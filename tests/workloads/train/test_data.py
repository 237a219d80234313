"""Images from a folder."""

from pathlib import Path
from typing import Any

import pytest
from alone import Together
from cells import TRAIN, a_cell

from fabricbench.errors import LaunchError

pytestmark = pytest.mark.slow  # torch takes seconds to import


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of five images each, of their own colours."""
    from PIL import Image

    for index, name in enumerate(("cats", "dogs")):
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.new("RGB", (40, 30), (250 * index, 20 * number, 0)).save(tmp_path / name / f"{number}.png")
    return tmp_path


def batches(folder: Path, rank: int = 0, size: int = 1, **params: Any) -> Any:
    """A rank's share, two images at a time."""
    import torch

    from fabricbench.workloads.train.data import Folder

    cell = a_cell("train", "gloo", params=TRAIN | {"images": str(folder), "loader_workers": 0} | params)
    return Folder(cell, Together(rank, size), 1, torch.device("cpu"), torch.channels_last)


def test_a_batch_has_the_size_and_layout_that_the_cell_names(folder: Path) -> None:
    """Cropped to image_size, with the folder's two classes as labels."""
    import torch

    images, labels = batches(folder).first()
    assert images.shape == (2, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert set(labels.tolist()) <= {0, 1}


def test_ranks_share_the_images(folder: Path) -> None:
    """In one epoch each rank draws others."""
    drawn = [list(batches(folder, rank, 2)._sampler) for rank in range(2)]
    assert sorted(drawn[0] + drawn[1]) == list(range(10))


def test_a_new_epoch_follows_the_last_image(folder: Path) -> None:
    """In another order; five batches are an epoch of one rank."""
    share = batches(folder)
    epochs = [[share.next()[0].sum().item() for _ in range(5)] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert share.facts() == {"images": 10, "classes": 2}


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_named_in_one_line(folder: Path, workers: int) -> None:
    """Also when a loader's process found it."""
    for path in folder.rglob("*.png"):
        path.write_bytes(b"no image")
    share = batches(folder, loader_workers=workers)
    with pytest.raises(
        LaunchError, match=r"^images: .*/\d\.png can't be read as an image \(.*\); mend"
    ) as seen:
        share.first()
    assert "\n" not in str(seen.value)
    share.close()


def test_a_cut_image_is_named(folder: Path) -> None:
    """Its header can be read, its end can't."""
    for path in folder.rglob("*.png"):
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(LaunchError, match="can't be read as an image"):
        batches(folder).first()


def test_too_few_images_for_a_step(folder: Path) -> None:
    """Said with the numbers."""
    with pytest.raises(LaunchError, match=r"has 10 images, fewer than one step's 12 \(3 ranks × batch 4\)"):
        batches(folder, size=3, batch=4)


def test_a_folder_that_a_node_does_not_have(tmp_path: Path) -> None:
    """It may be there only on the node that reads the config."""
    with pytest.raises(LaunchError, match=r"can't be read on this node \(No such file or directory\)"):
        batches(tmp_path / "none")
