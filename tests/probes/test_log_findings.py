"""Kernel log and daemons through the whole rulebook: what peers cry wolf at is no finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Known
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.probes import collect, driver, environment, fabric, host, kernel_log, limits, pci
from tests.probes.test_log_events import SXID, XID_154
from tests.probes.test_probe_fabric import NOTHING, START, hgx, running, stamped
from tests.probes.test_probe_kernel_log import record, tree_of
from tests.probes.trees import Tree

QUIET: dict[str, Callable[[Path], Tree]] = {
    "a reset that was asked for and done": lambda root: tree_of(
        root,
        record(XID_154.format(0, "None", 1, "GPU Reset Required"), 90),
        record(XID_154.format(1, "GPU Reset Required", 0, "None"), 80),
    ),
    "what NVSwitches say at every boot": lambda root: tree_of(
        root, *(record(f"{SXID}22013, Non-fatal, Link {n} Minion Link DLREQ interrupt", 90) for n in range(44, 60))
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
    """NVML answers on that machine, and cuInit with success."""
    told = ModuleType("gpudoctor.probes.nvml")
    facts = (fact("nvml.state", "text", "told"), fact("cuda_driver.init_code", "int", "told"))
    answers = [("nvml.state", Known("ok", "NVML")), ("cuda_driver.init_code", Known(0, "cuInit"))]
    vars(told).update(FACTS=facts, probe=lambda _: iter(answers))
    probes = [driver, environment, fabric, host, kernel_log, limits, told, pci]
    diagnosis = judge(complete(collect(QUIET[name](tmp_path).target(), probes)), rulebook.load())
    assert [finding.title for finding in diagnosis.findings if finding.severity != "info"] == []
