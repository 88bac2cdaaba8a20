"""Facts in the order in which they are shown: what a row says, and how rows are searched."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.fact import Absent, Fact, Known, Unread, Value, value_to_json

Place = tuple[str, "int | None"]
"""A fact by its name in the dictionary of facts, and its row: ``("gpu.name", 5)``, ``("driver.version", None)``."""
Proof = Mapping[Place, Sequence[Finding]]
COUNTED = "number of rows"
"""The source of how many rows a group has."""
_SOME = 10_000
"""Facts that are searched before it is asked whether to go on."""


@dataclass(frozen=True, slots=True)
class Item:
    """One row: a fact, or a group as a whole. Beside another machine, `other` is the state there.

    A state is None on a side that has no such row; `findings` are those that rest on it, the gravest first.
    """

    name: str
    """``gpu.5.name``; ``gpu[5].name`` where two machines are compared, and rows are matched by what they are."""
    fact: str
    state: Fact | None
    index: int | None = None
    findings: Sequence[Finding] = ()
    other: Fact | None = None
    compared: bool = False

    @property
    def severity(self) -> str:
        """The gravest of its findings'; empty where none rests on it."""
        return self.findings[0].severity if self.findings else ""


def named(fact: str, index: int | None) -> str:
    """``gpu.5.name`` for a row's fact."""
    if index is None:
        return fact
    group, _, column = fact.rpartition(".")
    return f"{group}.{index}.{column}"


def whole(value: Value) -> str:
    """All of a value: lists and columns with commas, what is nested deeper as JSON."""
    if isinstance(value, str):
        return value
    raw = value_to_json(value)
    items = raw if isinstance(raw, list) else list(raw.values()) if isinstance(raw, dict) else [raw]
    if any(isinstance(item, (list, dict)) for item in items):
        return json.dumps(raw, ensure_ascii=False)
    return (
        ", ".join(f"{name} {item}" for name, item in raw.items())
        if isinstance(raw, dict)
        else ", ".join(map(str, items))
    )


def said(state: Fact | None) -> tuple[str, str]:
    """A state in two columns: the value, or that there is none; the source, or why."""
    if isinstance(state, Known):
        if state.source == COUNTED:
            return f"{state.value} row{'s' if state.value != 1 else ''}", ""
        if state.value == "" or state.value is None:
            return "empty", state.source
        return whole(state.value) or "none", state.source
    if isinstance(state, Absent):
        return "absent", state.why
    return ("not read", state.why) if isinstance(state, Unread) else ("no such row", "")


def proof_of(findings: Iterable[Finding]) -> dict[Place, list[Finding]]:
    """Which findings rest on which facts; of one id about several things all are there, the gravest first."""
    proof: dict[Place, list[Finding]] = {}
    for finding in findings:
        for item in finding.evidence:
            there = proof.setdefault((item.fact, item.index), [])
            if not there or there[-1] is not finding:
                there.append(finding)
    order = {"error": 0, "warning": 1, "info": 2}
    for there in proof.values():
        there.sort(key=lambda finding: order[finding.severity])
    return proof


def text_of(name: str, *states: Fact | None) -> str:
    """What is searched of a fact: name, value and source, in small letters."""
    first = states[0]
    if len(states) == 1 and isinstance(first, Known) and isinstance(first.value, str):  # most are; a log has many
        return f"{name}\n{first.value}\n{first.source}".lower()
    return "\n".join((name, *(part for state in states for part in said(state)))).lower()


class Listing(Sequence[Item]):
    """Facts in the order in which they are shown.

    `unread`, `absent` and `proof` are the places of the facts that are unread, absent, or what a finding rests on.
    """

    unread: Sequence[int] = ()
    absent: Sequence[int] = ()
    proof: Sequence[int] = ()

    def texts(self, among: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Each of these places with what is searched of it."""
        for place in among:
            item = self[place]
            yield place, text_of(item.name, item.state, *((item.other,) if item.compared else ()))

    def search(self, words: str, among: Sequence[int], over: Callable[[], bool] = lambda: False) -> Sequence[int]:
        """Those of the places whose name, value and source hold all the words, in any case and order.

        Gives up where `over`, which is asked now and then.
        """
        sought = words.lower().split()
        if not sought:
            return among
        found: list[int] = []
        texts = self.texts(among)
        while (some := list(islice(texts, _SOME))) and not over():
            for word in sought:
                some = [(place, text) for place, text in some if word in text]
            found += [place for place, _ in some]
        return found

    def siblings(self, item: Item) -> Iterator[tuple[int, Fact]]:  # noqa: ARG002 - a listing without rows has none
        """The same column in the other rows of its group, with their numbers."""
        return iter(())

    def about(self, names: Collection[str]) -> list[int]:
        """What the findings of these ids rest on."""
        return [place for place in self.proof if any(finding.id in names for finding in self[place].findings)]
