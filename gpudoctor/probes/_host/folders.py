"""Room and rights in the folders that GPU work fills: caches of models, wheels and compiled kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Known, Row, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import real, refusal, text
from gpudoctor.target import Target

_NETWORK = pattern(r"nfs|cifs|smb|lustre|gpfs|beegfs|ceph|fuse|9p|virtiofs|wekafs|afs|panfs", re.I)


def places(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each folder and what fills it, as the programs themselves work it out."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    given = environ.get
    hugging = given("HF_HOME") or (f"{cache}/huggingface" if cache else "")
    temporary = given("TMPDIR") or "/tmp"
    for path, use in (
        (home, "home"),
        (hugging, "Hugging Face models"),
        (given("TORCH_HOME") or (f"{cache}/torch" if cache else ""), "torch models"),
        (given("TRITON_CACHE_DIR") or (f"{home}/.triton" if home else ""), "Triton kernels"),
        (given("TORCHINDUCTOR_CACHE_DIR") or temporary, "torch.compile"),
        (given("TORCH_EXTENSIONS_DIR") or (f"{cache}/torch_extensions" if cache else ""), "torch extensions"),
        (given("CUDA_CACHE_PATH") or (f"{home}/.nv/ComputeCache" if home else ""), "CUDA kernels"),
        (given("PIP_CACHE_DIR") or (f"{cache}/pip" if cache else ""), "pip wheels"),
        (temporary, "temporary files"),
    ):
        if path.startswith("/"):
            yield path.rstrip("/") or "/", use


def rooms(target: Target) -> Iterator[Row]:
    """One row per file system: its mount, which of the folders are on it, and the room left. Network ones come last."""
    table = text(target, "/proc/self/mountinfo", 1 << 18)
    mounts = _mounts(table) if isinstance(table, str) else {}
    uses: dict[str, dict[str, None]] = {}
    first: dict[str, str] = {}
    for path, use in places(target.environ):
        mount = _mount_of(real(target, path) or path, mounts) if mounts else path
        uses.setdefault(mount, {})[use] = None
        first.setdefault(mount, path)
    for mount in sorted(uses, key=lambda mount: bool(_NETWORK.match(mounts.get(mount, ("", ""))[0]))):
        kind, options = mounts.get(mount, ("", ""))
        room = _room(target, mount)
        yield {
            "mount": Known(mount, "/proc/self/mountinfo"),
            "kind": Known(kind, "/proc/self/mountinfo") if kind else Unread("/proc/self/mountinfo cannot be read"),
            "folder": Known(first[mount], "environment variables and their defaults"),
            "uses": Known(tuple(uses[mount]), "environment variables and their defaults"),
            "read_only": Known("ro" in options.split(","), "/proc/self/mountinfo") if kind else Unread("no such mount"),
            "total_mib": room if isinstance(room, Unread) else Known(room[0] >> 20, mount),
            "free_mib": room if isinstance(room, Unread) else Known(room[1] >> 20, mount),
        }


def _room(target: Target, mount: str) -> tuple[int, int] | Unread:
    try:
        return target.space(mount)
    except OSError as error:
        return refusal(mount, error)


def _mounts(table: str) -> dict[str, tuple[str, str]]:
    """Kind and options by mount point; the last one mounted there is in sight. Blanks are octal: ``\\040``."""
    found = re.findall(r"^\S+ \S+ \S+ \S+ (\S+) (\S+) .*?- (\S+) \S+ (\S+)", table, re.M)
    return {
        re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point): (kind, f"{options},{of_disk}")
        for point, options, kind, of_disk in found
    }


def _mount_of(path: str, mounts: Mapping[str, object]) -> str:
    while path not in mounts and path != "/":
        path = path.rpartition("/")[0] or "/"
    return path
