"""This system with NVIDIA's driver packages installed, on a kernel that has not loaded the module.

An overlay of this system with what ``.ci/run`` unpacked in ``.nvidia-driver``, in a mount namespace, with its own /dev,
/root, /run, /tmp and PCI bus: the real libraries run modprobe and make device files, and here they may. Needs root.
"""

from __future__ import annotations

import os
import shlex
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import needs
from tests.processes import Ran, finished

DRIVER = needs.REPOSITORY / ".nvidia-driver"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
GPU = "0000:01:00.0"
_RELEASE = os.uname().release
_NOBODY = 65534
_COPIED = ("etc/nvidia", "usr/bin/nvidia-modprobe", "usr/bin/nvidia-persistenced", "usr/lib/nvidia")
_SHOWN = (f"{LIBRARIES}/nvidia",)
"""Of the packages: what is small, and what is too large to be copied."""

_CALLS = "var/log/modprobe-calls"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_MODPROBE = f"""#!/bin/sh
echo "$@" >> /{_CALLS}
echo "modprobe: FATAL: Module nvidia not found in directory /lib/modules/{_RELEASE}" >&2
exit 1
"""

_BRIDGE = {"vendor": "0x8086", "device": "0x29c0", "class": "0x060000"}
_H100 = {
    "vendor": "0x10de",
    "device": "0x2330",
    "class": "0x030200",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
    "modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
    "resource": "\n".join(
        [
            "0x0000000094000000 0x0000000094ffffff 0x0000000000140204",
            "0x0000020000000000 0x0000021fffffffff 0x000000000014220c",
            "0x0000000000000000 0x0000000000000000 0x0000000000000000",
            "0x0000022000000000 0x0000022001ffffff 0x000000000014220c",
            *["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 3,
        ]
    ),
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
    "numa_node": "-1",
    "power_state": "D0",
    "irq": "16",
    "enable": "0",
}


class World:
    """A context manager: `gpu` puts an H100 on the bus, `built` a module for the running kernel on the disk."""

    CALLS = f"/{_CALLS}"
    """Where each call of modprobe is written down."""

    def __init__(self, gpu: bool = False, built: bool = True) -> None:
        self.gpu = gpu
        self._built = built

    def __enter__(self) -> World:
        require()
        self._base = Path(tempfile.mkdtemp(prefix="gpudoctor-real-"))
        self._keeper = subprocess.Popen(
            [needs.program("unshare"), "--mount", "/bin/sh", "-euc", _mounts(self._base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout
        if self._keeper.stdout.readline() != "ready\n":
            self._keeper.wait(timeout=600)
            self._base.rmdir()
            needs.missing("an overlay of this system in a mount namespace (why not is on standard error)")
        self.root = Path(f"/proc/{self._keeper.pid}/cwd/root")
        """Where the world's files are seen from outside."""
        self._install()
        self._bus()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._keeper.stdin
        assert self._keeper.stdout
        self._keeper.stdin.close()
        self._keeper.wait(timeout=600)
        self._keeper.stdout.close()
        self._base.rmdir()

    def gpudoctor(self, *words: str, user: bool = False, stdin: str = "") -> Ran:
        """The program as this repository has it; `user`: as an ordinary user."""
        return self.run([sys.executable, "-m", "gpudoctor", *words], user, stdin)

    def run(self, argv: Sequence[str], user: bool = False, stdin: str = "") -> Ran:
        """A program, by root or by an ordinary user, with nothing of our environment."""
        home = "/home/user" if user else "/root"
        environ = [f"HOME={home}", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8", "NO_COLOR=1"]
        who = [f"--userspec=+{_NOBODY}:+{_NOBODY}", "--groups="] if user else []
        inside = ["nsenter", f"--target={self._keeper.pid}", "--mount", "--", "chroot", *who, str(self._base / "root")]
        return finished([*inside, "env", "-i", *environ, *argv], input=stdin)

    def files(self) -> dict[str, tuple[int, int, int]]:
        """What the world has of its own, by path: mode, size and time of change."""
        found = {}
        for top, here in (("", "../upper"), *((f"/{name}", name) for name in ("dev", "root", "run", "tmp"))):
            place = self.root / here
            own, folders = place.stat().st_dev, [place]
            while folders:
                for path in folders.pop().iterdir():
                    of = path.lstat()
                    found[f"{top}/{path.relative_to(place)}"] = (of.st_mode, of.st_size, of.st_mtime_ns)
                    if stat.S_ISDIR(of.st_mode) and of.st_dev == own:
                        folders.append(path)
        return found

    def modprobe_calls(self) -> list[str]:
        """Words of each call of modprobe so far."""
        return (self.root / _CALLS).read_text().splitlines()

    def processes(self) -> list[str]:
        """What runs in it."""
        keeper = Path(f"/proc/{self._keeper.pid}")
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if process != keeper and (process / "ns/mnt").readlink() == (keeper / "ns/mnt").readlink():
                    found.append(f"{process.name} {(process / 'comm').read_text().strip()}")
            except OSError:
                continue
        return found

    def write(self, path: str, content: str | bytes = "", mode: int = 0o644) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        place.chmod(mode)

    def _link(self, path: str, to: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(to)

    def _install(self) -> None:
        """What the packages' scripts do: alternatives, the loader's cache, DKMS."""
        for library in sorted((DRIVER / LIBRARIES / "nvidia/current").glob("*.so.[0-9]")):
            self._link(f"{LIBRARIES}/{library.name}", f"nvidia/current/{library.name}")
        self._link("usr/bin/nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi")
        for name in ("modprobe", "blacklists-nouveau"):
            to = f"/etc/nvidia/current/nvidia-{name}.conf"
            self._link(f"etc/modprobe.d/nvidia{'' if name == 'modprobe' else '-' + name}.conf", to)
        (self.root / "usr/bin/nvidia-modprobe").chmod(0o4755)  # a cached folder may have lost that
        self.write("usr/sbin/modprobe", _MODPROBE, 0o755)
        self.write(_CALLS, mode=0o666)
        (self.root / "run/systemd/system").mkdir(parents=True)
        (self.root / ".dockerenv").unlink(missing_ok=True)
        (self.root / "home/user").mkdir(parents=True)
        os.chown(self.root / "home/user", _NOBODY, _NOBODY)
        source = sources()
        version = source.name.rpartition("-")[2]
        self._link(f"var/lib/dkms/nvidia-current/{version}/source", f"/usr/src/{source.name}")
        if self._built:
            self._link(f"var/lib/dkms/nvidia-current/kernel-{_RELEASE}-x86_64", f"{version}/{_RELEASE}/x86_64")
            self.write(f"var/lib/dkms/nvidia-current/{version}/{_RELEASE}/x86_64/module/nvidia-current.ko")
            self.write(f"usr/lib/modules/{_RELEASE}/updates/dkms/nvidia-current.ko")
            self.write(f"usr/lib/modules/{_RELEASE}/modules.dep", "updates/dkms/nvidia-current.ko:\n")
            (self.root / f"usr/lib/modules/{_RELEASE}/build").mkdir()
        self.run(["/sbin/ldconfig"])

    def _bus(self) -> None:
        """A PCI bus as sysfs shows it."""
        root = "sys/bus/pci/pci0000:00"
        self._device(f"{root}/0000:00:00.0", _BRIDGE)
        if self.gpu:
            self._device(f"{root}/0000:00:01.0", {**_BRIDGE, "device": "0x1901", "class": "0x060400"})
            self._device(f"{root}/0000:00:01.0/{GPU}", _H100)

    def _device(self, folder: str, files: dict[str, str]) -> None:
        for name, content in files.items():
            self.write(f"{folder}/{name}", f"{content}\n")
        ids = struct.pack(
            "<HH4xI", *(int(files[name], 16) for name in ("vendor", "device")), int(files["class"], 16) << 8
        )
        self.write(f"{folder}/config", ids.ljust(256, b"\0"))
        self._link(f"sys/bus/pci/devices/{folder.rpartition('/')[2]}", f"../{folder.partition('/pci/')[2]}")


def require() -> None:
    """Skip or fail where a world cannot be made."""
    if os.geteuid() != 0:
        needs.missing("root, for a /dev and mounts of its own")
    for tool in ("unshare", "nsenter", "mount", "chroot", "env"):
        needs.program(tool)
    if not (DRIVER / LIBRARIES / "nvidia/current/libnvidia-ml.so.1").exists():
        needs.missing(f"Debian's packages of the NVIDIA driver, unpacked ({DRIVER})")
    if Path("/sys/module/nvidia").exists():
        pytest.skip("the NVIDIA module is loaded here")


def sources() -> Path:
    """The sources of the kernel module; their folder names the version."""
    return next((DRIVER / "usr/src").glob("nvidia-current-*"))


def _mounts(base: Path) -> str:
    """The script that makes the world and keeps it until its input ends."""
    root = f"{base}/root"
    source = sources()
    own = {f"/{path}": DRIVER / path for path in (*_SHOWN, f"usr/src/{source.name}")}
    shown = {str(place): place for place in (needs.REPOSITORY, Path(sys.prefix), Path(sys.base_prefix))}
    shown.pop("/usr", None)  # the distribution's own Python
    shown = {at: place for at, place in shown.items() if not any(at.startswith(f"{other}/") for other in shown)}
    lines = [
        f"mount -t tmpfs -o mode=755 tmpfs {base}",
        f"mkdir {base}/upper {base}/work {root}",
        f"mount -t overlay -o lowerdir=/,upperdir={base}/upper,workdir={base}/work overlay {root}",
        *(f"mount --rbind /{name} {root}/{name}" for name in ("proc", "sys")),
        *(f"mount -t tmpfs -o mode=755 tmpfs {root}/{name}" for name in ("dev", "root", "run", "sys/bus/pci")),
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
        *(f"cp -a /dev/{name} {root}/dev" for name in _DEVICES),
        f"mkdir {root}/dev/pts {root}/dev/shm; mount -t tmpfs tmpfs {root}/dev/shm",
        f"mkdir {root}/sys/bus/pci/devices {root}/sys/bus/pci/drivers",
        *(f"cp -a {DRIVER}/{path} {root}/{path.rpartition('/')[0]}" for path in _COPIED),
    ]
    for at, place in {**shown, **own}.items():
        to = shlex.quote(root + at)
        lines.append(f"mkdir -p {to}; mount --bind {shlex.quote(str(place))} {to}; mount -o remount,bind,ro {to}")
        lines += [f"chmod a+x {shlex.quote(f'{root}{above}')}" for above in Path(at).parents[:-1]]
    return "\n".join([*lines, f"cd {base}; echo ready; exec cat"])
