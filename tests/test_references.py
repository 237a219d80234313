"""Published rates are read as they stand, and what is no such file is said to be none."""

from pathlib import Path

import pytest

from fabricbench.errors import ConfigError
from fabricbench.references import FOLDER, names, read_reference

HEAD = "model,batch_per_gpu,gpus,gpus_per_node,fabric,line_rate_gbit_s,engine,images_per_second\n"
ABOUT = "title: a table\nurl: nowhere\ndevice: GPU\nunresolved: 1 %\n"


def write(folder: Path, rows: str, about: str = ABOUT, head: str = HEAD) -> Path:
    """A reference called mine."""
    (folder / "mine.csv").write_text(head + rows)
    (folder / "mine.yaml").write_text(about)
    return folder


@pytest.mark.parametrize("name", names())
def test_what_comes_along_is_whole(name: str) -> None:
    """Every rate is above zero and has a one-GPU rate beside it; the source is told."""
    found = read_reference(name)
    assert found.title
    assert found.url.startswith("https://")
    assert (FOLDER / f"{name}.yaml").read_text().count("description:") == 1
    assert all(
        row.images_per_second > 0 and found.one_gpu(row.model, row.batch_per_gpu) for row in found.rows
    )


def test_horovods_table_has_its_gaps() -> None:
    """VGG-16 over TCP is 26.8 % behind RDMA."""
    rates = {
        (row.model, row.fabric): row.images_per_second
        for row in read_reference("horovod-2017").rows
        if row.engine == "nccl"
    }
    assert rates["vgg16", "tcp"] / rates["vgg16", "rdma"] - 1 == pytest.approx(-0.268, abs=5e-4)


def test_other_tables_are_no_references(tmp_path: Path) -> None:
    """A CSV file with other columns isn't offered; one with a rate alone is."""
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert names(write(tmp_path, "vgg16,64,1,4,none,,none,130.9\n")) == ["mine"]
    row = read_reference("mine", tmp_path).rows[0]
    assert (row.line_rate_gbit_s, row.gpus, row.images_per_second) == (None, 1, 130.9)


@pytest.mark.parametrize(
    ("rows", "about", "said"),
    [
        ("vgg16,64,one,4,none,,none,130.9\n", ABOUT, "'one'"),
        ("", "title: a table\n", "'url'"),
        ("vgg16,64\n", ABOUT, "no table of published rates"),
    ],
)
def test_a_broken_reference_is_named(tmp_path: Path, rows: str, about: str, said: str) -> None:
    """One line with the file, and no traceback."""
    with pytest.raises(ConfigError, match=r"mine\.csv") as caught:
        read_reference("mine", write(tmp_path, rows, about))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
