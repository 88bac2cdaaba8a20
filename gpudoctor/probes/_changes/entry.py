"""One package that was installed, exchanged or removed, as a log tells it, and which packages are told of at all."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.model.secrets import without_secrets
from gpudoctor.target.protocol import printable

RELEVANT = pattern(
    r"nvidia|cuda|cudnn|cublas|nccl|tensorrt|fabricmanager|fabric-manager|\bnvlsm\b|\bimex\b|nouveau"
    r"|^linux(?:$|-(?:image|headers|modules|generic|aws|azure|gcp|oracle|lts|zen|hardened|firmware))"
    r"|^kernel(?:$|-(?:core|modules|devel|default|uek|rt|longterm))|^dkms$|akmod|kmod-"
    r"|^shim-signed$|^mokutil$|^(?:py)?torch|triton|^(?:tensorflow|jax|cupy|onnxruntime|vllm|flash-attn|xformers)"
    r"|^(?:docker|containerd|podman|cri-o|runc|libc6|glibc)(?:$|[-.])"
    r"|rdma-core|libibverbs|^mlnx|^ofed|^doca|^ucx|openmpi"
)
"""Names of packages that a GPU's work may hang on: the driver, CUDA, the kernel, containers, fabrics, frameworks."""

_LONGEST = 120
_PROGRAMS = {"unattended-upgrade": "unattended-upgrades", "dnf-automatic": "dnf-automatic"}
"""Programs that are known by another name, or whose arguments say nothing."""


@frozen
class Entry:
    """`before` or `after` is empty where there was or is none; `time` is as the log has it, `stamp` seconds since 1970.

    `by` is what did it (a command line, ``unattended-upgrades``), `user` who asked for it; empty where the log does
    not say.
    """

    name: str
    before: str
    after: str
    time: str
    stamp: float
    by: str
    user: str
    source: str


def told(name: str) -> bool:
    """Whether changes of that package are told of."""
    return RELEVANT.search(name) is not None


def program(line: str) -> str:
    """A command line as one recognises it: without folders, secrets and control characters, cut where it is long."""
    words = without_secrets(printable(line, 4 * _LONGEST)).replace("'", "").split()
    while words and words[0].rpartition("/")[2].startswith("python"):
        words = words[1:]
    if not words:
        return ""
    name = words[0].rpartition("/")[2]
    if name in _PROGRAMS:
        return _PROGRAMS[name]
    said = " ".join([name, *words[1:]])
    return said if len(said) <= _LONGEST else said[: _LONGEST - 3] + "..."


def newest(entries: Iterable[Entry], most: int) -> list[Entry]:
    """Each once, the newest first, at most so many; of one change that two logs tell, that which says by whom."""
    found: dict[tuple[str, str, str, int], Entry] = {}
    for entry in sorted(entries, key=lambda entry: (-entry.stamp, not entry.by, entry.name)):
        hour = int(entry.stamp // 3600)
        known = next((found[key] for at in (hour, hour - 1, hour + 1) if (key := _key(entry, at)) in found), None)
        if known is None:
            found[_key(entry, hour)] = entry
        elif not known.user and (entry.user or len(entry.by) > len(known.by)):
            found[_key(known, int(known.stamp // 3600))] = entry
    return list(found.values())[:most]


def _key(entry: Entry, hour: int) -> tuple[str, str, str, int]:
    return entry.name, entry.before, entry.after, hour
