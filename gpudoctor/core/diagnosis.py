"""A diagnosis: what the rules said of a snapshot, in the order to act on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from gpudoctor.core.document import object_from_json, object_to_json, objects, typed_value
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Fact, Json, Known, Reason, fact_from_json, fact_to_json, listed
from gpudoctor.core.fleet import Fleet
from gpudoctor.core.fleet import from_json as fleet_from_json
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.core.rule import Confidence, Fix, Prevalence, Role, Severity, Step
from gpudoctor.core.snapshot import SCHEMA, Snapshot
from gpudoctor.core.snapshot import from_json as snapshot_from_json
from gpudoctor.core.texts import screened

# ---- The history of a machine ----

HISTORY_SCHEMA = "gpudoctor-history/1"


@frozen
class Kept:
    """One earlier check, as ``gpudoctor history`` lists it. `time` is UTC (2026-11-03T06:25:14Z).

    `findings` are ``id``, ``severity``, ``title``, the first to act on first. `trouble` says why its file cannot be
    read: then only what the file's name says is known.
    """

    id: str
    time: str
    level: str
    verdict: str
    python: str | None
    findings: Sequence[dict[str, str]]
    trouble: str = ""
    command: str | None = None
    """The command that ran under ``gpudoctor run``; None of a check."""

    def to_json(self) -> dict[str, Json]:
        """Its fields by name; an empty ``trouble`` is null, and the level of a run is ``quick``."""
        level = "quick" if self.level == "run" else self.level  # a run's machine is looked at so
        return {**object_to_json(self), "level": level, "trouble": self.trouble or None}


REPLAY_SCHEMA = "gpudoctor-replay/1"


@frozen
class Replayed:
    """A kept file judged again: whether it would have drained its `machine`, by which findings (id and title).

    `at` is UTC; `trouble` says why the file could not be read.
    """

    file: str
    machine: str
    at: str
    drained: bool
    causes: Sequence[tuple[str, str]] = ()
    trouble: str = ""

    def to_json(self) -> dict[str, Json]:
        """Its fields by name; ``causes`` are objects of id and title, an empty ``trouble`` is null."""
        causes: list[Json] = [{"id": name, "title": title} for name, title in self.causes]
        return {**object_to_json(self), "causes": causes, "trouble": self.trouble or None}


@frozen
class Replay:
    """All files judged again, held to the profile of that name; empty for none."""

    profile: str
    files: Sequence[Replayed]

    @property
    def drained(self) -> tuple[Replayed, ...]:
        """The files whose machine would have been drained."""
        return tuple(one for one in self.files if one.drained)

    def to_json(self) -> dict[str, Json]:
        """The document ``gpudoctor-replay/1``: profile, number of machines, names of those drained, files."""
        return {
            "schema": REPLAY_SCHEMA,
            "profile": self.profile or None,
            "machines": len({one.machine for one in self.files}),
            "drained": cast(Json, sorted({one.machine for one in self.drained})),
            **object_to_json(self, "files"),
        }


@frozen
class Since:
    """One change, with what is known of it; None is not known, or nothing: an installation has no `before`.

    `what` is the driver, the kernel, torch, a package or an environment variable. `at` is a time with its offset from
    UTC (2025-11-03T06:25:14+01:00), `by` who or what did it, `source` where that was read. `worked` is when a kept run
    of this machine was last in order (2025-11-02T08:15:00Z); without one it is None, and the change is a recent one.
    """

    what: str
    before: str | None
    after: str | None
    at: str | None
    by: str | None
    source: str
    worked: str | None = None


Verdict = Literal["sound", "impaired", "broken", "unknown"]
_FACT_NAME = pattern(r"[a-z_][a-z_0-9]*(?:\.\w+)?")
Subject = Mapping[str, Json]
"""What a finding is about: ``{"gpu": 0, "uuid": "GPU-..."}``; also rank, host, port, nic, interface, process."""


@frozen
class Evidence:
    """A fact that a finding rests on. `index` is the row, where the fact is one of a group's."""

    fact: str
    state: Fact
    index: int | None = None

    def to_json(self) -> dict[str, Json]:
        """``fact``, ``index`` if any, and of a Known fact ``value`` and ``source``.

        An Absent one has a null ``value``, its `why` as ``source`` and as ``absent``, and ``reason`` if any; an Unread
        one none of these.
        """
        out: dict[str, Json] = {"fact": self.fact}
        if isinstance(self.state, Known):
            out.update(fact_to_json(self.state))
        elif isinstance(self.state, Absent):
            out.update({"value": None, "source": self.state.why, **fact_to_json(self.state)})
        if self.index is not None:
            out["index"] = self.index
        return out


@frozen
class Finding:
    """A cause or symptom that holds, with its evidence and fixes."""

    id: str
    layer: str
    severity: Severity
    role: Role
    confidence: Confidence
    title: str
    why: str
    evidence: tuple[Evidence, ...]
    subjects: tuple[Subject, ...] = ()
    """The GPUs, ports, ranks, hosts and so on that it is about; none where that is the machine as a whole."""
    explains: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    references: tuple[str, ...] = ()
    confirm: str = ""
    by_rule: tuple[str, ...] = ()
    """Facts it rests on that are newer than any row of the tables: judged by rule, not by record."""
    prevalence: Prevalence = "usual"
    """How common the cause is; for ranking, not written out."""
    since: tuple[Since, ...] = ()
    """What changed, of that which it rests on, since it was not found, or of late."""
    pages: str = ""
    """A site's own pages that its rule is among, as they were given: not written out."""

    @property
    def subject(self) -> Subject | None:
        """The first of its subjects; None where it is about the machine as a whole."""
        return self.subjects[0] if self.subjects else None

    @property
    def about(self) -> frozenset[str]:
        """Hosts, else PCI addresses, of its subjects; empty where one has neither, for then it may concern any."""
        places: set[str] = set()
        for subject in self.subjects:
            hosts, address = subject.get("hosts"), subject.get("address")
            if not isinstance(hosts, list) and not isinstance(address, str):
                return frozenset()
            places.update(map(str, hosts) if isinstance(hosts, list) else [str(address)])
        return frozenset(places)

    def rows_of(self, group: str, snapshot: Snapshot) -> list[int]:
        """Indices, from 0, of the group's rows that its subjects name by number.

        For ``gpu`` the number is looked up in the rows' ``index``; where no row has it, it is given itself.
        """
        named = [place for subject in self.subjects if isinstance(place := subject.get(group), int)]
        if group != "gpu":
            return named
        numbers = {
            state.value: place
            for place, row in enumerate(listed(snapshot.rows("gpu")))
            if isinstance(state := row.get("index"), Known)
        }
        return [numbers.get(number, number) for number in named]

    @property
    def more(self) -> tuple[str, ...]:
        """Argv of the command that shows its rule's page, ``gpudoctor explain ID``."""
        return ("gpudoctor", "explain", self.id, *(("--rules", self.pages) if self.pages else ()))

    def to_json(self) -> dict[str, Json]:
        """The finding as documents have it; ``subjects`` only where there are several, ``since`` where known."""
        several = "subjects evidence" if len(self.subjects) > 1 else "evidence"
        since = "by_rule since" if self.since else "by_rule"
        return {
            **object_to_json(self, f"id layer severity role confidence title why subject {several} explains"),
            "fixes": [_fix_to_json(fix, self.id) for fix in self.fixes],
            **object_to_json(self, f"references confirm {since}"),
        }


@frozen
class Unjudged:
    """A rule that could be neither confirmed nor excluded: `because` tells people why, `reason` tells code.

    `fact` is the fact or group that it waits for, where it is one; `because` then begins with its name.
    """

    id: str
    because: str
    reason: Reason = field(default=Reason.UNSPECIFIED, compare=False)
    fact: str = field(default="", compare=False)

    @property
    def why(self) -> str:
        """Why the rule could not be judged: `because` without the name of the fact before it."""
        return self.because.removeprefix(f"{self.fact}: ") if self.fact else self.because

    def to_json(self) -> dict[str, Json]:
        """``id`` and ``because``; ``reason`` and ``fact`` where known."""
        document: dict[str, Json] = {"id": self.id, "because": self.because}
        if self.reason is not Reason.UNSPECIFIED:
            document["reason"] = self.reason.value
        if self.fact:
            document["fact"] = self.fact
        return document


@frozen
class Note:
    """A remark on the whole diagnosis; no part of its verdict.

    `facts` are what it is about, `rules` those found or passed that the note concerns.
    """

    facts: tuple[str, ...]
    text: str
    rules: tuple[str, ...] = ()


@frozen
class Diagnosis:
    """All results of judging a snapshot: findings, unjudged rules and passed rules."""

    snapshot: Snapshot
    verdict: Verdict
    findings: tuple[Finding, ...]
    unjudged: tuple[Unjudged, ...]
    passed: tuple[str, ...]
    tool_version: str
    notes: tuple[Note, ...] = ()
    fleet: Fleet | None = None
    """Host by host, where it is of a job or a fleet."""

    def to_json(self) -> dict[str, Json]:
        """The document ``gpudoctor/1``: verdict, findings, counts, unjudged and passed rules, notes, facts, timings."""
        snapshot = self.snapshot.to_json()
        return {
            "schema": SCHEMA,
            "tool": {"version": self.tool_version},
            "target": snapshot["target"],
            **object_to_json(self, "verdict findings"),
            "counts": {"found": len(self.findings), "unjudged": len(self.unjudged), "passed": len(self.passed)},
            **object_to_json(self, "unjudged passed notes"),
            "facts": snapshot["facts"],
            "timings_ms": snapshot["timings_ms"],
            **({} if self.fleet is None else object_to_json(self, "fleet")),
        }


def verdict_of(findings: Iterable[Finding], known: bool) -> Verdict:
    """Broken by any error; else unknown where too little is `known` to call it sound; impaired by any warning.

    Of a check, a profile's lines, a job, a fleet and kernels' results alike.
    """
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "broken"
    if not known:
        return "unknown"
    return "impaired" if "warning" in severities else "sound"


def from_json(raw: object) -> Diagnosis:
    """The inverse of `Diagnosis.to_json`, secrets hidden; raises `DocumentError`."""
    raw = screened(raw)
    snapshot = snapshot_from_json(raw)
    document = cast("Mapping[str, Any]", raw)
    try:
        return Diagnosis(
            snapshot=snapshot,
            verdict=typed_value(Verdict, document["verdict"], "verdict"),
            findings=tuple(finding_from_json(item) for item in document["findings"]),
            unjudged=tuple(map(_unjudged_from_json, document["unjudged"])),
            passed=tuple(document.get("passed", ())),
            tool_version=document["tool"]["version"],
            notes=tuple(object_from_json(Note, note, where) for note, where in objects(document, "notes")),
            fleet=fleet_from_json(document["fleet"]) if document.get("fleet") else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DocumentError(f"not a whole diagnosis document: {type(error).__name__} {error}") from error


def _unjudged_from_json(raw: Mapping[str, Any]) -> Unjudged:
    """An unjudged rule of a document; the fact of one saved before ``fact`` was a key is taken from its sentence.

    The fact is empty where the sentence does not begin with one. Raises `KeyError` without ``id`` or ``because``.
    """
    fact = raw.get("fact") if "fact" in raw or "reason" in raw else _leading_fact_name(raw["because"])
    return Unjudged(raw["id"], raw["because"], Reason.read(raw.get("reason")), fact if isinstance(fact, str) else "")


def _leading_fact_name(because: str) -> str:
    """The fact's name before the first colon of the sentence; empty where what stands there is none."""
    name, colon, _ = because.partition(": ")
    return name if colon and is_fact_name(name) else ""


def is_fact_name(name: str) -> bool:
    """Whether it has the form of a fact's or group's name: ``gpu``, ``driver.version``."""
    return _FACT_NAME.fullmatch(name) is not None


def finding_from_json(raw: Mapping[str, Any]) -> Finding:
    """The inverse of `Finding.to_json`; raises `KeyError`, `TypeError` or `AttributeError` for a wrong document.

    Raises `DocumentError` for a severity, role or confidence that is none of ours.
    """
    return Finding(
        id=raw["id"],
        layer=raw.get("layer", raw["id"].partition(".")[0]),
        severity=typed_value(Severity, raw["severity"], "severity"),
        role=typed_value(Role, raw["role"], "role"),
        confidence=typed_value(Confidence, raw["confidence"], "confidence"),
        title=raw["title"],
        why=raw["why"],
        evidence=tuple(Evidence(item["fact"], fact_from_json(item), item.get("index")) for item in raw["evidence"]),
        subjects=tuple(raw.get("subjects") or ([raw["subject"]] if raw["subject"] else ())),
        explains=tuple(raw["explains"]),
        fixes=tuple(_fix_from_json(item) for item in raw["fixes"]),
        references=tuple(raw["references"]),
        confirm=raw.get("confirm", ""),
        by_rule=tuple(raw.get("by_rule", ())),
        since=tuple(object_from_json(Since, change, where) for change, where in objects(raw, "since")),
    )


def _fix_from_json(raw: Mapping[str, Any]) -> Fix:
    """A fix of a document, its steps with argv, text, needs and touches; raises `KeyError` or `TypeError`."""
    steps = tuple(
        Step(tuple(step["argv"]), step["text"], tuple(step["needs"]), step["touches"]) for step in raw["steps"]
    )
    return Fix(raw["title"], steps, undo=raw.get("undo", ""))


def _fix_to_json(fix: Fix, verify: str) -> Json:
    """``title``, ``steps``, ``undo`` and ``verify``, the rule that must pass afterwards."""
    steps: list[Json] = [object_to_json(step, "argv text needs touches") for step in fix.steps]
    return {"title": fix.title, "steps": steps, "verify": verify, "undo": fix.undo}
