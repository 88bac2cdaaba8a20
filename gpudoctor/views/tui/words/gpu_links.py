"""How the GPUs are connected, as heat maps from the facts: paths, rights between peers, links that are up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.model.fact import Fact, Known, Row, Unread, listed
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.views.tui.words.cells import ITSELF, Mark, no_link, share, unread

_LETTERS = {"PIX": "i", "PXB": "x", "PHB": "h", "NODE": "n", "SYS": "s"}
_PATHS = {
    "PIX": "one PCIe bridge at most between them",
    "PXB": "several PCIe bridges between them, no host bridge",
    "PHB": "through the host bridge of the CPU",
    "NODE": "through host bridges of one NUMA node",
    "SYS": "through the link between the CPUs",
}
_RIGHTS = ("read", "write", "atomics", "nvlink")
MANY = 16
"""GPUs from which on a path is a letter, not a word."""


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at the pairs; `legend` explains its marks."""

    title: str
    names: tuple[str, ...]
    cells: tuple[tuple[Mark, ...], ...]
    legend: str
    wide: bool = False
    empty: str = ""


def view(snapshot: Snapshot, way: str) -> View:
    """``topology``, ``p2p`` or ``bandwidth`` of a snapshot."""
    gpus = snapshot.rows("gpu")
    indices = [_number(row, "index", at) for at, row in enumerate(gpus)] if isinstance(gpus, tuple) else []
    rows = snapshot.rows("p2p")
    if not isinstance(rows, tuple) or len(indices) < 2:
        why = "a single GPU has no peer" if len(indices) == 1 else "" if isinstance(rows, tuple) else rows.why
        return View("Links", (), (), "", empty=why or "there are no pairs of GPUs")
    pairs = {(_number(row, "gpu", -1), _number(row, "peer", -1)): row for row in rows}
    many = len(indices) > MANY
    mark, title, legend = _WAYS[way]
    if way == "topology":
        mark = _letter if many else _path
        legend = _LETTER_LEGEND if many else legend
    by_index = dict(zip(indices, listed(gpus), strict=True))
    cells = tuple(tuple(_cell(mark, pairs, by_index, one, other) for other in indices) for one in indices)
    return View(title, tuple(f"GPU {index}" for index in indices), cells, legend, wide=way == "topology" and not many)


Judge = Callable[[Row, Row, Row], Mark]
"""The mark of a pair, from its row and those of both GPUs."""


def _cell(mark: Judge, pairs: Mapping[tuple[int, int], Row], gpus: Mapping[int, Row], one: int, other: int) -> Mark:
    if one == other:
        return ITSELF
    row = pairs.get((one, other))
    if row is None:
        return unread("NVML was not asked about this pair")
    found = mark(row, gpus[one], gpus[other])
    return Mark(found.glyph, found.level, f"GPU {one} → GPU {other}  {found.reason}")


def _path(row: Row, one: Row, other: Row) -> Mark:  # noqa: ARG001 - a judge's signature
    state = row.get("path")
    if not isinstance(state, Known):
        return unread(_why(state))
    path = str(state.value)
    return Mark(path, "good", _path_words(path))


def _letter(row: Row, one: Row, other: Row) -> Mark:
    found = _path(row, one, other)
    letter = "N" if found.glyph.startswith("NV") else _LETTERS.get(found.glyph, found.glyph[:1])
    return Mark(letter, found.level, found.reason)


def _path_words(path: str) -> str:
    if path.startswith("NV"):
        count = path.removeprefix("NV")
        return f"{path}: {count} NVLink{'' if count == '1' else 's'}"
    return f"{path}: {_PATHS.get(path, 'a path of another kind')}"


def _peer(row: Row, one: Row, other: Row) -> Mark:  # noqa: ARG001
    states = {name: row.get(name) for name in _RIGHTS}
    silent = next((state for state in states.values() if isinstance(state, Unread)), None)
    if silent or not any(isinstance(state, Known) for state in states.values()):
        return unread(_why(silent))
    said = {name: str(state.value) for name, state in states.items() if isinstance(state, Known)}
    words = ", ".join(f"{name} {state}" for name, state in said.items())
    reads, writes = said.get("read") == "ok", said.get("write") == "ok"
    if reads and writes:
        return Mark(reason=words)
    return Mark("r" if reads else "w", "info", words) if reads or writes else no_link(words)


def _width(row: Row, one: Row, other: Row) -> Mark:
    """NVLinks that are up of those that should be, where NVLink is the path; else PCIe lanes of those there are."""
    path = row.get("path")
    if not isinstance(path, Known):
        return unread(_why(path))
    over_nvlink = str(path.value).startswith("NV")
    shares = [_nvlinks(gpu) if over_nvlink else _lanes(gpu) for gpu in (one, other)]
    known = [entry for entry in shares if entry]
    if len(known) < len(shares):
        return unread("its links could not be read")
    ratio, words = min(known)
    return share(ratio, f"{_path_words(str(path.value))}; {words}")


def _nvlinks(gpu: Row) -> tuple[float, str] | None:
    links, down, lost = (gpu.get(name) for name in ("links", "links_down", "links_lost"))
    if not isinstance(links, Known) or not isinstance(down, Known):
        return None
    up = int(str(links.value)) - _length(down)
    should = up + (_length(lost) if isinstance(lost, Known) else 0)
    return (up / should, f"GPU {_number(gpu, 'index', -1)} has {up} of {should} NVLinks up") if should else None


def _lanes(gpu: Row) -> tuple[float, str] | None:
    now, most = gpu.get("link_width"), gpu.get("link_width_max")
    if not isinstance(now, Known) or not isinstance(most, Known) or not most.value:
        return None
    lanes, of = int(str(now.value)), int(str(most.value))
    return lanes / of, f"GPU {_number(gpu, 'index', -1)} has {lanes} of {of} PCIe lanes"


def _length(state: Known) -> int:
    return len(state.value) if isinstance(state.value, Sequence) else 0


def _why(state: Fact | None) -> str:
    return "not asked" if state is None or isinstance(state, Known) else state.why


def _number(row: Row, column: str, otherwise: int) -> int:
    state = row.get(column)
    return state.value if isinstance(state, Known) and isinstance(state.value, int) else otherwise


_PATH_LEGEND = "NVn n NVLinks · PIX PXB PCIe bridges · PHB host bridge · NODE SYS across"
_LETTER_LEGEND = "N NVLink  i PIX  x PXB  h PHB  n NODE  s SYS  ? not read"
_WAYS: Mapping[str, tuple[Judge, str, str]] = {
    "topology": (_path, "Topology: how they are connected", _PATH_LEGEND),
    "p2p": (_peer, "P2P: who may reach whose memory", "· read and write   r w one of them   - neither   ? not read"),
    "bandwidth": (
        _width,
        "Links: share of their width that is up",
        "· all up   0-8 tenths of what should be   ? not read",
    ),
}
WAYS = tuple(_WAYS)
