"""A small campaign on a real Slurm cluster: Snakemake on the login node, every cell a job."""

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from campaigns import ROOT, TINY, Campaign

from fabricbench.testbed import Cluster

SLURM_TINY = copy.deepcopy(TINY) | {"cluster": {"kind": "slurm", "nodes": 4, "gpus_per_node": 2}}
for _fabric in SLURM_TINY["fabrics"].values():  # found on the nodes, no longer made by the cell
    _fabric["kind"] = "ethernet-tcp"
# Snakemake's plugin looks at its jobs for the first time after 40 s, which is most of a small campaign.
SOONER = ("--slurm-init-seconds-before-status-checks", "3")


class SlurmCampaign(Campaign):
    """Like `Campaign`, in a folder that the cluster shares."""

    cluster: Cluster
    environment: Mapping[str, str] = MappingProxyType({})
    """What is set for Snakemake, as by an allocation that it runs in."""

    def __init__(self, cluster: Cluster, folder: Path, config: dict) -> None:
        """Copy what Snakemake reads and write the config."""
        super().__init__(folder, config)
        self.cluster = cluster

    @classmethod
    def on(cls, cluster: Cluster, folder: Path) -> "SlurmCampaign":
        """One that exists."""
        campaign = cls.of(folder)
        campaign.cluster = cluster
        return campaign

    def command(self, *arguments: str, profile: str = "profiles/slurm") -> list[str]:
        """What runs Snakemake on the login node (for `subprocess.Popen`)."""
        sooner = SOONER if profile == "profiles/slurm" else ()
        start = [sys.executable, "-P", str(ROOT / "tests" / "quick_polls.py")]
        argv = [*start, "--profile", profile, *sooner, *arguments]
        return self.cluster.command(argv, cwd=self.folder, env=self.environment)

    def snakemake(self, *arguments: str, ok: bool = True, profile: str = "profiles/slurm") -> str:
        """Run Snakemake there and assert how it ends; returns all that it prints."""
        done = subprocess.run(
            self.command(*arguments, profile=profile), capture_output=True, text=True, timeout=600
        )
        output = done.stdout + done.stderr
        assert (done.returncode == 0) is ok, output
        return output

    def failures(self) -> dict[str, str]:
        """Cell (as `workload/slug`, without digest) → why it failed, of all that left a failure."""
        return {
            f"{path.parent.name}/{path.name.removesuffix('.failed.json')[:-9]}": json.loads(path.read_text())[
                "reason"
            ]
            for path in self.results.glob("*/*.failed.json")
        }

    def jobs_seen(self) -> list[dict[str, str]]:
        """Every job that Slurm got from this campaign's folder, as `Cluster.jobs_seen` has them."""
        return [job for job in self.cluster.jobs_seen() if job["WorkDir"] == str(self.folder)]
