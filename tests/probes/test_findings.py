"""From files, damaged or whole, to findings through the whole rulebook: what peers cry wolf at draws none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Known, Unread
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.probes import collect, container, driver, environment, fabric, host, kernel_log, limits, pci, wsl
from tests.probes.test_log_events import SXID, XID_154
from tests.probes.test_probe_container import LIB, VERSION, handed
from tests.probes.test_probe_fabric import NOTHING, START, hgx, running, stamped
from tests.probes.test_probe_kernel_log import record, tree_of
from tests.probes.test_probe_wsl import KERNEL
from tests.probes.trees import Tree, spoilt

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


def test_a_container_with_its_gpu_in_wsl_gives_neither_error_nor_warning(tmp_path: Path) -> None:
    told = ModuleType("gpudoctor.probes.told")
    answers = {
        "nvml.state": Known("ok", "NVML"),
        "gpu.count": Known(1, "NVML"),
        "libs.libcuda": Known(f"{LIB}/libcuda.so.1", "the loader"),
        "libs.libcuda_kind": Known("driver", "the loader"),
        "libs.libcuda_version": Known(VERSION, "the loader"),
    }
    kinds = {"gpu.count": "int", "libs.libcuda_version": "version"}
    facts = [fact(name, kinds.get(name, "text"), "told") for name in answers]  # type: ignore[arg-type]
    vars(told).update(FACTS=facts, probe=lambda _: iter(answers.items()))
    library = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1"
    tree = handed(Tree(tmp_path).linux(kernel=KERNEL).container(), library, nodes=("dxg",))
    target = tree.target(PATH=os.environ["PATH"])
    read = collect(target, [container, driver, environment, host, limits, told, pci, wsl])
    found = judge(complete(read), rulebook.load()).findings
    assert [finding.id for finding in found if finding.severity != "info"] == []


@pytest.mark.full
def test_a_damaged_file_never_ends_a_probe(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu("nvidia").driver("580.95.05").file("/usr/bin/nv-fabricmanager")
    tree.file("/proc/self/limits", "Max open files  1024  1024  files\n").file("/sys/fs/cgroup/memory.max", "max\n")
    tree.file("/dev/kmsg", "3,1,5,-;NVRM: Xid (PCI:0000:1a:00): 79, x\n").file(
        "/etc/modprobe.d/x.conf", "blacklist a\n"
    )
    tree.file("/usr/share/misc/pci.ids", "10de  NVIDIA\n\t2330  GH100\n").file("/var/lib/dpkg/status", "Package: a\n")
    target = tree.target()
    for place in sorted(path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()):
        for kind in spoilt(place):
            snapshot = collect(target, [driver, environment, fabric, host, kernel_log, limits, pci])
            died = [
                state.why for state in snapshot.facts.values() if isinstance(state, Unread) and " died" in state.why
            ]
            assert not died, f"{place.relative_to(tmp_path)} {kind}: {died[0]}"
