"""The report of a running job: for whom its ranks wait, what each does, then what was found."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Row, listed, number_of, text_of, value_of
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._terminal import Style, one_line, plural, seconds, wrapped

_MOST_GROUPS = 12
_MOST_HOSTS = 4
STATES = {
    "waits": ("waits", "wait"),
    "loads": ("waits for its DataLoader", "wait for their DataLoaders"),
    "sleeps": ("sleeps", "sleep"),
    "locked": ("waits for a lock", "wait for a lock"),
    "reads": ("waits for a file or a device", "wait for a file or a device"),
    "listens": ("waits for another process", "wait for another process"),
    "computes": ("computes", "compute"),
    "moves": ("goes on", "go on"),
    "idles": ("does nothing", "do nothing"),
    "stopped": ("is stopped", "are stopped"),
    "frozen": ("is frozen", "are frozen"),
    "gone": ("has no process", "have no process"),
    "unseen": ("cannot be seen", "cannot be seen"),
}
"""What one rank does, and several, by the fact ``rank.state``."""


def render(diagnosis: Diagnosis, style: Style | None = None) -> str:
    """The whole report, ending without a newline."""
    style = style or Style()
    snapshot = diagnosis.snapshot
    hosts = snapshot.texts("job.hosts")
    where = hosts[0] if len(hosts) == 1 else plural(len(hosts), "host")
    ranks, looked = int(snapshot.number("job.ranks") or 0), seconds(snapshot.number("job.looked_s") or 0.0)
    name = one_line(snapshot.target.name)
    head = f"gpudoctor {diagnosis.tool_version}: {name}, {plural(ranks, 'rank')} on {where}, looked at for {looked}"
    first, *rest = wrapped(summary(diagnosis), hang=2)
    lines = [*wrapped(head, hang=2), style.paint(first, "bold", report.VERDICT_COLOURS[diagnosis.verdict]), *rest]
    blocks = [
        "\n".join(lines),
        "\n".join([*_group_lines(diagnosis), *_network_lines(diagnosis)]),
        *text.findings(diagnosis.findings, style),
    ]
    unseen = [f"Not seen: {one_line(one)}" for one in snapshot.texts("job.unseen")]
    blocks += ["\n".join(line for one in unseen for line in wrapped(one, hang=2))] if unseen else []
    blocks += ["\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes]
    return "\n\n".join([*(block for block in blocks if block), report.counts(diagnosis)])


def render_short(diagnosis: Diagnosis, after: float, style: Style | None = None) -> str:
    """What is told while a command runs: for whom its ranks wait, what each does, and the findings' titles.

    `after` is for how many seconds nothing was printed; 0 where somebody has asked.
    """
    style = style or Style()
    since = f"nothing printed for {seconds(after)}, and it stands still" if after else "as it is now"
    first, *rest = wrapped(f"gpudoctor: {since}: {_lower(summary(diagnosis))}", hang=2)
    titles = [f"{finding.title}  [{finding.id}]" for finding in diagnosis.findings]
    unseen = [f"Not seen: {one_line(one)}" for one in diagnosis.snapshot.texts("job.unseen")]
    sentences = [line for one in (*titles, *unseen) for line in wrapped(one_line(one), 2, 4)]
    return "\n".join([style.paint(first, "bold"), *rest, *_group_lines(diagnosis), *sentences])


def summary(diagnosis: Diagnosis) -> str:
    """One sentence: for whom the ranks wait, or that none is found."""
    snapshot = diagnosis.snapshot
    awaited = [row for row in listed(snapshot.rows("rank_group")) if value_of(row.get("awaited"))]
    waiting, place = snapshot.text("job.waiting"), snapshot.text("job.waiting_in")
    wait = f"{waiting[:1].upper()}{waiting[1:]} {_verb(snapshot.number('job.waiting_count'), 'wait')} in {place}"
    if awaited:
        names = ", ".join(_lower(text_of(row.get("name"))) for row in awaited)
        if waiting:
            return f"{wait}, for {names}"
        return f"{names[:1].upper()}{names[1:]}: see below"
    going = [row for row in listed(snapshot.rows("rank_group")) if text_of(row.get("state")) in ("computes", "moves")]
    if waiting and going:
        names = ", ".join(_lower(text_of(row.get("name"))) for row in going)
        count = sum(number_of(row.get("count")) or 0 for row in going)
        return f"{wait}; {names} {_verb(count, 'go')} on, and no rank is found that hangs"
    if going:
        return "The job goes on: no rank is found that the others wait for"
    if waiting:
        return f"{wait}; no rank is found that they wait for"
    return "No rank is found that others wait for"


def _group_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """A line for each set of ranks: what they do, and where."""
    groups = listed(diagnosis.snapshot.rows("rank_group"))
    for row in groups[:_MOST_GROUPS]:
        yield from wrapped(_group(row), 2, 4)
    if len(groups) > _MOST_GROUPS:
        yield f"  and {len(groups) - _MOST_GROUPS} more; --json lists them"


def _network_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """A line for each of the first hosts: what its network carried meanwhile."""
    for row in listed(diagnosis.snapshot.rows("job_host"))[:_MOST_HOSTS]:
        parts = [f"{text_of(row.get('sent_mb_s'))} MB/s out, {text_of(row.get('received_mb_s'))} MB/s in"]
        if text_of(row.get("rdma_sent_mb_s")):
            rdma = f"{text_of(row.get('rdma_sent_mb_s'))} MB/s out, {text_of(row.get('rdma_received_mb_s'))} MB/s in"
            parts.append(f"RDMA {rdma}")
        if resent := number_of(row.get("resent")):
            parts.append(f"{plural(int(resent), 'segment')} sent again")
        yield from wrapped(one_line(f"Network of {text_of(row.get('host'))}: {'; '.join(parts)}"), 2, 4)


def _group(row: Row) -> str:
    """``Rank 7 (pid 812 on node3, GPU 2): waits for its DataLoader at load (train.py:41)``."""
    several, state = number_of(row.get("count")) != 1, text_of(row.get("state"))
    who, place = text_of(row.get("who")), text_of(row.get("place"))
    words = STATES.get(state, (state, state))[several]
    inside = f" in {text_of(row.get('collective'))}" if state == "waits" else ""
    named = f"{text_of(row.get('name'))}{f' ({who})' if who and not several else ''}"
    return one_line(f"{named}: {words}{inside}{f' at {place}' if place and state != 'moves' else ''}")


def _verb(count: float | None, verb: str) -> str:
    """The verb for so many: ``wait``, ``waits``; ``go``, ``goes``."""
    return verb if count != 1 else f"{verb}{'es' if verb == 'go' else 's'}"


def _lower(name: str) -> str:
    """The name within a sentence."""
    return name[:1].lower() + name[1:]
