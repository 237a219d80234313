"""The testbed is a whole cluster, breaks as one does, and is gone without a trace."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_until

from fabricbench.errors import LaunchError
from fabricbench.testbed import Cluster, Spec

pytestmark = pytest.mark.slow

# A socket on n1's address of a fabric; n0 sends; n1 says how long it took to arrive.
TAKES = """
import socket, time
server = socket.create_server(('', 5000))
print('listening', flush=True)
connection, _ = server.accept()
start, size = time.monotonic(), 0
while data := connection.recv(1 << 20):
    size += len(data)
print(size, time.monotonic() - start)
"""
GIVES = """
import socket, sys
socket.create_connection((sys.argv[1], 5000)).sendall(bytes(int(sys.argv[2])))
"""
SUM = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print(world.allreduce(world.rank), world.size, MPI.Get_processor_name())
"""


def said(cluster: Cluster, *argv: str, node: str = "hub", **options) -> str:
    """What a command that ends well prints."""
    done = cluster.run(argv, node, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def received(cluster: Cluster, node: str, interface: str) -> int:
    """Bytes that an interface of a node has received."""
    return int(said(cluster, "cat", f"/sys/class/net/{interface}/statistics/rx_bytes", node=node))


def traces() -> dict[str, object]:
    """What a cluster could leave on this machine."""
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "namespaces": sorted(os.listdir("/run/netns")) if Path("/run/netns").exists() else [],
        "configuration": sorted(os.listdir("/etc/slurm")) if Path("/etc/slurm").exists() else None,
        "sockets": sorted(os.listdir("/run/munge")) if Path("/run/munge").exists() else None,
    }


def rooms(folder: Path) -> list[str]:
    """The processes that name a folder."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and int(entry) != os.getpid():
            found.append(entry)
    return found


def test_srun_runs_on_every_node(cluster):
    """Four nodes are idle, and each runs what it is told under its own name."""
    assert cluster.node_states() == dict.fromkeys(["n0", "n1", "n2", "n3"], "idle")
    assert sorted(said(cluster, "srun", "-N4", "hostname").split()) == ["n0", "n1", "n2", "n3"]


def test_fabrics_carry_what_is_sent_over_them_at_their_rate(cluster):
    """5 MB to a fabric's address arrive on its interface alone, and not faster than its rate lets them."""
    size = 5_000_000
    for number, link in enumerate(cluster.spec.links):
        before = {each.interface: received(cluster, "n1", each.interface) for each in cluster.spec.links}
        server = cluster.popen([sys.executable, "-c", TAKES], "n1", stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "listening\n"
        said(cluster, sys.executable, "-c", GIVES, f"10.{77 + number}.0.2", str(size), node="n0")
        got, seconds = server.communicate(timeout=60)[0].split()
        assert int(got) == size
        assert float(seconds) > 0.5 * size * 8 / link.rate_bit_s
        for each in cluster.spec.links:
            carried = received(cluster, "n1", each.interface) - before[each.interface]
            assert (carried > size) is (each == link), each


def test_the_login_node_is_on_the_management_network_alone(cluster):
    """Nodes know it by name; it has no address on a fabric."""
    assert said(cluster, "getent", "hosts", "hub", node="n3").split() == ["10.76.0.254", "hub"]
    addresses = json.loads(said(cluster, "ip", "-json", "-4", "address"))
    found = [address["local"] for interface in addresses for address in interface["addr_info"]]
    assert sorted(found) == ["10.76.0.254", "127.0.0.1"]


def test_gpus_are_given_out(cluster):
    """A job sees as many GPUs as it asked for; two jobs on one node see different ones."""
    assert said(cluster, "srun", "-N1", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES") == "0,1\n"
    script = "srun -N1 -n1 --exact --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES & " * 2 + "wait"
    shown = said(cluster, "salloc", "-N1", "-n2", "--gres=gpu:2", "sh", "-c", script)
    assert sorted(line for line in shown.split()) == ["0", "1"]


def test_mpi_ranks_meet_across_nodes(cluster):
    """MPICH under srun --mpi=pmi2: one world of four ranks on four nodes."""
    lines = said(cluster, "srun", "-N4", "-n4", "--mpi=pmi2", sys.executable, "-c", SUM).splitlines()
    assert sorted(lines) == [f"6 4 n{k}" for k in range(4)]


def test_each_node_has_files_of_its_own(cluster, tmp_path):
    """What one node writes to /tmp or /dev/shm no other sees; what it writes to a shared folder all see."""
    for folder in ("/tmp", "/dev/shm", tmp_path):
        said(cluster, "touch", f"{folder}/mark", node="n0")
        seen = [cluster.run(["test", "-e", f"{folder}/mark"], node).returncode == 0 for node in ("n1", "hub")]
        assert seen == [folder == tmp_path] * 2
        assert Path(f"{folder}/mark").exists() is (folder == tmp_path)


def test_a_partition_refuses_what_it_cannot_run(cluster):
    """Too many nodes and too long a time are refused at submission, in Slurm's words."""
    for options in (["--nodes=2"], ["--time=60"]):
        done = cluster.run(
            ["sbatch", "--partition=debug", *options, "--wrap=true"], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "Batch job submission failed" in done.stderr


def test_a_power_cut_is_noticed_and_the_node_comes_back(cluster):
    """The job ends as NODE_FAIL, the node is down; switched on, it is idle, its /tmp empty."""
    said(cluster, "touch", "/tmp/before", node="n1")
    said(cluster, "sbatch", "--parsable", "--no-requeue", "-w", "n1", "--wrap=sleep 300", cwd=Path("/tmp"))
    cluster.wait_for("mixed", ["n1"])
    cluster.crash("n1")
    refused = cluster.run(["true"], "n1", capture_output=True, text=True)
    assert refused.returncode == 125
    assert "n1" in refused.stderr
    cluster.wait_for("down", ["n1"], timeout_s=90)
    assert [job["JobState"] for job in cluster.jobs_seen()][-1] == "NODE_FAIL"
    cluster.boot("n1")
    cluster.wait_for("idle", ["n1"])
    assert said(cluster, "srun", "-w", "n1", "hostname") == "n1\n"
    assert cluster.run(["test", "-e", "/tmp/before"], "n1").returncode == 1


def test_a_cable_can_be_pulled(cluster):
    """The interface has no carrier until it is plugged again; `mend` does so."""
    state = "/sys/class/net/opa0/operstate"
    cluster.link("n2", "opa0", up=False)
    assert said(cluster, "cat", state, node="n2") == "down\n"
    assert said(cluster, "cat", state, node="n3") == "up\n"
    cluster.mend()
    assert said(cluster, "cat", state, node="n2") == "up\n"
    with pytest.raises(LaunchError, match="n2 has no interface ib0; it has eth0, opa0, mgt0"):
        cluster.link("n2", "ib0", up=False)


def test_jobs_outlive_the_controller(cluster):
    """slurmctld is stopped and started again, and a running job goes on to its end."""
    job = said(cluster, "sbatch", "--parsable", "--wrap=sleep 2", cwd=Path("/tmp")).strip()
    wait_until(lambda: "mixed" in cluster.node_states().values())
    cluster.stop_controller()
    assert cluster.run(["sinfo"], capture_output=True).returncode
    cluster.start_controller()
    wait_until(
        lambda: ("COMPLETED", job) in [(each["JobState"], each["JobId"]) for each in cluster.jobs_seen()]
    )


def test_drained_nodes_are_mended_with_the_controller(cluster):
    """Nodes drained before slurmctld ended are idle again, also where it has yet to hear of them."""
    said(cluster, "scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=test")
    cluster.stop_controller()
    cluster.mend()
    assert set(cluster.node_states().values()) == {"idle"}


def test_a_command_gets_signals_and_tells_its_end(cluster):
    """SIGTERM reaches the command itself, its exit status comes back, and SIGKILL takes it along."""
    script = "trap 'exit 7' TERM; echo on; while :; do sleep 0.05; done"
    for number, status in ((signal.SIGTERM, 7), (signal.SIGKILL, -9)):
        process = cluster.popen(["sh", "-c", script], "n0", stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)
        assert process.wait(20) == status
        wait_until(lambda: cluster.run(["pgrep", "-f", "trap"], "n0", capture_output=True).returncode)


def test_memory_limits_end_what_takes_too_much(slurm):
    """With `memory_limits`, a step over its memory ends as OUT_OF_MEMORY in Slurm's own words."""
    if not Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("no memory controller of cgroup version 1 here")
    takes = "data = bytearray(800 << 20); data[::4096] = bytes(len(data) // 4096); print('kept')"
    with Cluster.up(Spec(nodes=1, memory_limits=True)) as cluster:
        script = ["srun", "--mem=200", sys.executable, "-c", takes]
        done = cluster.run(script, capture_output=True, text=True)
    assert "Out Of Memory" in done.stderr
    assert "kept" not in done.stdout
    assert not list(Path("/sys/fs/cgroup/memory").glob("fabricbench-*"))


def test_a_full_node_disk_is_that_nodes_alone(slurm):
    """/tmp has the size that was asked for."""
    with Cluster.up(Spec(nodes=2, tmp_bytes=4 << 20)) as cluster:
        fill = ["dd", "if=/dev/zero", "of=/tmp/full", "bs=1M", "count=8"]
        assert "No space left" in cluster.run(fill, "n0", capture_output=True, text=True).stderr
        said(cluster, "touch", "/tmp/room", node="n1")


def test_two_clusters_stand_beside_each_other_and_leave_nothing(cluster, tmp_path):
    """A second cluster has its own Slurm; ended, no process, mount, interface or file of it is left."""
    before = traces()
    with Cluster.up(Spec(nodes=1, gpus_per_node=0)) as second:
        folder = second.folder
        assert said(second, "srun", "hostname") == "n0\n"
        assert second.node_states() == {"n0": "idle"}
        assert len(cluster.node_states()) == 4
        assert rooms(folder)
        assert traces() == before
    assert rooms(folder) == []
    assert not folder.exists()
    assert traces() == before


def test_a_cluster_ends_with_its_maker(slurm, tmp_path):
    """Killed by SIGKILL, the maker leaves no cluster and no folder behind."""
    script = (
        "from fabricbench.testbed import Cluster, Spec\nimport time\n"
        "print(Cluster.up(Spec(nodes=1)).folder, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as maker:
        folder = Path(maker.stdout.readline().strip())
        assert folder.is_dir()
        maker.kill()
    wait_until(lambda: not rooms(folder) and not folder.exists())


def test_what_fails_at_the_start_is_one_line_and_leaves_nothing(slurm, tmp_path):
    """A mistake in slurm.conf is said in Slurm's words, and everything begun is gone."""
    folder = tmp_path / "broken"
    with pytest.raises(LaunchError, match="slurmctld") as caught:
        Cluster.up(Spec(nodes=1, slurm_options=("NoSuchOption=1",)), folder)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not folder.exists()
    assert rooms(folder) == []


def test_a_person_starts_enters_and_ends_one(slurm, tmp_path):
    """On the command line: up stays, exec and status reach it, a second up is refused, down ends it."""
    folder = tmp_path / "mine"

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "fabricbench.testbed", "--folder", str(folder), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120)

    assert call("status").stderr.startswith("no cluster is up in")
    up = call("up", "--nodes", "2")
    assert up.returncode == 0, up.stderr
    try:
        assert "exec hub" in up.stdout
        assert call("status").stdout.split() == ["n0", "idle", "n1", "idle"]
        assert call("exec", "n1", "--", "hostname").stdout == "n1\n"
        assert call("exec", "n1", "--", "sh", "-c", "exit 5").returncode == 5
        again = call("up")
        assert again.returncode == 1
        assert "end it first" in again.stderr
        assert call("crash", "n1").returncode == 0
        assert "boot it" in call("exec", "n1", "--", "true").stderr
    finally:
        assert call("down").returncode == 0
    assert rooms(folder) == []
    assert not folder.exists()


def test_snakemake_plans_on_the_login_node(slurm_campaign, slurm_tiny):
    """A dry run of the Slurm profile there lists the cells and submits nothing."""
    campaign = slurm_campaign(slurm_tiny)
    assert "micro/" in campaign.snakemake("-n")
    assert campaign.jobs_seen() == []
    assert campaign.failures() == {}
