"""What `fabricbench select` shows: the variables that each fabric and backend get, or why there are none."""

import shlex
from collections.abc import Sequence
from typing import Any

from fabricbench.campaign import Campaign
from fabricbench.config_schema import did_you_mean
from fabricbench.errors import ConfigError
from fabricbench.fabrics.selection import note, path
from fabricbench.grid import of_table, pair, selected, why_not_selected


def selections(
    campaign: Campaign, fabrics: Sequence[str] = (), backends: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """One entry per fabric, backend and distinct outcome, with the workloads that it is for.

    Without names all fabrics and backends are shown. Raises ConfigError for a name that the config hasn't.
    """
    _check("--fabric", fabrics, campaign.fabrics)
    _check("--backend", backends, campaign.backends)
    entries: list[dict[str, Any]] = []
    for fabric in dict.fromkeys(fabrics) or campaign.fabrics:
        for backend in dict.fromkeys(backends) or campaign.backends:
            entries += _of_pair(campaign, fabric, backend)
    return entries


def render(entries: Sequence[dict[str, Any]]) -> str:
    """The entries as text; variables are quoted as a shell takes them."""
    blocks = []
    for entry in entries:
        workloads = ", ".join(entry["workloads"]) or "no workload"
        lines = [f"{entry['fabric']} × {entry['backend']} ({workloads})"]
        if entry["unsupported"]:
            lines.append(f"  unsupported: {entry['unsupported']}")
        else:
            yours = {name: f"  # yours; the table has {value}" for name, value in entry["replaced"].items()}
            for name, value in entry["environment"].items():
                lines.append(f"  {name}={shlex.quote(value)}{yours.get(name, '')}")
            lines += [f"  unset {name}{yours.get(name, '')}" for name in entry["unset"]]
            unless = ", unless what is yours leads elsewhere" if yours else ""
            lines.append(f"  # proven by the counters of {_COUNTERS[entry['path']]}{unless}")
            if any(token in value for value in entry["environment"].values() for token in _TOKENS):
                lines.append("  # names in braces are found on each node")
            if entry["note"]:
                lines.append(f"  # note: {entry['note']}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


_COUNTERS = {"tcp": "the network interface", "rdma": "the adapter's port"}
_TOKENS = ("{interface", "{adapter", "{unit", "{address")


def _check(option: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"{option} {name}: the config has no such name; {did_you_mean(name, known)}")


def _of_pair(campaign: Campaign, fabric: str, backend: str) -> list[dict[str, Any]]:
    """The outcomes of one fabric and backend, equal ones of several workloads once."""
    entries: list[dict[str, Any]] = []
    for workload in campaign.workloads.values():
        if fabric not in workload.fabrics or backend not in workload.backends:
            continue
        reason = why_not_selected(campaign, workload, fabric, backend)
        environment, unset = ({}, []) if reason else selected(campaign, workload, fabric, backend)
        table = {} if reason else of_table(campaign, workload, fabric, backend)
        replaced = {name: value for name, value in table.items() if environment.get(name) != value}
        outcome = {
            "unsupported": reason,
            "environment": environment,
            "unset": unset,
            "replaced": replaced,
        }
        same = next((entry for entry in entries if outcome.items() <= entry.items()), None)
        if same is not None:
            same["workloads"].append(workload.name)
            continue
        known = None if reason else pair(campaign, fabric, backend)
        entries.append(
            {
                "fabric": fabric,
                "backend": backend,
                "workloads": [workload.name],
                **outcome,
                "path": path(*known) if known else None,
                "note": note(*known) if known else None,
            }
        )
    return entries
