"""Two diagnoses side by side: the findings that one has and the other has not, then every fact that differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpudoctor.core.catalog import OTHER, TOPICS
from gpudoctor.core.diagnosis import Diagnosis, Finding, Since
from gpudoctor.core.difference import Change, Difference, OneSided, Side
from gpudoctor.core.fact import Fact, Known, Row, Rows, Unread, Value, known, listed, text_of, value_of
from gpudoctor.core.rule import SEVERITIES
from gpudoctor.core.snapshot import Snapshot

# ---- What is known of facts by name ----
# How rows are matched, what is about what, and what always differs.

KEYS: Mapping[str, tuple[str, ...]] = {
    "aer": ("address", "severity", "kind"),
    "cuda_device": ("index",),
    "extension": ("name",),
    "gpu": ("index",),
    "gpu_ecc": ("gpu", "kind", "since", "location"),
    "gpu_pair": ("a", "b"),
    "gpu_path": ("address",),
    "gpu_process": ("gpu", "pid"),
    "interface": ("name",),
    "lib": ("name", "path"),
    "link_loss": ("interface",),
    "mce": ("kind", "where"),
    "mig": ("gpu", "profile"),
    "node": ("path",),
    "nvlink": ("gpu", "link"),
    "oom": ("process", "scope"),
    "p2p": ("gpu", "peer"),
    "package": ("name",),
    "pci": ("address",),
    "pin": ("name",),
    "deviation": ("gpu",),
    "rate": ("gpu", "unit"),
    "rdma": ("device", "port"),
    "setting": ("name",),
    "space": ("mount",),
    "stuck": ("name", "device"),
    "sxid": ("address", "code"),
    "text": ("line",),
    "toolkit": ("path",),
    "xid": ("address", "code"),
}
"""The columns by which rows of a group are matched; rows of other groups are matched by their place."""

MOVING = re.compile(
    r"gpu\.(?:temperature(?:_memory|_margin)?_c|memory_used_mib|bar1_used_mib|power_w|pstate"
    r"|(?:\w+_)?clock_mhz|utilization|throttle_reasons|link_generation|link_replays)"
    r"|pci\.(?:link_speed|power_state)"  # an idle GPU lets its link and itself sleep
    r"|nvlink\.(?:crc|replay|recovery)_errors"
    r"|gpu\.processes|gpu_process(?:\..*)?|stuck\.(?:pid|seconds)"
    r"|host\.uptime_s|limits\.shm_free_mib|space\.(?:free_mib|inodes_percent)"
    r"|fitness\.(?:load|memory_available_mib|hugepages_free|swap_used_mib)"
    r"|rdma\.\w+_(?:gained|errors|recoveries|s)|(?:xid|sxid|aer|mce|oom|crash|link_loss)\.(?:line|count|pid|(?:last_)?(?:time|age_s))"
    r"|[\w.]*\b(?:uuid|serial|address|remote_address|fabric_cluster|minor|pid)"
    r"|interface\.(?:addresses|index)|net\.(?:\w+_address(?:es)?|gloo_why|host_foreign|master_\w+|port(?:_taken)?)"
    r"|env\.(?:RANK|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|SLURM_\w+|HOSTNAME)"
)
"""Facts that differ between any two machines, or any two moments on one."""

TEXT = re.compile(r"text(?:\..*)?|report\..*")
"""What was printed, and how much of it: facts about the text, not about the machine."""


SHARED_ONLY = ("pci", "gpu_path", "gpu_pair", "xid", "sxid", "aer")
"""Groups whose keys are those of one machine: where the sides share few, their rows are matched by place."""


# ---- Two diagnoses side by side ----


_Place = tuple[str, str]


def compare(a: Diagnosis, b: Diagnosis) -> Difference:
    """What differs between two diagnoses: findings that one side lacks, then facts by layer, unread and moving ones.

    Facts in evidence of such a finding (but for info) stand with it alone; `both` has ids found on both sides,
    `packages` the package changes in b's log that a's lacks.
    """
    labels = {
        group: row_labels(group, listed(a.snapshot.rows(group)), listed(b.snapshot.rows(group)))
        for group in {*a.snapshot.groups, *b.snapshot.groups} - {GROUP}
    }
    changes = {(change.fact, change.row): change for change in _all_changes(a.snapshot, b.snapshot, labels)}
    findings = tuple(_one_sided_findings(a, b, labels, changes))
    grave = [item for item in findings if item.finding.severity != "info"]
    proof = {(change.fact, change.row) for item in grave for change in item.changes}
    rest = [change for place, change in changes.items() if place not in proof and not _is_row_count(change)]
    read, unread = _partition(rest, lambda change: not change.unread or bool(TEXT.fullmatch(change.fact)))
    moving, telling = _partition(read, _expected_to_differ)
    here, there = ({finding.id for finding in side.findings} for side in (a, b))
    return Difference(
        a,
        b,
        findings,
        layers=_by_layer(telling),
        unread=unread,
        moving=moving,
        both=tuple(dict.fromkeys(finding.id for finding in b.findings if finding.id in here & there)),
        packages=package_changes(a.snapshot, b.snapshot),
    )


def _partition(
    changes: Iterable[Change], keep: Callable[[Change], bool]
) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """The changes for which `keep` is true, and the others."""
    kept: list[Change] = []
    others: list[Change] = []
    for change in changes:
        (kept if keep(change) else others).append(change)
    return tuple(kept), tuple(others)


def _one_sided_findings(
    a: Diagnosis, b: Diagnosis, labels: Mapping[str, Labels], changes: Mapping[_Place, Change]
) -> list[OneSided]:
    """The findings that the other side lacks, with the changes in their evidence; errors first, causes before symptoms.

    Then B's before A's. What the other side has folded under a cause is not lacking there.
    """
    found: list[OneSided] = []
    sides: tuple[tuple[Side, Diagnosis, Diagnosis], ...] = (("B", b, a), ("A", a, b))
    for side, mine, other in sides:
        theirs = {_identity(finding) for finding in other.findings}
        folded = {child for finding in other.findings for child in finding.explains}
        for finding in mine.findings:
            if _identity(finding) not in theirs and finding.id not in folded:
                rows = {group: pair[side == "B"] for group, pair in labels.items()}
                proof = {(change.fact, change.row): change for change in _evidence_changes(finding, rows, changes)}
                found.append(OneSided(side, finding, _rule_result(finding, other), tuple(proof.values())))
    return sorted(found, key=lambda item: (SEVERITIES.index(item.finding.severity), item.finding.role != "cause"))


def _identity(finding: Finding) -> tuple[object, ...]:
    """Key by which both sides' findings are the same: id, severity and first value of the subject (a GPU's index)."""
    return finding.id, finding.severity, next(iter((finding.subject or {}).values()), None)


def _rule_result(finding: Finding, other: Diagnosis) -> str:
    """The other side's result of the finding's rule, in words: ``passed``, ``not judged, WHY``, ``not found``, or where
    it is found of another subject, or with another severity, that.
    """
    if finding.id in other.passed:
        return "passed"
    why = next((item.because for item in other.unjudged if item.id == finding.id), "")
    if why:
        return f"not judged, {why}"
    subjects = [_identity(found)[2] for found in other.findings if found.id == finding.id]
    if not subjects:
        return "not found"
    return "found, with another severity" if _identity(finding)[2] in subjects else "found of another, not of this one"


def _evidence_changes(
    finding: Finding, rows: Mapping[str, list[str]], changes: Mapping[_Place, Change]
) -> Iterator[Change]:
    """The change, if any, for each item of the finding's evidence: of the fact, else of its row, else of its group.

    `rows` has the labels of each group's rows on the finding's side.
    """
    for item in finding.evidence:
        group = item.fact.rpartition(".")[0]
        row = rows[group][item.index] if item.index is not None and group in rows else ""
        change = changes.get((item.fact, row)) or changes.get((group, row)) or changes.get((group, ""))
        if change:
            yield change


def _all_changes(a: Snapshot, b: Snapshot, labels: Mapping[str, Labels]) -> Iterator[Change]:
    """A `Change` for every fact, group size, missing row and row column that is not the same on both sides: facts by
    name, then groups by name.
    """
    for name in sorted({*a.facts, *b.facts}):
        yield from _change_if_different(name, "", a.get(name), b.get(name))
    for group in sorted(labels):
        left, right = a.rows(group), b.rows(group)
        yield from _change_if_different(group, "", group_as_fact(left), group_as_fact(right))
        if isinstance(left, tuple) and isinstance(right, tuple):
            a_labels, b_labels = labels[group]
            yield from _row_changes(
                group, dict(zip(a_labels, left, strict=True)), dict(zip(b_labels, right, strict=True))
            )


def _change_if_different(fact: str, row: str, a: Fact, b: Fact) -> Iterator[Change]:
    """The `Change`, if the facts differ in kind (known, absent, unread) or value; sources do not count."""
    if type(a) is not type(b) or value_of(a) != value_of(b):
        yield Change(fact, row, a, b)


def _row_changes(group: str, a_rows: Mapping[str, Row], b_rows: Mapping[str, Row]) -> Iterator[Change]:
    """The changes between rows of one group, matched by label; a missing row is one change."""
    for label in dict.fromkeys([*a_rows, *b_rows]):
        mine, theirs = a_rows.get(label), b_rows.get(label)
        if mine is None or theirs is None:
            yield Change(group, label, row_as_fact(group, mine), row_as_fact(group, theirs))
            continue
        for column in dict.fromkeys([*mine, *theirs]):
            states = [row.get(column, Unread("not asked")) for row in (mine, theirs)]
            yield from _change_if_different(f"{group}.{column}", label, states[0], states[1])


def _is_row_count(change: Change) -> bool:
    """Whether the change is only in a group's number of rows, both known, which its rows show themselves."""
    return not (change.row or "." in change.fact or change.unread) and type(change.a) is type(change.b)


def _expected_to_differ(change: Change) -> bool:
    """Whether the change is of a text, or of a value that differs at any two moments or machines (`MOVING`).

    Of the latter, a fact or column (a name with a dot; a whole row has none) must be known, absent or unread on both
    sides alike.
    """
    if TEXT.fullmatch(change.fact):
        return True
    alike = "." not in change.fact or type(change.a) is type(change.b)
    return alike and MOVING.fullmatch(change.fact) is not None


def _by_layer(changes: Iterable[Change]) -> dict[str, tuple[Change, ...]]:
    """The changes by layer, without empty layers; in each, differing values before what only one side has."""
    places = {prefix: layer for layer, prefixes in TOPICS.items() for prefix in prefixes}
    found: dict[str, list[Change]] = {layer: [] for layer in (*TOPICS, OTHER)}
    for change in sorted(changes, key=_change_order):
        found[places.get(change.fact.partition(".")[0], OTHER)].append(change)
    return {layer: tuple(changes) for layer, changes in found.items() if changes}


def _change_order(change: Change) -> tuple[bool, bool]:
    """Sort key of a change: those that both sides have come first, of these those known, absent or unread on both
    alike.
    """
    return change.a is None or change.b is None, type(change.a) is not type(change.b)


# ---- Rows of one group on two machines ----
# Which are the same thing.

Labels = tuple[list[str], list[str]]
"""What each row of A, and each of B, is called."""


def row_as_fact(group: str, row: Row | None) -> Known | None:
    """The row as one fact that maps its known columns, except the key by which rows are matched; None for no row."""
    if row is None:
        return None
    facts = {column: fact for column, state in row.items() if (fact := known(state))}
    values = {column: fact.value for column, fact in facts.items() if column not in KEYS.get(group, ())}
    return Known(values, next((fact.source for fact in facts.values()), ""))


def group_as_fact(rows: Rows) -> Fact:
    """The number of rows as a known fact; the absent or unread group as it is."""
    return Known(len(rows), "number of rows") if isinstance(rows, tuple) else rows


def row_labels(group: str, left: Sequence[Row], right: Sequence[Row]) -> Labels:
    """The labels of each side's rows, in order, by which rows of both sides are matched.

    They are values of the group's key columns (`KEYS`), or the place for groups without. GPUs are matched by UUID where
    the sides share one, else by index; groups of `SHARED_ONLY` by place where the sides share fewer than half of the
    labels.
    """
    key = KEYS.get(group, ())
    a_names, b_names = _labels(left, key), _labels(right, key)
    if group == "gpu":
        owners = {uuid: name for row, name in zip(left, a_names, strict=True) if (uuid := text_of(row.get("uuid")))}
        uuids = [text_of(row.get("uuid")) for row in right]
        if owners.keys() & set(uuids):
            new = [f"{name} of B" if name in a_names else name for name in b_names]
            b_names = [owners.get(uuid, name) for uuid, name in zip(uuids, new, strict=True)]
    elif group in SHARED_ONLY and 2 * len({*a_names} & {*b_names}) < min(len(a_names), len(b_names)):
        return _labels(left, ()), _labels(right, ())
    return a_names, b_names


def _labels(rows: Sequence[Row], key: Sequence[str]) -> list[str]:
    """The label of each row: its known values of the key columns, or its index where it has none.

    The second row of a label gets `` (2)`` behind it, and so on.
    """
    seen: Counter[str] = Counter()
    labels = []
    for place, row in enumerate(rows):
        values = [text_of(row[column]) for column in key if known(row.get(column))]
        label = " ".join(values) or str(place)
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels


# ---- Packages that were exchanged between two moments of one machine ----
# By the logs of its package managers.

GROUP = "package_change"


def package_changes(a: Snapshot, b: Snapshot) -> tuple[Since, ...]:
    """Package changes in b's log that a's lacks and that are newer than a's oldest, in b's order (newest first).

    Empty where a has no such log, or the logs share no entry and so are of different machines.
    """
    old, new = listed(a.rows(GROUP)), listed(b.rows(GROUP))
    known = {_change_key(row) for row in old}
    if not isinstance(a.rows(GROUP), tuple) or (old and known.isdisjoint(map(_change_key, new))):
        return ()
    oldest_kept = min((text_of(row.get("time")) for row in old), default="")
    fresh = [row for row in new if _change_key(row) not in known]
    return tuple(_since(row) for row in fresh if text_of(row.get("time")) > oldest_kept)


def _change_key(row: Row) -> tuple[Value, ...]:
    """Name, time, old and new version of a logged package change."""
    return tuple(value_of(row.get(column)) for column in ("name", "time", "before", "after"))


def _since(row: Row) -> Since:
    """The row of ``package_change`` as a `Since`, None for texts that are not known, but ``?`` for the name; `by` has
    the user in brackets behind the command.
    """
    name, before, after, time, by, user = (
        text_of(row.get(column)) or None for column in ("name", "before", "after", "time", "by", "user")
    )
    source = next((fact.source for state in row.values() if (fact := known(state))), "")
    return Since(name or "?", before, after, time, f"{by} ({user})" if by and user else by or user, source)
