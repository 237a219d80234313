"""The code key: which changes of the code count, and for whom."""

from pathlib import Path

import pytest

from fabricbench.code_key import PACKAGE, digest_tree, measured_files
from fabricbench.errors import FabricbenchError

SOURCE = '''"""Module."""

SIZE = 1  # bytes
"""What SIZE is."""


def run(size: int) -> int:
    """Run."""
    return size + SIZE
'''
FILES = (
    "workloads/shared.py",
    "workloads/micro/entry.py",
    "workloads/micro/deep/part.py",
    "workloads/cfd/entry.py",
    "cores.py",
    "launch/ranks.py",
    "launch/pmi.py",
    "launch/emulated.py",
    "launch/host.py",
    "launch/leaving.py",
    "launch/task.py",
    "fabrics/emulation.py",
    "fabrics/evidence.py",
    "record.py",
)
FORKED = {(kind, launcher) for kind in ("micro", "cfd") for launcher in ("host", "emulated")}
IN_A_JOB = {(kind, launcher) for kind in ("micro", "cfd") for launcher in ("slurm", "allocation")}
EVERY = FORKED | IN_A_JOB
MICRO = {pair for pair in EVERY if pair[0] == "micro"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package with a source in every place that matters, and in some that don't."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("# bytes", "# other words", False),
        ('"""Run."""', '"""Run\n\n    it.\n    """', False),
        ('"""Module."""\n', "", False),
        ('"""What SIZE is."""', "pass", False),
        ("size + SIZE", "(size\n        + SIZE)", False),
        ("size + SIZE", "size - SIZE", True),
        ("SIZE = 1", "SIZE = 1.0", True),
        ("SIZE = 1", "SIZE = True", True),
        ("size: int", "size: float", True),
        ("size + SIZE", '"""Run."""', True),
    ],
)
def test_syntax_counts_and_words_do_not(tree: Path, old: str, new: str, counts: bool) -> None:
    """Code changes the key; comments, docstrings, `pass` and layout do not."""
    before = digest_tree(tree, "micro", "host")
    (tree / "workloads/micro/entry.py").write_text(SOURCE.replace(old, new))
    assert (digest_tree(tree, "micro", "host") != before) == counts


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("workloads/shared.py", EVERY),
        ("cores.py", EVERY),
        ("launch/pmi.py", FORKED),
        ("launch/task.py", IN_A_JOB),
        ("launch/leaving.py", set()),
        ("workloads/micro/deep/part.py", MICRO),
        ("workloads/micro/new.py", MICRO),
        ("workloads/cfd/entry.py", EVERY - MICRO),
        ("launch/host.py", {("micro", "host"), ("cfd", "host")}),
        ("launch/emulated.py", {("micro", "emulated"), ("cfd", "emulated")}),
        ("fabrics/emulation.py", {("micro", "emulated"), ("cfd", "emulated")}),
        ("fabrics/evidence.py", set()),
        ("record.py", set()),
    ],
)  # fmt: skip
def test_a_file_counts_for_what_runs_it(tree: Path, name: str, changed: set[tuple[str, str]]) -> None:
    """A changed or new file changes the keys of the kinds and launchers that run it, and no others."""
    before = {pair: digest_tree(tree, *pair) for pair in EVERY}
    (tree / name).write_text("x = 2\n")
    assert {pair for pair in EVERY if digest_tree(tree, *pair) != before[pair]} == changed


def test_names_count(tree: Path) -> None:
    """Moving code to another file changes the key."""
    before = digest_tree(tree, "micro", "host")
    (tree / "workloads/micro/entry.py").rename(tree / "workloads/micro/main.py")
    assert digest_tree(tree, "micro", "host") != before


def test_key_is_the_same_under_every_python(tmp_path: Path) -> None:
    """Code with what later versions added fields for has a fixed key, whatever Python computes it."""
    folder = tmp_path / "workloads" / "micro"
    folder.mkdir(parents=True)
    source = "class A(B):\n    def f(self, *a, k=None):\n        return f'{a!r:>{k}} b' + u'c'\n"
    (folder / "entry.py").write_text(source)
    assert digest_tree(tmp_path, "micro", "host")[:16] == "c003155cf49b937d"


@pytest.mark.parametrize(
    ("kind", "launcher", "line"),
    [
        ("lattice", "host", "workload kind lattice: its folder"),
        ("micro", "pbs", "launcher pbs: not one of"),
    ],
)
def test_what_does_not_exist(tree: Path, kind: str, launcher: str, line: str) -> None:
    """A kind without a folder and an unknown launcher are one line each."""
    with pytest.raises(FabricbenchError, match=line):
        digest_tree(tree, kind, launcher)


def test_broken_code_is_named(tree: Path) -> None:
    """A syntax error in a measured file is one line with file and line."""
    (tree / "launch/host.py").write_text("x = 1\ny = (\n")
    with pytest.raises(FabricbenchError, match=r"launch/host\.py:2: "):
        digest_tree(tree, "micro", "host")


@pytest.mark.parametrize("kind", ["train", "cfd", "micro"])
def test_package_has_what_the_table_names(kind: str) -> None:
    """In the package itself, the files that start ranks are where the table says."""
    files = measured_files(PACKAGE, kind, "emulated")
    assert {
        "cores.py",
        "launch/ranks.py",
        "launch/pmi.py",
        "launch/emulated.py",
        "fabrics/emulation.py",
    } <= set(files)
    assert any(name.startswith(f"workloads/{kind}/") for name in files)
    assert "launch/host.py" in measured_files(PACKAGE, kind, "host")
