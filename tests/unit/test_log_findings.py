"""From kernel log and daemons to the cause: the first fault of each GPU is named, and what peers cry wolf at is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from gpudoctor import rulebook
from gpudoctor.collect import collect
from gpudoctor.judge import judge
from gpudoctor.knowledge import complete
from gpudoctor.model.catalog import fact
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Known
from gpudoctor.probes import driver, environment, fabric, host, kernel_log, limits, pci
from tests.unit.test_log_events import AER, SXID, XID_45, XID_119, XID_154
from tests.unit.test_probe_fabric import NOTHING, START, hgx, running, stamped
from tests.unit.test_probe_kernel_log import LOADING, XID_31, record, tree_of
from tests.unit.trees import Tree

BOOK = rulebook.load()


def diagnosis(tree: Tree) -> Diagnosis:
    """What the rules find on that machine, on which NVML answers, and cuInit with success."""
    told = ModuleType("gpudoctor.probes.nvml")
    facts = (fact("nvml.state", "text", "told"), fact("cuda_driver.init_code", "int", "told"))
    answers = [("nvml.state", Known("ok", "NVML")), ("cuda_driver.init_code", Known(0, "cuInit"))]
    vars(told).update(FACTS=facts, probe=lambda _: iter(answers))
    probes = [driver, environment, fabric, host, kernel_log, limits, told, pci]
    return judge(complete(collect(tree.target(), probes)), BOOK)


def found(tree: Tree) -> dict[str, list[str]]:
    """The titles of errors and warnings by id."""
    out: dict[str, list[str]] = {}
    for finding in diagnosis(tree).findings:
        if finding.severity != "info":
            out.setdefault(finding.id, []).append(finding.title)
    return out


def test_each_gpus_first_fault_is_named_with_its_time(tmp_path: Path) -> None:
    other = XID_119.replace("1a", "2a").replace("119", "120")
    tree = tree_of(
        tmp_path,
        record(LOADING, 9000),
        *(record(XID_45.format(n), 700 - n) for n in range(200)),
        record(XID_119, 400),
        record(XID_119, 300),
        record(XID_154.format(0, "None", 1, "GPU Reset Required"), 299),
        record(other, 60),
    )
    said = found(tree)
    assert said["gpu.xid"] == [
        "Xid 119 (GSP RPC Timeout) on GPU 0000:1a:00.0, logged 2026-11-21T12:23:20Z",
        "Xid 120 (GSP Error) on GPU 0000:2a:00.0, logged 2026-11-21T12:29:00Z",
    ]
    assert "gpu.ecc" not in said
    (first, *_) = [finding for finding in diagnosis(tree).findings if finding.id == "gpu.xid"]
    assert "drain the GPU, then nvidia-smi --gpu-reset" in first.why


def flood(severity: str, count: int, seconds: float) -> tuple[str, ...]:
    words = f"nvidia 0000:1a:00.0: {AER.format(severity)}"
    return tuple(record(words, seconds * (count - n) / count + 1) for n in range(count))


QUIET: dict[str, Callable[[Path], Tree]] = {
    "a flood of Xid 45 after a killed job": lambda root: tree_of(
        root, *(record(XID_45.format(n % 251), 900 - n / 100) for n in range(3000))
    ),
    "a program's own fault": lambda root: tree_of(
        root, *(record(XID_31.replace(": 31", f": {code}"), 60) for code in (13, 31, 43, 45))
    ),
    "a reset that was asked for and done": lambda root: tree_of(
        root,
        record(XID_154.format(0, "None", 1, "GPU Reset Required"), 90),
        record(XID_154.format(1, "GPU Reset Required", 0, "None"), 80),
    ),
    "what NVSwitches say at every boot": lambda root: tree_of(
        root, *(record(f"{SXID}22013, Non-fatal, Link {n} Minion Link DLREQ interrupt", 90) for n in range(44, 60))
    ),
    "a trickle of corrected PCIe errors": lambda root: tree_of(root, *flood("Corrected", 700, 80_000)),
    "a network card's PCIe errors": lambda root: tree_of(
        root, record(f"mlx5_core 0000:c1:00.0: {AER.format('Uncorrected (Non-Fatal)')}")
    ),
    "a job killed at its memory limit, and a corrected bit in a DIMM": lambda root: tree_of(
        root,
        record("Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB", 90),
        record("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", 90),
    ),
    "a fabric manager where there is no NVSwitch": lambda root: (
        tree_of(root)
        .file("/usr/bin/nv-fabricmanager")
        .file("/var/log/fabricmanager.log", stamped(f"[ERROR] [tid 1] {NOTHING}"))
    ),
    "IMEX that waits for a job that spans machines": lambda root: (
        tree_of(root)
        .file("/usr/bin/nvidia-imex")
        .file("/etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2\n")
        .folder("/dev/nvidia-caps-imex-channels")
    ),
    "its package upgraded ahead of the next reboot": lambda root: (
        running(hgx(root))
        .file("/var/log/fabricmanager.log", stamped(START.format("Fabric Manager", "580.95.05")))
        .file(
            "/var/lib/dpkg/status", "Package: nvidia-fabricmanager\nStatus: install ok installed\nVersion: 580.105-1\n"
        )
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_no_alarm_at(tmp_path: Path, name: str) -> None:
    assert found(QUIET[name](tmp_path)) == {}


ALARMS: dict[str, tuple[str, Callable[[Path], Tree]]] = {
    "a fatal error of an NVSwitch": (
        "gpu.nvlink-down",
        lambda root: tree_of(root, record(f"{SXID}24007, Fatal, Link 27 sourcetrack timeout error (First)")),
    ),
    "a flood of corrected PCIe errors": (
        "gpu.pcie-errors",
        lambda root: tree_of(root, *flood("Corrected", 700, 60)),
    ),
}
"""What no machine of tests/sim logs; the others are judged there, under the whole program."""


@pytest.mark.parametrize("name", ALARMS)
def test_alarm_at(tmp_path: Path, name: str) -> None:
    expected, lay_out = ALARMS[name]
    assert list(found(lay_out(tmp_path))) == [expected]
