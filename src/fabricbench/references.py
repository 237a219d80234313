"""Published rates that a campaign may repeat: reports/references/<name>.csv with <name>.yaml beside it.

The CSV has a row per rate and the columns of `Row`; the YAML says where they are from: title, url, device,
description, and unresolved, the difference below which its rates say nothing.
"""

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from fabricbench.errors import ConfigError
from fabricbench.strict_yaml import read_yaml
from fabricbench.units import parse_share

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "references"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published rate."""

    model: str
    batch_per_gpu: int
    gpus: int
    gpus_per_node: int
    fabric: str
    """none where one GPU ran without a network."""
    line_rate_gbit_s: float | None
    """Gbit/s of one node's port."""
    engine: str
    images_per_second: float
    """Of all GPUs together."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A set of rates of one source."""

    name: str
    title: str
    url: str
    device: str
    unresolved: float
    """A share."""
    rows: tuple[Row, ...]

    def one_gpu(self, model: str, batch: int) -> float | None:
        """Images per second of one GPU without a network; None where that wasn't published."""
        found = [
            row for row in self.rows if row.gpus == 1 and (row.model, row.batch_per_gpu) == (model, batch)
        ]
        return found[0].images_per_second if found else None


def names(folder: Path = FOLDER) -> list[str]:
    """The references that are there: CSV files with the columns of `Row`, by name."""
    return sorted(path.stem for path in folder.glob("*.csv") if _columns(path) == _COLUMNS)


def read_reference(name: str, folder: Path = FOLDER) -> Reference:
    """A reference by name; raises ConfigError with the file and what is wrong in it."""
    path, about = folder / f"{name}.csv", folder / f"{name}.yaml"
    said = read_yaml(about)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = tuple(_row(row) for row in csv.DictReader(file))
        return Reference(
            name=name,
            title=str(said["title"]),
            url=str(said["url"]),
            device=str(said["device"]),
            unresolved=parse_share(said["unresolved"]),
            rows=rows,
        )
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: is no table of published rates, or {about.name} is not its key: {error}"
        ) from None


_COLUMNS = [field.name for field in fields(Row)]


def _columns(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def _row(plain: dict[str, str]) -> Row:
    rate = plain["line_rate_gbit_s"]
    return Row(
        model=plain["model"],
        batch_per_gpu=int(plain["batch_per_gpu"]),
        gpus=int(plain["gpus"]),
        gpus_per_node=int(plain["gpus_per_node"]),
        fabric=plain["fabric"],
        line_rate_gbit_s=float(rate) if rate else None,
        engine=plain["engine"],
        images_per_second=float(plain["images_per_second"]),
    )
