"""What about a Slurm site is told before anything is submitted."""

import pytest

from fabricbench import scheduler
from fabricbench.cautions import of_age, of_preemption, of_site
from fabricbench.errors import LaunchError

CONFIG = """\
Configuration data as of 2026-11-30T18:49:38
AccountingStorageType   = accounting_storage/none
MinJobAge               = 30 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
SLURM_CONF              = /etc/slurm/slurm.conf
"""
PARTITIONS = """\
PartitionName=batch AllowGroups=ALL Default=YES DisableRootJobs=NO PreemptMode=REQUEUE State=UP
PartitionName=firm AllowGroups=ALL Default=NO PreemptMode=OFF State=UP
"""


def test_a_site_is_read_from_slurms_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line on what it forgets too soon and one on preemption; none where Slurm doesn't tell."""
    monkeypatch.setattr(scheduler, "configuration", lambda: CONFIG)
    monkeypatch.setattr(scheduler, "partitions", lambda: PARTITIONS)
    age, preemption = of_site([], "squeue")
    assert age.startswith("Slurm forgets a job 30 s after its end (MinJobAge)")
    assert preemption.startswith("cluster.slurm.partition: batch: jobs there may have to give way")
    assert of_site(["firm"], "sacct") == []

    def silent() -> str:
        raise LaunchError("no answer")

    monkeypatch.setattr(scheduler, "configuration", silent)
    assert of_site([], "squeue") == []


@pytest.mark.parametrize(
    ("age", "accounts", "command", "mend"),
    [
        (
            "30 sec",
            "accounting_storage/slurmdbd",
            "squeue",
            "call Snakemake with --slurm-status-command sacct",
        ),
        ("30 sec", "accounting_storage/none", "squeue", "ask its administrators for a higher MinJobAge"),
        ("300 sec", "accounting_storage/none", "squeue", ""),
        ("30 sec", "accounting_storage/slurmdbd", "sacct", ""),
    ],
)
def test_a_short_memory_counts_where_squeue_is_asked(
    age: str, accounts: str, command: str, mend: str
) -> None:
    """With the mend that there is."""
    lines = list(of_age({"MinJobAge": age, "AccountingStorageType": accounts}, command))
    assert [line.rpartition("; ")[2] for line in lines] == ([mend] if mend else [])


def test_preemption_counts_only_where_slurm_preempts() -> None:
    """A mode without a type is none."""
    there = {"batch": {"Default": "YES", "PreemptMode": "CANCEL"}}
    assert list(of_preemption({"PreemptType": "preempt/none"}, there, ["batch"])) == []
    assert len(list(of_preemption({"PreemptType": "preempt/qos"}, there, ["batch", "batch"]))) == 1
