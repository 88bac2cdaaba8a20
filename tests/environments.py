"""Environments as pip, conda and torch leave them on disk, small enough to build in a test."""

import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.target.local import Local
from tests import needs


class Machine:
    """A tree that stands for a machine's file system; paths are the machine's."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        """Where a path of the machine lies on this one, its folder made."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, path: str, content: str | bytes = "") -> None:
        self.at(path).write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, to: str) -> None:
        """A symbolic link, relative as packages make them."""
        self.at(path).symlink_to(to)

    def target(self, python: str | None, **environ: str) -> Local:
        """Someone who answers for this machine."""
        target = Local("quick", root=str(self.root), environ={"PATH": "/nowhere", **environ})
        target.python = python
        return target


class Venv(Machine):
    """A machine with one virtual environment, made by ``python -m venv``."""

    def __init__(self, root: Path, version: str = "3.12.3", prefix: str = "/venv") -> None:
        super().__init__(root)
        self.prefix = prefix
        self.python = f"{prefix}/bin/python"
        self.site = f"{prefix}/lib/python{version.rpartition('.')[0]}/site-packages"
        self.write(self.python)
        self.write(
            f"{prefix}/pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
        )
        self.at(f"{self.site}/x")

    def dist(
        self,
        name: str,
        version: str,
        requires: Iterable[str] = (),
        files: Mapping[str, bytes] | None = None,
        installer: str = "pip",
        tag: str = "cp312-cp312-manylinux_2_28_x86_64",
        site: str = "",
    ) -> str:
        """Install a wheel: its files with their RECORD, its METADATA. Returns the dist-info's path."""
        folder = site or self.site
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        self.write(
            f"{folder}/{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n# {name}\n"
        )
        self.write(f"{folder}/{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        self.write(f"{folder}/{info}/INSTALLER", f"{installer}\n")
        lines = [f"{info}/RECORD,,", f"{info}/INSTALLER,sha256=x,{len(installer) + 1}"]
        for path, content in (files or {}).items():
            self.write(f"{folder}/{path}", content)
            lines.append(f"{path},sha256=bm90IGNoZWNrZWQ,{len(content)}")
        self.write(f"{folder}/{info}/RECORD", "\n".join(lines) + "\n")
        return f"{folder}/{info}"

    def torch(self, version: str, cuda: str | None = None, requires: Iterable[str] = (), hip: str | None = None) -> str:
        """torch's ``version.py`` as its build writes it, and its dist-info. Returns the package's folder."""
        text = (
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']\n"
            f"__version__ = {version!r}\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
            "git_version = 'a8d6afb511a69687bbb2b7e88a3cf67917e1697e'\n"
            f"hip: Optional[str] = {hip!r}\nxpu: Optional[str] = None\n"
        )
        self.dist("torch", version, requires, {"torch/version.py": text.encode()})
        return f"{self.site}/torch"

    def asked(self, probe: ModuleType, **environ: str) -> dict[str, Fact | Rows]:
        """What a probe says of this environment."""
        return dict(probe.probe(self.target(self.python, **environ)))


def value(facts: Mapping[str, Fact | Rows], name: str) -> object:
    """The value of a fact that must be known."""
    fact = facts[name]
    assert isinstance(fact, Known), f"{name}: {fact}"
    return fact.value


def rows(facts: Mapping[str, Fact | Rows], group: str) -> tuple[Row, ...]:
    """The rows of a group that must have been read."""
    found = facts[group]
    assert isinstance(found, tuple), f"{group}: {found}"
    return found


def column(facts: Mapping[str, Fact | Rows], group: str, name: str) -> list[object]:
    """One column's values, None where it is not known."""
    states = [row.get(name) for row in rows(facts, group)]
    return [state.value if isinstance(state, Known) else None for state in states]


PTX, CUBIN, CONCATENATED = 1, 2, 256
OWN, FAMILY = 1 << 20, 1 << 21


def entry(kind: int, arch: int, flags: int = 0x11, payload: bytes = bytes(64), header: int = 64) -> bytes:
    """One entry of a fat binary, as NVIDIA's `fatbinary` lays it out."""
    head = struct.pack("<HHIQIIHHIIIQ", kind, 0x101, header, len(payload), 0, 0, 8, 1, arch, 0, 0, flags)
    return head.ljust(header, b"\0") + payload


def container(*entries: bytes) -> bytes:
    """A fat binary."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def concatenated(kind: int, archs: Iterable[int], stride: int = 64) -> bytes:
    """Several entries compressed together, as ``fatbinary --concat`` writes them."""
    heads = b"".join(entry(kind, arch, payload=b"", header=stride) for arch in archs)
    head = entry(CONCATENATED, 0, payload=bytes(32), header=72 + len(heads))
    table = struct.pack("<II", len(heads) // stride, 8 + len(heads))
    return head[:64] + table + heads + bytes(32)


def elf(sections: Mapping[str, bytes]) -> bytes:
    """A 64-bit library of nothing but sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    body, table = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, content in {**sections, ".shstrtab": names}.items():
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        table += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(body), len(content), 0, 0, 8, 0)
        body += content.ljust((len(content) + 7) // 8 * 8, b"\0")
    count = len(sections) + 2
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return head + body + table


def ld_cache(entries: Sequence[tuple[int, str, str]], old: bool = False) -> bytes:
    """``/etc/ld.so.cache`` as ldconfig writes it, from flags, names and paths."""
    text, table = b"", b""
    start = 48 + 24 * len(entries)
    for flags, name, path in entries:
        at = start + len(text)
        text += name.encode() + b"\0" + path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, at, at + len(name) + 1, 0, 0)
    new = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(text)) + bytes(20) + table + text
    before = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12) + bytes(4) if old else b""
    return before + new


def compiled(
    path: Path, needed: Iterable[Path] = (), rpath: str = "", runpath: str = "", soname: str = "", source: str = ""
) -> Path:
    """Compile a real library that needs others: `rpath` as DT_RPATH, `runpath` as DT_RUNPATH, `source` in C."""
    gcc = needs.program("gcc")
    path.parent.mkdir(parents=True, exist_ok=True)
    tag = "-Wl,--disable-new-dtags" if rpath else "-Wl,--enable-new-dtags"
    folders = [f"-Wl,-rpath,{rpath or runpath}"] if rpath or runpath else []
    argv = [gcc, "-shared", "-nostdlib", "-fPIC", "-x", "c", "-", "-o", str(path), "-x", "none", tag, *folders]
    argv += [f"-Wl,-soname,{soname or path.name}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    subprocess.run([*argv, *map(str, needed)], check=True, timeout=600, input=source, text=True)
    return path
