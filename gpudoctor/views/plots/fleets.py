"""Many hosts: what each check says of each, and the bandwidth between every two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fleet import Check, Fleet, Outcome
from gpudoctor.model.pairwise import Pairwise
from gpudoctor.views._measured import figure as digits
from gpudoctor.views.plots._matrix import MOST, Cell, Matrix, share

_LOOKS: Mapping[Outcome, tuple[str, str, float]] = {
    "ok": ("·", "sound", 0.25),
    "info": ("i", "sound", 0.25),
    "warning": ("!", "warning", 0.6),
    "error": ("✗", "error", 0.75),
    "unjudged": ("?", "none", 1.0),
}
_FEW = 24
"""Hosts that are all drawn; of more, those of which something is to be told."""
_WORST: tuple[Outcome, ...] = ("error", "warning", "unjudged", "info", "ok")


def figures(diagnosis: Diagnosis) -> Iterator[str]:
    """Hosts by checks, and hosts by hosts."""
    fleet = diagnosis.fleet
    if fleet is None or len(fleet.hosts) < 2:
        return
    if fleet.checks:
        yield _checks(fleet).draw()
    if fleet.pairwise and fleet.pairwise.names:
        yield _pairs(fleet.pairwise).draw()


def _checks(fleet: Fleet) -> Matrix:
    names, note = [host.name for host in fleet.hosts], ""
    if len(names) > _FEW:
        worst = sorted(names, key=lambda name: _rank(fleet, name))[:MOST]
        told = {name for name in worst if any(_rank(fleet, name))} or set(worst[:1])
        names = [name for name in names if name in told]
        rest = "the others pass every check" if len(names) < MOST else "those with the most to see to"
        note = f"{len(names)} of {len(fleet.hosts)} hosts; {rest}"
    cells = [[_cell(fleet, name, check) for check in fleet.checks] for name in names]
    return Matrix("Hosts by checks", note, names, [check.short or check.id for check in fleet.checks], cells)


def _rank(fleet: Fleet, name: str) -> tuple[int, ...]:
    """The worst first, by how many checks say so."""
    outcomes = [fleet.result(name, check.id).outcome for check in fleet.checks]
    return tuple(-outcomes.count(outcome) for outcome in _WORST[:-1])


def _cell(fleet: Fleet, name: str, check: Check) -> Cell:
    result = fleet.result(name, check.id)
    mark, look, shade = _LOOKS[result.outcome]
    return Cell(mark, result.words or result.outcome, look, shade)


def _pairs(pairwise: Pairwise) -> Matrix:
    names, note = (
        list(pairwise.names),
        f"{pairwise.unit}, expected {digits(pairwise.expected)}; from the row to the column",
    )
    if len(names) > MOST:
        rates = {name: _rate(pairwise, at) for at, name in enumerate(names)}
        names = sorted(names, key=rates.__getitem__)[:MOST]
        note += f"; the {MOST} of {len(pairwise.names)} with the slowest ways"
    cells = [[_way(pairwise, source, target) for target in names] for source in names]
    return Matrix(pairwise.title, note, names, names, cells)


def _rate(pairwise: Pairwise, at: int) -> float:
    """The mean of all ways from and to that one: the slowest would be the same for all that are beside a slow one."""
    ways = [rate for rate in (*pairwise.measured[at], *(row[at] for row in pairwise.measured)) if rate is not None]
    return sum(ways) / len(ways) if ways else float("inf")


def _way(pairwise: Pairwise, source: str, target: str) -> Cell:
    way = pairwise.pair(source, target)
    if way.measured is None or way.ratio is None:
        return Cell("", way.words or ("itself" if source == target else "not measured"))
    said = f"{digits(way.measured)} {pairwise.unit}, {way.ratio:.0%}"
    return share(way.ratio, digits(way.measured), f"{said}, {way.words}" if way.words else said, way.wrong)
