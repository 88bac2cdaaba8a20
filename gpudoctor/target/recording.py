"""This machine, watched while it answers: whatever a probe asked is kept, so that a record of it can be made.

Nothing here knows what probes ask. A file is kept as the parts of it that were read, with its size: of a library of a
gigabyte those are a few hundred kilobytes.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gpudoctor.core import system
from gpudoctor.target import Answer
from gpudoctor.target.local import Local

_RING = "/dev/kmsg"
_PCI_CONFIG_BYTES = 4096


@dataclass(slots=True)
class Observations:
    """Everything a target was asked during one diagnosis. Paths are real ones: none lies below a link."""

    files: dict[str, Parts] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    devices: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    space: dict[str, tuple[int, int]] = field(default_factory=dict)
    inodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)


class Recording(Local):
    """Answers as `Local` does, and keeps in `seen` what was asked and answered."""

    def __init__(
        self,
        level: str = "standard",
        python: str | None = None,
        root: str = "/",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.seen = Observations()
        super().__init__(level, python, root, environ)

    @property
    def environ(self) -> Mapping[str, str]:
        """The session's variables, as a mapping that notes each one read by name in `seen.variables`."""
        return _Environ(self._environ, self.seen.variables)

    def path(self, path: str) -> Path:
        """The path to open, as a `Watched` one that notes in `seen` which parts of the file are read.

        A refusal is noted, too. The kernel log device and PCI config files are read and noted at once. Raises
        `OSError`.
        """
        local_path = super().path(path)
        with self._noting_refusal(path) as real_path:
            parts = self._note_path(real_path)
            if real_path == _RING and local_path.exists():
                log = read_kernel_ring(local_path)  # may be refused, and then there is nothing to keep
                parts = self.seen.files[real_path] = Parts(0)
                self.seen.devices.pop(real_path, None)
                parts.note(0, log)
            elif parts and real_path.startswith("/sys/") and real_path.endswith("/config"):
                parts.note(0, local_path.read_bytes()[:_PCI_CONFIG_BYTES])
        watched = Watched(local_path)
        watched.note = parts.note if parts else None
        watched.refused = lambda: self.seen.denied.add(real_path)
        return watched

    def listing(self, path: str) -> list[str]:
        """The names in a folder, sorted, as `Local.listing`; the folder and each entry are noted in `seen`."""
        with self._noting_refusal(path) as real_path:
            names = super().listing(path)
        if names or self._under_root(real_path).is_dir():
            self.seen.folders.add(real_path)
        for name in names:
            self._note_path(f"{real_path.rstrip('/')}/{name}")
        return names

    def exists(self, path: str) -> bool:
        """Whether the path exists, as `Local.exists`; what is there, or a refusal, is noted in `seen`."""
        with self._noting_refusal(path) as real_path:
            found = super().exists(path)
        if found:
            self._note_path(real_path)
        return found

    def link(self, path: str) -> str:
        """The path with all links resolved, as `Local.link`; the links on the way are noted in `seen`."""
        self._note_path(self._real_path(path))
        return super().link(path)

    def space(self, path: str) -> tuple[int, int]:
        """Total and free bytes of the file system that holds `path`, as `Local.space`; noted in `seen`."""
        self.seen.space[path] = super().space(path)
        return self.seen.space[path]

    def inodes(self, path: str) -> tuple[int, int]:
        """Total and free inodes of the file system that holds `path`, as `Local.inodes`; noted in `seen`."""
        self.seen.inodes[path] = super().inodes(path)
        return self.seen.inodes[path]

    def modified(self, path: str) -> float:
        """Modification time in seconds since 1970, as `Local.modified`; noted in `seen`, in whole seconds."""
        seconds = super().modified(path)
        self.seen.times[path] = int(seconds)
        return seconds

    def which(self, program: str) -> str | None:
        """Full path of the program on PATH, else None, as `Local.which`; PATH and the program are noted in `seen`."""
        self.seen.variables.add("PATH")
        executable = super().which(program)
        if executable:
            self._note_path(self._real_path(executable))
        return executable

    def run(self, *arguments: Any, **options: Any) -> Answer:
        """As `Local.run`; the `Answer` is noted in `seen.answers`."""
        answer = super().run(*arguments, **options)
        self.seen.answers.append(answer)
        return answer

    @contextmanager
    def _noting_refusal(self, path: str) -> Iterator[str]:
        """Context manager giving the path with links resolved; a refusal (`OSError`) inside is noted and raised again.

        What is merely missing is no refusal, and only raised.
        """
        real_path = self._real_path(path)
        try:
            yield real_path
        except OSError as error:
            if error.errno not in MISSING:
                self.seen.denied.add(real_path)
            raise

    def _real_path(self, path: str) -> str:
        """The absolute path with all links resolved, each of them noted; the path itself where they form a loop."""
        try:
            return "/" + "/".join(self._inside(path).relative_to(self._root).parts)
        except OSError:
            return path

    def _entry(self, folder: Sequence[str], name: str) -> tuple[str, str]:
        """Name and link target of a folder's entry, as `Local._entry`; a link is noted in `seen.links`."""
        name, link_target = super()._entry(folder, name)
        if link_target:
            self.seen.links["/".join(("", *folder, name))] = link_target
        return name, link_target

    def _note_path(self, real_path: str) -> Parts | None:
        """Note the file, link, folder or device at that path, if any; for a plain file the `Parts` to note reads in."""
        try:
            status = self._under_root(real_path).lstat()
        except (OSError, ValueError):
            return None
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            self._entry(real_path.split("/")[1:-1], real_path.rpartition("/")[2])
        elif stat.S_ISDIR(mode):
            self.seen.folders.add(real_path)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (real_path.startswith("/dev/") and not status.st_size):
            numbers = system.device_numbers(status)
            if real_path != _RING or real_path not in self.seen.files:  # whose words are kept is no device any more
                self.seen.devices.setdefault(real_path, f"{numbers} {mode & 0o777:04o}")
        else:
            kernel = real_path.startswith(("/proc/", "/sys/"))  # whose sizes mean nothing
            return self.seen.files.setdefault(real_path, Parts(0 if kernel else status.st_size))
        return None

    def _under_root(self, real_path: str) -> Path:
        """The path on this machine of that path of the target, below the root; links are not resolved."""
        return self._root / real_path[1:]


class _Environ(Mapping[str, str]):
    """A mapping of variables that adds each name read to the set `names_read`; iterating adds none."""

    def __init__(self, variables: Mapping[str, str], names_read: set[str]) -> None:
        self._variables, self._names_read = variables, names_read

    def __getitem__(self, name: str) -> str:
        self._names_read.add(name)
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def items(self) -> ItemsView[str, str]:
        """All variables with their values, without noting any as read."""
        return self._variables.items()


# ---- Files that tell which of their parts are read ----

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)
"""Refusals that say that there is no such file."""

_MOST_RING_BYTES = 8 << 20


@dataclass(slots=True)
class Parts:
    """What was read of a file of `size` bytes: (offset, bytes) pairs in the order of reading."""

    size: int
    read: list[tuple[int, bytes]] = field(default_factory=list)

    def note(self, offset: int, data: bytes) -> None:
        """Keep the bytes read at `offset`; empty data is ignored."""
        if data:
            self.read.append((offset, data))

    def joined(self) -> list[tuple[int, bytes]]:
        """What was read as (offset, bytes), sorted by offset, touching or overlapping parts merged."""
        out: list[tuple[int, bytearray]] = []
        for offset, data in sorted(self.read, key=lambda part: part[0]):
            end = out[-1][0] + len(out[-1][1]) if out else -1
            if offset <= end:
                out[-1][1].extend(data[end - offset :])
            else:
                out.append((offset, bytearray(data)))
        return [(offset, bytes(data)) for offset, data in out]


class Watched(type(Path())):  # type: ignore[misc]  # before Python 3.12 Path itself cannot be subclassed
    """A path that reports which parts of its file are read: through `open`, or by calling `note` for `os.pread`.

    `note` takes offset and bytes; `refused` is called where opening is refused.
    """

    note: Callable[[int, bytes], None] | None = None
    refused: Callable[[], object] = staticmethod(lambda: None)

    def open(self, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
        """As `Path.open`; a file opened with mode ``rb`` reports every read to `note`."""
        if mode != "rb" or self.note is None:
            return super().open(mode, *args, **options)  # type: ignore[no-any-return]
        try:
            return io.BufferedReader(_ReportingFile(str(self), self.note))
        except OSError as error:
            if error.errno not in MISSING:
                self.refused()
            raise

    def read_bytes(self) -> bytes:
        """The file's whole content, each read reported; raises `OSError`, also after `refused`."""
        with self.open("rb") as file:
            return bytes(file.read())


class _ReportingFile(io.FileIO):
    """An unbuffered file that calls `note(offset, data)` for every read."""

    def __init__(self, path: str, note: Callable[[int, bytes], None]) -> None:
        super().__init__(path, "r")
        self._note = note

    def readinto(self, buffer: Any) -> int:
        """As `io.FileIO.readinto`; the bytes read are reported."""
        at = self.tell() if self.seekable() else 0
        count = super().readinto(buffer) or 0
        self._note(at, bytes(memoryview(buffer)[:count]))
        return count

    def readall(self) -> bytes:
        """As `io.FileIO.readall`; the bytes read are reported."""
        at = self.tell() if self.seekable() else 0
        data = super().readall() or b""
        self._note(at, data)
        return data


def read_kernel_ring(device: Path) -> bytes:
    """All records of the kernel log device (/dev/kmsg) that are there now, at most 8 MiB; raises `OSError`."""
    handle = os.open(device, system.READ | system.NON_BLOCKING)
    log = bytearray()
    try:
        while len(log) < _MOST_RING_BYTES:
            try:
                entry = os.read(handle, 1 << 14)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before we came to it
                continue
            if not entry:
                break
            log += entry
    finally:
        os.close(handle)
    return bytes(log)
