"""Names of nodes are told in the order and the length that people would."""

import pytest

from fabricbench.analysis.names import by_node, condensed, in_order


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n0"], "n0"),
        (["n10", "n9", "n2"], "n2, n9-n10"),
        (["n009", "n010", "n011"], "n009-n011"),
        (["gpu1.site", "gpu2.site", "login"], "gpu1.site-gpu2.site, login"),
        (["0", "1", "2", "4"], "0-2, 4"),
        (["a1b1", "a1b2", "a2b1"], "a1b1-a1b2, a2b1"),
        (["n1", "n1"], "n1"),
    ],
)
def test_runs_of_names_are_shortened(names: list[str], text: str) -> None:
    """Numbers in a row become first and last; a gap, another prefix or padding keeps them apart."""
    assert condensed(names) == text


def test_order_is_by_number() -> None:
    """n2 comes before n10, and each name once."""
    assert in_order(["n10", "n2", "N1", "n2"]) == ["N1", "n2", "n10"]


def test_nodes_that_agree_are_not_named() -> None:
    """One text for all nodes stands alone; else the nodes of each text stand before it."""
    assert by_node([("n0", "eth0"), ("n1", "eth0")]) == "eth0"
    assert by_node([("n1", "eth0"), ("n0", "eno1"), ("n2", "")]) == "n0: eno1; n1: eth0; n2: none"
    assert by_node([]) == ""
