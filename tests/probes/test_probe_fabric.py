"""Fabric manager, subnet manager and IMEX: what runs, of what version, what it logged; none of it where none is due."""

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import fabric
from tests.probes.trees import Tree, said, values

MANAGER = "/usr/bin/nv-fabricmanager"
LOG = "/var/log/fabricmanager.log"
START = "[INFO] [tid 841] {} version {} is running with the following configuration options"
FATAL = "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"
NOTHING = "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do"


def stamped(*lines: str) -> str:
    return "".join(f"[Nov 21 2026 07:53:{n:02}] {line}\n\n" for n, line in enumerate(lines))


def hgx(root: Path) -> Tree:
    """A machine with the driver and an NVSwitch of the PCI kind; process 1 can be seen."""
    tree = Tree(root).linux().gpu("nvidia").pci("0000:c1:00.0", 0x10DE, 0x22A3, 0x068000, port="0000:00:09.0")
    return tree.driver("580.95.05").folder("/run/systemd/system")


def running(tree: Tree) -> Tree:
    tree.file(MANAGER).file("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "977\n")
    return tree.file("/proc/977/comm", "nv-fabricmanage\n")


def test_a_machine_without_any_of_it(tmp_path: Path) -> None:
    facts = values(fabric, Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05").target())
    assert facts == {
        "driver.fabric_manager": "not installed",
        "driver.fabric_manager_version": Absent,
        "fabric.installed_version": Absent,
        "fabric.enabled": Absent,
        "fabric.errors": Absent,
        "fabric.switch_ports": (),
        "fabric.umad": False,
        "fabric.subnet_manager": "not installed",
        "imex.state": "not installed",
        "imex.version": Absent,
        "imex.enabled": Absent,
        "imex.nodes": Absent,
        "imex.channels": Absent,
        "imex.errors": Absent,
    }


def test_it_runs_since_an_upgrade_of_the_package(tmp_path: Path) -> None:
    status = "Package: nvidia-fabricmanager-580\nStatus: install ok installed\nVersion: 580.105.08-1\n\n"
    log = stamped(START.format("Fabric Manager", "580.82.07"), f"[ERROR] [tid 9] {FATAL}", "[INFO] [tid 9] bye")
    log += stamped(START.format("Fabric Manager", "580.95.05"), "[INFO] [tid 9] Successfully configured all GPUs")
    tree = running(hgx(tmp_path)).file("/var/lib/dpkg/status", status).file(LOG, log)
    tree.link("/etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service", "/lib/x.service")
    facts = values(fabric, tree.target())
    assert facts["driver.fabric_manager"] == "running"
    assert (facts["fabric.installed_version"], facts["driver.fabric_manager_version"]) == ("580.105.08", "580.95.05")
    assert (facts["fabric.enabled"], facts["fabric.errors"]) == (True, ())


def test_errors_since_it_was_started(tmp_path: Path) -> None:
    log = stamped(START.format("Fabric Manager", "580.95.05"), f"[ERROR] [tid 12] {FATAL}", "[INFO] [tid 12] x")
    facts = values(fabric, running(hgx(tmp_path)).file(LOG, log).target())
    assert facts["fabric.errors"] == (f"[Nov 21 2026 07:53:01] [ERROR] [tid 12] {FATAL}",)


def test_it_runs_where_it_is_configured_to_or_in_the_gpu_operators_container(tmp_path: Path) -> None:
    tree = running(hgx(tmp_path)).file("/usr/share/nvidia/nvswitch/fabricmanager.cfg", "LOG_FILE_NAME=/run/fm.log\n")
    tree.file("/run/fm.log", stamped(START.format("Fabric Manager", "580.95.05")))
    assert values(fabric, tree.target())["driver.fabric_manager_version"] == "580.95.05"
    tree = (
        hgx(tmp_path / "pod")
        .file("/run/nvidia/driver/usr/bin/nv-fabricmanager")
        .file("/proc/977/comm", "nv-fabricmanage\n")
    )
    assert values(fabric, tree.target())["driver.fabric_manager"] == "running"


def test_its_version_where_its_log_does_not_tell_it(tmp_path: Path) -> None:
    tree = running(hgx(tmp_path)).file(LOG, stamped(START.format("Fabric Manager", "580.95.05")) + "x" * (1 << 18))
    assert values(fabric, tree.target())["driver.fabric_manager_version"] is Unread
    assert values(fabric, hgx(tmp_path / "dpkg").file(MANAGER).target())["driver.fabric_manager_version"] is Unread


@pytest.mark.parametrize(("state", "word"), [("failed", "failed"), ("inactive", "stopped")])
def test_it_does_not_run(tmp_path: Path, state: str, word: str) -> None:
    tree = hgx(tmp_path).file(MANAGER).file("/bin/systemctl", f"#!/bin/sh\necho ActiveState={state}\n", mode=0o755)
    tree.file("/bin/journalctl", f"#!/bin/sh\necho 'Starting NVIDIA fabric manager'\necho '{NOTHING}'\n", mode=0o755)
    path = str(tmp_path / "bin")
    assert values(fabric, tree.target(PATH=path))["driver.fabric_manager"] == word
    assert values(fabric, tree.target(PATH=path))["fabric.errors"] is Absent
    assert values(fabric, tree.target("standard", PATH=path))["fabric.errors"] == (NOTHING,)


@pytest.mark.parametrize("package", ["nvidia-fabricmanager-570", "nvidia-fabricmanager"])
def test_its_version_from_dpkg(tmp_path: Path, package: str) -> None:
    status = (
        f"Package: nvidia-fabricmanager-535\nStatus: deinstall ok config-files\nVersion: 535.54.03-1\n\n"
        f"Package: {package}\nStatus: install ok installed\nVersion: 570.124.06-1\n\nPackage: z\nVersion: 1\n"
    )
    tree = hgx(tmp_path).file(MANAGER).file("/var/lib/dpkg/status", status)
    assert values(fabric, tree.target())["driver.fabric_manager_version"] == "570.124.06"


def test_switches_behind_infiniband_devices(tmp_path: Path) -> None:
    """HGX B200: ConnectX bridges beside the network cards; their product data say what they are for."""
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05").file("/opt/nvidia/nvlsm/sbin/nvlsm")
    for number, words in enumerate((b"NVIDIA ConnectX-7\0", b"\x82\x10PN\x05SW_MNG\0")):
        tree.file(f"/sys/class/infiniband/mlx5_{number}/device/vpd", words)
    facts = values(fabric, tree.target())
    assert (facts["fabric.switch_ports"], facts["fabric.umad"]) == (("mlx5_1",), False)
    assert facts["fabric.subnet_manager"] == "stopped"
    facts = values(fabric, tree.module("ib_umad").file("/proc/55/comm", "nvlsm\n").target())
    assert (facts["fabric.umad"], facts["fabric.subnet_manager"]) == (True, "running")


def test_imex_between_machines(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05").file("/usr/bin/nvidia-imex")
    tree.file("/etc/nvidia-imex/nodes_config.cfg", "# one address a line\n10.0.0.1\n10.0.0.2\n\n")
    tree.file("/dev/nvidia-caps-imex-channels/channel0").file("/proc/71/comm", "nvidia-imex\n")
    tree.file(
        "/var/log/nvidia-imex.log",
        stamped(START.format("IMEX", "580.95.05"), "[ERROR] [tid 3] Connection to node 10.0.0.2 failed"),
    )
    facts = values(fabric, tree.target())
    assert (facts["imex.state"], facts["imex.nodes"], facts["imex.channels"]) == ("running", 2, 1)
    assert facts["imex.errors"] == ("[Nov 21 2026 07:53:01] [ERROR] [tid 3] Connection to node 10.0.0.2 failed",)
    tree = (
        Tree(tmp_path / "alone")
        .linux()
        .file("/usr/bin/nvidia-imex")
        .file("/etc/nvidia-imex/nodes_config.cfg", "# none\n")
    )
    facts = values(fabric, tree.target())
    assert (facts["imex.state"], facts["imex.nodes"], facts["imex.channels"]) == ("stopped", Absent, Absent)


@pytest.mark.parametrize("layer", ["", "systemd/"])
def test_a_daemon_is_found_by_its_unit_on_a_machine_full_of_processes(tmp_path: Path, layer: str) -> None:
    tree = Tree(tmp_path).linux().file("/usr/bin/nvidia-imex").file("/proc/71000/comm", "nvidia-imex\n")
    for pid in range(2, 4100):
        tree.folder(f"/proc/{pid}")
    assert values(fabric, tree.target())["imex.state"] is Unread
    tree.file(f"/sys/fs/cgroup/{layer}system.slice/nvidia-imex.service/cgroup.procs", "70999\n71000\n")
    assert values(fabric, tree.target())["imex.state"] == "running"


def test_in_a_container_only_what_was_handed_in_is_seen(tmp_path: Path) -> None:
    tree = running(hgx(tmp_path)).file("/dev/nvidia-caps-imex-channels/channel7").container()
    facts = said(fabric, tree.target())
    assert facts.pop("imex.channels").value == 1
    assert {type(state) for state in facts.values()} == {Unread}
    assert "docker" in facts["driver.fabric_manager"].why
