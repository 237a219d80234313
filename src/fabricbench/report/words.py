"""Numbers as people write them: sensible digits, a unit everywhere, a dash for none."""

from collections.abc import Callable
from math import floor, isfinite, log10

DASH = "–"
NBSP = "\u00a0"


def number(value: float, digits: int = 3) -> str:
    """Three significant digits without an exponent: 1,234 · 56.7 · 0.0891."""
    if not isfinite(value):
        return DASH
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:,.{decimals}f}"


def span(low: float, high: float) -> str:
    """A range with the digits of its ends; one number where both ends read the same."""
    first, last = number(low), number(high)
    return first if first == last else f"{first}–{last}"


def ratio(value: float) -> str:
    """`1.23×`; two decimals, since three would promise more than repeats give."""
    return f"{value:.2f}×" if isfinite(value) else DASH


def share(value: float) -> str:
    """A share as per cent."""
    return f"{value * 100:.0f} %" if isfinite(value) else DASH


def percent(value: float, sign: bool = False) -> str:
    """Per cent, whole from 10 on: `2.9 %`, `27 %`; `sign` shows a plus as well."""
    if not isfinite(value):
        return DASH
    text = f"{abs(value):,.{_percent_decimals(value)}f}{NBSP}%"
    return f"−{text}" if value < 0 else f"+{text}" if sign else text


def percents(low: float, high: float) -> str:
    """A range of per cent, with decimals where it takes them: `27–35 %`, `0.8–12.1 %`, `57.6–58.3 %`."""
    decimals = max(_percent_decimals(low), _percent_decimals(high))
    if f"{low:.{decimals}f}" == f"{high:.{decimals}f}":
        decimals = 1
    first, last = f"{low:,.{decimals}f}", f"{high:,.{decimals}f}"
    return f"{last}{NBSP}%" if first == last else f"{first}–{last}{NBSP}%"


def _percent_decimals(value: float) -> int:
    return 0 if abs(value) >= 10 else 1


def margin(value: float) -> str:
    """A share either way: `±5 %`."""
    return f"±{100 * value:g}{NBSP}%"


def p_value(value: float) -> str:
    """Two digits: `0.014`; `< 0.0001` below that."""
    if not isfinite(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"


def seconds(value: float, show: Callable[[float], str] = number) -> str:
    """A time in s, ms or µs; `show` writes the number."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if abs(value) * factor >= 1:
            return f"{show(value * factor)} {unit}"
    return f"{show(value * 1e6)} µs" if isfinite(value) else DASH


def bit_rate(value: float) -> str:
    """A rate in Gbit/s, Mbit/s or kbit/s."""
    if not isfinite(value):
        return DASH
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if value >= factor:
            return f"{compact(value / factor)} {unit}"
    return f"{compact(value)} bit/s"


def size(value: float) -> str:
    """A size of messages or memory in GiB, MiB, KiB or B."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{compact(value / factor)} {unit}"
    return f"{compact(value)} B"


def count(value: float) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,.0f}" if isfinite(value) else DASH


def ports(number: int, rate: float) -> str:
    """A node's line rate: `25 Gbit/s`, or `4 × 25 Gbit/s` for several ports."""
    return bit_rate(rate) if number == 1 or not isfinite(rate) else f"{number} × {bit_rate(rate)}"


def reached(number: int, rate: float, effective: float) -> str:
    """A node's line rate, or what is assumed to be reached of it: `13.8 Gbit/s of 25 Gbit/s`."""
    line = ports(number, rate)
    return f"{ports(number, effective)} of {line}" if isfinite(effective) else line


def plural(count: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(items: list[str]) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def compact(value: float) -> str:
    """At most three significant digits and no trailing zeros: 25, 1.5, 12.5; for axes and settings."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
