"""Ask every node of a cluster for its facts, and let each try to reach the others.

Emulated nodes are made for the visit and are gone after it; in an allocation `srun` starts one process on
each node, which prints its answer amid whatever else the site's scripts print.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fabricbench.errors import FabricbenchError, LaunchError
from fabricbench.fabrics import emulation
from fabricbench.fabrics.checks_fabric import rail_name, rails_of
from fabricbench.fabrics.findings import Node, Wanted
from fabricbench.fabrics.node import NodeFacts, probe
from fabricbench.fabrics.reach import reach
from fabricbench.nodelist import expand_nodelist

Ends = dict[str, list[tuple[str, str, str, int]]]
"""Rail → its end on every node: (node, interface, address, MTU)."""

MOST_EMULATED = 8
# torch takes a minute to load where many nodes read it from one file system at once.
_ASK_S = 120.0
_SRUN_S = 400.0
# Slurm sends lines in pieces of 1 KB, and the pieces of several nodes' long lines come mixed.
_PIECE = 700
_LINE = re.compile(r"fabricbench-node (\S+) (\d+)/(\d+) ([A-Za-z0-9+/=]+)")

_MPI = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
_TORCH = (
    "import json, torch, torch.distributed as d; print(json.dumps({'version': torch.__version__, "
    "'gloo': d.is_gloo_available(), 'nccl': d.is_nccl_available(), 'cuda': torch.version.cuda}))"
)
_THROTTLES = (
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


def software() -> dict[str, Any]:
    """The libraries of this node, each asked in a process of its own, since a broken one may crash."""
    return {
        "mpi": _mpi(),
        "torch": _torch(),
        "providers": _listed("fi_info", "provider:"),
        "transports": _listed("ucx_info", "#      Transport:", "-d"),
        "throttled": _throttled(),
    }


def this_machine() -> dict[str, Node]:
    """The node that this process runs on, alone."""
    facts = probe()
    return {facts["host"]: Node(facts, software())}


def emulated(want: Wanted) -> dict[str, Node]:
    """The nodes of an emulated cluster with all its fabrics, unshaped, each asked from within."""
    facts = in_child(lambda: _in_emulated(want))
    common = software()
    return {
        name: Node(each["facts"], common if number == 0 else None, each["reach"])
        for number, (name, each) in enumerate(facts.items())
    }


def netem() -> bool | None:
    """Whether this kernel can delay packets; None where that can't be tried."""
    try:
        return bool(in_child(_has_netem))
    except FabricbenchError:
        return None


def allocation(want: Wanted) -> tuple[dict[str, Node], list[str], dict[str, str]]:
    """The nodes of this Slurm allocation: those that answered, all names, and what was said (`words_of`)."""
    expected = allocated_nodes()
    lines, words = _srun(expected, ["--software"])
    nodes = {name: Node(line["facts"], line["software"]) for name, line in lines.items()}
    ordered = {name: nodes[name] for name in expected if name in nodes}
    ordered |= nodes
    if (ends := rail_ends(want, ordered)) and len(ordered) > 1:
        tried, _ = _srun(expected, ["--reach"], json.dumps(ends))
        for name, line in tried.items():
            if name in ordered:
                ordered[name] = replace(ordered[name], reach=line["reach"])
    return ordered, expected, words


def allocated_nodes() -> list[str]:
    """The names of the nodes that this job has."""
    text = os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        names = expand_nodelist(text)
    except ValueError as error:
        raise LaunchError(f"SLURM_JOB_NODELIST: {error}") from None
    if not names:
        raise LaunchError("SLURM_JOB_NODELIST: empty, though SLURM_JOB_ID is set; call this inside the job")
    return names


def this_node(ends: Ends | None, with_software: bool) -> dict[str, Any]:
    """What `doctor-node` says of its node."""
    facts = probe()
    name = os.environ.get("SLURMD_NODENAME") or facts["host"]
    return {
        "node": name,
        "facts": facts,
        "software": software() if with_software else None,
        "reach": reach_all(name, ends or {}),
    }


def to_lines(answer: Mapping[str, Any]) -> str:
    """An answer as short lines that can be found amid other output, in any order."""
    text = base64.b64encode(zlib.compress(json.dumps(answer).encode())).decode()
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    name, count = answer["node"], len(pieces)
    return "".join(f"fabricbench-node {name} {n}/{count} {piece}\n" for n, piece in enumerate(pieces, 1))


def from_lines(text: str) -> dict[str, dict[str, Any]]:
    """The inverse of `to_lines` for all nodes' output together; an answer with a gap is left out."""
    pieces: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    for name, number, count, piece in _LINE.findall(text):
        pieces.setdefault(name, {})[int(number)] = piece
        counts[name] = int(count)
    found = {}
    for name, own in pieces.items():
        try:
            whole = "".join(own[number] for number in range(1, counts[name] + 1))
            found[name] = json.loads(zlib.decompress(base64.b64decode(whole)))
        except (KeyError, ValueError, zlib.error):
            continue
    return found


def rail_ends(want: Wanted, nodes: Mapping[str, Node]) -> Ends:
    """Where every rail of every fabric ends; loopback, and what has no address, is left out."""
    found: Ends = {}
    for fabric in want.fabrics:
        rails, _ = rails_of(fabric, nodes)
        for name, rail in rails.items():
            interfaces = nodes[name].facts["interfaces"]
            for index, (interface, address) in enumerate(zip(rail.interfaces, rail.addresses, strict=False)):
                if interfaces[interface]["kind"] != "loopback":
                    end = (name, interface, address, interfaces[interface]["mtu"])
                    found.setdefault(rail_name(fabric, index), []).append(end)
    return found


def reach_all(node: str, ends: Ends) -> dict[str, dict[str, Any]]:
    """From this node to the others over each rail: rail → peer → fields of `Reach`."""
    found: dict[str, dict[str, Any]] = {}
    for rail, all_ends in ends.items():
        for name, interface, address, mtu in all_ends:
            if name == node:
                family = ":" in address
                peers = {
                    there: peer
                    for peer, _, there, _ in all_ends
                    if peer != node and there != address and (":" in there) == family
                }
                answers = reach(interface, address, list(peers), mtu)
                found[rail] = {peers[there]: vars(answer) for there, answer in answers.items()}
    return found


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns (plain data), done in a child, so that this process keeps its namespaces."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            json.dump(_told(work), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"error": "the process that asked ended without an answer"}
    if "error" in answer:
        raise LaunchError(answer["error"])
    return answer["value"]


def _told(work: Callable[[], Any]) -> dict[str, Any]:
    """The child's answer, or its error in one line; it never raises, since a child must not go on."""
    try:
        return {"value": work()}
    except FabricbenchError as error:
        return {"error": str(error)}
    except BaseException as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _in_emulated(want: Wanted) -> Any:
    """Become the cluster, in a process tree of its own that ends with it."""
    emulation.become_private()
    return in_child(lambda: _as_init(want))


def _as_init(want: Wanted) -> dict[str, Any]:
    """Pid 1 of the private namespaces: make the nodes and ask them one by one."""
    emulation.mount_own_proc()
    names = dict.fromkeys(name for fabric in want.fabrics for name in fabric["interface"])
    count = max(1, min(MOST_EMULATED, want.nodes))
    made, _ = emulation.build(count, [emulation.Link(name) for name in names])
    facts: dict[str, NodeFacts] = {node.name: on_node(node.enter, probe) for node in made}
    ends = rail_ends(want, {name: Node(each) for name, each in facts.items()})
    answers = {node.name: on_node(node.enter, _reacher(node.name, ends)) for node in made}
    return {name: {"facts": facts[name], "reach": answers[name]} for name in facts}


def _reacher(name: str, ends: Ends) -> Callable[[], Any]:
    def work() -> Any:
        return reach_all(name, ends)

    return work


def on_node(enter: Callable[[], None], work: Callable[[], Any]) -> Any:
    """What `work` returns on a node that `enter` enters."""

    def there() -> Any:
        enter()
        return work()

    return in_child(there)


def _has_netem() -> bool:
    from pyroute2 import IPRoute

    emulation.become_private()
    with IPRoute() as ip:
        return emulation._has_netem(ip)


def _srun(
    nodes: Sequence[str], arguments: Sequence[str], told: str | None = None
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What each node of the allocation answered, and the last words of each and of srun (`words_of`).

    `told` goes to every node's standard input: a cluster's worth is longer than an argument may be.
    """
    srun = shutil.which("srun")
    if srun is None:
        raise LaunchError(
            "srun isn't on PATH, and SLURM_JOB_ID says that this is a Slurm job; add it to PATH"
        )
    command = [
        *(srun, f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1"),
        *("--overlap", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--label"),
        f"--input={'none' if told is None else 'all'}",
        *(sys.executable, "-m", "fabricbench", "doctor-node", "--pieces", *arguments),
    ]
    try:
        done = subprocess.run(
            command, input=told or "", capture_output=True, text=True, errors="replace", timeout=_SRUN_S
        )
        out, err = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        out, err = ((part or b"").decode(errors="replace") for part in (late.stdout, late.stderr))
        err += f"\nsrun was stopped after {_SRUN_S:g} s"
    except OSError as error:
        raise LaunchError(
            f"{srun} can't be started: {error.strerror or error}; `srun hostname` must work in this job"
        ) from None
    return from_lines(out), words_of(err, nodes)


def words_of(text: str, nodes: Sequence[str]) -> dict[str, str]:
    """The last line that each node wrote, else that srun wrote about it; under "" the last of no node.

    `srun --label` puts the task's number before a node's lines; there is one task on each node, in order.
    """
    own: dict[str, str] = {}
    about: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        label = re.match(r"(\d+): *(.+)", line)
        if label and int(label[1]) < len(nodes):
            own[nodes[int(label[1])]] = label[2]
        else:
            about |= dict.fromkeys(_named(line, nodes) or [""], line)
    return about | own


def _named(line: str, nodes: Sequence[str]) -> list[str]:
    """The nodes that a line of srun names, as in `srun: error: n[1-2,7]: tasks 1-2,7: Exited`."""
    known = set(nodes)
    found: list[str] = []
    for word in re.findall(r"[\w.-]+(?:\[[\d,-]+\][\w.-]*)*", line):
        with contextlib.suppress(ValueError):
            found += [name for name in expand_nodelist(word) if name in known]
    return found


def _mpi() -> dict[str, Any]:
    code, out, err = _run([sys.executable, "-c", _MPI])
    return {"version": out.strip()} if code == 0 else {"error": _last_line(err)}


def _torch() -> dict[str, Any]:
    code, out, err = _run([sys.executable, "-c", _TORCH])
    try:
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": _last_line(err) if code else "it said nothing"}
    return found


def _listed(tool: str, prefix: str, *arguments: str) -> list[str] | None:
    """What a library's tool lists after a prefix; None where the tool isn't on PATH."""
    if shutil.which(tool) is None:
        return None
    _, out, _ = _run([tool, *arguments])
    found = (line.partition(prefix)[2].strip() for line in out.splitlines() if prefix in line)
    return list(dict.fromkeys(filter(None, found)))


def _throttled() -> dict[str, list[str]]:
    """PCI address → why a GPU runs slower than it could, for those that do."""
    if shutil.which("nvidia-smi") is None:
        return {}
    fields = ",".join(["pci.bus_id", *(f"clocks_throttle_reasons.{reason}" for reason in _THROTTLES)])
    code, out, _ = _run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    return throttle_reasons(out) if code == 0 else {}


def throttle_reasons(table: str) -> dict[str, list[str]]:
    """nvidia-smi's table ("00000000:3B:00.0, Not Active, Active, …") → reasons by PCI address."""
    found = {}
    for line in table.splitlines():
        pci, *states = [word.strip() for word in line.split(",")]
        active = [reason for reason, state in zip(_THROTTLES, states, strict=False) if state == "Active"]
        if active:
            found[pci.lower()[-12:]] = [reason.replace("_", " ") for reason in active]
    return found


def _run(command: Sequence[str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
        )
    except OSError as error:
        return 1, "", str(error)
    except subprocess.TimeoutExpired:
        return 1, "", f"no answer within {_ASK_S:g} s"
    return done.returncode, done.stdout, done.stderr


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"
