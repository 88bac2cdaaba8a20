"""The host's own probes over a machine whose files are damaged, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.core.fact import Unread
from gpudoctor.probes import collect, driver, environment, fabric, host, kernel_log, limits, pci
from tests.probes.trees import Tree


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
