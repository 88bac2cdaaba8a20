"""The facts in which two machines differ, as rows: first those on which a finding of one side alone rests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.difference import Change, Difference
from gpudoctor.model.fact import Absent, Unread
from gpudoctor.views.tui.words.listing import Item, Listing


class Compared(Listing):
    """What differs, the most telling first; with what always does (temperatures, serials) where `moving`."""

    def __init__(self, difference: Difference, moving: bool = False) -> None:
        self.difference = difference
        rests: dict[tuple[str, str], list[Finding]] = {}
        changes: dict[tuple[str, str], Change] = {}
        for change, finding in _changes(difference, moving):
            place = change.fact, change.row
            changes.setdefault(place, change)
            if finding and finding not in (there := rests.setdefault(place, [])):
                there.append(finding)
        self._items = [_item(change, rests.get(place, ())) for place, change in changes.items()]
        states = [{type(item.state), type(item.other)} for item in self._items]
        self.unread = [place for place, kinds in enumerate(states) if Unread in kinds]
        self.absent = [place for place, kinds in enumerate(states) if Absent in kinds]
        self.proof = [place for place, item in enumerate(self._items) if item.findings]

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        return self._items[place]


def _changes(difference: Difference, moving: bool) -> Iterator[tuple[Change, Finding | None]]:
    for item in difference.findings:
        for change in item.changes:
            yield change, item.finding
    for changes in (*difference.layers.values(), difference.unread, difference.moving if moving else ()):
        for change in changes:
            yield change, None


def _item(change: Change, findings: Sequence[Finding]) -> Item:
    return Item(change.name, change.fact, change.a, None, findings, change.b, compared=True)
