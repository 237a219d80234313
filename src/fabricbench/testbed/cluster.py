"""A whole real Slurm cluster on this machine: made in seconds, gone without a trace."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import fabricbench
from fabricbench.errors import LaunchError
from fabricbench.testbed import conf, enter, mounts
from fabricbench.testbed.spec import CONTROL, HUB, SHARED, SPEC, Spec, outermost

PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "squeue", "sbatch", "srun")
LONGEST_FOLDER = 90
"""A socket's path may have 107 characters."""
SETTLE_S = 30.0
_ENDING_S = 30.0


def why_unavailable() -> str | None:
    """The line that says why there can be no testbed here, with its mend; None where there can."""
    if os.geteuid() != 0:
        return "a Slurm testbed needs root (slurmd gives up its groups): run it as root, or in a container"
    missing = [
        name for name in PROGRAMS if shutil.which(name, path=enter.environment({}, {})["PATH"]) is None
    ]
    if missing:
        return (
            f"a Slurm testbed needs {', '.join(missing)}, which isn't here: apt-get install slurm-wlm munge "
            "(their services needn't run)"
        )
    return None


class Cluster:
    """A running cluster. Made by `up` (and ended with its maker), or found by `attach`."""

    def __init__(self, folder: Path, keeper: "subprocess.Popen[bytes] | None" = None) -> None:
        """Use `up` or `attach`."""
        self.folder = folder
        self.spec = Spec.from_json((folder / SPEC).read_text())
        self._shared = [Path(path) for path in json.loads((folder / SHARED).read_text())]
        self._keeper = keeper

    # --- beginning and end --------------------------------------------------------------------------------

    @classmethod
    def up(cls, spec: Spec | None = None, folder: Path | None = None, detached: bool = False) -> "Cluster":
        """Make a cluster, all its nodes idle. Raises LaunchError with one line, and then nothing is left.

        `folder` holds its configuration, state and logs; it is removed at the end if it didn't exist before.
        By default it is a temporary one. The cluster dies with this process, unless it is `detached`.
        """
        spec = spec or Spec()
        if reason := why_unavailable():
            raise LaunchError(reason)
        made = folder is None or not folder.exists()
        folder = Path(tempfile.mkdtemp(prefix="fabricbench-testbed-")) if folder is None else folder.resolve()
        try:
            _prepare(spec, folder)
            cluster = cls(folder, _start_keeper(folder, detached, remove=made))
        except BaseException:
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            cluster.wait_for("idle")
        except BaseException:
            cluster.down()
            raise
        return cluster

    @classmethod
    def attach(cls, folder: Path) -> "Cluster":
        """A cluster that is up. Raises LaunchError where there is none."""
        folder = folder.resolve()
        keeper = _keeper_of(folder)
        if keeper is None or not (folder / CONTROL).exists():
            raise LaunchError(f"no cluster is up in {folder}: start one (make cluster), or name its folder")
        return cls(folder)

    def down(self) -> None:
        """End it: afterwards no process, mount or interface of it is left. Does nothing where it is down."""
        if self._keeper is not None:
            self._keeper.terminate()
            self._keeper.wait(_ENDING_S)
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
            return
        pid = _keeper_of(self.folder)
        if pid is None:
            return
        descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        ended = select.select([descriptor], [], [], _ENDING_S)[0]
        os.close(descriptor)
        if not ended:
            raise LaunchError(f"process {pid}, which keeps the cluster, didn't end within {_ENDING_S:g} s")

    def __enter__(self) -> "Cluster":
        """As `up` made it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.down()

    # --- commands -----------------------------------------------------------------------------------------

    def command(
        self,
        argv: Sequence[str],
        node: str = HUB,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The command that runs `argv` on a node, as whoever runs this command.

        `env` is added to the environment of that caller, less what belongs to another Slurm. `cwd` is the
        caller's where the cluster shares it, otherwise /. A signal sent to the command reaches `argv`, and
        the exit status is its own: 125 where the node isn't up, 127 where the program isn't there.
        """
        changes = [f"{name}={value}" for name, value in (env or {}).items()]
        script = str(Path(enter.__file__).resolve())
        where = str(cwd) if cwd is not None else self._working_directory()
        start = [sys.executable, "-I", "-S", script, str(self.folder), node, where]
        return [*start, *changes, "--", *argv]

    def _working_directory(self) -> str:
        here = Path.cwd()
        shared = not mounts.in_own(here) or any(here.is_relative_to(folder) for folder in self._shared)
        return str(here) if shared else "/"

    def run(
        self,
        argv: Sequence[str],
        node: str = HUB,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "subprocess.CompletedProcess[Any]":
        """`subprocess.run` on a node (see `command`); `options` are its own."""
        return subprocess.run(self.command(argv, node, cwd, env), **options)

    def popen(
        self,
        argv: Sequence[str],
        node: str = HUB,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "subprocess.Popen[Any]":
        """`subprocess.Popen` on a node (see `command`): to signal it is to signal the command."""
        return subprocess.Popen(self.command(argv, node, cwd, env), **options)

    def _said(self, *argv: str) -> str:
        """What a command on the login node prints. Raises LaunchError with its words where it fails."""
        done = self.run(argv, cwd=Path("/"), capture_output=True, text=True)
        if done.returncode:
            words = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            raise LaunchError(f"{argv[0]}: {words}")
        return str(done.stdout)

    # --- states -------------------------------------------------------------------------------------------

    def node_states(self) -> dict[str, str]:
        """Node → state as sinfo has it: idle, mixed, allocated, down, drained, …; `*`: doesn't answer."""
        lines = self._said("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict(line.split() for line in lines)

    def wait_for(self, state: str, nodes: Iterable[str] = (), timeout_s: float = SETTLE_S) -> None:
        """Wait until nodes (all by default) are in a state (without its `*`). Raises LaunchError."""
        wanted = list(nodes) or self.spec.node_names
        deadline = time.monotonic() + timeout_s
        states: dict[str, str] = {}
        words = ""
        while time.monotonic() < deadline:
            try:
                states = self.node_states()
            except LaunchError as error:
                words = f"; {error}"
            if all(states.get(name, "").rstrip("*") == state for name in wanted):
                return
            time.sleep(0.05)
        found = ", ".join(f"{name}: {states.get(name, 'unknown')}" for name in wanted)
        raise LaunchError(
            f"waited {timeout_s:g} s for {state} nodes, and they are {found}{words}{self._last_error()}"
        )

    def _last_error(self) -> str:
        """The last error in Slurm's logs, to be said before they are gone."""
        found = [
            f"; {log.name}: {line}"
            for log in sorted((self.folder / "log").glob("slurm*.log"))
            for line in log.read_text(errors="replace").splitlines()
            if "error:" in line or "fatal:" in line
        ]
        return found[-1] if found else ""

    def jobs_seen(self) -> list[dict[str, str]]:
        """All runs of jobs that ended so far, in that order, then the others that Slurm still knows.

        Each has JobId, Name, JobState, NodeList and WorkDir; a requeued job has one entry for each end. Those
        that Slurm hasn't forgotten (`min_job_age_s`) have their Comment too.
        """
        fields = {"JobId": "%i", "JobState": "%T", "NodeList": "%N", "Name": "%j", "WorkDir": "%Z"}
        pattern = "\x1f".join([*fields.values(), "%k"])
        lines = self._said("squeue", "--noheader", "--states=all", f"--format={pattern}").splitlines()
        known = [dict(zip([*fields, "Comment"], line.split("\x1f"), strict=True)) for line in lines]
        comments = {job["JobId"]: job["Comment"].replace("(null)", "") for job in known}
        log = self.folder / "log" / "jobs.txt"
        ended = conf.ended_jobs(log.read_text()) if log.exists() else []
        over = {job["JobId"] for job in ended}
        going_on = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")  # perhaps again
        return [{**job, "Comment": comments.get(job["JobId"], "")} for job in ended] + [
            {**job, "Comment": comments[job["JobId"]]}
            for job in known
            if job["JobId"] not in over or job["JobState"] in going_on
        ]

    # --- faults -------------------------------------------------------------------------------------------

    def crash(self, node: str) -> None:
        """Cut a node's power: its links are dead and its processes gone, with its /tmp and /dev/shm."""
        self._ask(do="crash", name=node)

    def boot(self, node: str) -> None:
        """Switch a node on again; it is idle soon (`wait_for`)."""
        self._ask(do="boot", name=node)

    def link(self, node: str, interface: str, up: bool) -> None:
        """Pull (`up` false) or plug a cable."""
        self._ask(do="link", name=node, interface=interface, up=up)

    def stop_controller(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End slurmctld by a signal, and wait for its end."""
        script = (
            f"pid=$(cat {conf.CONTROLLER_PID}) && kill -{int(number)} $pid && "
            "while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
        )
        self._said("sh", "-c", script)

    def start_controller(self) -> None:
        """Start slurmctld again, with the state that it saved, and wait until it answers.

        Its nodes answer it some moments later.
        """
        self._said("slurmctld")
        deadline = time.monotonic() + SETTLE_S
        while not self._controller_answers():
            if time.monotonic() > deadline:
                raise LaunchError(f"slurmctld doesn't answer after {SETTLE_S:g} s{self._last_error()}")
            time.sleep(0.05)

    def _controller_answers(self) -> bool:
        return not self.run(["scontrol", "ping"], cwd=Path("/"), capture_output=True).returncode

    def mend(self) -> None:
        """Undo all faults: no jobs, all daemons and nodes up, cables plugged; waits for idle nodes."""
        if not self._controller_answers():
            self.start_controller()
        self._said("scancel", "--user=root")
        self._ask(do="mend")
        for name in self.spec.node_names:
            if self.run(["pgrep", "-x", "slurmd"], name, Path("/"), capture_output=True).returncode:
                self.run(["slurmd"], name, Path("/"), capture_output=True)
        self._resume_nodes()
        self.wait_for("idle")

    def _resume_nodes(self) -> None:
        """Take drained nodes back. A controller that has just started may refuse until they answered it."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            states = self.node_states().items()
            if not (out := [name for name, state in states if state.startswith(("drain", "fail"))]):
                return
            try:
                self._said("scontrol", "update", f"NodeName={','.join(out)}", "State=RESUME")
            except LaunchError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _ask(self, **request: object) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.folder / CONTROL))
            except OSError:
                raise LaunchError(f"no cluster is up in {self.folder}: start one") from None
            with client.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                answer = json.loads(stream.readline() or '{"error": "the cluster ended"}')
        if "error" in answer:
            raise LaunchError(answer["error"])


def _prepare(spec: Spec, folder: Path) -> None:
    """Write all that the room reads. Raises LaunchError where the folder can't be used."""
    if len(str(folder)) > LONGEST_FOLDER:
        raise LaunchError(
            f"{folder} is too long for a cluster's folder: a socket's path has 107 characters at most; "
            f"give one of at most {LONGEST_FOLDER}"
        )
    if _keeper_of(folder) is not None:
        raise LaunchError(
            f"a cluster is up in {folder}: end it first (make cluster-down), or give another folder"
        )
    source = Path(fabricbench.__file__).parents[1]
    shared = outermost(iter([*spec.shared, folder, source, Path(sys.prefix), Path(sys.base_prefix)]))
    shared = tuple(path for path in shared if mounts.in_own(path))
    if whole := [path for path in shared if path in mounts.OWN]:
        raise LaunchError(f"{whole[0]} is each node's own and can't be shared: share folders in it")
    if missing := [path for path in spec.shared if not path.is_dir()]:
        raise LaunchError(f"{missing[0]} is no folder and can't be shared: make it first")
    for name in ("etc", "log", "run", "spool", "state", "dev"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for node in spec.node_names:
        (folder / "spool" / node).mkdir(exist_ok=True)
    # Slurm sets CUDA_VISIBLE_DEVICES only for files that are character devices, and any will do.
    for number in range(spec.gpus_per_node):
        device = folder / "dev" / f"gpu{number}"
        device.unlink(missing_ok=True)
        device.symlink_to(("/dev/null", "/dev/zero", "/dev/full", "/dev/random")[number % 4])
    key = folder / "munge.key"
    key.unlink(missing_ok=True)
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    texts = {
        "etc/slurm.conf": conf.slurm_conf(spec, folder),
        "etc/gres.conf": conf.gres_conf(spec, folder),
        "etc/cgroup.conf": conf.cgroup_conf(spec),
        "hosts": conf.hosts(spec),
        SPEC: spec.to_json(),
        SHARED: json.dumps([str(path) for path in shared]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


def _start_keeper(folder: Path, detached: bool, remove: bool) -> "subprocess.Popen[bytes]":
    """The room, made, with its daemons. Raises LaunchError with what it says."""
    # By the environment's own path: a link to it may lie in a /tmp that nodes don't share.
    python = Path(sys.prefix).resolve() / "bin" / Path(sys.executable).name
    argv = [str(python), "-m", "fabricbench.testbed.room", str(folder)]
    argv += ["--detached"] * detached + ["--remove"] * remove
    source = str(Path(fabricbench.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(folder / "log" / "room.log", "ab") as log:
        keeper = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
            cwd="/",
        )
    (folder / "keeper.pid").write_text(f"{keeper.pid}\n")
    assert keeper.stdout is not None
    try:
        said = keeper.stdout.read()
        answer = json.loads(said) if said else {"error": "the cluster's process ended at once"}
        if "error" in answer:
            raise LaunchError(f"the testbed can't be made: {answer['error']}")
    except BaseException:
        keeper.terminate()
        keeper.wait(_ENDING_S)
        raise
    return keeper


def _keeper_of(folder: Path) -> int | None:
    """The process that keeps the cluster of a folder; None where none does."""
    try:
        pid = int((folder / "keeper.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if b"fabricbench.testbed.room" in words and str(folder).encode() in words else None
