"""Environment modules: those that a cell asks for are loaded, or the cell doesn't run."""

import pytest

from fabricbench.launch.modules import loaded_modules, why_not_loaded


@pytest.mark.parametrize("asked", ["gcc", "gcc/13", "openmpi/5.0.2", "mpi", "tools/net"])
def test_what_is_loaded_is_found(asked: str) -> None:
    """By its full name, without a version, by another version's name or by an alias."""
    environment = {
        "LOADEDMODULES": "gcc/13.2:openmpi/5.0.2:tools/net/1.0",
        "__MODULES_LMALTNAME": "openmpi/5.0.2&as|mpi/latest&as|mpi/5",
    }
    assert why_not_loaded([asked], environment) is None


def test_what_is_not_loaded_is_one_line() -> None:
    """It names the key, the modules, what is loaded, and the mend."""
    line = why_not_loaded(["gcc", "nope/1", "other"], {"LOADEDMODULES": "gcc/13"})
    assert line is not None
    assert line.startswith(
        "cluster.modules: nope/1, other: not loaded on this node, where loaded are gcc/13;"
    )
    assert "none is loaded" in str(why_not_loaded(["gcc"], {}))
    assert why_not_loaded([], {}) is None
    assert loaded_modules({}) == []
