"""The diagnosis of a running job: its rows judged by the pages that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor.cluster.running.grouping import compared
from gpudoctor.core.diagnosis import Diagnosis, verdict_of
from gpudoctor.core.fact import Fact, Row, Rows
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judged import judged
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read

_TOPICS = ("job", "rank", "rank_group")


def diagnose(
    name: str,
    rows: Sequence[Row],
    seconds: float,
    records: Mapping[str, Fact],
    hosts: Sequence[Row],
    rules: Sequence[Path] = (),
    silent: Mapping[str, str] = {},
) -> Diagnosis:
    """The diagnosis of the job of that name, from the rows of its ranks and hosts, and what NCCL and torch recorded.

    `silent` are machines that gave no answer, and why. Only pages about running jobs, and about what was recorded, are
    judged. Raises `RuleError` for a broken page.
    """
    facts, groups = compared(rows, seconds, [f"host {host}: {why}" for host, why in silent.items()])
    kept: dict[str, Rows] = {**groups, "job_host": tuple(hosts)}
    snapshot = Snapshot(Target("local", name), {**records, **facts}, kept)
    book = rulebook.load(rules)
    diagnosis = judged(snapshot, _about_jobs(book, snapshot))
    known = bool(rows) and not snapshot.texts("job.unseen")
    return replace(diagnosis, verdict=verdict_of(diagnosis.findings, known=known))


def _about_jobs(book: Rulebook, snapshot: Snapshot) -> Rulebook:
    """The rulebook's pages that read a fact about jobs, or one that was recorded of this one."""
    chosen = tuple(
        rule
        for rule in book.rules
        if any(name.partition(".")[0] in _TOPICS or name in snapshot.facts for name in facts_read(rule))
    )
    return Rulebook(chosen, book.folders)
