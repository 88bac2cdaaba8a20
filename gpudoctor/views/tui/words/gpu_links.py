"""How the GPUs are connected, as heat maps from the facts: paths, rights between peers, links that are up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.core.fact import Absent, Fact, Row, Unread, known, listed, number_of, text_of, value_of
from gpudoctor.core.language import phrase, say
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.views._terminal import plural
from gpudoctor.views.tui.widgets.matrix import ITSELF, Mark, no_link, share, unread
from gpudoctor.views.tui.words.gpu import int_in_row

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
    """One heat map of the pairs of GPUs; `legend` explains its marks, `empty` says why there are no cells."""

    title: str
    names: tuple[str, ...]
    cells: tuple[tuple[Mark, ...], ...]
    legend: str
    wide: bool = False
    empty: str = ""


def view(snapshot: Snapshot, name: str) -> View:
    """The heat map ``topology``, ``p2p`` or ``bandwidth`` of a snapshot's GPUs; raises KeyError for any other name.

    Without pairs of GPUs it has no cells, and `empty` says why.
    """
    gpus = snapshot.rows("gpu")
    indices = [int_in_row(row, "index", at) for at, row in enumerate(gpus)] if isinstance(gpus, tuple) else []
    rows = snapshot.rows("p2p")
    if not isinstance(rows, tuple) or len(indices) < 2:
        why = (
            say("a single GPU has no peer")
            if len(indices) == 1
            else ""
            if isinstance(rows, tuple)
            else phrase(rows.why)
        )
        return View(say("Links"), (), (), "", empty=why or say("there are no pairs of GPUs"))
    pairs = {(int_in_row(row, "gpu", -1), int_in_row(row, "peer", -1)): row for row in rows}
    many = len(indices) > MANY
    mark, title, legend = _VIEWS[name]
    if name == "topology":
        mark = _path_letter_mark if many else _path_mark
        legend = _LETTER_LEGEND if many else legend
    by_index = dict(zip(indices, listed(gpus), strict=True))
    cells = tuple(tuple(_cell(mark, pairs, by_index, gpu, peer) for peer in indices) for gpu in indices)
    return View(
        say(title), tuple(f"GPU {index}" for index in indices), cells, say(legend), wide=name == "topology" and not many
    )


MarkFunction = Callable[[Row, Row, Row], Mark]
"""The mark of a pair, from its row and those of both GPUs."""


def _cell(
    mark: MarkFunction, pairs: Mapping[tuple[int, int], Row], gpus: Mapping[int, Row], gpu: int, peer: int
) -> Mark:
    """The mark of a pair of GPUs (by index), with both named in its reason; unread if the pair has no row."""
    if gpu == peer:
        return ITSELF
    row = pairs.get((gpu, peer))
    if row is None:
        return unread(say("NVML was not asked about this pair"))
    judged = mark(row, gpus[gpu], gpus[peer])
    return Mark(judged.glyph, judged.level, f"GPU {gpu} → GPU {peer}  {judged.reason}")


def _path_mark(row: Row, gpu: Row, peer: Row) -> Mark:  # noqa: ARG001 - a judge's signature
    """The kind of path as reported in the pair's row (``PIX``, ``NV4``); unread if it is not known."""
    path = text_of(row.get("path"))
    return Mark(path, "good", _path_words(path)) if path else unread(_why(row.get("path")))


def _path_letter_mark(row: Row, gpu: Row, peer: Row) -> Mark:
    """The kind of path in the pair's row as one letter, ``N`` for NVLink; ``?`` if it is not known."""
    path = _path_mark(row, gpu, peer)
    letter = "N" if path.glyph.startswith("NV") else _LETTERS.get(path.glyph, path.glyph[:1])
    return Mark(letter, path.level, path.reason)


def _path_words(path: str) -> str:
    """The kind of path in words: ``NV4: 4 NVLinks``, ``PIX: one PCIe bridge at most between them``."""
    if path.startswith("NV"):
        count = path.removeprefix("NV")
        return f"{path}{say(': ')}{plural(int(count), 'NVLink')}" if count.isdecimal() else path
    return f"{path}{say(': ')}{say(_PATHS.get(path, 'a path of another kind'))}"


def _peer_access_mark(row: Row, gpu: Row, peer: Row) -> Mark:  # noqa: ARG001
    """Peer access: a dot for read and write, ``r`` or ``w`` for one of them, ``-`` for neither.

    ``?`` if any of the rights `_RIGHTS` was not read, or none is known.
    """
    states = {name: row.get(name) for name in _RIGHTS}
    missing = next((state for state in states.values() if isinstance(state, Unread)), None)
    rights = {name: text_of(state) for name, state in states.items() if known(state)}
    if missing or not rights:
        return unread(_why(missing))
    words = say(", ").join(f"{say(name)} {right}" for name, right in rights.items())
    reads, writes = rights.get("read") == "ok", rights.get("write") == "ok"
    if reads and writes:
        return Mark(reason=words)
    return Mark("r" if reads else "w", "info", words) if reads or writes else no_link(words)


def _width_mark(row: Row, gpu: Row, peer: Row) -> Mark:
    """Share of all NVLinks of a GPU that are up, if NVLink is the pair's path, else share of its PCIe lanes in use;
    that of the GPU of the two with the smaller share.

    Unread if the path or one share is not known.
    """
    path = text_of(row.get("path"))
    if not path:
        return unread(_why(row.get("path")))
    first, second = (_nvlink_share(side) if path.startswith("NV") else _lane_share(side) for side in (gpu, peer))
    if not first or not second:
        return unread(say("its links could not be read"))
    ratio, words = min(first, second)
    return share(ratio, _path_words(path) + say("; ") + words)


def _nvlink_share(gpu: Row) -> tuple[float, str] | None:
    """Share that is up of the GPU's NVLinks that should be, and a sentence; None if not known, or none should be."""
    links, down = number_of(gpu.get("links")), known(gpu.get("links_down"))
    if links is None or not down:
        return None
    up = links - _length(down)
    should = up + _length(gpu.get("links_lost"))
    words = say(
        "GPU {gpu} has {up:.0f} of {should:.0f} NVLinks up", gpu=int_in_row(gpu, "index", -1), up=up, should=should
    )
    return (up / should, words) if should > 0 else None


def _lane_share(gpu: Row) -> tuple[float, str] | None:
    """Share of the GPU's PCIe lanes that are in use, and a sentence; None if it is not known."""
    now, most = number_of(gpu.get("link_width")), number_of(gpu.get("link_width_max"))
    if now is None or not most:
        return None
    return now / most, say(
        "GPU {gpu} has {now:.0f} of {most:.0f} PCIe lanes", gpu=int_in_row(gpu, "index", -1), now=now, most=most
    )


def _length(state: Fact | None) -> int:
    """Length of a fact's list; 0 if the fact is missing, absent, unread or no list."""
    value = value_of(state)
    return len(value) if isinstance(value, Sequence) else 0


def _why(state: Fact | None) -> str:
    """Why a fact is absent or was not read; ``not asked`` for any other (None)."""
    return phrase(state.why) if isinstance(state, (Absent, Unread)) else say("not asked")


_PATH_LEGEND = "NVn n NVLinks · PIX PXB PCIe bridges · PHB host bridge · NODE SYS across"
_LETTER_LEGEND = "N NVLink  i PIX  x PXB  h PHB  n NODE  s SYS  ? not read"
_VIEWS: Mapping[str, tuple[MarkFunction, str, str]] = {
    "topology": (_path_mark, "Topology: how they are connected", _PATH_LEGEND),
    "p2p": (
        _peer_access_mark,
        "P2P: who may reach whose memory",
        "· read and write   r w one of them   - neither   ? not read",
    ),
    "bandwidth": (
        _width_mark,
        "Links: share of their width that is up",
        "· all up   0-8 tenths of what should be   ? not read",
    ),
}
VIEWS = tuple(_VIEWS)
