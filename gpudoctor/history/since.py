"""What changed since a finding's rule last passed on this machine, of that which the finding's evidence rests on.

By knowledge, not by guess: facts rest on families of packages (`gpudoctor.history.families`). Where no kept run tells
when it worked, what the packages' logs have of the last `WINDOW` days is said, as such.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from gpudoctor.history.changes import grouped, logged
from gpudoctor.history.families import Family, of_facts
from gpudoctor.history.run import Run, Worked, mark
from gpudoctor.history.shelf import Shelf
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Fact, Known
from gpudoctor.model.frozen import replace
from gpudoctor.model.since import Since
from gpudoctor.model.snapshot import Snapshot

WINDOW = 14
"""Days."""
_DAY = 86400
_MOST = 6


def dated(diagnosis: Diagnosis, shelf: Shelf | None = None) -> Diagnosis:
    """The diagnosis with what changed before each finding that no other explains; as it is where nothing is known.

    `shelf` has the kept runs of the machine, where it is this one.
    """
    return _Past(diagnosis, shelf).told()


def kept(diagnosis: Diagnosis, shelf: Shelf) -> Diagnosis:
    """As `dated`, and the run is kept, too, where it can be."""
    past = _Past(diagnosis, shelf)
    told = past.told()
    with suppress(OSError):
        shelf.keep(told, told.tool_version, past.worked())
    return told


class _Past:
    """The runs before this one, the newest first, and the changes that the logs tell."""

    def __init__(self, diagnosis: Diagnosis, shelf: Shelf | None) -> None:
        self._diagnosis = diagnosis
        self._now = diagnosis.snapshot
        self._mark = mark(diagnosis.snapshot.target.python)
        self._runs = shelf.runs() if shelf and diagnosis.findings else []
        self._entries = logged(diagnosis.snapshot)
        self._clock = time.time()
        self._snapshot = cache(_snapshot_of)
        self._worked = cache(self._last_passed)

    def told(self) -> Diagnosis:
        """The diagnosis with what is known of it."""
        if not self._runs and not self._entries:
            return self._diagnosis
        found = self._diagnosis.findings
        folded = {child for finding in found for child in finding.explains}
        silent = [finding.severity == "info" or finding.id in folded for finding in found]
        told = (one if quiet else replace(one, since=self.of(one)) for one, quiet in zip(found, silent, strict=True))
        return replace(self._diagnosis, findings=tuple(told))

    def worked(self) -> Worked:
        """For each finding the run in which it was not found last."""
        ids = dict.fromkeys(finding.id for finding in self._diagnosis.findings if finding.severity != "info")
        pairs = {rule: (self._worked(rule, True), self._worked(rule, False)) for rule in ids}
        return {rule: (own.id if own else "", any_.id if any_ else "") for rule, (own, any_) in pairs.items()}

    def of(self, finding: Finding) -> tuple[Since, ...]:
        """What changed of what its evidence rests on, the newest first."""
        facts = [item.fact for item in finding.evidence]
        found: list[Since] = []
        for family in of_facts(facts):
            run = self._worked(finding.id, family.inside)
            found += self._in(family, run)
        if run := self._worked(finding.id, True):
            found += self._settings(facts, run)
        return tuple(sorted(dict.fromkeys(found), key=lambda one: one.at or "", reverse=True)[:_MOST])

    def _last_passed(self, rule: str, inside: bool) -> Run | None:
        """The last run in which that rule passed; of the same interpreter, where it is about what is inside of it."""
        for run in self._runs:
            if run.stamp > self._clock or (inside and run.mark != self._mark):
                continue
            try:
                if run.passed(rule):
                    return run
                if (known := run.worked(rule, inside)) is not None:
                    return next((one for one in self._runs if one.id == known), None)
            except DocumentError:
                continue
        return None

    def _in(self, family: Family, run: Run | None) -> list[Since]:
        """Changes of its packages since that run, or of late; then versions that are others than in that run."""
        most = self._clock - run.stamp if run else WINDOW * _DAY
        own = [entry for entry in self._entries if entry.inside == family.inside and family.has(entry.name)]
        late = [entry for entry in own if entry.age <= most]
        told = [replace(one, worked=run.time if run else None) for one in grouped(late, family)]
        then = self._snapshot(run) if run else None
        if run is None or then is None:
            return told
        for fact, what in family.versions.items():
            before, after = _text(then.get(fact)), _text(self._now.get(fact))
            if before and after and before != after:
                _add(told, Since(what, before, after, self._when(fact), None, fact, run.time))
        return told

    def _settings(self, facts: Sequence[str], run: Run) -> Iterator[Since]:
        """Environment variables among the facts that had another value, or none."""
        names = [name for name in dict.fromkeys(facts) if name.startswith("env.")]
        if not names or (then := self._snapshot(run)) is None:
            return
        for name in names:
            before, after = _text(then.get(name)), _text(self._now.get(name))
            if before != after:
                yield Since(name.partition(".")[2], before, after, None, None, name, run.time)

    def _when(self, fact: str) -> str | None:
        """A running kernel is that of the last boot."""
        up = self._now.get("host.uptime_s")
        if fact != "host.kernel" or not isinstance(up, Known):
            return None
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self._clock - float(str(up.value))))


def _add(told: list[Since], version: Since) -> None:
    """What a log has already is not said twice; where it has only the new version, what was before is added to it."""
    for place, one in enumerate(told):
        if one.after == version.after and one.before in (None, version.before):
            told[place] = replace(one, before=version.before)
            return
    told.append(version)


def _snapshot_of(run: Run) -> Snapshot | None:
    try:
        return run.snapshot()
    except DocumentError:
        return None


def _text(fact: Fact) -> str | None:
    return str(fact.value) if isinstance(fact, Known) else None
