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
        (words.percent(2.94), "2.9\u00a0%"),
        (words.percent(27.4), "27\u00a0%"),
        (words.percent(-3.0, sign=True), "−3.0\u00a0%"),
        (words.percent(12.0, sign=True), "+12\u00a0%"),
        (words.percent(nan), words.DASH),
        (words.percents(27.2, 34.8), "27–35\u00a0%"),
        (words.percents(0.84, 12.1), "0.8–12.1\u00a0%"),
        (words.percents(57.6, 58.3), "57.6–58.3\u00a0%"),
        (words.percents(57.61, 57.62), "57.6\u00a0%"),
        (words.percents(1291.0, 1305.0), "1,291–1,305\u00a0%"),
        (words.margin(0.05), "±5\u00a0%"),
        (words.margin(0.025), "±2.5\u00a0%"),
        (words.p_value(0.0142), "0.014"),
        (words.p_value(1.0), "1"),
        (words.p_value(3e-6), "< 0.0001"),
        (words.p_value(nan), words.DASH),
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
