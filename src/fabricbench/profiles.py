"""How fast one real GPU trains: published rates by name, and profiles that `fabricbench profile` recorded.

A configuration names either; a cell holds what was found, never where, so that a file may move without a
measurement being made again.
"""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RATES = Path(__file__).resolve().parents[2] / "reports" / "references" / "gpu_rates.csv"
SCHEMA = 1
"""Of recorded profiles."""
_RECORDS = "`fabricbench profile` records one on such a GPU"
_CHECKED = ("model", "image_size", "precision")
"""What a recorded profile must have in common with the workload that it is for."""


@dataclass(frozen=True)
class Rate:
    """One row of reports/references/gpu_rates.csv."""

    source: str
    year: int
    device: str
    model: str
    precision: str
    batch: int
    images_per_second: float
    kind: str
    """published, or estimated: by the reckoning in `note`."""
    note: str
    url: str

    @property
    def words(self) -> str:
        """Where the rate is from, in one line; an estimate says that it is one."""
        estimated = "ESTIMATED: " if self.kind == "estimated" else ""
        what = f"{self.source} {self.year}, one {self.device}, {self.precision}, batch {self.batch}"
        return f"{estimated}{what}: {self.note}" + (f"; {self.url}" if self.url else "")


@cache
def rates(path: Path = RATES) -> tuple[Rate, ...]:
    """All rates that are shipped, in the file's order."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_rate(row) for row in csv.DictReader(file))


def resolve(
    profile: str | Mapping[str, Any], model: str, batch: int, image_size: int, precision: str = "fp32"
) -> dict[str, Any]:
    """{images_per_s, batch, source, layers?} for a workload; a mapping is what it is already.

    A text with a slash or ending in .json is a file that `fabricbench profile` wrote, relative to the
    folder that the workflow runs in; any other names a device, of whose rates the one with the nearest
    batch is taken. Raises ValueError: one line that says what there is, and how to mend it.
    """
    if isinstance(profile, Mapping):
        return dict(profile)
    if "/" in profile or profile.endswith(".json"):
        asked = {"model": model, "image_size": image_size, "precision": precision}
        return read_profile(Path(profile), asked)
    return _published(profile, model, batch, precision)


def read_profile(path: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded profile as a cell has it; ValueError where it can't be read or is of something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"{path}: profile schema {content['schema']!r}, this version reads {SCHEMA}")
        for key in _CHECKED:
            if content[key] != asked[key]:
                own, wanted = content[key], asked[key]
                raise ValueError(f"{path} is of {key} {own}, and this is {wanted}; record one for it")
        layers = [
            {
                "parameters": int(layer["parameters"]),
                "forward_s": float(layer["forward_s"]),
                "backward_s": float(layer["backward_s"]),
            }
            for layer in content["layers"]
        ]
        found = {
            "images_per_s": float(content["images_per_s"]),
            "batch": int(content["batch"]),
            "source": str(content["source"]),
            "layers": layers,
        }
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}; {_RECORDS}") from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no profile; {_RECORDS}") from None
    if not layers or not _sound(found):
        raise ValueError(f"{path} has times or rates that aren't above 0; record it again")
    return found


def _rate(row: Mapping[str, str]) -> Rate:
    numbers = {"year": int(row["year"]), "batch": int(row["batch"])}
    rate: dict[str, Any] = {**row, **numbers, "images_per_second": float(row["images_per_second"])}
    return Rate(**rate)


def _sound(found: Mapping[str, Any]) -> bool:
    times = [layer[key] for layer in found["layers"] for key in ("forward_s", "backward_s")]
    numbers = [
        found["images_per_s"],
        float(found["batch"]),
        *(layer["parameters"] for layer in found["layers"]),
    ]
    return all(number > 0 and math.isfinite(number) for number in numbers) and all(
        time >= 0 and math.isfinite(time) for time in times
    )


def _published(device: str, model: str, batch: int, precision: str) -> dict[str, Any]:
    own = [rate for rate in rates() if rate.device == device.lower()]
    if not own:
        known = ", ".join(dict.fromkeys(rate.device for rate in rates()))
        raise ValueError(f"no rate of a {device!r} is shipped, only of {known}; {_RECORDS}")
    fitting = [rate for rate in own if (rate.model, rate.precision) == (model, precision)]
    if not fitting:
        known = ", ".join(dict.fromkeys(f"{rate.model} in {rate.precision}" for rate in own))
        raise ValueError(
            f"no rate of a {device} for {model} in {precision} is shipped, only for {known}; {_RECORDS}"
        )
    nearest = min(fitting, key=lambda rate: abs(math.log(rate.batch / batch)))
    return {"images_per_s": nearest.images_per_second, "batch": nearest.batch, "source": nearest.words}
