"""A job: the report of one that runs, for whom its ranks wait and what each does; the account of one that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Row, listed, number_of, text_of, texts_of, value_of
from gpudoctor.core.measurement import COUNTERS
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._terminal import PLAIN, Style, one_line, plural, seconds, size, wrapped

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


def render(diagnosis: Diagnosis, style: Style = PLAIN) -> str:
    """The report of a running job as text: who waits for whom, ranks, network, findings, what was not seen, counts."""
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


def render_short(diagnosis: Diagnosis, after: float, style: Style = PLAIN) -> str:
    """Short report while a job runs: for whom its ranks wait, what each group does, and titles of the findings.

    `after` is for how many seconds nothing was printed; 0 if somebody has asked for it.
    """
    since = f"nothing printed for {seconds(after)}, and it stands still" if after else "as it is now"
    first, *rest = wrapped(f"gpudoctor: {since}: {_lower(summary(diagnosis))}", hang=2)
    titles = [f"{finding.title}  [{finding.id}]" for finding in diagnosis.findings]
    unseen = [f"Not seen: {one_line(one)}" for one in diagnosis.snapshot.texts("job.unseen")]
    sentences = [line for one in (*titles, *unseen) for line in wrapped(one_line(one), 2, 4)]
    return "\n".join([style.paint(first, "bold"), *rest, *_group_lines(diagnosis), *sentences])


def summary(diagnosis: Diagnosis) -> str:
    """The job in one sentence: which ranks wait, in what and for whom, or that none is found that others wait for."""
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
    """Lines for each of the first groups of ranks that do the same: what they do, and where; then how many more."""
    groups = listed(diagnosis.snapshot.rows("rank_group"))
    for row in groups[:_MOST_GROUPS]:
        yield from wrapped(_group(row), 2, 4)
    if len(groups) > _MOST_GROUPS:
        yield f"  and {len(groups) - _MOST_GROUPS} more; --json lists them"


def _network_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Lines for each of the first hosts: MB/s that its network sent and received, and TCP segments sent again."""
    for row in listed(diagnosis.snapshot.rows("job_host"))[:_MOST_HOSTS]:
        parts = [f"{text_of(row.get('sent_mb_s'))} MB/s out, {text_of(row.get('received_mb_s'))} MB/s in"]
        if text_of(row.get("rdma_sent_mb_s")):
            rdma = f"{text_of(row.get('rdma_sent_mb_s'))} MB/s out, {text_of(row.get('rdma_received_mb_s'))} MB/s in"
            parts.append(f"RDMA {rdma}")
        if resent := number_of(row.get("resent")):
            parts.append(f"{plural(int(resent), 'segment')} sent again")
        yield from wrapped(one_line(f"Network of {text_of(row.get('host'))}: {'; '.join(parts)}"), 2, 4)


def _group(row: Row) -> str:
    """A row of ``rank_group`` in words: ``Rank 7 (pid 812 on node3, GPU 2): waits for a lock at f (train.py:41)``."""
    several, state = number_of(row.get("count")) != 1, text_of(row.get("state"))
    who, place = text_of(row.get("who")), text_of(row.get("place"))
    words = STATES.get(state, (state, state))[several]
    inside = f" in {text_of(row.get('collective'))}" if state == "waits" else ""
    named = f"{text_of(row.get('name'))}{f' ({who})' if who and not several else ''}"
    return one_line(f"{named}: {words}{inside}{f' at {place}' if place and state != 'moves' else ''}")


def _verb(count: float | None, verb: str) -> str:
    """The verb in its form for that count: ``waits``, ``goes`` for 1, else (also for None) ``wait``, ``go``."""
    return verb if count != 1 else f"{verb}{'es' if verb == 'go' else 's'}"


def _lower(name: str) -> str:
    """The name with a small first letter, for use within a sentence."""
    return name[:1].lower() + name[1:]


# ---- The short account of a command that ran under ``gpudoctor run``: how it ended, what it used, what was found ----

_MOST_GPUS = 4
"""GPUs with a line each; more of them share one, and only those that stand out have their own."""
_MOST_SIGNALS = 3


def render_account(diagnosis: Diagnosis, style: Style = PLAIN) -> str:
    """Account of a command that has ended: how it ended, what it used, and its findings and notes, as text."""
    snapshot = diagnosis.snapshot
    code = snapshot.value("run.exit_code")
    failed = bool(code or snapshot.text("run.signal"))
    grave = failed or any(finding.severity != "info" for finding in diagnosis.findings)
    colour = "red" if grave else "green" if code is not None else "yellow"
    head = f"gpudoctor: {_rank(snapshot)}{_end(snapshot)}; {_found(diagnosis, failed)}"
    first, *rest = wrapped(head, hang=2)
    lines = [style.paint(first, "bold", colour), *rest, *_used(snapshot)]
    blocks = ["\n".join(lines), *text.findings(diagnosis.findings, style)]
    return "\n\n".join([*blocks, *("\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes)])


def _rank(snapshot: Snapshot) -> str:
    """The rank of the command that ran: ``rank 2 of 8 on node1: ``; empty outside of a job."""
    rank, ranks = snapshot.number("run.rank"), snapshot.number("run.world_size")
    return f"rank {rank:.0f} of {ranks:.0f} on {snapshot.text('run.host')}: " if rank is not None and ranks else ""


def _end(snapshot: Snapshot) -> str:
    """How the command ended: ``exit 1 after 2 min 5 s``, ``killed by SIGSEGV (core dumped) after 4.0 s``."""
    end = f"exit {snapshot.text('run.exit_code') or 'code not known'}"
    if name := snapshot.text("run.signal"):
        end = f"killed by {name}{' (core dumped)' if snapshot.value('run.core') else ''}"
    elif name := snapshot.text("run.died_of"):
        end = f"{end} (a process of it was killed by {name})"
    first = snapshot.number("run.first_rank")
    of_host = ", the first of its host to fail" if first is not None and first == snapshot.number("run.rank") else ""
    return f"{end} after {_duration(snapshot.number('run.seconds') or 0.0)}{of_host}"


def _found(diagnosis: Diagnosis, failed: bool) -> str:
    """How many findings are below, or that nothing was found; if the command failed, also what limits that."""
    if diagnosis.findings:
        return f"{plural(len(diagnosis.findings), 'finding')} below"
    name = diagnosis.snapshot.text("run.died_of")
    if name and any(one.startswith(f"{name} ") for one in diagnosis.snapshot.texts("run.signalled")):
        return "it was asked to end; nothing else found"
    if failed and not diagnosis.snapshot.texts("run.output_from"):
        return "nothing found; its output was not kept, so what it printed was not read"
    return "nothing found" if not failed else "nothing found that explains it, neither printed nor logged"


def _used(snapshot: Snapshot) -> Iterator[str]:
    """Lines about the signals that the command got, its memory, its processes and its GPUs (of many only odd ones)."""
    signals = snapshot.texts("run.signalled")
    if signals:
        more = f" and {len(signals) - _MOST_SIGNALS} more" if len(signals) > _MOST_SIGNALS else ""
        yield from wrapped(f"signals: {', '.join(signals[:_MOST_SIGNALS])}{more}", 2, 4)
    if memory := _memory(snapshot):
        yield from wrapped(memory, 2, 4)
    gpus = listed(snapshot.rows("run_gpu"))
    used = [row for row in gpus if value_of(row.get("used"))] or list(gpus)
    many = len(used) > _MOST_GPUS
    if many:
        yield from wrapped(_many(used), 2, 4)
    for row in used:
        if not many or text_of(row.get("error")) or number_of(row.get("ecc_uncorrected")) or _stands_out(row, used):
            yield from wrapped(_gpu(row), 2, 4)


def _many(rows: Sequence[Row]) -> str:
    """Rows of ``run_gpu`` in words: ``8 GPUs: 63 % busy on the average, 58 to 61 GiB, 3200 W in all``."""
    parts = []
    if busy := _numbers(rows, "utilization"):
        parts.append(f"{sum(busy) / len(busy):.0f} % busy on the average")
    if peaks := _numbers(rows, "memory_peak_mib"):
        parts.append(
            size(max(peaks)) if size(min(peaks)) == size(max(peaks)) else f"{size(min(peaks))} to {size(max(peaks))}"
        )
    for name, unit in (("power_w", "W"), ("energy_wh", "Wh")):
        if values := _numbers(rows, name):
            parts.append(f"{sum(values):.0f} {unit} in all")
    return f"{len(rows)} GPUs: {', '.join(parts)}"


def _stands_out(row: Row, rows: Sequence[Row]) -> bool:
    """True if the GPU was less than half as busy as the median of `rows`, or held down while not all others were."""
    busy, all_busy = number_of(row.get("utilization")), sorted(_numbers(rows, "utilization"))
    idle = busy is not None and busy < 0.5 * all_busy[len(all_busy) // 2]
    held = bool(texts_of(row.get("held_down"))) and not all(texts_of(other.get("held_down")) for other in rows)
    return idle or held


def _numbers(rows: Sequence[Row], name: str) -> list[float]:
    """The numbers that are known in that column of these rows."""
    return [value for row in rows if (value := number_of(row.get(name))) is not None]


def _memory(snapshot: Snapshot) -> str:
    """The command's peak memory: ``memory: 12.3 GiB at most, of 64.0 GiB (its cgroup's limit); 9 processes``.

    Empty if it was not seen.
    """
    peak, limit = snapshot.number("run.memory_peak_mib"), snapshot.number("run.memory_limit_mib")
    if peak is None:
        return ""
    most = f", of {size(limit)} (its cgroup's limit)" if limit else ""
    count = int(snapshot.number("run.processes") or 0)
    processes = f"; {count} processes" if count > 1 else ""
    cpu, whole = snapshot.number("run.cpu_seconds"), snapshot.number("run.seconds")
    cpus = f"; {cpu / whole:.1f} processors busy" if cpu and whole and whole >= 1 else ""
    return f"memory: {size(peak)} at most{most}{processes}{cpus}"


def _gpu(row: Row) -> str:
    """A row of ``run_gpu`` in words: ``GPU 0: 71 % busy, 60.1 GiB of 79.1 GiB, 412 W; held down by sw_power_cap``."""
    parts = []
    if error := text_of(row.get("error")):
        parts.append(f"does not answer any more ({error})")
    if (busy := number_of(row.get("utilization"))) is not None:
        parts.append(f"{busy:.0f} % busy")
    peak, whole = number_of(row.get("memory_peak_mib")), number_of(row.get("memory_mib"))
    if peak is not None:
        parts.append(size(peak) + (f" of {size(whole)}" if whole else ""))
    for name, unit in (("power_w", "W"), ("temperature_c", "degrees C"), ("energy_wh", "Wh")):
        if (value := number_of(row.get(name))) is not None:
            parts.append(f"{value:g} {unit}")
    parts += [f"{gain:.0f} {words}" for name, words in COUNTERS.items() if (gain := number_of(row.get(name)))]
    held = texts_of(row.get("held_down"))
    down = f"; held down by {', '.join(held)}" if held else ""
    return one_line(f"GPU {text_of(row.get('index'))}: {', '.join(parts) or 'seen, and nothing told'}{down}")


def _duration(value: float) -> str:
    """A duration in seconds as text, from an hour on in hours and minutes: ``18 s``, ``2 min 5 s``, ``2 h 5 min``."""
    if value < 3600:
        return seconds(value)
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60} min"
