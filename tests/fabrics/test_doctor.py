"""What doctor says of facts, and of nodes that have what was seen in the field."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from cells import a_cell
from nodes import (
    a_fabric,
    add_bridge,
    add_veth,
    an_adapter,
    an_interface,
    in_cluster,
    on,
    only_ipv6,
    rename,
    set_mtu,
    some_facts,
)

from fabricbench.fabrics import visit
from fabricbench.fabrics.doctor import check_answers, check_emulation, examine, preflight, wanted
from fabricbench.fabrics.findings import Finding, Node, Use, Wanted
from fabricbench.fabrics.node import probe
from fabricbench.fabrics.reach import Reach

MPICH = "MPICH Version:      5.0.2\nMPICH Release date: x"
OPENMPI = "Open MPI v5.0.3, package: Debian"
SOFTWARE = {
    "mpi": {"version": MPICH},
    "torch": {"version": "2.14", "gloo": True, "nccl": True, "cuda": None},
    "providers": None,
    "transports": None,
    "throttled": {},
}
REACHED = vars(Reach(True, "answered", True, 1500))


def two_nodes(**changes):
    """Two nodes on which nothing is wrong and that reach each other; `changes` to n1's facts."""
    facts = {"n0": some_facts("n0", 1), "n1": some_facts("n1", 2) | changes}
    reached = {"n0": {"ethernet": {"n1": REACHED}}, "n1": {"ethernet": {"n0": REACHED}}}
    return {name: Node(facts[name], SOFTWARE, reached[name]) for name in facts}


def want(fabric=None, engine="mpi", environment=(), device="cpu", **changes):
    """A campaign of one fabric and one backend."""
    fabric = fabric or a_fabric()
    backend = {"name": engine, "engine": engine} | changes.pop("backend", {})
    use = Use(fabric["name"], backend, dict(environment), device)
    fields = {"cluster": "slurm", "nodes": 2, "fabrics": (fabric,), "uses": (use,)}
    return Wanted(**(fields | changes))


def found(check, findings):
    """The findings of one check."""
    return [finding for finding in findings if finding.check == check]


def worst(findings):
    """Everything that is not well; each has a mend, and nothing else has."""
    assert all(bool(finding.mend) == (finding.level != "ok") for finding in findings)
    return [finding for finding in findings if finding.level != "ok"]


def interfaces(**eth0):
    """eth0 of n1 with changes."""
    return {"interfaces": {"eth0": an_interface("10.77.0.2/24", **eth0)}}


def test_nothing_is_said_of_nodes_that_are_well():
    """Every check is there, each as one line for both nodes."""
    findings = examine(want(), two_nodes())
    assert worst(findings) == []
    assert found("interface ethernet", findings) == [
        Finding("interface ethernet", ("n0", "n1"), "ok", "eth0")
    ]
    assert {"link ethernet", "rate ethernet", "MTU ethernet", "reach ethernet"} <= {f.check for f in findings}


@pytest.mark.parametrize(
    ("check", "level", "words", "changes"),
    [
        ("link ethernet", "problem", "eth0 is down", interfaces(up=False, carrier=False)),
        ("link ethernet", "problem", "no carrier", interfaces(carrier=False)),
        (
            "rate ethernet",
            "problem",
            "eth0 negotiated 10 Gbit/s, fabrics.ethernet.rate says",
            interfaces(speed_bit_s=1e10),
        ),
        ("rate ethernet", "warning", "negotiated 100 Gbit/s", interfaces(speed_bit_s=1e11)),
        ("rate ethernet", "note", "doesn't know the rate of eth0", interfaces(speed_bit_s=None)),
        ("MTU ethernet", "warning", "differs: 1500 on n0; 9000 on n1", interfaces(mtu=9000)),
        ("interface ethernet", "problem", "eth0 doesn't exist on n1", {"interfaces": {}}),
        (
            "address ethernet",
            "problem",
            "10.77.0.1 is on several nodes: n0, n1",
            {"interfaces": {"eth0": an_interface("10.77.0.1/24")}},
        ),
        ("host name", "warning", "n1 resolves to loopback, 127.0.1.1", {"resolves_to": ["127.0.1.1"]}),
        ("host name", "warning", "resolves to no address", {"resolves_to": []}),
        ("clock", "warning", "clock source hpet", {"clocksource": "hpet"}),
        ("CPU governor", "warning", "powersave", {"governor": "powersave"}),
        ("other work", "warning", "load 3.2 on 4 cores", {"load": 3.2}),
        ("shared memory", "warning", "/dev/shm has 64 MB", {"shm_bytes": 64 << 20}),
        (
            "hidden config",
            "warning",
            "/etc/nccl.conf sets NCCL_ALGO",
            {"hidden_config": ["/etc/nccl.conf"], "hidden_variables": {"/etc/nccl.conf": ["NCCL_ALGO"]}},
        ),
        ("cores", "warning", "2 ranks × 2 threads on 1 cores", {"cores": [0]}),
    ],
)
def test_what_is_wrong_on_one_node_is_said_with_one_mend(check, level, words, changes):
    """The node is named, and there is exactly this one finding."""
    asked = want(ranks_per_node=2, threads_per_rank=2)
    (finding,) = worst(examine(asked, two_nodes(**changes)))
    assert (finding.check, finding.level) == (check, level)
    assert words in finding.text
    assert "n1" in finding.nodes
    assert finding.mend


def test_the_worst_comes_first_and_equal_findings_are_one():
    """Both nodes lack a governor; one lacks the link."""
    nodes = two_nodes(governor="powersave", **interfaces(up=False))
    nodes["n0"] = replace(nodes["n0"], facts=nodes["n0"].facts | {"governor": "powersave"})
    problem, warning = worst(examine(want(), nodes))
    assert (problem.level, warning.level, warning.nodes) == ("problem", "warning", ("n0", "n1"))


def test_names_that_differ_are_told_per_node():
    """A list of names is lawful; which node uses which is said."""
    nodes = two_nodes(interfaces={"eno1": an_interface("10.77.0.2/24")})
    findings = examine(want(a_fabric(interface=["eth0", "eno1"])), nodes)
    assert worst(findings) == []
    assert found("interface ethernet", findings)[0].text == "eth0 on n0; eno1 on n1"


def test_look_alikes_are_a_note():
    """eth0.100 would be taken for eth0 by a prefix; we select exactly."""
    more = {"eth0": an_interface("10.77.0.2/24"), "eth0.100": an_interface("10.5.0.2/24")}
    (note,) = worst(examine(want(), two_nodes(interfaces=more)))
    assert (note.level, note.nodes) == ("note", ("n1",))
    assert "eth0.100 and eth0 begin alike; eth0 alone is selected" in note.text


def test_the_same_bridge_everywhere_is_excluded_with_a_note():
    """docker0 with 172.17.0.1 on both nodes."""
    bridge = {"docker0": an_interface("172.17.0.1/16", kind="bridge")}
    nodes = {
        name: replace(node, facts=node.facts | {"interfaces": node.facts["interfaces"] | bridge})
        for name, node in two_nodes().items()
    }
    (note,) = worst(examine(want(), nodes))
    assert (note.level, note.nodes) == ("note", ("n0", "n1"))
    assert "docker0 has 172.17.0.1 on each of these nodes" in note.text


def test_ipv6_alone_is_a_note():
    """Cells tell NCCL by themselves; who calls it by hand learns the variable."""
    nodes = {
        f"n{k}": Node(some_facts(f"n{k}", interfaces={"eth0": an_interface(f"fd00::{k + 1}/64")}), None, {})
        for k in (0, 1)
    }
    (note,) = found("IPv6 ethernet", examine(want(engine="nccl"), nodes))
    assert (note.level, note.nodes) == ("note", ("n0", "n1"))
    assert "nothing to do for cells; by hand set NCCL_SOCKET_FAMILY=AF_INET6" in note.mend


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        (Reach(False, "no answer within 2 s"), "problem", "n0 to n1 over eth0: no answer within 2 s"),
        (Reach(True, "answered", False, 1500, 2044), "problem", "of 1500 bytes arrive, stopped at 2044"),
        (Reach(True, "answered"), "note", "packet size not known"),
    ],
)
def test_who_doesnt_reach_whom_is_named(answer, level, words):
    """With the kernel's word, or the size at which packets vanish."""
    nodes = two_nodes()
    nodes["n0"] = replace(nodes["n0"], reach={"ethernet": {"n1": vars(answer)}})
    (finding,) = worst(examine(want(), nodes))
    assert (finding.level, finding.nodes) == (level, ("n0",))
    assert words in finding.text


def infiniband(**adapter):
    """Two nodes with an InfiniBand fabric of mlx5_0, n1's with changes."""
    nodes = {name: replace(node, reach={}) for name, node in two_nodes().items()}
    for name, changes in (("n0", {}), ("n1", adapter)):
        facts = nodes[name].facts | {"adapters": {"mlx5_0": an_adapter(**changes)}}
        nodes[name] = replace(nodes[name], facts=facts)
    fabric = a_fabric(name="ib", kind="infiniband", interface=[], adapter=["mlx5_0"], rate_bit_s=10**11)
    return want(fabric), nodes


@pytest.mark.parametrize(
    ("check", "words", "mend", "changes"),
    [
        ("adapter port ib", "mlx5_0:1 is DOWN, not ACTIVE", "cable", {"state": "DOWN"}),
        ("adapter port ib", "mlx5_0:1 is INIT, not ACTIVE", "subnet manager", {"state": "INIT"}),
        ("adapter port ib", "runs Ethernet", "kind: roce", {"link_layer": "Ethernet"}),
        ("rate ib", "mlx5_0:1 negotiated 25 Gbit/s", "cable", {"rate_bit_s": 2.5e10}),
    ],
)
def test_an_adapters_port_is_checked_where_the_bytes_go_through_it(check, words, mend, changes):
    """State, link layer and rate are the port's, not the interface's."""
    (problem,) = [f for f in examine(*infiniband(**changes)) if f.level == "problem"]
    assert problem.check == check
    assert words in problem.text
    assert mend in problem.mend


def test_rdma_needs_locked_memory():
    """A small ulimit -l is a problem on RDMA kinds, and of no interest on others."""
    wanted, nodes = infiniband()
    nodes["n1"] = replace(nodes["n1"], facts=nodes["n1"].facts | {"memlock_bytes": 8 << 20})
    (problem,) = [f for f in examine(wanted, nodes) if f.level == "problem"]
    assert "ulimit -l is 8192 KB" in problem.text
    assert worst(examine(want(), two_nodes(memlock_bytes=8 << 20))) == []


@pytest.mark.parametrize(
    ("cores", "gpus", "level", "words"),
    [
        ([0, 1, 2, 3], [], "ok", "where this job has 2 cores"),
        ([0, 1], [], "warning", "none of whose cores may be used here"),
        ([0, 1, 2, 3], [{"pci": "0000:3b:00.0", "numa": 0}], "note", "bytes cross the sockets"),
    ],
)
def test_ranks_and_gpus_should_be_near_the_adapter(cores, gpus, level, words):
    """NUMA nodes of adapter, cores and GPUs, where there are several."""
    facts = {"numa": {"0": [0, 1], "1": [2, 3]}, "cores": cores, "gpus": gpus, "nvidia_driver": "550.1"}
    wanted = want(device="cuda")
    (finding,) = found("locality ethernet", examine(wanted, two_nodes(**facts, **interfaces(numa=1))))
    assert finding.level == level
    assert words in finding.text


def with_software(**changes):
    """Two nodes, n1's software with changes."""
    nodes = two_nodes()
    nodes["n1"] = replace(nodes["n1"], software=SOFTWARE | changes)
    return nodes


@pytest.mark.parametrize(
    ("wanted", "changes", "level", "words"),
    [
        (
            want(),
            {"mpi": {"version": OPENMPI}},
            "problem",
            "Open MPI v5.0.3, package: Debian; backend mpi says mpich",
        ),
        (want(), {"mpi": {"error": "libmpi.so: no such file"}}, "problem", "libmpi.so: no such file"),
        (want(engine="gloo"), {"mpi": {"error": "none"}}, "note", "mpi4py loads no MPI library"),
        (
            want(engine="nccl"),
            {"torch": SOFTWARE["torch"] | {"nccl": False}},
            "problem",
            "torch 2.14 has no nccl",
        ),
        (want(engine="gloo"), {"torch": {"error": "no module"}}, "problem", "torch can't be imported"),
        (want(engine="mpi"), {"torch": {"error": "no module"}}, "note", "torch can't be imported"),
        (want(trains=True), {"torch": {"error": "no module"}}, "problem", "torch can't be imported"),
        (want(engine="ring"), {"mpi": {"error": "no libmpi"}}, "problem", "no libmpi"),
        (
            want(environment=[("FI_PROVIDER", "cxi")], backend={"library": "openmpi5"}),
            {"providers": ["tcp", "shm"]},
            "problem",
            "finds no provider cxi; it has: tcp, shm",
        ),
        (
            want(environment=[("FI_PROVIDER", "cxi")]),
            {"providers": ["tcp", "shm"]},
            "warning",
            "finds no provider cxi; it has: tcp, shm",
        ),
        (
            want(environment=[("UCX_TLS", "rc,sm,self")]),
            {"transports": ["tcp"]},
            "problem",
            "finds no transport rc",
        ),
        (
            want(),
            {"throttled": {"0000:3b:00.0": ["sw power cap"]}},
            "warning",
            "0000:3b:00.0 is throttled: sw power cap",
        ),
    ],
)
def test_libraries_must_be_what_the_backends_need(wanted, changes, level, words):
    """The node whose software differs is named."""
    (finding,) = [f for f in worst(examine(wanted, with_software(**changes))) if f.nodes == ("n1",)]
    assert finding.level == level
    assert words in finding.text


def test_a_provider_in_layers_is_found_in_its_parts():
    """verbs;ofi_rxm is one line of fi_info."""
    wanted = want(environment=[("FI_PROVIDER", "verbs;ofi_rxm")])
    nodes = with_software(providers=["tcp", "verbs;ofi_rxm"])
    assert found("libfabric", examine(wanted, {"n1": nodes["n1"]}))[0].level == "ok"


def test_what_no_tool_can_tell_is_a_note():
    """Without fi_info it shows when a cell runs."""
    wanted = want(environment=[("FI_PROVIDER", "verbs;ofi_rxm")])
    (note,) = worst(examine(wanted, two_nodes()))
    assert (note.level, "provider ofi_rxm, verbs shows when a cell runs" in note.text) == ("note", True)


def test_cuda_wants_the_driver():
    """A problem without it."""
    (problem,) = worst(examine(want(device="cuda"), {"n0": two_nodes()["n0"]}))[:1]
    assert "no NVIDIA driver here" in problem.text


def test_cores_that_ranks_insist_on_must_be_there():
    """Shared cores are lawful with `auto`, and a problem where the config insists."""
    insists = want(ranks_per_node=8, binding={"cpu": "core"})
    assert worst(examine(insists, two_nodes()))[0].level == "problem"
    emulated = want(a_fabric(kind="emulated"), ranks_per_node=8, cluster="emulated")
    assert worst(examine(emulated, two_nodes()))[0].level == "note"


def test_the_engines_own_thread_needs_a_core_as_well():
    """Two ranks of two threads fill four cores with MPI; Gloo's have a third thread each."""
    asked = {"ranks_per_node": 2, "threads_per_rank": 2}
    assert worst(examine(want(**asked), two_nodes())) == []
    (warning,) = worst(examine(want(**asked, engine="gloo", busiest_engine="gloo"), two_nodes()))
    assert (warning.check, warning.level) == ("cores", "warning")
    assert "2 ranks × (2 threads + 1 of gloo) on 4 cores of one node: they share" in warning.text
    insists = want(**asked, engine="gloo", busiest_engine="gloo", binding={"cpu": "core"})
    assert found("cores", examine(insists, two_nodes()))[0].level == "problem"


@pytest.mark.parametrize(
    ("named", "level", "words"),
    [
        ([[0, 1], [2, 3]], "ok", "names for 2 local ranks"),
        ([[0, 1], [2, 3], [98, 99]], "ok", "names for 2 local ranks"),
        ([[0, 1]], "problem", "lists cores of 1 local ranks, a node has 2"),
        ([[0, 1], [4, 5]], "problem", "names cores [4, 5], which this job doesn't have; it has [0, 1, 2, 3]"),
        ([[0, 1], [2]], "warning", "gives local ranks [1] fewer cores than their 2 threads"),
    ],
)
def test_cores_that_the_config_names_must_be_there(named, level, words):
    """For every local rank that a node has, and as many as its threads."""
    asked = want(engine="gloo", busiest_engine="gloo", local_ranks=2, binding={"cpu": named})
    (finding,) = found("cores", examine(asked, two_nodes()))
    assert (finding.level, finding.nodes) == (level, ("n0", "n1"))
    assert words in finding.text


def test_a_node_that_is_silent_is_a_problem():
    """Named, with its own words; those that can be told of no node are said once for all the others."""
    words = {"n7": "ImportError: no psutil", "": "srun: error: Unable to confirm allocation"}
    own, common = check_answers(["n0", "n1", "n7", "n8", "n9"], two_nodes(), words)
    assert (own.nodes, own.level) == (("n7",), "problem")
    assert own.text == "n7 didn't answer: ImportError: no psutil"
    assert common.nodes == ("n8", "n9")
    assert common.text == "n8,n9 didn't answer: srun: error: Unable to confirm allocation"
    assert "--exclude=n8,n9" in common.mend
    (many,) = check_answers([f"m{k}" for k in range(9)], {}, {})
    assert many.text == "9 nodes didn't answer"


def test_a_node_that_tried_nobody_is_not_said_to_reach_all():
    """Its probe failed, while the other's did not."""
    nodes = two_nodes()
    nodes["n1"] = replace(nodes["n1"], reach={})
    findings = found("reach ethernet", examine(want(), nodes))
    assert [(f.level, f.nodes) for f in findings] == [("note", ("n1",)), ("ok", ("n0",))]


def test_emulation_is_a_must_only_for_who_wants_it():
    """A problem for an emulated config, a note for others; netem only where delay is asked for."""
    line = "this kernel refuses: sudo sysctl x=1"
    emulated = want(a_fabric(kind="emulated"), cluster="emulated")
    assert [f.level for f in check_emulation(emulated, line, None)] == ["problem"]
    assert [(f.level, f.mend) for f in check_emulation(None, line, None)] == [("note", "sudo sysctl x=1")]
    assert [f.level for f in check_emulation(replace(emulated, delay=True), None, False)] == ["ok", "warning"]
    assert [f.level for f in check_emulation(emulated, None, False)] == ["ok", "note"]


def test_preflight_of_a_node_that_is_well_finds_nothing():
    """A missing interface is a problem, and the only one."""
    facts = some_facts(interfaces={"eth0": an_interface("10.0.0.1/24", mtu=9000)})
    assert preflight(a_fabric(), facts) == []
    (problem,) = preflight(a_fabric(interface=["ib0"]), facts)
    assert (problem.level, "ib0 doesn't exist on n0" in problem.text) == ("problem", True)


TWO_SOCKETS = {"numa": {"0": [0, 1], "1": [2, 3]}, "cores": [0, 1]}


@pytest.mark.parametrize(
    ("level", "words", "changes"),
    [
        ("problem", "eth0 is down", interfaces(up=False)),
        ("problem", "eth0 negotiated 10 Gbit/s", interfaces(speed_bit_s=1e10)),
        ("warning", "eth0 negotiated 100 Gbit/s", interfaces(speed_bit_s=1e11)),
        ("warning", "clock source hpet", {"clocksource": "hpet"}),
        ("warning", "powersave: cores slow down", {"governor": "powersave"}),
        (
            "warning",
            "eth0 is at NUMA node 1, none of whose cores may be used",
            TWO_SOCKETS | interfaces(numa=1),
        ),
    ],
)
def test_preflight_finds_what_would_spoil_a_cell(level, words, changes):
    """Problems and warnings of this node's own end, each once."""
    (finding,) = preflight(a_fabric(), some_facts(**changes))
    assert (finding.level, finding.nodes) == (level, ("n0",))
    assert words in finding.text
    assert finding.mend


def test_preflight_looks_at_no_rate_that_means_nothing():
    """Virtual drivers and emulated links have none; one that the kernel doesn't know is no warning."""
    slow = {"speed_bit_s": 1e10}
    assert preflight(a_fabric(), some_facts(**interfaces(driver="veth", **slow))) == []
    assert preflight(a_fabric(kind="emulated"), some_facts(**interfaces(**slow))) == []
    assert preflight(a_fabric(), some_facts(**interfaces(speed_bit_s=None))) == []


@pytest.mark.parametrize(("limit", "levels"), [(None, []), (8 << 20, ["problem"]), (1 << 30, ["warning"])])
def test_preflight_looks_at_the_adapter_and_locked_memory_on_rdma(limit, levels):
    """As the doctor does; a slow port is a problem too."""
    wanted, nodes = infiniband()
    facts = nodes["n0"].facts | {"memlock_bytes": limit}
    assert [f.level for f in preflight(wanted.fabrics[0], facts)] == levels
    _, slow = infiniband(rate_bit_s=2.5e10)
    (problem,) = preflight(wanted.fabrics[0], slow["n1"].facts)
    assert "mlx5_0:1 negotiated 25 Gbit/s" in problem.text


def test_preflight_without_peers_is_cheap():
    """Cells pay for it: of eight rails, under 30 ms."""
    names = [f"eth{k}" for k in range(8)]
    own = {name: an_interface(f"10.77.{k}.1/24") for k, name in enumerate(names)}
    began = time.perf_counter()
    assert preflight(a_fabric(interface=names, ports_per_node=8), some_facts(interfaces=own)) == []
    assert time.perf_counter() - began < 0.03


def ask(wanted, prepare):
    """What examine says of two emulated nodes that `prepare` changed, which try to reach each other."""

    def work(nodes):
        prepare(nodes)
        facts = {node.name: on(node, probe) for node in nodes}
        ends = visit.rail_ends(wanted, {name: Node(each) for name, each in facts.items()})
        return {
            node.name: {"facts": facts[node.name], "reach": on(node, visit.reach_all, node.name, ends)}
            for node in nodes
        }

    nodes = {name: Node(each["facts"], None, each["reach"]) for name, each in in_cluster(work).items()}
    findings = examine(wanted, nodes)
    return [finding for finding in findings if finding.check != "other work"]


EMULATED = a_fabric(kind="emulated", rate_bit_s=None)


def test_what_cells_want_is_their_most():
    """Fabrics and uses once each; of ranks and threads those of the fullest node, or machine if emulated."""
    cells = [
        a_cell(gpus=2, nodes=2, ranks_per_node=1),
        a_cell(gpus=8, nodes=4, ranks_per_node=2, threads_per_rank=3),
        a_cell("train", "gloo", repeat=2),
    ]
    made = wanted("slurm", cells)
    assert [fabric["name"] for fabric in made.fabrics] == ["ethernet"]
    assert made.engines == {"mpi", "gloo"}
    assert (made.nodes, made.ranks_per_node, made.threads_per_rank) == (4, 2, 3)
    assert (made.busiest_engine, made.local_ranks) == ("mpi", 2)
    emulated = wanted("emulated", cells)
    assert (emulated.ranks_per_node, emulated.local_ranks) == (8, 2)
    same = {"gpus": 4, "nodes": 2, "ranks_per_node": 2}
    both = [a_cell("train", "gloo", **same), a_cell(**same)]
    assert wanted("slurm", both).busiest_engine == "gloo"
    both = [a_cell("micro", "ring", **same), a_cell("train", "ring", **same)]
    assert (wanted("slurm", both).busiest_kind, wanted("slurm", both).trains) == ("train", True)


@pytest.mark.emulated
def test_field_names_that_are_prefixes_and_bridges_of_containers(namespaces):
    """eth0, eth0.100, eth0.100.1 and docker0 with 172.17.0.1/16 on both nodes: two notes, and all is well."""

    def prepare(nodes):
        for k, node in enumerate(nodes):
            on(node, add_veth, "eth0.100", f"10.90.0.{k + 1}/24")
            on(node, add_veth, "eth0.100.1")
            on(node, add_bridge, "docker0", "172.17.0.1/16")

    findings = ask(want(EMULATED), prepare)
    assert {f.check: f.level for f in worst(findings)} == {"look-alikes ethernet": "note", "bridges": "note"}
    assert "eth0.100, eth0.100.1" in found("look-alikes ethernet", findings)[0].text
    assert found("reach ethernet", findings)[0].level == "ok"


@pytest.mark.emulated
def test_field_names_that_differ_between_nodes(namespaces):
    """eth0 on n0, enp4s0 on n1: by list and by subnet the same network, and a single name is refused."""

    def prepare(nodes):
        on(nodes[1], rename, "eth0", "enp4s0")

    for selection in ({"interface": ["eth0", "enp4s0"]}, {"interface": [], "subnet": "10.77.0.0/24"}):
        findings = ask(want(EMULATED | selection), prepare)
        assert worst(findings) == []
        assert found("interface ethernet", findings)[0].text == "eth0 on n0; enp4s0 on n1"
    (problem,) = [f for f in ask(want(EMULATED), prepare) if f.level == "problem"]
    assert "eth0 doesn't exist on n1, which has: " in problem.text
    assert "enp4s0" in problem.text


@pytest.mark.emulated
def test_field_mtu_that_differs(namespaces):
    """9000 against 1500: a warning, and a problem that names the way and the size."""
    findings = ask(want(EMULATED), lambda nodes: on(nodes[0], set_mtu, "eth0", 9000))
    problem, warning = worst(findings)
    assert warning.text == "differs: 9000 on n0; 1500 on n1"
    assert problem.nodes == ("n0",)
    assert "n0 to n1 over eth0: packets of 1500 bytes arrive, stopped at 2044" in problem.text


@pytest.mark.emulated
def test_field_ipv6_alone(namespaces):
    """No IPv4 but lo's: the nodes reach each other; a note, since cells set what is needed."""

    def prepare(nodes):
        for k, node in enumerate(nodes):
            on(node, only_ipv6, "eth0", f"fd00::{k + 1}/64")

    findings = ask(want(EMULATED, engine="nccl"), prepare)
    assert [(f.check, f.level) for f in worst(findings)] == [("IPv6 ethernet", "note")]
    assert found("reach ethernet", findings)[0].level == "ok"


@pytest.mark.emulated
def test_field_host_name_that_is_loopback(namespaces):
    """Debian's 127.0.1.1 for the own name, on one node."""

    def prepare(nodes):
        on(nodes[1], Path("/etc/hosts").write_text, "127.0.0.1 localhost\n127.0.1.1 n1\n")

    (warning,) = worst(ask(want(EMULATED), prepare))
    assert (warning.check, warning.level, warning.nodes) == ("host name", "warning", ("n1",))
    assert "n1 resolves to loopback, 127.0.1.1" in warning.text


@pytest.mark.emulated
def test_preflight_tries_the_peers(namespaces):
    """The peers that are there raise nothing; one that isn't is named."""

    def work(nodes):
        def there():
            facts = probe()
            good = preflight(EMULATED, facts, {"n1": ["10.77.0.2"]})
            bad = preflight(EMULATED, facts, {"n1": ["10.77.0.2"], "n9": ["10.77.0.9"]})
            problems = [[f.text for f in each if f.level == "problem"] for each in (good, bad)]
            return problems

        return on(nodes[0], there)

    good, bad = in_cluster(work)
    assert good == []
    assert len(bad) == 1
    assert bad[0].startswith("n0 to n9 over eth0: ")
