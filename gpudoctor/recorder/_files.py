"""The files of a record: whole, in parts or left out, and without what no diagnosis needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoctor.model.secrets import without_secrets
from gpudoctor.probes._changes import logs
from gpudoctor.target._watched import Parts
from gpudoctor.target.record import Sparse
from gpudoctor.target.recording import Seen

_MOST_OF_A_FILE = 8 << 20
_MOST_IN_ALL = 20 << 20
_WHOLE = 1 << 16
"""Bytes of the largest binary file that is kept whole, as bytes; larger ones are kept compressed."""

_LOG = "/dev/kmsg"
_DRIVERS_OWN = re.compile(r"nvidia|fabricmanager|nvlsm|imex")
"""Logs that hold nothing but what a record is for."""

_ROTATED = re.compile(r"/var/log/.*\.gz")
"""Old logs: nobody's name can be hidden in them as they are."""

_ADDRESSES = re.compile(r"/proc/(?:self/|\d+/)?net/|/etc/hosts$")
"""Files left out of a record: they hold the network addresses of this machine and its neighbours, in many spellings."""

_LOG_LINES = re.compile(
    r"Linux version|Command line|nvidia|nvrm|\bxid\b|nouveau|nova|NVLRM|nvlink|nvswitch|\bpci|\baer\b|iommu|dmar|\bsmmu"
    r"|vfio|oom|out of memory|killed process|mce|machine check|hardware error|edac|secure ?boot|lockdown|taint|module"
    r"|signature|mlx|infiniband|rdma|hypervisor|blocked for more|hung|bug:|oops|call trace|thermal|memory cgroup",
    re.IGNORECASE,
)
"""Lines of the kernel's log that a record keeps: those about hardware, drivers, modules and memory."""


def files_of(seen: Seen) -> tuple[dict[str, bytes], dict[str, Sparse], list[str]]:
    """Whole files, large or partly read ones, and those that would make the record too large."""
    files: dict[str, bytes] = {}
    sparse: dict[str, Sparse] = {}
    left_out: list[str] = []
    room = _MOST_IN_ALL
    kept = ((path, parts) for path, parts in seen.files.items() if not _ADDRESSES.match(path))
    for path, parts in sorted(kept, key=lambda entry: sum(len(data) for _, data in entry[1].read)):
        joined = parts.joined()
        size = sum(len(data) for _, data in joined)
        room -= size
        if logs.PACKAGES.fullmatch(path) and joined:
            files[path] = logs.screened(joined[-1][1].decode("utf-8", "replace")).encode()
        elif size > _MOST_OF_A_FILE or room < 0 or _ROTATED.fullmatch(path):
            left_out.append(path)
        elif _is_whole(parts, joined) and (size <= _WHOLE or _is_text(joined[0][1])):
            files[path] = _screened(path, joined[0][1] if joined else b"")
        else:
            size = max(parts.size, *(at + len(data) for at, data in joined or [(0, b"")]))
            sparse[path] = Sparse(size, tuple((at, _masked(data)) for at, data in joined))
    return files, sparse, left_out


def _is_whole(parts: Parts, joined: Sequence[tuple[int, bytes]]) -> bool:
    if len(joined) > 1 or (joined and joined[0][0]):
        return False
    return sum(len(data) for _, data in joined) >= parts.size


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _masked(data: bytes) -> bytes:
    """A part of a text without secrets and as long as it was, so that the next part stays in its place."""
    if not _is_text(data):
        return data
    text = data.decode()
    masked = without_secrets(text, lambda value: "*" * len(value.encode()))
    return (
        masked.encode()
        if len(masked.encode()) == len(data)
        else without_secrets(text).encode().ljust(len(data))[: len(data)]
    )


def _screened(path: str, data: bytes) -> bytes:
    """The file without what no diagnosis needs: other programs' variables and arguments, the log's other lines."""
    if path.startswith("/proc/") and path.endswith("/environ"):
        return b"\0".join(entry for entry in data.split(b"\0") if entry.startswith(b"container="))
    if path.startswith("/proc/") and path.count("/") > 2 and path.endswith("/cmdline"):
        return data.partition(b"\0")[0]
    if path == _LOG or (path.startswith("/var/log/") and not _DRIVERS_OWN.search(path)):
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(line for line in lines if _LOG_LINES.search(line)).encode()
    return data
