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
from tests.unit.trees import Tree

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


SOUND: dict[str, Callable[[Tree], Tree]] = {
    "Secure Boot with a trusted module": lambda tree: tree.secure_boot(True).driver("580.95.05"),
    "nodes made at first use": lambda tree: tree.driver("580.95.05", nodes=False).file(
        "/usr/bin/nvidia-modprobe", "", 0o4755
    ),
}
"""What no machine of tests/sim has; sick ones and the other sound ones are judged there, under the whole program."""


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_machine_gives_no_error(tmp_path: Path, name: str) -> None:
    found = diagnosis(SOUND[name](Tree(tmp_path).linux().gpu("nvidia")), "ok")
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
