"""Slurm's short form of node names, in the forms that were seen in the field."""

import re

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


@pytest.mark.parametrize("text", ["n[a-b]", "n[1-]", "n[3-1]", "n[1-2-3]"])
def test_what_is_no_range_is_named(text):
    """What stands in brackets is shown as it was written."""
    with pytest.raises(ValueError, match=re.escape(f"'{text[1:]}' is no range")):
        expand_nodelist(text)


@pytest.mark.parametrize("text", ["n[1-99999999]", "n[1-1000]m[1-1000]", "n[1-60000],m[1-60000]"])
def test_more_nodes_than_any_cluster_has(text):
    """A slip in a number fills no memory."""
    with pytest.raises(ValueError, match="is more than 100000 nodes"):
        expand_nodelist(text)


def test_brackets_must_match():
    """What was cut off is no list."""
    with pytest.raises(ValueError, match="brackets don't match"):
        expand_nodelist("n[1-2")
