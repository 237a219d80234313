"""A whole real Slurm cluster on one machine, for tests and for a person: docs/testbed.md."""

from fabricbench.testbed.cluster import Cluster, why_unavailable
from fabricbench.testbed.spec import Spec

__all__ = ["Cluster", "Spec", "why_unavailable"]
