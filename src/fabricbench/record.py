"""The record: what one cell left behind, as one JSON file that appears whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from fabricbench.cell import Cell, cell_id
from fabricbench.errors import RecordError

SCHEMA = 1
STATUSES = ("ok", "failed", "timeout", "mislabelled")


@dataclass(frozen=True, kw_only=True)
class Series:
    """Raw samples of one metric, as measured (never divided by the scale).

    The unit stands in the metric's name (`step_s`); `bytes` is the message size where there is one;
    `rank` is None for what was taken over all ranks.
    """

    metric: str
    unit: str
    values: list[float]
    bytes: int | None = None
    rank: int | None = None


@dataclass(kw_only=True)
class Record:
    """One cell's outcome. `status` is one of STATUSES; all but `ok` carry a `reason`."""

    cell: Cell
    code_key: str
    status: str
    reason: str = ""
    accepted: bool = False
    """True when a person took a permanent failure as the result."""
    samples: list[Series] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """Scalars that the workload knows: gradient_bytes, images_per_step, dof_per_rank, …"""
    evidence: dict[str, Any] = field(default_factory=dict)
    """What the kernel's counters saw during the timed region, and how links were shaped."""
    provenance: dict[str, Any] = field(default_factory=dict)
    phases_s: dict[str, float] = field(default_factory=dict)
    """Seconds by phase of the cell's life, for its overhead."""
    start: str = ""
    end: str = ""
    """ISO 8601, UTC."""

    @property
    def id(self) -> str:
        """The cell's id: workload/slug-digest8."""
        known = self.__dict__.get("_id")
        if known is None or known[0] is not self.cell or known[1] != self.code_key:
            known = (self.cell, self.code_key, cell_id(self.cell, self.code_key))
            self.__dict__["_id"] = known  # a digest, asked for often; cells are frozen
        return str(known[2])

    def to_json(self) -> dict[str, Any]:
        """Plain data, schema version first."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["cell"] = vars(self.cell)
        plain["samples"] = [vars(series) for series in self.samples]
        return {"schema": SCHEMA, "id": self.id} | plain


def write_record(record: Record, path: Path) -> None:
    """Write a record so that `path` holds all of it or is untouched, also when the disk is full."""
    write_atomically(path, json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a text beside `path`, flush it to disk, then rename; a leftover is removed on any error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_record(path: Path) -> Record:
    """Read and check a record.

    Raises RecordError when it is truncated, of another schema, or holds another cell than its name says.
    """
    try:
        plain = orjson.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror}") from None
    except ValueError:
        raise RecordError(f"{path}: truncated or not JSON; remove it and run again") from None
    record = parse_record(plain, where=str(path))
    name = path.name.removesuffix(".json").removesuffix(".failed")
    if name != record.id.rsplit("/", 1)[-1]:
        raise RecordError(
            f"{path}: holds cell {record.id}, not the one its name says; remove it and run again"
        )
    return record


def failure_path(record: Path) -> Path:
    """Where a failed cell says why: beside its record's place, never declared as an output."""
    return record.with_name(record.name.removesuffix(".json") + ".failed.json")


def parse_record(plain: Any, where: str = "record") -> Record:
    """A record from plain data; raises RecordError that says `where` when fields are missing or unknown."""
    if not isinstance(plain, Mapping):
        raise RecordError(f"{where}: not a record (a {type(plain).__name__})")
    if plain.get("schema") != SCHEMA:
        raise RecordError(f"{where}: record schema {plain.get('schema')!r}, this version reads {SCHEMA}")
    fields = {name: value for name, value in plain.items() if name not in ("schema", "id")}
    try:
        fields["cell"] = Cell.from_json(fields["cell"])
        fields["samples"] = [Series(**series) for series in fields["samples"]]
        record = Record(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{where}: not a whole record ({error}); remove it and run again") from None
    if record.status not in STATUSES:
        raise RecordError(f"{where}: unknown status {record.status!r}")
    if record.id != plain.get("id"):
        raise RecordError(
            f"{where}: its content doesn't match its id {plain.get('id')!r}; remove it and run again"
        )
    return record


def by_metric(samples: Iterable[Series], metric: str) -> list[Series]:
    """All series of one metric."""
    return [series for series in samples if series.metric == metric]
