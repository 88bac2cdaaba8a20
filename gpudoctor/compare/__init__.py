"""Two diagnoses side by side: the findings that one has and the other has not, then every fact that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpudoctor.compare.packages import GROUP, exchanged
from gpudoctor.compare.tables import KEYS, MOVING, SHARED_ONLY, TEXT
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.difference import Change, Difference, OneSided, Side
from gpudoctor.model.fact import Fact, Known, Row, Rows, Unread, listed
from gpudoctor.model.rule import SEVERITIES
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.topics import OTHER, TOPICS

_Place = tuple[str, str]


def compare(a: Diagnosis, b: Diagnosis) -> Difference:
    """What differs between `a` and `b`: say, a machine on which it works and one on which it does not."""
    labels = {
        group: matched(group, listed(a.snapshot.rows(group)), listed(b.snapshot.rows(group)))
        for group in {*a.snapshot.groups, *b.snapshot.groups} - {GROUP}
    }
    changes = {(change.fact, change.row): change for change in _changes(a.snapshot, b.snapshot, labels)}
    findings = tuple(_one_sided(a, b, labels, changes))
    grave = [item for item in findings if item.finding.severity != "info"]
    proof = {(change.fact, change.row) for item in grave for change in item.changes}
    rest = [change for place, change in changes.items() if place not in proof and not _counts_rows(change)]
    read, unread = _split(rest, lambda change: not change.unread or bool(TEXT.fullmatch(change.fact)))
    moving, telling = _split(read, _moves)
    here, there = ({finding.id for finding in side.findings} for side in (a, b))
    return Difference(
        a,
        b,
        findings,
        layers=_by_layer(telling),
        unread=unread,
        moving=moving,
        both=tuple(dict.fromkeys(finding.id for finding in b.findings if finding.id in here & there)),
        packages=exchanged(a.snapshot, b.snapshot),
    )


def _split(changes: Iterable[Change], keep: Callable[[Change], bool]) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Those for which it holds, and the others."""
    told = [(change, keep(change)) for change in changes]
    return tuple(change for change, kept in told if kept), tuple(change for change, kept in told if not kept)


def _one_sided(
    a: Diagnosis, b: Diagnosis, labels: Mapping[str, Labels], changes: Mapping[_Place, Change]
) -> list[OneSided]:
    """The findings that the other side lacks: errors first, causes before symptoms, B's before A's."""
    found: list[OneSided] = []
    sides: tuple[tuple[Side, Diagnosis, Diagnosis], ...] = (("B", b, a), ("A", a, b))
    for side, mine, other in sides:
        theirs = {_identity(finding) for finding in other.findings}
        folded = {child for finding in other.findings for child in finding.explains}
        for finding in mine.findings:
            if _identity(finding) not in theirs and finding.id not in folded:
                rows = {group: pair[side == "B"] for group, pair in labels.items()}
                proof = {(change.fact, change.row): change for change in _proof(finding, rows, changes)}
                found.append(OneSided(side, finding, _said(finding.id, other), tuple(proof.values())))
    return sorted(found, key=lambda item: (SEVERITIES.index(item.finding.severity), item.finding.role != "cause"))


def _identity(finding: Finding) -> tuple[object, ...]:
    """The same finding about the same thing, and as grave: GPU 3 is GPU 3, whatever its UUID."""
    return finding.id, finding.severity, next(iter((finding.subject or {}).values()), None)


def _said(rule: str, other: Diagnosis) -> str:
    """What that side says of the rule."""
    if rule in other.passed:
        return "passed"
    why = next((item.because for item in other.unjudged if item.id == rule), "")
    if why:
        return f"not judged, {why}"
    return "found, of something else or less grave" if any(f.id == rule for f in other.findings) else "not found"


def _proof(finding: Finding, rows: Mapping[str, list[str]], changes: Mapping[_Place, Change]) -> Iterator[Change]:
    """The facts of a finding's evidence that differ: each, or the whole row where only one side has it."""
    for item in finding.evidence:
        group = item.fact.rpartition(".")[0]
        row = rows[group][item.index] if item.index is not None and group in rows else ""
        change = changes.get((item.fact, row)) or changes.get((group, row)) or changes.get((group, ""))
        if change:
            yield change


def _changes(a: Snapshot, b: Snapshot, labels: Mapping[str, Labels]) -> Iterator[Change]:
    """Every fact that is not the same on both sides, in order of its name."""
    for name in sorted({*a.facts, *b.facts}):
        yield from _changed(name, "", a.get(name), b.get(name))
    for group in sorted(labels):
        left, right = a.rows(group), b.rows(group)
        yield from _changed(group, "", state_of(left), state_of(right))
        if isinstance(left, tuple) and isinstance(right, tuple):
            one, other = labels[group]
            yield from _row_changes(group, dict(zip(one, left, strict=True)), dict(zip(other, right, strict=True)))


def _changed(fact: str, row: str, a: Fact, b: Fact) -> Iterator[Change]:
    if type(a) is not type(b) or (isinstance(a, Known) and isinstance(b, Known) and a.value != b.value):
        yield Change(fact, row, a, b)


def _row_changes(group: str, one: Mapping[str, Row], other: Mapping[str, Row]) -> Iterator[Change]:
    for label in dict.fromkeys([*one, *other]):
        mine, theirs = one.get(label), other.get(label)
        if mine is None or theirs is None:
            yield Change(group, label, summary(group, mine), summary(group, theirs))
            continue
        for column in dict.fromkeys([*mine, *theirs]):
            states = [row.get(column, Unread("not asked")) for row in (mine, theirs)]
            yield from _changed(f"{group}.{column}", label, states[0], states[1])


def _counts_rows(change: Change) -> bool:
    """Whether it only says how many rows either side has: the rows themselves say more."""
    return not (change.row or "." in change.fact or change.unread) and type(change.a) is type(change.b)


def _moves(change: Change) -> bool:
    """Whether it differs between any two machines or moments; a value that only one side has is telling."""
    if TEXT.fullmatch(change.fact):
        return True
    alike = "." not in change.fact or type(change.a) is type(change.b)
    return alike and MOVING.fullmatch(change.fact) is not None


def _by_layer(changes: Iterable[Change]) -> dict[str, tuple[Change, ...]]:
    """Within each layer: two values that differ, then values that one side has not, then rows that it has not."""
    places = {prefix: layer for layer, prefixes in TOPICS.items() for prefix in prefixes}
    found: dict[str, list[Change]] = {layer: [] for layer in (*TOPICS, OTHER)}
    for change in sorted(changes, key=_telling):
        found[places.get(change.fact.partition(".")[0], OTHER)].append(change)
    return {layer: tuple(changes) for layer, changes in found.items() if changes}


def _telling(change: Change) -> tuple[bool, bool]:
    return change.a is None or change.b is None, type(change.a) is not type(change.b)


# ---- Rows of one group on two machines ----
# Which are the same thing.

Labels = tuple[list[str], list[str]]
"""What each row of A, and each of B, is called."""


def summary(group: str, row: Row | None) -> Known | None:
    """A row that only one side has, as one fact: its known columns but the key's."""
    if row is None:
        return None
    known = {column: state for column, state in row.items() if isinstance(state, Known)}
    values = {column: state.value for column, state in known.items() if column not in KEYS.get(group, ())}
    return Known(values, next((state.source for state in known.values()), ""))


def state_of(rows: Rows) -> Fact:
    """A group as one fact: how many rows it has, or why there are none."""
    return Known(len(rows), "number of rows") if isinstance(rows, tuple) else rows


def matched(group: str, left: Sequence[Row], right: Sequence[Row]) -> Labels:
    """What the rows of both sides are called; rows that are the same thing have the same name.

    GPUs go by their index, on one machine by their UUID: a GPU that is lost changes the indices of the others. Bus
    addresses name the same thing only on one machine, or on two of one kind.
    """
    key = KEYS.get(group, ())
    one, other = _labels(left, key), _labels(right, key)
    if group == "gpu":
        owners = {uuid: name for row, name in zip(left, one, strict=True) if (uuid := _uuid(row))}
        uuids = [_uuid(row) for row in right]
        if owners.keys() & set(uuids):
            new = [f"{name} of B" if name in one else name for name in other]
            other = [owners.get(uuid, name) for uuid, name in zip(uuids, new, strict=True)]
    elif group in SHARED_ONLY and 2 * len({*one} & {*other}) < min(len(one), len(other)):
        return _labels(left, ()), _labels(right, ())
    return one, other


def _uuid(row: Row) -> str:
    state = row.get("uuid")
    return str(state.value) if isinstance(state, Known) else ""


def _labels(rows: Sequence[Row], key: Sequence[str]) -> list[str]:
    """Each row's values of the key, with a number where several rows share them; its place where it has none."""
    seen: Counter[str] = Counter()
    labels = []
    for place, row in enumerate(rows):
        values = [str(state.value) for column in key if isinstance(state := row.get(column), Known)]
        label = " ".join(values) or str(place)
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels
