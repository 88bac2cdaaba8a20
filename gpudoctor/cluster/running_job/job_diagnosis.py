"""The ranks of a running job, compared and judged: facts ``job.*``, groups of ranks, and who is waited for.

A rank is called awaited only while others wait for it all the time and it stands still itself: one that computes,
reads or writes comes on, however slowly, and where one does, the others may wait for that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gpudoctor.cluster.running_job.recorded import dumps_in
from gpudoctor.core.diagnosis import Diagnosis, Finding, Subject, verdict_of
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, number_of, text_of, value_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.diagnose import diagnosis_of
from gpudoctor.diagnosis.judge.folding import sort_key
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from gpudoctor.readers.tools import flight_recorder

_TOPICS = ("job", "rank", "rank_group")
EVENTS = ("xid", "sxid", "aer", "oom", "kernel_log")
_LAYERS = ("gpu", "workload")
"""Layers whose pages judge what befell the job's GPUs and processes."""


def diagnose(
    name: str,
    rows: Sequence[Row],
    seconds: float,
    records: Mapping[str, Fact],
    hosts: Sequence[Row],
    rules: Sequence[Path] = (),
    silent: Mapping[str, str] = {},
    events: Mapping[str, Rows] = {},
    found: Sequence[Finding] = (),
) -> Diagnosis:
    """The diagnosis of the job of that name, from the rows of its ranks and hosts, and what NCCL and torch recorded.

    `silent` maps machines without an answer to the reason; `events` are this machine's kernel events, `found` the
    findings of several machines about theirs. Only pages about running jobs and such records are
    judged. Raises `RuleError` for a broken page.
    """
    return judge(snapshot_of(name, rows, seconds, records, hosts, silent, events), rules, found)


def judge(snapshot: Snapshot, rules: Sequence[Path] = (), found: Sequence[Finding] = ()) -> Diagnosis:
    """Diagnosis of a job's snapshot by the pages about running jobs, with what its hosts have `found`; unknown at best
    if ranks were not seen, or if the job stands still and nothing is found. Raises `RuleError` for a broken page.
    """
    book = rulebook.load(rules)
    diagnosis = diagnosis_of(snapshot, _about_jobs(book, snapshot))
    findings = tuple(sorted([*diagnosis.findings, *found], key=sort_key)) if found else diagnosis.findings
    explained = bool(findings) or not snapshot.value("job.still")
    known = bool(snapshot.number("job.ranks")) and not snapshot.texts("job.unseen") and explained
    return replace(diagnosis, findings=findings, verdict=verdict_of(findings, known=known))


def snapshot_of(
    name: str,
    rows: Sequence[Row],
    seconds: float,
    records: Mapping[str, Fact],
    hosts: Sequence[Row],
    silent: Mapping[str, str] = {},
    events: Mapping[str, Rows] = {},
) -> Snapshot:
    """Snapshot of the job `name`: its ranks compared, its hosts, records and events; arguments as of `diagnose`."""
    facts, groups = compared(rows, seconds, [f"host {host}: {why}" for host, why in silent.items()])
    kept: dict[str, Rows] = {**events, **groups, "job_host": tuple(hosts)}
    by_dumps = dict(flight_recorder.compared(dumps_in(rows)))
    return Snapshot(Target("local", name), {**by_dumps, **records, **facts}, kept)


def _about_jobs(book: Rulebook, snapshot: Snapshot) -> Rulebook:
    """The rulebook with only the pages, for one machine, that read a fact about jobs, a fact recorded of this job, or,
    in the layers of GPUs and workloads, kernel events that the snapshot has.
    """
    chosen = tuple(
        rule
        for rule in book.rules
        if any(
            topic in _TOPICS
            or (name in snapshot.facts and topic not in EVENTS)
            or (topic in EVENTS and topic in snapshot.groups and rule.layer in _LAYERS)
            for name in facts_read(rule)
            for topic in [name.partition(".")[0]]
        )
    )
    return Rulebook(chosen, book.folders)


# ---- The ranks compared ----

_SOURCE = "the ranks, compared"
_HALTED = ("stopped", "frozen")
"""States in which a rank cannot come, whatever the others do; one that is gone may have done its part."""
_STANDING = (*_HALTED, "gone", "loads", "sleeps", "locked", "reads", "listens", "idles")
_CERTAIN = (*_HALTED, "gone", "reads")
"""States that the kernel tells by itself: a lock, a sleep and an event are also what collectives wait by."""
_GOING_ON = ("computes", "moves")


def compared(
    rows: Sequence[Row], seconds: float, silent: Sequence[str] = ()
) -> tuple[dict[str, Fact], dict[str, tuple[Row, ...]]]:
    """Facts ``job.*`` (who waits, who is awaited, does it stand still), and groups ``rank``, with the column
    ``awaited``, and ``rank_group``. `silent` are texts on hosts that did not answer.
    """
    states = [text_of(row.get("state")) for row in rows]
    waiting = [at for at, row in enumerate(rows) if states[at] == "waits" and value_of(row.get("still"))]
    standing = [at for at, row in enumerate(rows) if _stands(row)]
    goes_on = any(state in _GOING_ON for state in states) or any(
        states[at] == "waits" and not value_of(row.get("still")) for at, row in enumerate(rows)
    )
    halted = {at for at in standing if states[at] in _HALTED}
    awaited = halted if goes_on or not waiting else set(standing)
    differing = not goes_on and not standing and len(waiting) == len(rows) and len(set(map(_call, rows))) > 1
    if differing:
        awaited = _minority(rows)
    marked = tuple({**row, "awaited": Known(at in awaited, _SOURCE)} for at, row in enumerate(rows))
    others = [at for at in waiting if at not in awaited]
    facts: dict[str, Fact] = {
        "job.looked_s": Known(round(seconds, 1), "the clock"),
        "job.ranks": Known(len(rows), _SOURCE),
        "job.unseen": Known((*_unseen(rows), *silent), _SOURCE),
        "job.still": Known(bool(rows) and not goes_on and bool(waiting or standing), _SOURCE),
        "job.differing": Known(differing, _SOURCE),
        "job.hosts": Known(tuple(dict.fromkeys(filter(None, (text_of(row.get("host")) for row in rows)))), _SOURCE),
        **_waiting_facts(rows, others),
    }
    if world := next((number for row in rows if (number := number_of(row.get("world"))) is not None), None):
        facts["job.world"] = Known(int(world), "its launcher's variables")
    return facts, {"rank": marked, "rank_group": tuple(_rank_group_rows(marked))}


def _stands(row: Row) -> bool:
    """True if the rank has halted or stands still anywhere but in a call that waits for ranks; False if its stack is
    not known, but for states that the kernel tells by itself (`_CERTAIN`).
    """
    state = text_of(row.get("state"))
    hidden = bool(text_of(row.get("unseen"))) and state not in _CERTAIN
    return state in _STANDING and bool(value_of(row.get("still"))) and not hidden


def _waiting_facts(rows: Sequence[Row], waiting: Sequence[int]) -> dict[str, Fact]:
    """Facts ``job.waiting`` (the ranks, in words), ``job.waiting_count`` and ``job.waiting_in`` (where most wait) on
    the rows at these indices; all three Absent for none.
    """
    if not waiting:
        nobody = Absent("no rank waits for others all the time")
        return dict.fromkeys(("job.waiting", "job.waiting_count", "job.waiting_in"), nobody)
    places = Counter(text_of(rows[at].get("collective")) for at in waiting)
    return {
        "job.waiting": Known(_ranks_phrase([rows[at] for at in waiting]), _SOURCE),
        "job.waiting_count": Known(len(waiting), _SOURCE),
        "job.waiting_in": Known(places.most_common(1)[0][0], _SOURCE),
    }


def _call(row: Row) -> tuple[str, str]:
    """(call in which the rank waits, place in the program); empty texts where not known."""
    return text_of(row.get("collective")), text_of(row.get("place"))


def _minority(rows: Sequence[Row]) -> set[int]:
    """Indices of the rows that are not in the most frequent call and place; empty if two are equally frequent."""
    counts = Counter(map(_call, rows)).most_common(2)
    if counts[0][1] == counts[1][1]:
        return set()
    return {at for at, row in enumerate(rows) if _call(row) != counts[0][0]}


def _rank_group_rows(rows: Sequence[Row]) -> Iterable[Row]:
    """Rows of the group ``rank_group``: one for each set of ranks that do the same at the same place, awaited ones
    first, then the smallest.
    """
    sets: dict[tuple[object, ...], list[int]] = {}
    for at, row in enumerate(rows):
        state = text_of(row.get("state"))
        detail = tuple(text_of(row.get(name)) for name in _ALIKE) if state not in _GOING_ON else ()
        sets.setdefault((bool(value_of(row.get("awaited"))), state, *detail), []).append(at)
    for key, members in sorted(sets.items(), key=lambda item: (not item[0][0], len(item[1]))):
        chosen = [rows[at] for at in members]
        first = chosen[0]
        does = text_of(first.get("collective")) or text_of(first.get("place"))
        name = _ranks_phrase(chosen)
        yield {
            "name": Known(name[:1].upper() + name[1:], _SOURCE),
            "ranks": Known(tuple(_number(row) for row in chosen), _SOURCE),
            "count": Known(len(chosen), _SOURCE),
            "who": Known(_process_phrase(first), _SOURCE) if _process_phrase(first) else Absent("it has no process"),
            "hosts": Known(tuple(dict.fromkeys(filter(None, (text_of(row.get("host")) for row in chosen)))), _SOURCE),
            "state": Known(str(key[1]), _SOURCE),
            "does": Known(does, _SOURCE) if does else Absent("its stack is not known"),
            "awaited": Known(bool(key[0]), _SOURCE),
            "first": Known(members[0], _SOURCE),
            **{name: first[name] for name in _SHOWN if name in first},
        }


_ALIKE = ("collective", "place", "waits_in", "what", "worker_waits_in", "worker_what")
_SHOWN = (
    *("rank", "host", "pid", "gpu", "blocked"),
    *("place", "collective", "waits_in", "what", "mount", "mount_kind", "mount_source", "mount_remote"),
    *("kernel_state", "kernel_function", "unseen", "worker", "worker_pid", "worker_place", "worker_waits_in"),
    *("worker_state", "worker_what", "worker_mount", "worker_mount_kind", "worker_mount_source"),
    "worker_mount_remote",
)
"""Columns of its first rank that a group has, too."""


def _unseen(rows: Sequence[Row]) -> Iterable[str]:
    """Texts that list ranks with unknown stacks by reason, but for those halted or gone:
    ``rank 3: no look at it came back``.
    """
    reasons: dict[str, list[Row]] = {}
    for row in rows:
        if (why := text_of(row.get("unseen"))) and text_of(row.get("state")) not in (*_HALTED, "gone"):
            reasons.setdefault(why, []).append(row)
    for why, chosen in reasons.items():
        yield f"{_ranks_phrase(chosen)}: {why}"


def _number(row: Row) -> int:
    """The rank number, or the process id if the rank has none."""
    number = number_of(row.get("rank"))
    return int(number if number is not None else number_of(row.get("pid")) or 0)


def _ranks_phrase(rows: Sequence[Row]) -> str:
    """Ranks in words: ``rank 7``, ``ranks 0-6, 9``; ``process 812`` where nobody numbers them."""
    numbered = all(number_of(row.get("rank")) is not None for row in rows)
    word = "rank" if numbered else "process"
    numbers = sorted({_number(row) for row in rows})
    plural = "s" if numbered else "es"
    return f"{word}{plural if len(numbers) > 1 else ''} {ranges(numbers)}"


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers with runs folded: ``0-6, 9``; of many runs the first eight."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{begin}-{end}" if end > begin else str(begin) for begin, end in runs]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


def _process_phrase(row: Row) -> str:
    """Process of the rank: ``pid 812 on node3, GPU 2``; ``on node3`` without process, ``""`` without a host either.

    Where no launcher numbers it, so that its name is its process id already: ``python3 train.py on node3, GPU 2``.
    """
    pid, gpu = number_of(row.get("pid")), number_of(row.get("gpu"))
    on = f" on {text_of(row.get('host'))}"
    if pid is None:
        return on.strip() if text_of(row.get("host")) else ""
    process = f"pid {pid:.0f}" if number_of(row.get("rank")) is not None else text_of(row.get("process"))
    return f"{process}{on}".strip() + (f", GPU {gpu:.0f}" if gpu is not None else "")


def found_there(diagnosis: Diagnosis, host: str) -> Iterator[Finding]:
    """The diagnosis's findings on kernel events, each with `host` in its title and as its subject."""
    for finding in diagnosis.findings:
        if any(item.fact.partition(".")[0] in EVENTS for item in finding.evidence):
            place: Subject = {"host": host, "hosts": [host]}
            subjects = tuple({**subject, **place} for subject in finding.subjects or ({},))
            yield replace(finding, title=f"{host}: {finding.title}", subjects=subjects)


def numbers_of(rows: Iterable[Mapping[str, Fact]]) -> set[int]:
    """The numbers of the ranks that these rows are about."""
    return {int(number) for row in rows if (number := number_of(row.get("rank"))) is not None}
