"""`python -m fabricbench.testbed`: a Slurm cluster on this machine, for a person."""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

from fabricbench.errors import LaunchError
from fabricbench.testbed.cluster import Cluster
from fabricbench.testbed.spec import HUB, SPEC, Spec

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "fabricbench-testbed"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m fabricbench.testbed", description=__doc__)
    top.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="the cluster's folder (%(default)s)")
    actions = top.add_subparsers(dest="action", required=True)
    usual = Spec()
    up = actions.add_parser("up", help="start a cluster, which stays until `down`")
    up.add_argument("--nodes", type=int, default=usual.nodes, help="(%(default)s)")
    up.add_argument("--gpus-per-node", type=int, default=usual.gpus_per_node, help="(%(default)s)")
    up.add_argument("--cpus-per-node", type=int, default=usual.cpus_per_node, help="(%(default)s)")
    up.add_argument("--memory-limits", action="store_true", help="kill what takes more than it asked for")
    up.add_argument(
        "--shared", type=Path, action="append", default=[], help="a folder of /tmp that all nodes see"
    )
    actions.add_parser("down", help="end it")
    actions.add_parser("status", help="the states of its nodes")
    run = actions.add_parser("exec", help="run a command on a node; a shell where none is given")
    run.add_argument("node", help=f"{HUB} (the login node), n0, n1, …")
    run.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND …")
    for action, words in (("crash", "cut a node's power"), ("boot", "switch it on again")):
        actions.add_parser(action, help=words).add_argument("node")
    return top


def main(argv: list[str] | None = None) -> int:
    """0, or 1 after one line that says what is wrong; `exec` ends as its command ends."""
    options = parser().parse_args(argv)
    try:
        if options.action == "up":
            _up(options)
            return 0
        cluster = Cluster.attach(options.folder)
        if options.action == "down":
            cluster.down()
        elif options.action == "status":
            print("\n".join(f"{name} {state}" for name, state in cluster.node_states().items()))
        elif options.action == "exec":
            rest = options.command[1:] if options.command[:1] == ["--"] else options.command
            command = cluster.command(rest or ["bash"], options.node)
            os.execv(command[0], command)
        else:
            {"crash": cluster.crash, "boot": cluster.boot}[options.action](options.node)
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _up(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    if (folder / SPEC).exists():
        try:
            Cluster.attach(folder)
        except LaunchError:  # what a machine that was switched off left
            shutil.rmtree(folder)
    spec = Spec(
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        cpus_per_node=options.cpus_per_node,
        memory_limits=options.memory_limits,
        shared=(Path.cwd(), *options.shared),
    )
    start = time.monotonic()
    cluster = Cluster.up(spec, folder, detached=True)
    this = f"{sys.executable} -m fabricbench.testbed"
    if folder != DEFAULT_FOLDER:
        this += f" --folder {shlex.quote(str(folder))}"
    links = ", ".join(f"{link.interface} {(link.rate_bit_s or 0) / 1e6:g} Mbit/s" for link in spec.links)
    nodes = f"{spec.nodes} nodes of {spec.cpus_per_node} CPUs and {spec.gpus_per_node} GPUs"
    print(f"up after {time.monotonic() - start:.1f} s: {nodes}, {links}; {HUB} is the login node")
    snakemake = f"{Path(sys.executable).parent}/snakemake --profile profiles/slurm --configfile FILE"
    for what, how in {
        "a shell on it": f"{this} exec {HUB}",
        "run a campaign": f"{this} exec {HUB} -- {snakemake}",
        "cut a node's power": f"{this} crash n1",
        "switch it on again": f"{this} boot n1",
        "logs": f"{cluster.folder}/log",
        "end it": f"make cluster-down, or {this} down",
    }.items():
        print(f"  {what + ':':21}{how}")


if __name__ == "__main__":
    sys.exit(main())
