"""Slurm's short form of node names, in the forms that were seen in the field."""

import pytest

from fabricbench.nodelist import expand_nodelist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("alpha,beta", ["alpha", "beta"]),
        ("linux[1,2]", ["linux1", "linux2"]),
        ("jean-zay-ia810", ["jean-zay-ia810"]),
        ("n[08-10,12]a", ["n08a", "n09a", "n10a", "n12a"]),
        ("rack[1-2]n[01-02]", ["rack1n01", "rack1n02", "rack2n01", "rack2n02"]),
        ("compute-permanent-node-[583,752]", ["compute-permanent-node-583", "compute-permanent-node-752"]),
        ("b[3,1],a", ["b3", "b1", "a"]),
        ("", []),
    ],
)
def test_names_come_in_order_with_their_zeros(text, names):
    """As scontrol would give them."""
    assert expand_nodelist(text) == names


def test_brackets_must_match():
    """What was cut off is no list."""
    with pytest.raises(ValueError, match="brackets don't match"):
        expand_nodelist("n[1-2")
