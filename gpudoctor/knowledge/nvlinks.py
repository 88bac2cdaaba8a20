"""Which NVLinks of a GPU are down that should be up: judged by the same links of its siblings.

A link that is down proves nothing by itself. A card without a bridge has none up, an H100 NVL uses 12 of 18, and an
A800 8 of 12, by design: on every card the same ones.
"""

from __future__ import annotations

import re

from gpudoctor.knowledge._filling import Facts, Groups
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, listed
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot

_ONE_BRIDGE = pattern(r"RTX (?:3090|A(?:4500|5000|5500|6000))|A40\b|RTX 20[78]0|(?:Quadro|TITAN) RTX", re.IGNORECASE)
"""Cards of which one bridge carries every link: some up and some down is a fault, whatever the siblings show."""

_COLUMNS = ("links", "links_down", "links_lost")


def imply_links(snapshot: Snapshot, _: Facts, groups: Groups) -> None:
    """The columns `_COLUMNS` of the group ``gpu``, from the rows of ``nvlink``."""
    rows, links = groups.get("gpu"), groups.get("nvlink")
    if not isinstance(rows, tuple) or links is None:
        return
    live = snapshot.target.kind != "report"
    states = [_states(row, links, live) for row in rows]
    switched = _behind_switches(links)
    done: list[Row] = []
    for index, row in enumerate(rows):
        own = states[index]
        if isinstance(own, dict):
            down = tuple(link for link in sorted(own) if not own[link])
            siblings = [
                other
                for place, other in enumerate(states)
                if place != index and isinstance(other, dict) and _text(rows[place], "name") == _text(row, "name")
            ]
            lost = _lost(row, own, siblings, switched)
            values: tuple[Fact, ...] = (Known(len(own), _SOURCE), Known(down, _SOURCE), lost)
        else:
            values = (own, own, own)
        new = {
            name: state for name, state in zip(_COLUMNS, values, strict=True) if not isinstance(row.get(name), Known)
        }
        done.append({**row, **new})
    groups["gpu"] = tuple(done)


_SOURCE = "the states of its links"


def _states(row: Row, links: Rows, live: bool) -> dict[int, bool] | Absent | Unread:
    """Whether each link of this GPU is up."""
    if isinstance(links, (Absent, Unread)):
        return links
    index = row.get("index")
    if not isinstance(index, Known):
        return Unread("its number is not known")
    found: dict[int, bool] = {}
    for link in links:
        if isinstance(gpu := link.get("gpu"), Known) and gpu.value == index.value:
            number, active = link.get("link"), link.get("active")
            if not isinstance(number, Known) or not isinstance(active, Known):
                return Unread(getattr(active, "why", "its links were not read"))
            found[int(str(number.value))] = bool(active.value)
    if found:
        return found
    answers = live and not isinstance(row.get("error"), Known)
    return Absent("it has no NVLink") if answers else Unread("its links were not read")


def _behind_switches(links: Rows) -> bool:
    rows = listed(links)
    return any(isinstance(remote := row.get("remote"), Known) and remote.value == "switch" for row in rows)


def _lost(row: Row, own: dict[int, bool], siblings: list[dict[int, bool]], switched: bool) -> Fact:
    """The links of this GPU that are down and up on a sibling of the same name.

    Where all are down, only beside siblings on a switch: a card may well have no bridge.
    """
    down = tuple(link for link in sorted(own) if not own[link])
    if not down:
        return Known((), _SOURCE)
    if isinstance(mig := row.get("mig"), Known) and mig.value is True:
        return Absent("MIG mode switches its NVLinks off")
    if len(down) == len(own) and not switched:
        return Known((), "all of its links are down: it has no bridge")
    if len(down) < len(own) and _ONE_BRIDGE.search(_text(row, "name")):
        return Known(down, "one bridge carries all of its links, and some are up")
    lost = tuple(link for link in down if any(sibling.get(link) for sibling in siblings))
    return Known(lost, "the same links of its siblings")


def _text(row: Row, column: str) -> str:
    state = row.get(column)
    return str(state.value) if isinstance(state, Known) else ""
