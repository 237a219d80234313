"""What training measured besides its headline, in words: slow ranks, gradients, memory, and warnings."""

import pandas as pd

from fabricbench.report import words

TRAINED = ("slowest rank", "gradients per step", "peak memory", "steps")
"""Columns of the table behind a training figure."""


def trained_texts(cells: pd.DataFrame) -> list[str]:
    """The texts of TRAINED for the repeats of one fabric and GPU count; a dash for what wasn't measured."""
    return [_straggler(cells), _gradients(cells), _peak(cells), _steps(cells)]


def remarks(cells: pd.DataFrame) -> str:
    """What to beware of among the repeats of one fabric and GPU count, reasons left to `training_notes`."""
    said = []
    if unsteady := _unsteady(cells):
        said.append(f"{unsteady} of {len(cells)} never steady")
    if barred := int((cells["no_verdict"] != "").sum()):
        said.append(f"{barred} of {len(cells)} not compared")
    return "; ".join(said)


def training_notes(cells: pd.DataFrame) -> list[str]:
    """Sentences on all cells of one workload and backend."""
    notes = []
    of = words.plural(len(cells), "cell")
    if unsteady := _unsteady(cells):
        notes.append(f"{unsteady} of {of} never became steady before it was measured.")
    barred = [str(text) for text in cells["no_verdict"] if text]
    if barred:
        notes.append(
            f"{len(barred)} of {of} shown here, but neither compared nor taken as a reference: "
            f"{'; '.join(dict.fromkeys(barred))}."
        )
    if cells["load_s"].notna().any():
        waits = cells["load_s"].dropna()
        notes.append(
            f"Waiting for images took {words.seconds(float(waits.median()))} per step (median of "
            f"{words.plural(len(waits), 'cell')}), which is not in a step's time."
        )
    return notes


def _unsteady(cells: pd.DataFrame) -> int:
    return int((cells["steady"].notna() & ~cells["steady"].fillna(True).astype(bool)).sum())


def _straggler(cells: pd.DataFrame) -> str:
    """`rank 3, +4.0 %`: the worst repeat's."""
    known = cells[cells["straggler"].notna()]
    if known.empty:
        return words.DASH
    worst = known.sort_values("straggler", kind="stable").to_dict("records")[-1]
    return f"rank {worst['straggler_rank']}, {words.percent(100 * float(worst['straggler']), sign=True)}"


def _gradients(cells: pd.DataFrame) -> str:
    """`11.1 MB in 6 buckets`, as sent."""
    known = cells[cells["gradient_bytes"].notna()]
    if known.empty:
        return words.DASH
    sent = f"{words.compact(float(known['gradient_bytes'].iloc[0]) / 1e6)} MB"
    buckets = known["buckets"].dropna()
    if buckets.empty or not buckets.max():
        return sent
    low, high = int(buckets.min()), int(buckets.max())
    many = words.plural(high, "bucket") if low == high else f"{low}–{high} buckets"
    return f"{sent} in {many}"


def _peak(cells: pd.DataFrame) -> str:
    known = cells["peak_memory_bytes"].dropna()
    return words.DASH if known.empty else words.size(float(known.max()))


def _steps(cells: pd.DataFrame) -> str:
    """`12 + 40`: warm-up and measured, medians over repeats; only the latter where the former isn't known."""
    steps = cells["n_steps"].dropna()
    if steps.empty:
        return words.DASH
    warmup = cells["warmup_steps"].dropna()
    own = f"{float(steps.median()):.0f}"
    return own if warmup.empty else f"{float(warmup.median()):.0f} + {own}"
