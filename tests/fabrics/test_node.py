"""What a node says that it has, and which of it a fabric means."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from nodes import a_fabric, add_bridge, add_veth, an_adapter, an_interface, in_cluster, on, some_facts

from fabricbench.errors import LaunchError
from fabricbench.fabrics import node
from fabricbench.fabrics.node import Rails, look_alikes, probe, resolve


class FakeNode:
    """A tree of /sys and /proc, and a kernel that has interfaces of its own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing yet."""
        self.sys, self.proc = root / "sys", root / "proc"
        self.stats: dict[str, SimpleNamespace] = {}
        self.addresses: dict[str, list[SimpleNamespace]] = {}
        self.sys.mkdir()
        self.proc.mkdir()
        monkeypatch.setattr(node.psutil, "net_if_stats", lambda: self.stats)
        monkeypatch.setattr(node.psutil, "net_if_addrs", lambda: self.addresses)
        monkeypatch.setattr(node.socket, "if_nametoindex", lambda name: list(self.stats).index(name) + 1)
        monkeypatch.setattr(node.ethtool, "driver", lambda name: None)

    def write(self, path: str, text: str) -> None:
        """A file below the root."""
        file = self.sys.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def kernel_has(
        self, name: str, *addresses: tuple[str, str], speed: int = 25000, flags: str = "up,running"
    ):
        """An interface in this namespace."""
        self.stats[name] = SimpleNamespace(mtu=1500, speed=speed, flags=flags)
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address, _ in addresses]
        self.addresses[name] = [
            SimpleNamespace(family=family, address=address, netmask=mask)
            for family, (address, mask) in zip(families, addresses, strict=True)
        ]

    def sys_shows(self, name: str, index: int, device: str | None = None, **files: str) -> None:
        """An interface in /sys, of a device there."""
        folder = f"sys/class/net/{name}"
        self.write(f"{folder}/ifindex", str(index))
        for file, text in files.items():
            self.write(f"{folder}/{file}", text)
        if device:
            (self.sys / f"class/net/{name}/device").symlink_to(self.sys / "devices" / device)

    def has_device(self, device: str, driver: str, numa: int = 0, net: str | None = None) -> Path:
        """A PCI device with its driver."""
        self.write(f"sys/devices/{device}/numa_node", str(numa))
        (self.sys / "devices" / device / "driver").symlink_to(f"/drivers/{driver}")
        if net:
            (self.sys / "devices" / device / "net" / net).mkdir(parents=True)
        return self.sys / "devices" / device

    def has_adapter(self, kind: str, name: str, device: Path, **port: str) -> None:
        """An adapter of /sys/class/<kind>, with one port if its files are given."""
        for file, text in port.items():
            self.write(f"sys/class/{kind}/{name}/ports/1/{file}", text)
        (self.sys / f"class/{kind}/{name}").mkdir(parents=True, exist_ok=True)
        (self.sys / f"class/{kind}/{name}/device").symlink_to(device)

    def probe(self) -> dict:
        """Its facts, passed through JSON as between nodes."""
        return json.loads(json.dumps(probe(self.sys, self.proc, ask_names=False)))


@pytest.fixture
def fake(tmp_path, monkeypatch) -> FakeNode:
    """A node with loopback alone."""
    made = FakeNode(tmp_path, monkeypatch)
    made.kernel_has("lo", ("127.0.0.1", "255.0.0.0"), flags="up,loopback,running", speed=0)
    return made


def test_an_interface_has_what_the_kernel_says(fake):
    """State, MTU and addresses with their prefix; a speed of 0 is an unknown one."""
    fake.kernel_has(
        "eth0", ("10.77.0.1", "255.255.255.0"), ("fe80::1%eth0", "ffff:ffff:ffff:ffff::"), speed=0
    )
    eth0 = fake.probe()["interfaces"]["eth0"]
    assert (eth0["up"], eth0["carrier"], eth0["mtu"], eth0["speed_bit_s"]) == (True, True, 1500, None)
    assert eth0["addresses"] == ["10.77.0.1/24", "fe80::1/64"]


def test_an_interface_without_carrier_is_up_and_no_more(fake):
    """`running` is the carrier, `up` what the administrator wants."""
    fake.kernel_has("eth0", flags="up,broadcast")
    eth0 = fake.probe()["interfaces"]["eth0"]
    assert (eth0["up"], eth0["carrier"]) == (True, False)


def test_infiniband_adapter_and_interface_know_each_other(fake):
    """mlx5_0 with its port's state and rate, ib0 on it, both at NUMA node 1."""
    fake.kernel_has("ib0", ("10.78.0.1", "255.255.255.0"))
    device = fake.has_device("0000:3b:00.0", "mlx5_core", numa=1, net="ib0")
    fake.sys_shows("ib0", 2, "0000:3b:00.0", dev_port="0")
    port = {"state": "4: ACTIVE\n", "rate": "100 Gb/sec (4X EDR)\n", "link_layer": "InfiniBand\n"}
    fake.has_adapter("infiniband", "mlx5_0", device, **port)
    facts = fake.probe()
    assert facts["adapters"]["mlx5_0"] == {
        "driver": "mlx5_core",
        "numa": 1,
        "interfaces": ["ib0"],
        "ports": {"1": {"state": "ACTIVE", "link_layer": "InfiniBand", "rate_bit_s": 1e11}},
    }
    ib0 = facts["interfaces"]["ib0"]
    assert (ib0["adapter"], ib0["numa"], ib0["driver"], ib0["port"]) == ("mlx5_0", 1, "mlx5_core", 1)


def test_omnipath_port_that_is_down_says_so(fake):
    """hfi1_0 lies in the same class as InfiniBand."""
    device = fake.has_device("0000:5e:00.0", "hfi1", numa=-1)
    fake.has_adapter("infiniband", "hfi1_0", device, state="1: DOWN\n", rate="25 Gb/sec (1X EDR)\n")
    adapter = fake.probe()["adapters"]["hfi1_0"]
    assert (adapter["driver"], adapter["numa"], adapter["interfaces"]) == ("hfi1", None, [])
    assert adapter["ports"]["1"]["state"] == "DOWN"


def test_efa_adapter_has_no_interface(fake):
    """rdmap0s6: verbs without a network interface."""
    device = fake.has_device("0000:00:06.0", "efa")
    port = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": "Unspecified"}
    fake.has_adapter("infiniband", "rdmap0s6", device, **port)
    adapter = fake.probe()["adapters"]["rdmap0s6"]
    assert (adapter["driver"], adapter["interfaces"]) == ("efa", [])
    assert adapter["ports"]["1"]["rate_bit_s"] == 1e11


def test_slingshot_port_is_its_interface(fake):
    """cxi0 has no ports in /sys: state and rate are hsn0's."""
    fake.kernel_has("hsn0", ("10.79.0.1", "255.255.255.0"), speed=200_000)
    device = fake.has_device("0000:c0:00.0", "cxi_ss1", net="hsn0")
    fake.sys_shows("hsn0", 2, "0000:c0:00.0")
    fake.has_adapter("cxi", "cxi0", device)
    facts = fake.probe()
    assert facts["adapters"]["cxi0"]["ports"]["1"] == {
        "state": "ACTIVE",
        "link_layer": "Slingshot",
        "rate_bit_s": 2e11,
    }
    assert facts["interfaces"]["hsn0"]["adapter"] == "cxi0"


def test_a_bond_and_a_vlan_have_the_adapter_below(fake):
    """bond0 over eth2, bond0.7 over bond0: all are mlx5_1's; /proc tells it where /sys doesn't."""
    for name in ("eth2", "bond0", "bond0.7"):
        fake.kernel_has(name)
    device = fake.has_device("0000:af:00.0", "mlx5_core", numa=1, net="eth2")
    fake.sys_shows("eth2", 2, "0000:af:00.0")
    fake.has_adapter("infiniband", "mlx5_1", device, state="4: ACTIVE")
    fake.write("proc/net/bonding/bond0", "Ethernet Channel Bonding Driver\n\nSlave Interface: eth2\n")
    fake.write("proc/net/vlan/config", "VLAN Dev name | VLAN ID\nbond0.7        | 7  | bond0\n")
    found = fake.probe()["interfaces"]
    assert [found[name]["adapter"] for name in ("eth2", "bond0", "bond0.7")] == ["mlx5_1"] * 3
    assert (found["bond0.7"]["lower"], found["bond0.7"]["kind"]) == (["bond0"], "vlan")
    assert found["bond0.7"]["numa"] == 1


@pytest.mark.parametrize(("index", "address"), [(7, "02:00:00:00:00:01"), (2, "02:00:00:00:00:99")])
def test_sys_of_another_namespace_is_not_believed(fake, index, address):
    """An interface of the same name, but of another number or hardware address, is another interface."""
    fake.kernel_has("eth0", ("10.77.0.1", "255.255.255.0"))
    hardware = SimpleNamespace(family=socket.AF_PACKET, address="02:00:00:00:00:01", netmask=None)
    fake.addresses["eth0"].append(hardware)
    device = fake.has_device("0000:3b:00.0", "mlx5_core", net="eth0")
    fake.sys_shows("eth0", index, "0000:3b:00.0", address=address)
    fake.sys_shows("enp1s0", 3)
    fake.has_adapter("infiniband", "mlx5_0", device, state="4: ACTIVE")
    facts = fake.probe()
    assert sorted(facts["interfaces"]) == ["eth0", "lo"]
    assert (facts["interfaces"]["eth0"]["driver"], facts["interfaces"]["eth0"]["adapter"]) == (None, None)
    assert facts["adapters"]["mlx5_0"]["interfaces"] == []


def test_gpus_come_from_the_driver(fake):
    """Name, PCI address, NUMA node and the driver's version, of the open kernel module too."""
    fake.write("proc/driver/nvidia/gpus/0000:3B:00.0/information", "Model: \t\t NVIDIA H200\nIRQ:  48\n")
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (x@y)\n"
    fake.write("proc/driver/nvidia/version", version)
    fake.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1")
    facts = fake.probe()
    assert facts["gpus"] == [{"name": "NVIDIA H200", "pci": "0000:3b:00.0", "numa": 1, "driver": "550.54.14"}]


def test_numa_and_clock_are_read(fake):
    """The cores of each NUMA node, and the clock source."""
    fake.write("sys/devices/system/node/node0/cpulist", "0-2,8\n")
    fake.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
    facts = fake.probe()
    assert facts["numa"] == {"0": [0, 1, 2, 8]}
    assert facts["clocksource"] == "hpet"


def test_hidden_config_is_named_with_its_variables(fake, tmp_path, monkeypatch):
    """Also the file that NCCL_CONF_FILE names; a comment sets nothing."""
    file = tmp_path / "nccl.conf"
    file.write_text("# NCCL_DEBUG=INFO\nNCCL_IB_DISABLE=1\n NCCL_ALGO = Ring\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(file))
    facts = fake.probe()
    assert str(file) in facts["hidden_config"]
    assert facts["hidden_variables"][str(file)] == ["NCCL_IB_DISABLE", "NCCL_ALGO"]


def test_this_machine_can_be_asked():
    """Without a fake: loopback is there, with its address, and all is plain data."""
    facts = json.loads(json.dumps(probe()))
    assert "127.0.0.1/8" in facts["interfaces"]["lo"]["addresses"]
    assert facts["interfaces"]["lo"]["kind"] == "loopback"
    assert facts["host"] == socket.gethostname()


def test_a_probe_loads_nothing_heavy():
    """It runs inside every cell, before anything is measured."""
    heavy = ("torch", "mpi4py", "pyroute2", "numpy", "pandas")
    program = f"import sys, fabricbench.fabrics.doctor; print([n for n in {heavy} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_look_alikes_are_prefixes_of_one_another():
    """What a library that takes names for prefixes would confuse; not what merely resembles."""
    names = ["bond0", "bond0.2973", "bond0.2973.1", "bond1", "eth0"]
    assert look_alikes("bond0", names) == ["bond0.2973", "bond0.2973.1"]
    assert look_alikes("bond0.2973", names) == ["bond0", "bond0.2973.1"]
    assert look_alikes("eth0", names) == []


def with_interfaces(**interfaces) -> dict:
    """Facts of a node that has these instead of eth0."""
    return some_facts(interfaces={name.replace("_", "."): facts for name, facts in interfaces.items()})


def test_a_list_of_names_takes_the_one_that_this_node_has():
    """eno1 on one node and enp4s0 on another is one fabric."""
    fabric = a_fabric(interface=["eno1", "enp4s0"])
    facts = with_interfaces(enp4s0=an_interface("10.0.0.2/24"), eno2=an_interface("10.1.0.2/24"))
    assert resolve(fabric, facts) == Rails(("enp4s0",), (), ("10.0.0.2",))


def test_a_subnet_finds_the_interface_whatever_its_name():
    """The address is the one in the subnet, though another comes first."""
    facts = with_interfaces(a=an_interface("10.1.0.2/24"), b=an_interface("10.2.0.2/24", "10.3.0.2/24"))
    fabric = a_fabric(interface=[], subnet="10.3.0.0/24")
    assert resolve(fabric, facts) == Rails(("b",), (), ("10.3.0.2",))


def test_a_container_bridge_is_never_found_by_subnet_but_by_name():
    """docker0 has the same address on every node; only who names it gets it."""
    facts = with_interfaces(docker0=an_interface("172.17.0.1/16", kind="bridge"))
    with pytest.raises(
        LaunchError, match=r"fabrics.ethernet.subnet: no interface of n0 has an address in 172"
    ):
        resolve(a_fabric(interface=[], subnet="172.17.0.0/16"), facts)
    assert resolve(a_fabric(interface=["docker0"]), facts).addresses == ("172.17.0.1",)


def test_link_local_addresses_are_never_chosen():
    """fe80:: needs a scope and 169.254 is nobody's: IPv6 of the node's own network serves."""
    both = an_interface("169.254.1.1/16", "fe80::1/64", "fd00::1/64")
    assert resolve(a_fabric(), with_interfaces(eth0=both)).addresses == ("fd00::1",)
    with pytest.raises(LaunchError, match="eth0 on n0 has no address but link-local ones"):
        resolve(a_fabric(), with_interfaces(eth0=an_interface("fe80::1/64")))


def test_an_adapter_leads_to_its_interface_and_back():
    """RoCE by adapter finds the interface, by interface the adapter; a VLAN with the address is the one."""
    interfaces = {
        "eth2": an_interface(adapter="mlx5_1", port=1),
        "eth2_7": an_interface("10.4.0.1/24", adapter="mlx5_1", kind="vlan", lower=["eth2"]),
    }
    facts = with_interfaces(**interfaces) | {"adapters": {"mlx5_1": an_adapter("eth2")}}
    wanted = Rails(("eth2.7",), ("mlx5_1",), ("10.4.0.1",))
    assert resolve(a_fabric(kind="roce", interface=[], adapter=["mlx5_1"]), facts) == wanted
    assert resolve(a_fabric(kind="roce", interface=["eth2.7"]), facts) == wanted
    assert resolve(a_fabric(interface=[], adapter=["mlx5_1"]), facts) == wanted


def test_rdma_needs_no_address():
    """An InfiniBand fabric without IP has adapters and no addresses."""
    facts = some_facts(adapters={"mlx5_0": an_adapter()})
    fabric = a_fabric(kind="infiniband", interface=[], adapter=["mlx5_0"])
    assert resolve(fabric, facts) == Rails((), ("mlx5_0",), ())


def test_an_interface_without_adapter_is_no_rdma_fabric():
    """Said in one line, with the adapters that there are."""
    facts = some_facts(adapters={"mlx5_0": an_adapter("ib0")})
    with pytest.raises(LaunchError, match=r"eth0 on n0 belongs to no RDMA adapter \(it has: mlx5_0\)"):
        resolve(a_fabric(kind="roce"), facts)


def test_efa_takes_its_adapters_beside_the_named_interface():
    """The interface is the ENA one, where ranks meet; the adapters have none."""
    adapters = {f"rdmap{k}s6": an_adapter(driver="efa") for k in (0, 1)}
    facts = some_facts(adapters=adapters | {"mlx5_0": an_adapter()})
    fabric = a_fabric(kind="efa", ports_per_node=2)
    assert resolve(fabric, facts) == Rails(("eth0",), ("rdmap0s6", "rdmap1s6"), ("10.77.0.1",))


@pytest.mark.parametrize(("rails", "found"), [(1, "2 of them: mlx5_0, mlx5_1"), (3, "has 2 of them")])
def test_the_number_of_rails_must_be_met_exactly(rails, found):
    """Neither fewer nor more than ports_per_node."""
    facts = some_facts(adapters={name: an_adapter() for name in ("mlx5_0", "mlx5_1")})
    fabric = a_fabric(kind="infiniband", interface=[], adapter=["mlx5_0", "mlx5_1", "mlx5_2"])
    with pytest.raises(LaunchError, match=found):
        resolve(fabric | {"ports_per_node": rails}, facts)
    assert resolve(fabric | {"ports_per_node": 2}, facts).adapters == ("mlx5_0", "mlx5_1")


def test_a_missing_interface_is_one_line_that_names_what_there_is():
    """Key, name, node, its interfaces, and those that are alike in name only."""
    facts = with_interfaces(eth0_100=an_interface("10.0.0.1/24"), lo=an_interface("127.0.0.1/8"))
    with pytest.raises(LaunchError) as error:
        resolve(a_fabric(), facts)
    line = str(error.value)
    assert line.startswith("fabrics.ethernet.interface: eth0 doesn't exist on n0, which has: eth0.100, lo")
    assert "eth0.100 alike in name only" in line
    assert "\n" not in line


@pytest.mark.emulated
def test_an_emulated_node_says_what_it_is(namespaces):
    """A real veth: its driver and its address, whatever /sys shows."""

    def ask(nodes):
        add = [("eth0.100", "10.9.0.1/24"), ("eth0.100.1", None)]
        return on(nodes[0], lambda: ([add_veth(*each) for each in add], probe())[1])

    facts = in_cluster(ask)
    assert {"lo", "eth0", "mgt0", "eth0.100", "eth0.100.1"} <= set(facts["interfaces"])
    eth0 = facts["interfaces"]["eth0"]
    assert (eth0["kind"], eth0["driver"], eth0["up"]) == ("veth", "veth", True)
    assert (facts["host"], facts["resolves_to"]) == ("n0", ["10.76.0.1"])
    assert resolve(a_fabric(kind="emulated"), facts) == Rails(("eth0",), (), ("10.77.0.1",))


@pytest.mark.emulated
def test_names_come_from_the_kernel_where_sys_is_another_namespaces(namespaces, tmp_path):
    """As in containers: /sys of a machine with an eth0 of its own is mounted in a node."""
    (tmp_path / "class/net/eth0").mkdir(parents=True)
    (tmp_path / "class/net/eth0/ifindex").write_text("2")
    (tmp_path / "class/net/eth0/address").write_text("02:fc:00:00:00:01")
    (tmp_path / "class/net/enp1s0").mkdir()

    facts = in_cluster(
        lambda nodes: on(nodes[1], lambda: (add_bridge("docker0", "172.17.0.1/16"), probe(tmp_path))[1])
    )
    assert "enp1s0" not in facts["interfaces"]
    assert facts["interfaces"]["eth0"]["addresses"] == ["10.77.0.2/24"]
    assert facts["interfaces"]["docker0"]["kind"] == "bridge"
