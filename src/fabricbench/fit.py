"""Choose an emulated fabric's effective rate, and the fixed cost per step, by published rates.

By measurement: cells run on the emulated cluster, each into a folder that is removed afterwards, until they
give the published rates. The overlap model says how far to go from each try to the next.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fabricbench.analysis.headline import headline
from fabricbench.analysis.overlap import link_for, overlapped_s
from fabricbench.analysis.published import EFFECTIVE, step_of
from fabricbench.campaign import Campaign, Fabric, PublishedRate, Workload
from fabricbench.errors import FabricbenchError
from fabricbench.grid import GridCell, expand
from fabricbench.record import Record, failure_path, read_record
from fabricbench.runner import run_cell

ROUNDS = 3
CLOSE = 0.005
"""A share: a rate that is so near the published one isn't fitted any further."""

Measure = Callable[[GridCell], Record]


@dataclass(frozen=True)
class Values:
    """What is fitted: bit/s by fabric, and seconds of the real machine."""

    effective_bit_s: Mapping[str, int]
    fixed_cost_s: float


def fit(campaign: Campaign, say: Callable[[str], None], measure: Measure) -> Values:
    """The values with which the fitted cells give their published rates; each try goes to `say`, a line.

    At most ROUNDS rounds over all of them, since they depend on each other. Raises FabricbenchError when the
    campaign has nothing to fit, or when a cell fails.
    """
    fitted = [rate for rate in campaign.published.rates if rate.fits] if campaign.published else []
    if not fitted:
        raise FabricbenchError("config: published.fitted: names no rate, so there is nothing to fit")
    fitted.sort(key=_rates_first)
    values = _first_values(campaign, fitted)
    for number in range(1, ROUNDS + 1):
        errors = []
        for rate in fitted:
            values, error = _try(campaign, rate, values, measure)
            errors.append(abs(error))
            off = f"{100 * error:+.1f} % off the published rate"
            say(f"round {number}: {rate.model} over {rate.fabric}: {off}; now {_told(rate, values)}")
        if max(errors) < CLOSE:
            break
    return values


def yaml_lines(values: Values) -> str:
    """The fitted values as lines for the config."""
    rates = [
        f"  {name}: {{…, effective: {rate / 1e9:.3g} Gbit/s}}"
        for name, rate in sorted(values.effective_bit_s.items())
    ]
    return "\n".join(
        ["fabrics:", *rates, "workloads:", f"  …: {{…, fixed_cost: {1e3 * values.fixed_cost_s:.2g} ms}}"]
    )


def with_values(campaign: Campaign, values: Values) -> Campaign:
    """The campaign with other effective rates, and another fixed cost of all its replayed training."""
    scale = campaign.cluster.scale.bytes * campaign.cluster.scale.time

    def shaped(fabric: Fabric) -> Fabric:
        rate = values.effective_bit_s.get(fabric.name)
        if rate is None:
            return fabric
        return replace(fabric, effective_bit_s=rate, link_bit_s=round(rate / scale))

    def costing(workload: Workload) -> Workload:
        if "fixed_cost" not in workload.params:
            return workload
        return replace(workload, params={**workload.params, "fixed_cost": values.fixed_cost_s})

    return replace(
        campaign,
        fabrics={name: shaped(fabric) for name, fabric in campaign.fabrics.items()},
        workloads={name: costing(workload) for name, workload in campaign.workloads.items()},
    )


def measured(cell: GridCell) -> Record:
    """Run a cell here and now; raises FabricbenchError with its reason when it fails."""
    with tempfile.TemporaryDirectory(prefix="fabricbench-fit-") as folder:
        path = cell.path(Path(folder), "fit")
        path.parent.mkdir(parents=True)
        status = run_cell(
            cell.cell, cell.code_key, path, timeout_s=cell.timeout_s, accept_failures=False, neighbours=[]
        )
        record = read_record(path if status == 0 else failure_path(path))
    if status != 0:
        raise FabricbenchError(f"fit: {record.cell.workload}/{record.cell.slug}: {record.reason}")
    return record


def _rates_first(rate: PublishedRate) -> bool:
    """Orders what is fitted: the fixed cost is what is left once links have their rates."""
    return rate.fits != EFFECTIVE


def _first_values(campaign: Campaign, fitted: list[PublishedRate]) -> Values:
    """The config's own, the line rate where it has none."""
    fabrics = [campaign.fabrics[rate.fabric] for rate in fitted if rate.fits == EFFECTIVE]
    costs = {workload.params.get("fixed_cost") for workload in campaign.workloads.values()} - {None}
    if len(costs) > 1:
        raise FabricbenchError("config: workloads: their fixed_cost differ; write one for all to fit it")
    return Values(
        {fabric.name: fabric.effective_bit_s or fabric.rate_bit_s or 0 for fabric in fabrics},
        float(costs.pop() or 0.0) if costs else 0.0,
    )


def _try(campaign: Campaign, rate: PublishedRate, values: Values, measure: Measure) -> tuple[Values, float]:
    """(the next values by this rate, the share by which the present ones miss it)."""
    cell = _cell(with_values(campaign, values), rate)
    record = measure(cell)
    images = headline(record).value
    error = images / rate.images_per_s - 1
    if abs(error) < CLOSE:
        return values, error
    missing_s = rate.gpus * rate.batch * (1 / rate.images_per_s - 1 / images)
    if rate.fits != EFFECTIVE:
        return replace(values, fixed_cost_s=max(0.0, values.fixed_cost_s + missing_s)), error
    scale = record.cell.scale
    step = step_of(record.facts, scale["bytes"], scale["time"], rate.gpus)
    if step is None:
        raise FabricbenchError(f"fit: {record.id}: recorded no buckets, so there is no model to go by")
    now = values.effective_bit_s[rate.fabric]
    fixed_s = values.fixed_cost_s
    wanted_s = overlapped_s(step, now, fixed_s) + missing_s
    line = campaign.fabrics[rate.fabric].rate_bit_s or now
    reached = min(line, round(link_for(step, wanted_s, fixed_s) if wanted_s > 0 else line, -7))
    return replace(values, effective_bit_s={**values.effective_bit_s, rate.fabric: int(reached)}), error


def _cell(campaign: Campaign, rate: PublishedRate) -> GridCell:
    """The first repeat of a cell that stands for the rate."""
    for cell in expand(campaign).cells:
        own = cell.cell
        if (own.kind, own.fabric["name"], own.gpus, own.repeat) == ("train", rate.fabric, rate.gpus, 1) and (
            own.params["model"],
            own.params["batch"],
        ) == (rate.model, rate.batch):
            return cell
    raise FabricbenchError(f"fit: {rate.model} over {rate.fabric}: `only` or `except` leaves its cell out")


def _told(rate: PublishedRate, values: Values) -> str:
    if rate.fits == EFFECTIVE:
        return f"effective {values.effective_bit_s[rate.fabric] / 1e9:.3g} Gbit/s"
    return f"fixed cost {1e3 * values.fixed_cost_s:.2g} ms"
