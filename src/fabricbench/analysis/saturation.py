"""Whether a cell's host, not its fabric, decided how fast it was."""

from fabricbench.record import Record


def why_saturated(record: Record) -> str:
    """Why a cell may enter no comparison, in one sentence without an end; "" if its host kept up."""
    return ""
