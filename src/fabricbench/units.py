"""Quantities as people write them ('25 Gbit/s', '5 us', '64 KB') to plain numbers in base units.

Every function raises ValueError with the mend when a text is no such quantity.
"""

import math
import re

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")
_RATE_UNIT = re.compile(r"([kKMGT]?)(?:bit|b)(?:/s|ps)?|")
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SECONDS = {
    "": 1.0,
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
_BYTES = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MEMORY = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_MOST_MEMORY_MIB = 2**30
_LOWEST_RATE_BIT_S = 1000
_HIGHEST_RATE_BIT_S = 10**15
_LONGEST_S = 365 * 24 * 3600.0
_LONGEST_DELAY_S = 60.0
_LARGEST_BYTES = 2**40


def parse_rate(value: float | str) -> int:
    """A rate in bit/s: a number, or a text such as '25 Gbit/s', '400 Mbit', '25Gbps'."""
    number, unit = _split(value, "a rate; write it as 25 Gbit/s")
    match = _RATE_UNIT.fullmatch(unit)
    if match is None and "B" in unit:
        raise ValueError(f"{unit!r} counts bytes; write bits, as 25 Gbit/s (1 byte is 8 bit)")
    if match is None:
        raise ValueError(f"unit {unit!r} is not one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s")
    scaled = number * _DECIMAL[match[1] or ""]
    if scaled > _HIGHEST_RATE_BIT_S:
        raise ValueError("above 1000 Tbit/s, which no port has; mend number or unit")
    rate = round(scaled)
    if rate < _LOWEST_RATE_BIT_S:
        raise ValueError("below 1 kbit/s; a number without a unit is bit/s, so add the unit, as in 25 Gbit/s")
    return rate


def parse_duration(value: float | str) -> float:
    """A time in seconds, not negative: a number, or a text such as '5 us', '90 s', '5 min', '2 h'."""
    number, unit = _split(value, "a time; write it as 5 us or 90 s")
    if unit not in _SECONDS:
        raise ValueError(f"unit {unit!r} is not one of ns, us, ms, s, min, h")
    if number < 0:
        raise ValueError("a time must not be negative")
    scale = _SECONDS[unit]
    if number * scale > _LONGEST_S:
        raise ValueError("above 8760 h, which is a year; mend number or unit")
    # Dividing keeps '5 us' and 5e-6 the same float, so that their spelling is no difference.
    return number * scale if scale >= 1 else number / round(1 / scale)


def parse_delay(value: float | str) -> float:
    """The delay of a network in seconds: a duration of at most a minute."""
    seconds = parse_duration(value)
    if seconds > _LONGEST_DELAY_S:
        raise ValueError("above 60 s, which no network has; mend number or unit")
    return seconds


def parse_share(value: float | str) -> float:
    """A share from 0 to below 1: a number, or a text such as '0.1 %'."""
    number, unit = _split(value, "a share; write it as 0.001 or 0.1 %")
    if unit not in ("", "%"):
        raise ValueError(f"unit {unit!r} is not %")
    share = number / 100 if unit else number
    if not 0 <= share < 1:
        raise ValueError("must be from 0 to below 1; for percent write the sign, as in 0.1 %")
    return share


def parse_bytes(value: float | str) -> int:
    """A message size in bytes, from 1: a number, or a text such as '64 KB' (1 KB is 1024 bytes)."""
    number, unit = _split(value, "a size; write it as 65536 or 64 KB")
    if unit not in _BYTES:
        raise ValueError(f"unit {unit!r} is not one of B, KB, MB, GB (1 KB is 1024 bytes)")
    size = number * _BYTES[unit]
    if size > _LARGEST_BYTES:
        raise ValueError("above 1024 GB, which is no message; mend number or unit")
    if size < 1 or size != int(size):
        raise ValueError("must be a whole number of bytes, from 1")
    return int(size)


def parse_memory_mib(value: float | str) -> int:
    """A node's memory in MiB: bytes, or a text such as '64 GB' (1 GB is 1024 MB)."""
    number, unit = _split(value, "a size; write it as 64 GB, or all")
    unit = unit.replace("i", "")
    if unit not in _MEMORY:
        raise ValueError(f"unit {unit!r} is not one of B, MB, GB, TB (1 GB is 1024 MB)")
    mib = math.ceil(number * _MEMORY[unit] / 2**20)
    if not unit and mib < 2:
        raise ValueError("is a number of bytes, and less than a job needs; write the unit, as in 64 GB")
    if not 1 <= mib <= _MOST_MEMORY_MIB:
        raise ValueError("is no node's memory; mend number or unit")
    return mib


def parse_sizes(value: str | list[float | str], step: int) -> list[int]:
    """Message sizes in bytes, ascending and without doubles.

    `value` is a list of sizes, one size, or a range such as '1 KB..4 MB', which goes up by the factor
    `step` (from 2) and always holds its end.
    """
    if not isinstance(value, str):
        return sorted({parse_bytes(size) for size in value})
    first, dots, last = value.partition("..")
    low, high = parse_bytes(first), parse_bytes(last if dots else first)
    if low > high:
        raise ValueError(f"the range goes down; write {last.strip()}..{first.strip()}")
    sizes = {high}
    while low < high:
        sizes.add(low)
        low *= step
    return sorted(sizes)


def _split(value: float | str, form: str) -> tuple[float, str]:
    """Number and unit of a quantity; raises ValueError that says the expected `form`."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None or isinstance(value, bool) or not math.isfinite(float(match[1])):
        raise ValueError(f"is not {form}")
    return float(match[1]), match[2]
