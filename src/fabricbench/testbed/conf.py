"""A testbed's configuration files as text: Slurm's own three, and the names of its nodes."""

from pathlib import Path

from fabricbench.fabrics.emulation import address
from fabricbench.slurm_words import fields
from fabricbench.testbed.spec import HUB, HUB_ADDRESS, Spec

CLUSTER = "testbed"
MUNGE_SOCKET = "/run/munge/munge.socket.2"
CONTROLLER_PID = "/run/slurmctld.pid"
DEFAULT_PARTITION, SMALL_PARTITION = "batch", "debug"
SMALL_PARTITION_MINUTES = 5


def slurm_conf(spec: Spec, folder: Path) -> str:
    """slurm.conf. `folder` holds state, spool, logs and the file of ended jobs."""
    last = spec.nodes - 1
    settings: dict[str, object] = {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{HUB}({HUB_ADDRESS})",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        # A short life of credentials lets a requeued job start after seconds instead of minutes.
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={MUNGE_SOCKET},cred_expire=5",
        "CredType": "cred/munge",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool" / "%n",
        "SlurmctldPidFile": CONTROLLER_PID,
        "SlurmdPidFile": "/run/slurmd-%n.pid",
        "SlurmctldLogFile": folder / "log" / "slurmctld.log",
        "SlurmdLogFile": folder / "log" / "slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        # Neither CPUs nor GPUs are there as claimed, so that nothing can be bound to them.
        "TaskPlugin": "task/cgroup" if spec.memory_limits else "task/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": spec.memory_mb // spec.cpus_per_node,
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_interval=2,sched_min_interval=200000,batch_sched_delay=1",
        # What a partition can't run is refused at submission instead of pending for ever.
        "EnforcePartLimits": "ALL",
        "AccountingStorageType": "accounting_storage/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": folder / "log" / "jobs.txt",
        "ReturnToService": 2,
        "SlurmdTimeout": spec.slurmd_timeout_s,
        "SlurmctldTimeout": 30,
        "MessageTimeout": 5,
        "KillWait": 3,
        "MinJobAge": spec.min_job_age_s,
        "CompleteWait": 0,
        "SlurmdParameters": "config_overrides",
    }
    gpus = ""
    if spec.gpus_per_node:
        settings["GresTypes"] = "gpu"
        gpus = f" Gres=gpu:{spec.gpu_type}:{spec.gpus_per_node}"
    features = ",".join(link.interface.rstrip("0123456789") for link in spec.links)
    lines = [f"{name}={value}" for name, value in settings.items()]
    prefix = address(None, 0).rpartition(".")[0]
    lines += [
        f"NodeName=n[0-{last}] NodeAddr={prefix}.[1-{spec.nodes}] CPUs={spec.cpus_per_node} "
        f"RealMemory={spec.memory_mb}{gpus}{f' Feature={features}' if features else ''} State=UNKNOWN",
        f"PartitionName={DEFAULT_PARTITION} Nodes=ALL Default=YES DefaultTime=10 MaxTime=1-00:00:00 State=UP",
        f"PartitionName={SMALL_PARTITION} Nodes=ALL MaxNodes=1 DefaultTime=1 "
        f"MaxTime={SMALL_PARTITION_MINUTES} State=UP",
        *spec.slurm_options,
    ]
    return "\n".join(lines) + "\n"


def gres_conf(spec: Spec, folder: Path) -> str:
    """gres.conf: each GPU is a file, without which slurmd drops it."""
    if not spec.gpus_per_node:
        return ""
    files = f"{folder}/dev/gpu[0-{spec.gpus_per_node - 1}]"
    return f"NodeName=n[0-{spec.nodes - 1}] Name=gpu Type={spec.gpu_type} Flags=nvidia_gpu_env File={files}\n"


def cgroup_conf(spec: Spec) -> str:
    """cgroup.conf: memory alone is limited, and only when asked for."""
    limits = "yes" if spec.memory_limits else "no"
    return (
        "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
        f"ConstrainRAMSpace={limits}\nConstrainSwapSpace=no\nConstrainCores=no\nConstrainDevices=no\n"
    )


def hosts(spec: Spec) -> str:
    """/etc/hosts: every name is an address on the management network, never a loopback address."""
    names = {HUB_ADDRESS: HUB} | {address(None, k): name for k, name in enumerate(spec.node_names)}
    return "127.0.0.1 localhost\n" + "".join(f"{number} {name}\n" for number, name in names.items())


def ended_jobs(text: str) -> list[dict[str, str]]:
    """The file of ended jobs: a dictionary of Slurm's fields (JobId, Name, JobState, …) per run of a job."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("JobId=")]
    return [fields(line) for line in lines]
