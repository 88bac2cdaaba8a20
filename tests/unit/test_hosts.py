"""From a machine's files to the cause: the host's own probes and the real rulebook, over machines laid out here.

Only the rule that must come first is named: wordings are the pages' own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gpudoctor import rulebook
from gpudoctor.collect import collect
from gpudoctor.judge import judge
from gpudoctor.knowledge import complete
from gpudoctor.model.catalog import fact
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Known, Unread
from gpudoctor.probes import driver, environment, fabric, host, kernel_log, limits, pci
from tests.unit.trees import DEAD, Tree

WSL = "5.15.167.4-microsoft-standard-WSL2"
BOOK = rulebook.load()


def diagnosis(tree: Tree, nvml: str) -> Diagnosis:
    """The host's probes over the tree; what NVML would say on such a machine is told, for a tree has no NVML."""
    told = ModuleType("gpudoctor.probes.nvml")
    vars(told).update(
        FACTS=(fact("nvml.state", "text", "told"),), probe=lambda _: iter([("nvml.state", Known(nvml, "NVML"))])
    )
    return judge(
        complete(collect(tree.target(), [driver, environment, fabric, host, kernel_log, limits, told, pci])), BOOK
    )


SICK: dict[str, tuple[str, str, Callable[[Tree], Tree]]] = {
    "no GPU": ("host.no-gpu", "library not found", lambda tree: tree),
    "an AMD GPU": (
        "host.other-vendor",
        "library not found",
        lambda tree: tree.pci("0000:03:00.0", 0x1002, 0x744C, 0x030000, "amdgpu"),
    ),
    "nothing installed": ("driver.missing", "library not found", lambda tree: tree.gpu()),
    "a module for the previous kernel": (
        "driver.module-not-built",
        "driver not loaded",
        lambda tree: tree.gpu().libraries("570.86.15").on_disk("570.86.15", kernel="6.8.0-71-generic"),
    ),
    "an upgrade without a reboot": (
        "driver.version-mismatch",
        "version mismatch",
        lambda tree: tree.gpu("nvidia").driver("570.86.15", library="570.133.07"),
    ),
    "an unsigned module": (
        "driver.secure-boot",
        "driver not loaded",
        lambda tree: tree.gpu().secure_boot(True).libraries("570.86.15").on_disk("570.86.15"),
    ),
    "a module that nobody loaded": (
        "driver.module-not-loaded",
        "driver not loaded",
        lambda tree: tree.gpu().libraries("570.86.15").on_disk("570.86.15"),
    ),
    "no device files": (
        "driver.device-nodes",
        "driver not loaded",
        lambda tree: tree.gpu("nvidia").driver("580.95.05", nodes=False),
    ),
    "NVSwitches without their manager": (
        "driver.fabric-manager",
        "ok",
        lambda tree: tree.gpu("nvidia").pci("0000:c1:00.0", 0x10DE, 0x22A3, 0x068000).driver("580.95.05"),
    ),
    "a GPU that no longer answers on the bus": (
        "gpu.fell-off-bus",
        "ok",
        lambda tree: tree.gpu("nvidia").gpu("nvidia", config=DEAD).driver("580.95.05"),
    ),
    "the kernel's word that a GPU is lost": (
        "gpu.fell-off-bus",
        "ok",
        lambda tree: (
            tree.gpu("nvidia")
            .driver("580.95.05")
            .file("/dev/kmsg", "3,9,4700000000,-;NVRM: Xid (PCI:0000:1a:00): 79, x\n")
        ),
    ),
    "a GPU whose firmware stopped answering": (
        "gpu.xid",
        "ok",
        lambda tree: (
            tree.gpu("nvidia")
            .driver("580.95.05")
            .file("/dev/kmsg", "3,9,4700000000,-;NVRM: Xid (PCI:0000:1a:00): 119, x\n")
        ),
    ),
}


@pytest.mark.parametrize("name", SICK)
def test_the_cause_is_named_first(tmp_path: Path, name: str) -> None:
    expected, nvml, lay_out = SICK[name]
    found = diagnosis(lay_out(Tree(tmp_path).linux()), nvml)
    assert [finding.id for finding in found.findings][:1] == [expected]
    assert found.verdict == "broken"


SOUND: dict[str, Callable[[Path], Tree]] = {
    "a program's own fault in the log": lambda root: (
        Tree(root)
        .linux()
        .gpu("nvidia")
        .driver("580.95.05")
        .file("/dev/kmsg", "3,9,4700000000,-;NVRM: Xid (PCI:0000:1a:00): 31, pid=4711, name=python3\n")
    ),
    "two GPUs": lambda root: Tree(root).linux().gpu("nvidia").gpu("nvidia").driver("580.95.05"),
    "a proprietary module": lambda root: Tree(root).linux().gpu("nvidia").driver("535.104.05", "proprietary"),
    "a container with its GPUs": lambda root: Tree(root).linux().gpu("nvidia").driver("580.95.05").container(),
    "WSL": lambda root: Tree(root).linux(kernel=WSL).file("/usr/lib/wsl/lib/libcuda.so.1", "ELF"),
    "Secure Boot with a trusted module": lambda root: (
        Tree(root).linux().secure_boot(True).gpu("nvidia").driver("580.95.05")
    ),
    "nouveau blacklisted": lambda root: (
        Tree(root).linux().gpu("nvidia").driver("580.95.05").file("/etc/modprobe.d/n.conf", "blacklist nouveau\n")
    ),
    "a display of the board's own": lambda root: (
        Tree(root).linux().gpu("nvidia").pci("0000:04:00.0", 0x1A03, 0x2000, 0x030000, "ast").driver("580.95.05")
    ),
    "a laptop's two GPUs": lambda root: (
        Tree(root).linux().pci("0000:00:02.0", 0x8086, 0x46A6, 0x030000, "i915").gpu("nvidia").driver("580.95.05")
    ),
    "nodes made at first use": lambda root: (
        Tree(root).linux().gpu("nvidia").driver("580.95.05", nodes=False).file("/usr/bin/nvidia-modprobe", "", 0o4755)
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_machine_gives_no_error(tmp_path: Path, name: str) -> None:
    found = diagnosis(SOUND[name](tmp_path), "ok")
    assert [finding.id for finding in found.findings if finding.severity == "error"] == []


def spoilt(place: Path) -> Iterator[str]:
    """The file at `place` made, one after another, into things that no kernel writes; then put back."""
    content = place.read_bytes()
    for name, bad in {
        "empty": b"",
        "bytes": b"\xff\0\xfe" * 99,
        "digits": b"9" * 9000,
        "lines": b":\n=\n-\n" * 9,
    }.items():
        place.write_bytes(bad)
        yield name
    place.unlink()
    place.mkdir()
    yield "a folder"
    place.rmdir()
    place.symlink_to(place.name)
    yield "a link to itself"
    place.unlink()
    yield "gone"
    place.write_bytes(content)


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
