"""WSL as it mounts the Windows driver, and the ways in which that goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import wsl
from tests.probes.trees import Tree, refused, said, values

KERNEL = "5.15.167.4-microsoft-standard-WSL2"
LIB = "/usr/lib/x86_64-linux-gnu"


def sound(root: Path) -> Tree:
    """A distribution in WSL 2 whose Windows driver works."""
    tree = (
        Tree(root).linux(kernel=KERNEL).file("/usr/lib/wsl/lib/libcuda.so.1", b"\x7fELF").file("/dev/dxg", mode=0o666)
    )
    tree.file("/var/lib/dpkg/status", "Package: bash\nStatus: install ok installed\nVersion: 5.2\n")
    return tree.file("/etc/ld.so.conf.d/ld.wsl.conf", "# written by WSL\n/usr/lib/wsl/lib\n")


def test_a_sound_distribution(tmp_path: Path) -> None:
    assert values(wsl, sound(tmp_path).target()) == {
        "wsl.driver": True,
        "wsl.loader": True,
        "wsl.device": True,
        "wsl.linux_driver": (),
        "wsl.linux_packages": (),
    }


def test_elsewhere_nothing_is_asked_and_what_may_be_wsl_is_open(tmp_path: Path) -> None:
    facts = said(wsl, Tree(tmp_path).linux().target())
    assert set(facts) == {spec.name for spec in wsl.FACTS}
    assert set(map(type, facts.values())) == {Absent}
    container, unknown = sound(tmp_path / "in").container(), Tree(tmp_path / "unknown")
    for tree in (container, unknown):
        assert set(values(wsl, tree.target()).values()) == {Unread}


@pytest.mark.parametrize(
    ("path", "content", "environ"),
    [
        ("/etc/ld.so.cache", b"\0\0/usr/lib/wsl/lib/libcuda.so.1\0", {}),
        ("/etc/ld.so.conf", b"/usr/lib/wsl/lib\n", {}),
        ("/etc/motd", b"", {"LD_LIBRARY_PATH": "/opt/x:/usr/lib/wsl/lib"}),
    ],
)
def test_ways_for_the_loader_to_get_there(tmp_path: Path, path: str, content: bytes, environ: dict[str, str]) -> None:
    tree = sound(tmp_path).without("/etc/ld.so.conf.d/ld.wsl.conf")
    assert values(wsl, tree.target())["wsl.loader"] is False
    assert values(wsl, tree.file(path, content).target(**environ))["wsl.loader"] is True


def test_a_linux_driver_in_the_distribution(tmp_path: Path) -> None:
    tree = sound(tmp_path).libraries("535.288.01")
    packages = [("libnvidia-compute-535", "ii"), ("nvidia-driver-570-open", "ii"), ("nvidia-cuda-toolkit", "ii")]
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: 535.288.01-0ubuntu1\n\n" for name, _ in packages
    )
    tree.file("/var/lib/dpkg/status", f"{status}Package: nvidia-utils-470\nStatus: deinstall ok config-files\n\n")
    facts = values(wsl, tree.target())
    assert facts["wsl.linux_driver"] == (f"{LIB}/libcuda.so.1", f"{LIB}/libnvidia-ml.so.1")
    assert facts["wsl.linux_packages"] == ("libnvidia-compute-535", "nvidia-driver-570-open")


def test_a_link_to_wsls_own_library_is_no_linux_driver(tmp_path: Path) -> None:
    tree = sound(tmp_path).link(f"{LIB}/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
    assert said(wsl, tree.target())["wsl.linux_driver"] == Known((), "the usual folders of libraries")


def test_what_may_not_be_read_is_open() -> None:
    with refused("/etc/ld.so.conf.d", "/usr/lib64") as tree:
        tree.linux(kernel=KERNEL).folder("/usr/lib64").folder("/etc/ld.so.conf.d")
        facts = values(wsl, tree.close())
        assert facts["wsl.linux_driver"] is Unread
        assert facts["wsl.loader"] is Unread
