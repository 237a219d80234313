"""Numbers read as people write them."""

from math import nan

import pytest

from fabricbench.report import words


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (words.number(1234.5), "1,234"),
        (words.number(56.78), "56.8"),
        (words.number(0.0891), "0.0891"),
        (words.number(0), "0"),
        (words.number(nan), words.DASH),
        (words.compact(25), "25"),
        (words.compact(1000), "1,000"),
        (words.span(1.0, 2.0), "1.00–2.00"),
        (words.span(2.0, 2.0), "2.00"),
        (words.ratio(1.6), "1.60×"),
        (words.share(0.957), "96 %"),
        (words.seconds(0.0123), "12.3 ms"),
        (words.seconds(2), "2.00 s"),
        (words.seconds(4e-8), "0.0400 µs"),
        (words.seconds(nan), words.DASH),
        (words.bit_rate(25e9), "25 Gbit/s"),
        (words.bit_rate(97_656_250), "97.7 Mbit/s"),
        (words.bit_rate(nan), words.DASH),
        (words.size(262144), "256 KiB"),
        (words.size(1000), "1,000 B"),
        (words.count(91_520_000.0), "91,520,000"),
        (words.count(nan), words.DASH),
        (words.ports(1, 25e9), "25 Gbit/s"),
        (words.ports(8, 400e9), "8 × 400 Gbit/s"),
        (words.ports(2, nan), words.DASH),
        (words.plural(1, "cell"), "1 cell"),
        (words.plural(2, "cell"), "2 cells"),
        (words.listed(["a"]), "a"),
        (words.listed(["a", "b", "c"]), "a, b and c"),
        (words.listed([]), "none"),
    ],
)
def test_numbers_read_well(said: str, text: str) -> None:
    """Sensible digits, a unit, a dash for none."""
    assert said == text
