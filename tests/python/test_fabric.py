# SPDX-License-Identifier: BSD-3-Clause
"""The fabric of `altorch info`: ports of made sysfs trees, what MPI took by recorded output, and the warnings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from altorch import _mpi
from altorch.cli import _fabric, _fabric_devices, _fabric_probe, _fabric_taken
from altorch.cli._fabric_advice import Machine
from tests.ranks.launch import REPOSITORY

# Recorded with the Python package mpich 5.0.2, Debian's Open MPI 4.1.4 and Open MPI 5.0.11. No
# machine with another network than Ethernet was at hand: there the names of transports and ports
# are put into the same lines.
MPICH_VERSION = (
    "Library version: MPICH Version:      5.0.2 | MPICH Device:       ch4:ucx ofi | MPICH CC: cc\n"
)
MPICH_UCX = (
    MPICH_VERSION
    + """
[1795996769.039929] [vm:25819:0]     ucp_context.c:2463 UCX  INFO  Version 1.20.1 (loaded from /lib/libucp.so.0)
[1795996769.054100] [vm:25819:0]       ib_device.c:1209 UCX  DEBUG {gid}
[1795996769.054131] [vm:25819:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 self cfg#0 {lanes}
==== UCX netmod Capability ====
"""
)
MPICH_OFI = (
    MPICH_VERSION
    + """
provider: {provider}, score = 4, pref = 0, FI_SOCKADDR_IN [16] 192.0.2.2
==== Capability set configuration ====
libfabric provider: {provider} - 192.0.2.0/24
num_nics: 1
====== Rank to NIC assignment ========
Rank: 0, Local_rank: 0, NIC: {domain}
"""
)
OPEN_MPI = "Library version: Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4\n"
OPEN_MPI_OB1 = (
    OPEN_MPI
    + """
[vm:24938] select: init of component tcp returned success
[vm:24938] select: init of component vader returned failure
[vm:24938] select: init of component self returned success
[vm:25294] btl:tcp: using ipv4 interface eth0
[vm:25294] btl:tcp: using ipv6 interface eth0
[vm:24938] selected ob1 best priority 20
"""
)
OPEN_MPI_UCX = (
    OPEN_MPI
    + """
[1795996616.433152] [vm:25444:0]     ucp_context.c:1014 UCX  WARN  transports 'knem','xpmem' are not available
[vm:25444] selected ucx best priority 51
[1795996616.437854] [vm:25444:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(tcp/lo tcp/eth0)
"""
)
OPEN_MPI_CM = (
    OPEN_MPI
    + """
[vm:25454] mca:base:select:(  mtl) Selected component [ofi]
[vm:25454] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:337: mtl:ofi:prov: tcp;ofi_rxm
[vm:25454] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:365: mtl:ofi:provider: eth0
[vm:25454] selected cm best priority 25
"""
)
OPEN_MPI_5 = (
    "Library version: Open MPI v5.0.11, package: Open MPI user\n"
    """
[vm:26708] btl:tcp: 0x55f38ddc7d80: if eth0 kidx 4 cnt 0 addr fd00::2 IPv6 bw 100 lt 100
[vm:26708] select: init of component tcp returned success
[vm:26708] select: init of component uct returned success
[vm:26708] selected ob1 best priority 20
"""
)
TCP = "tag(tcp/eth0)  rma_am(tcp/eth0)  am(tcp/eth0)"
ROCE_GIDS = {
    0: ("IB/RoCE v1", "fe80:0000:0000:0000:0ac0:ebff:fe12:3456"),
    1: ("RoCE v2", "fe80:0000:0000:0000:0ac0:ebff:fe12:3456"),
    2: ("IB/RoCE v1", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
    3: ("RoCE v2", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
}


def ucx(lanes=TCP, gid="no gid"):
    return MPICH_UCX.format(lanes=lanes, gid=gid)


def ofi(provider, domain="eth0"):
    return MPICH_OFI.format(provider=provider, domain=domain)


class Tree:
    """A file system with the parts that are read of sysfs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("dev/infiniband/uverbs0", "")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def rdma(
        self, device, port=1, layer="InfiniBand", rate="100", state="4: ACTIVE", vendor="0x15b3", gids=()
    ):
        folder = f"sys/class/infiniband/{device}"
        self.write(f"{folder}/device/vendor", vendor)
        for name, text in (("link_layer", layer), ("rate", f"{rate} Gb/sec (4X EDR)"), ("state", state)):
            self.write(f"{folder}/ports/{port}/{name}", text)
        for index, (kind, address) in dict(gids).items():
            self.write(f"{folder}/ports/{port}/gids/{index}", address)
            self.write(f"{folder}/ports/{port}/gid_attrs/types/{index}", kind)
            self.write(f"{folder}/ports/{port}/gid_attrs/ndevs/{index}", "ens1f0np0")

    def on_card(self, device, function):
        """As where the device is a link to a PCI function."""
        folder = self.root / f"sys/class/infiniband/{device}"
        pci = self.root / f"sys/devices/{function}"
        pci.parent.mkdir(parents=True, exist_ok=True)
        (folder / "device").rename(pci)
        (folder / "device").symlink_to(pci)

    def ethernet(self, name="eth0", megabits=10000, state="up"):
        for file, text in (
            ("speed", megabits),
            ("operstate", state),
            ("type", 1),
            ("device/vendor", "0x1af4"),
        ):
            self.write(f"sys/class/net/{name}/{file}", str(text))

    def shown(self, output, environment=None, failure=""):
        machine = Machine(_fabric_devices.ports(self.root), environment or {}, self.root)
        return _fabric.document(machine, _fabric_probe.Answer(output, failure, 0.1), {})


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def the_warning(found):
    (row,) = found["warnings"]
    return row["warning"], row["set"]


def test_infiniband_with_one_port_of_two_unused(tree):
    tree.rdma("mlx5_0", 1)
    tree.rdma("mlx5_0", 2)
    tree.ethernet()
    found = tree.shown(ucx("tag(rc_mlx5/mlx5_0:1)  am(rc_mlx5/mlx5_0:1)"))
    assert (found["transports"], found["devices"]) == (["rc_mlx5"], ["mlx5_0:1"])
    assert [(row["name"], row["used"]) for row in found["ports"]] == [
        ("mlx5_0:1", True), ("mlx5_0:2", False), ("eth0", False)
    ]  # fmt: skip
    assert the_warning(found) == (
        "mlx5_0:2 (InfiniBand, 100 Gb/s) idle beside mlx5_0:1 (InfiniBand, 100 Gb/s).",
        "UCX_NET_DEVICES=mlx5_0:1,mlx5_0:2",
    )
    assert not tree.shown(ucx("tag(rc_mlx5/mlx5_0:1/path0 rc_mlx5/mlx5_0:2)"))["warnings"]


def test_a_dual_port_card_of_two_devices(tree):
    """mlx5 shows each port as a device of its own, a function of the same PCI card; another card is elsewhere."""
    for device, function in (
        ("mlx5_0", "0000:3b:00.0"),
        ("mlx5_1", "0000:3b:00.1"),
        ("mlx5_2", "0000:af:00.0"),
    ):
        tree.rdma(device)
        tree.write(f"sys/class/infiniband/{device}/device/numa_node", "1" if device == "mlx5_2" else "0")
        tree.on_card(device, function)
    text, remedy = the_warning(tree.shown(ucx("tag(rc_mlx5/mlx5_0:1)")))
    assert text.startswith("mlx5_1:1 (") and remedy == "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1"


@pytest.mark.parametrize(
    ("output", "environment", "remedy"),
    [
        (ucx(), {}, "Raise the limit of locked memory"),
        (ucx(), {"UCX_TLS": "tcp"}, r"Unset UCX_TLS \(tcp\)"),
        (ucx(), {"UCX_NET_DEVICES": "eth0"}, "UCX_NET_DEVICES=mlx5_0:1$"),
        (ofi("tcp"), {}, "MPIR_CVAR_CH4_NETMOD=ucx UCX_NET_DEVICES=mlx5_0:1$"),
        (OPEN_MPI_OB1, {}, "OMPI_MCA_pml=ucx UCX_NET_DEVICES=mlx5_0:1$"),
    ],
)
def test_infiniband_that_is_idle(tree, output, environment, remedy):
    tree.rdma("mlx5_0")
    text, to_set = the_warning(tree.shown(output, environment))
    assert text.startswith("mlx5_0:1 (InfiniBand, 100 Gb/s) idle: ") and "tcp over eth0" in text
    assert re.match(remedy, to_set)


def test_infiniband_in_a_container_without_its_devices(tree):
    tree.rdma("mlx5_0")
    (tree.root / "dev/infiniband/uverbs0").unlink()
    assert "--device=/dev/infiniband" in the_warning(tree.shown(ucx()))[1]


def test_infiniband_without_a_subnet_manager(tree):
    tree.rdma("mlx5_0", state="2: INIT")
    text, remedy = the_warning(tree.shown(ucx()))
    assert "waits for a subnet manager" in text and "opensm" in remedy


def test_roce_with_a_gid_that_passes_no_router(tree):
    tree.rdma("mlx5_0", layer="Ethernet", gids=ROCE_GIDS)
    lanes = "tag(rc_mlx5/mlx5_0:1)"
    found = tree.shown(ucx(lanes, "mlx5_0:1 using gid_index=0 ver=0 addr_family=10"))
    assert found["gid"] == {"mlx5_0:1": "index 0 (IB/RoCE v1, fe80::ac0:ebff:fe12:3456)"}
    text, remedy = the_warning(found)
    assert "GID index 0 (IB/RoCE v1" in text and remedy.startswith("UCX_IB_GID_INDEX=3 (RoCE v2")
    right = ucx(lanes, "mlx5_0:1 using gid_index=3 ver=2 addr_family=2")
    assert not tree.shown(right)["warnings"] and "RoCE v2" in tree.shown(right)["gid"]["mlx5_0:1"]
    asked = tree.shown(right, {"UCX_IB_GID_INDEX": "1"})
    assert "GID index 1 (RoCE v2, fe80::" in the_warning(asked)[0]


def test_roce_without_an_address(tree):
    tree.rdma("mlx5_0", layer="Ethernet", gids={0: ROCE_GIDS[0], 1: ROCE_GIDS[1]})
    text, remedy = the_warning(tree.shown(ucx("tag(rc_mlx5/mlx5_0:1)")))
    assert "no RoCE v2 GID" in text and remedy == "Give ens1f0np0 an IP address."


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        (ucx(), "MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=efa"),
        (ucx("tag(srd/rdmap0s6:1)"), "MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=efa"),
        (
            ucx().replace("ch4:ucx ofi", "ch4:ucx"),
            "An MPI with libfabric (this one has ucx) and FI_PROVIDER=efa",
        ),
        (ofi("tcp"), "MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=efa"),
        (OPEN_MPI_OB1, "OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=efa"),
    ],
)
def test_efa_without_its_provider(tree, output, remedy):
    tree.rdma("rdmap0s6", layer="Unspecified", vendor="0x1d0f")
    text, to_set = the_warning(tree.shown(output))
    assert "rdmap0s6:1 (EFA, 100 Gb/s)" in text and to_set == remedy
    assert not tree.shown(ofi("efa", "rdmap0s6-rdm"))["warnings"]


def test_slingshot_without_cxi(tree):
    tree.write("sys/class/cxi/cxi0/device/net/hsn0/operstate", "up")
    tree.write("sys/class/cxi/cxi0/device/net/hsn0/speed", "200000")
    tree.ethernet("hsn0", 200000)
    found = tree.shown(ucx("tag(tcp/hsn0)"))
    assert [row["name"] for row in found["ports"]] == ["cxi0"], "hsn0 is the same port"
    text, remedy = the_warning(found)
    assert text == "cxi0 (Slingshot, 200 Gb/s) idle: MPICH's ucx takes tcp over hsn0."
    assert "ALTORCH_MPI=the path of the site's libmpi.so" in remedy and "FI_PROVIDER=cxi" in remedy
    tree.write("opt/cray/pe/mpich/8.1.30/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12", "")
    path = "ALTORCH_MPI=/opt/cray/pe/mpich/8.1.30/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
    assert path in the_warning(tree.shown(ofi("tcp")))[1]
    assert not tree.shown(ofi("cxi", "cxi0"))["warnings"]


def test_ethernet_only(tree):
    tree.ethernet()
    tree.ethernet("eth1", 100000, state="down")
    found = tree.shown(ucx())
    assert not found["warnings"] and not found["unknown"]
    assert [(row["name"], row["state"], row["gbps"], row["used"]) for row in found["ports"]] == [
        ("eth0", "active", 10, True), ("eth1", "down", 100, False)
    ]  # fmt: skip
    tree.ethernet("eth1", 100000)
    text, remedy = the_warning(tree.shown(ucx()))
    assert text == "eth1 (Ethernet, 100 Gb/s) idle: MPICH's ucx takes tcp over eth0."
    assert remedy.startswith("UCX_NET_DEVICES=eth1,")
    assert "sockets" in tree.shown(ofi("sockets"))["warnings"][0]["warning"]


@pytest.mark.parametrize(
    ("output", "netmod", "transports", "interfaces"),
    [
        (ucx(), "ucx", ["tcp"], ["eth0"]),
        (ofi("tcp"), "ofi", ["tcp"], ["eth0"]),
        (ofi("shm", "shm"), "ofi", ["shm"], ["shm"]),
        (OPEN_MPI_OB1, "ob1", ["tcp"], ["eth0"]),
        (OPEN_MPI_UCX, "ucx", ["tcp"], ["lo", "eth0"]),
        (OPEN_MPI_CM, "cm", ["tcp;ofi_rxm"], ["eth0"]),
        (OPEN_MPI_5, "ob1", ["tcp"], ["eth0"]),
        ("Library version: Intel(R) MPI Library 2021.18.1 for Linux* OS\n", "", [], []),
        ("", "", [], []),
    ],
)
def test_what_mpi_took_is_read_from_its_output(output, netmod, transports, interfaces):
    taken = _fabric_taken.read(output)
    assert (taken.netmod, taken.transports, taken.devices) == (netmod, transports, interfaces)
    assert not taken.remarks


def test_what_is_unknown_has_a_reason(tree):
    found = tree.shown(MPICH_VERSION, {"FI_PROVIDER": "efa"}, "MPI_Init did not end within 5 s")
    assert found["netmod"] == "" and found["unknown"] == {"netmod": "MPI_Init did not end within 5 s"}
    assert "Look at FI_PROVIDER=efa" in the_warning(found)[1]
    found = tree.shown("Library version: Intel(R) MPI Library 2021.18.1 for Linux* OS")
    assert "does not say it" in found["unknown"]["netmod"]
    assert "UCX warns" in tree.shown(ucx() + "[1] ucp_context.c:1381 UCX  WARN  UCX warns")["remarks"]


def test_the_probe_has_no_identity_of_a_launcher():
    source = (REPOSITORY / "csrc/bootstrap/environment.cpp").read_text()
    block = re.search(r"kIdentity\[\] = \{(.*?)\};", source, re.DOTALL)
    identity = [name.replace("*", "X") for name in re.findall(r'"(.*?)"', block[1])]
    kept = {"PMIX_MCA_gds": "hash", "HYDRA_FULL_CXX": "1", "UCX_NET_DEVICES": "eth1"}
    environment = dict.fromkeys(identity, "1") | kept
    defaults = {"UCX_NET_DEVICES": "eth0", "FI_TCP_IFACE": "eth0"}
    found = _fabric_probe.environment_of_probe(environment, defaults, Path("/nowhere/lib/libmpi.so"))
    assert len(identity) > 20 and not {*identity} & {*found}
    assert found.items() >= (kept | {"FI_TCP_IFACE": "eth0"}).items()


def test_the_probe_leaves_out_transports_of_one_node():
    network = _fabric_probe.network_transports
    assert network("") == network("all") == network("sm,self") == "^posix,sysv,cma,knem,xpmem,self"
    assert network("rc,ud,sm,self") == "rc,ud" and network("^ud").startswith("^ud,posix,")


def test_altorch_names_active_ports_and_the_interface(tree):
    tree.rdma("mlx5_0", 1)
    tree.rdma("mlx5_0", 2)
    tree.rdma("mlx5_1", 1, state="1: DOWN")
    tree.write("proc/net/route", "Iface\tDestination\tGateway\nib0\t0000000A\t0\t1\t0\t0\t0\t0000FFFF\n"
               "eth0\t00000000\t010200C0\t3\t0\t0\t0\t00000000")  # fmt: skip
    interface = _fabric_devices.default_interface(tree.root)
    sets = _fabric_probe.altorch_sets(_fabric_devices.ports(tree.root), interface, {"FI_TCP_IFACE": "ib0"})
    assert sets == {"UCX_NET_DEVICES": "mlx5_0:1,mlx5_0:2,eth0", "FI_PROVIDER": "^sockets"}
    assert not _fabric_devices.default_interface(tree.root / "nowhere")


def test_open_mpi_tolerates_faults_where_no_fast_port_is_active(tree):
    def sets():
        return _fabric_probe.altorch_sets(_fabric_devices.ports(tree.root), "eth0", {}, open_mpi=True)

    tree.rdma("mlx5_0", 1, state="1: DOWN")
    assert sets()["OMPI_MCA_mpi_ft_enable"] == "1"
    tree.rdma("mlx5_0", 2)
    assert "OMPI_MCA_mpi_ft_enable" not in sets()


def test_altorch_chooses_the_netmod_on_ethernet_alone(tree):
    may_choose = _fabric_probe.may_choose_netmod
    ethernet = [port for port in _fabric_devices.ports(tree.root) if port.fabric == _fabric_devices.ETHERNET]
    assert may_choose(ethernet, {"FI_PROVIDER": "tcp"})
    for name in ("MPIR_CVAR_CH4_NETMOD", "UCX_TLS", "UCX_NET_DEVICES"):
        assert not may_choose(ethernet, {name: "ucx"})
    tree.rdma("mlx5_0", 1, state="2: INIT")
    assert may_choose(_fabric_devices.ports(tree.root), {})
    tree.rdma("mlx5_0", 2)
    assert not may_choose(_fabric_devices.ports(tree.root), {})


def test_the_interface_towards_a_host():
    towards = _fabric_devices.interface_towards
    assert towards("127.0.0.1") == towards("no such host") == ""
    if interface := _fabric_devices.default_interface():
        assert towards("192.0.2.254") == interface


def test_an_mpi_that_does_not_start_is_ended(monkeypatch, tmp_path):
    program = tmp_path / "hangs.py"
    program.write_text(
        "import time\nprint('Library version: MPICH Version: 9', flush=True)\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(_fabric_probe, "PROGRAM", program)
    answer = _fabric_probe.ask(Path("libmpi.so"), {}, seconds=0.5)
    assert answer.failure == "MPI_Init did not end within 0.5 s" and answer.seconds < 10
    assert answer.timed_out and answer.output.startswith("Library version: MPICH")


def test_a_selected_network_that_does_not_start_is_named(monkeypatch, tmp_path):
    program = tmp_path / "fails.py"
    program.write_text("import sys\nprint('no transport', flush=True)\nsys.exit(1)\n")
    monkeypatch.setattr(_fabric_probe, "PROGRAM", program)
    fails = _fabric_probe.selected_network_fails
    assert fails(Path("libmpi.so"), {"UCX_LOG_LEVEL": "info"}) == ""
    wanted = "MPI does not start with UCX_TLS=rc: MPI_Init failed: exit status 1: no transport"
    assert fails(Path("libmpi.so"), {"UCX_TLS": "rc"}) == wanted


def test_the_mpi_of_this_machine_says_what_it_takes(capsys):
    library = _mpi.find()
    if library.path is None or "mpich" not in library.reason:
        pytest.skip(f"the Python package mpich is not what altorch takes here: {library.reason}")
    found = _fabric.of_this_process()
    assert found["netmod"] in ("ucx", "ofi") and found["transports"] and found["devices"], found["probe"]
    assert found["netmods"] == ["ucx", "ofi"] and found["probe"]["seconds"] < _fabric_probe.SECONDS
    _fabric.print_fabric(found, with_output=True)
    shown = capsys.readouterr().out
    assert found["library"] in shown
    chosen = found["altorch_sets"].get("MPIR_CVAR_CH4_NETMOD", found["netmod"])
    assert found["netmod"] == chosen and ("UCX  INFO" in shown or chosen == "ofi")
    assert _fabric.summary(found).startswith(f"{found['library']}, {found['netmod']}: ")


def test_explain_of_several_nodes_names_the_network(capsys, monkeypatch):
    from altorch.cli import main

    monkeypatch.setattr(_fabric, "of_this_process", lambda: stand_in(ofi("sockets")))
    assert main(["explain", "all_reduce", "--ranks", "4", "--nodes", "2"]) == 0
    shown = capsys.readouterr().out
    assert "MPICH Version: 5.0.2, ofi: sockets over eth0" in shown and "FI_PROVIDER=tcp" in shown


def stand_in(output):
    machine = Machine([], {}, Path("/nowhere"))
    return _fabric.document(machine, _fabric_probe.Answer(output, "", 0.0), {})
