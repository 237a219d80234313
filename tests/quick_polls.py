"""Snakemake, looking at its jobs every three seconds.

Its Slurm executor waits ten seconds more after each look that found nothing ended, and no setting changes
that. On a cluster it is kind to the controller; here it would be most of the tests' time.
"""

import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

MOST_S = 3
_waits = RemoteExecutor.next_seconds_between_status_checks


def _set(self: RemoteExecutor, seconds: float) -> None:
    _waits.fset(self, min(seconds, MOST_S))


RemoteExecutor.next_seconds_between_status_checks = property(_waits.fget, _set)

if __name__ == "__main__":
    sys.exit(main())
