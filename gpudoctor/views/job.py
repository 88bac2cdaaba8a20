"""A job: the report of one that runs, for whom its ranks wait and what each does; the account of one that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Row, listed, number_of, text_of, texts_of, value_of
from gpudoctor.core.language import JOBS, RANK_PHRASES, phrase, say
from gpudoctor.core.measurement import COUNTERS
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._terminal import PLAIN, Style, one_line, seconds, size, wrapped

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
_LOOK_AGAIN = (
    "Where it still does not move in a minute, run the same command again: ranks that start, load or compile wait like"
    " this for a while."
)
UNSEEN = ("{who}: {rest}", "host {host}", *RANK_PHRASES[:6])
"""Why ranks or hosts were not seen."""
_SIGNALS = ("{signal} from the terminal or the kernel", "{signal} from {sender} (pid {pid})")
"""A signal, and where it came from."""


def render(diagnosis: Diagnosis, style: Style = PLAIN) -> str:
    """Report of a running job as text: who waits for whom, ranks, network, findings, what was not judged, counts."""
    snapshot = diagnosis.snapshot
    hosts, ranks = snapshot.texts("job.hosts"), int(snapshot.number("job.ranks") or 0)
    head = say(
        "{job}, {ranks} on {hosts}, looked at for {time}",
        job=one_line(phrase(snapshot.target.name, JOBS)),
        ranks=say("{count} ranks" if ranks != 1 else "{count} rank", count=ranks),
        hosts=hosts[0] if len(hosts) == 1 else say("{count} hosts", count=len(hosts)),
        time=seconds(snapshot.number("job.looked_s") or 0.0),
    )
    first, *rest = wrapped(summary(diagnosis), hang=2)
    lines = [
        *wrapped(f"gpudoctor {diagnosis.tool_version}{say(': ')}{head}", hang=2),
        style.paint(first, "bold", report.VERDICT_COLOURS[diagnosis.verdict]),
        *rest,
    ]
    blocks = [
        "\n".join(lines),
        "\n".join([*_group_lines(diagnosis), *_network_lines(diagnosis)]),
        *text.findings(diagnosis.findings, style),
    ]
    stands = snapshot.number("job.waiting_count") or snapshot.value("job.still")
    if stands and not diagnosis.findings:
        blocks.append("\n".join(wrapped(say(_LOOK_AGAIN), hang=2)))
    unseen = [line for sentence in _unseen(snapshot) for line in wrapped(sentence, hang=2)]
    blocks += ["\n".join(unseen)] if unseen else []
    blocks += ["\n".join(text.unjudged_lines(diagnosis, style))] if diagnosis.unjudged else []
    blocks += ["\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes]
    return "\n\n".join([*(block for block in blocks if block), report.counts(diagnosis)])


def render_short(diagnosis: Diagnosis, after: float, style: Style = PLAIN) -> str:
    """Short report while a job runs: for whom its ranks wait, what each group does, and titles of the findings.

    `after` is for how many seconds nothing was printed; 0 if somebody has asked for it.
    """
    now = _lower(summary(diagnosis))
    sentence = say("as it is now: {summary}", summary=now)
    if after:
        sentence = say("nothing printed for {time}, and it stands still: {summary}", time=seconds(after), summary=now)
    first, *rest = wrapped(f"gpudoctor{say(': ')}{sentence}", hang=2)
    titles = [f"{finding.title}  [{finding.id}]" for finding in diagnosis.findings]
    sentences = [line for one in (*titles, *_unseen(diagnosis.snapshot)) for line in wrapped(one_line(one), 2, 4)]
    return "\n".join([style.paint(first, "bold"), *rest, *_group_lines(diagnosis), *sentences])


def summary(diagnosis: Diagnosis) -> str:
    """The job in one sentence: which ranks wait, in what and for whom, or that none is found that others wait for."""
    snapshot = diagnosis.snapshot
    awaited = [row for row in listed(snapshot.rows("rank_group")) if value_of(row.get("awaited"))]
    waiting = phrase(snapshot.text("job.waiting"), RANK_PHRASES)
    wait = say(
        "{ranks} waits in {call}" if snapshot.number("job.waiting_count") == 1 else "{ranks} wait in {call}",
        ranks=_upper(waiting),
        call=say(snapshot.text("job.waiting_in")),
    )
    if awaited:
        names = say(", ").join(map(_name, awaited))
        return (
            say("{wait}, for {names}", wait=wait, names=names)
            if waiting
            else say("{names}: see below", names=_upper(names))
        )
    going = [row for row in listed(snapshot.rows("rank_group")) if text_of(row.get("state")) in ("computes", "moves")]
    if waiting and going:
        names = say(", ").join(map(_name, going))
        one = sum(number_of(row.get("count")) or 0 for row in going) == 1
        sentence = "{wait}; {names} go on, and no rank is found that hangs"
        if one:
            sentence = "{wait}; {names} goes on, and no rank is found that hangs"
        return say(sentence, wait=wait, names=names)
    if going:
        return say("The job goes on: no rank is found that the others wait for")
    if waiting:
        return say("{wait}; no rank is found that they wait for", wait=wait)
    if snapshot.value("job.still"):
        groups = listed(snapshot.rows("rank_group"))
        if len(groups) == 1:
            return say("{name} {does}", name=_upper(_name(groups[0])), does=_does(groups[0]))
        return say("No rank goes on, and none is found that others wait for")
    return say("No rank is found that others wait for")


def _unseen(snapshot: Snapshot) -> Iterator[str]:
    """A sentence for each reason why ranks or hosts were not seen."""
    for reason in snapshot.texts("job.unseen"):
        yield one_line(say("Not seen: {what}", what=phrase(reason, UNSEEN)))


def _group_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Lines for each of the first groups of ranks that do the same: what they do, and where; then how many more."""
    groups = listed(diagnosis.snapshot.rows("rank_group"))
    for row in groups[:_MOST_GROUPS]:
        yield from wrapped(_group(row), 2, 4)
    if len(groups) > _MOST_GROUPS:
        yield say("  and {count} more; --json lists them", count=len(groups) - _MOST_GROUPS)


def _network_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Lines for each of the first hosts: MB/s that its network sent and received, and TCP segments sent again."""
    for row in listed(diagnosis.snapshot.rows("job_host"))[:_MOST_HOSTS]:
        parts = [_rates(row, "")]
        if text_of(row.get("rdma_sent_mb_s")):
            parts.append(f"RDMA {_rates(row, 'rdma_')}")
        if resent := int(number_of(row.get("resent")) or 0):
            parts.append(
                say("{count} segments sent again" if resent != 1 else "{count} segment sent again", count=resent)
            )
        sentence = say("Network of {host}: {rates}", host=text_of(row.get("host")), rates=say("; ").join(parts))
        yield from wrapped(one_line(sentence), 2, 4)


def _rates(row: Row, kind: str) -> str:
    """A host's rates of that kind of traffic: ``12.1 MB/s out, 11.8 MB/s in``."""
    sent, received = text_of(row.get(f"{kind}sent_mb_s")), text_of(row.get(f"{kind}received_mb_s"))
    return say("{sent} MB/s out, {received} MB/s in", sent=sent, received=received)


def _group(row: Row) -> str:
    """A row of ``rank_group`` in words: ``Rank 7 (pid 812 on node3, GPU 2): waits for a lock at f (train.py:41)``."""
    several, state = number_of(row.get("count")) != 1, text_of(row.get("state"))
    who, place, name = text_of(row.get("who")), text_of(row.get("place")), _upper(_name(row))
    does = _does(row)
    if state == "waits":
        does = say("{does} in {call}", does=does, call=say(text_of(row.get("collective"))))
    if place and state != "moves":
        does = say("{does} at {place}", does=does, place=place)
    named = say("{name} ({who})", name=name, who=phrase(who, RANK_PHRASES)) if who and not several else name
    return one_line(say("{title}: {text}", title=named, text=does))


def _does(row: Row) -> str:
    """What the ranks of a row of ``rank_group`` do, without where: ``waits for a lock``."""
    state = text_of(row.get("state"))
    return say(STATES.get(state, (state, state))[number_of(row.get("count")) != 1])


def _name(row: Row) -> str:
    """The ranks of a row of ``rank_group`` as within a sentence: ``ranks 0-6, 9``."""
    return phrase(_lower(text_of(row.get("name"))), RANK_PHRASES)


def _lower(name: str) -> str:
    """The name with a small first letter, for use within a sentence."""
    return name[:1].lower() + name[1:]


def _upper(name: str) -> str:
    """The name with a capital first letter, for use at the begin of a sentence."""
    return name[:1].upper() + name[1:]


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
    head = say("{rank}{end}; {found}", rank=_rank(snapshot), end=_end(snapshot), found=_found(diagnosis, failed))
    first, *rest = wrapped(f"gpudoctor{say(': ')}{head}", hang=2)
    lines = [style.paint(first, "bold", colour), *rest, *_used(snapshot)]
    blocks = ["\n".join(lines), *text.findings(diagnosis.findings, style)]
    return "\n\n".join([*blocks, *("\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes)])


def _rank(snapshot: Snapshot) -> str:
    """The rank of the command that ran: ``rank 2 of 8 on node1: ``; empty outside of a job."""
    rank, ranks = snapshot.number("run.rank"), snapshot.number("run.world_size")
    if rank is None or not ranks:
        return ""
    return say("rank {rank} of {ranks} on {host}: ", rank=int(rank), ranks=int(ranks), host=snapshot.text("run.host"))


def _end(snapshot: Snapshot) -> str:
    """How the command ended: ``exit 1 after 2 min 5 s``, ``killed by SIGSEGV (core dumped) after 4.0 s``."""
    code = snapshot.text("run.exit_code")
    end = say("exit {code}", code=code) if code else say("exit code not known")
    if name := snapshot.text("run.signal"):
        end = say(
            "killed by {signal} (core dumped)" if snapshot.value("run.core") else "killed by {signal}", signal=name
        )
    elif name := snapshot.text("run.died_of"):
        end = say("{end} (a process of it was killed by {signal})", end=end, signal=name)
    end = say("{end} after {time}", end=end, time=_duration(snapshot.number("run.seconds") or 0.0))
    first = snapshot.number("run.first_rank")
    if first is not None and first == snapshot.number("run.rank"):
        end = say("{end}, the first of its host to fail", end=end)
    return end


def _found(diagnosis: Diagnosis, failed: bool) -> str:
    """How many findings are below, or that nothing was found.

    Then also, if the command died of a signal that was sent to it, that it was asked to end; else, if it failed,
    whether its output was read.
    """
    if count := len(diagnosis.findings):
        return say("{count} findings below" if count != 1 else "{count} finding below", count=count)
    name = diagnosis.snapshot.text("run.died_of")
    if name and any(one.startswith(f"{name} ") for one in diagnosis.snapshot.texts("run.signalled")):
        return say("it was asked to end; nothing else found")
    if failed and not diagnosis.snapshot.texts("run.output_from"):
        return say("nothing found; its output was not kept, so what it printed was not read")
    return say("nothing found that explains it, neither printed nor logged" if failed else "nothing found")


def _used(snapshot: Snapshot) -> Iterator[str]:
    """Lines about the signals that the command got, its memory, its processes and its GPUs (of many only odd ones)."""
    signals = snapshot.texts("run.signalled")
    if signals:
        names = say(", ").join(phrase(signal, _SIGNALS) for signal in signals[:_MOST_SIGNALS])
        more = say(" and {count} more", count=len(signals) - _MOST_SIGNALS) if len(signals) > _MOST_SIGNALS else ""
        yield from wrapped(say("signals: {names}", names=names + more), 2, 4)
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
        parts.append(say("{percent} % busy on the average", percent=f"{sum(busy) / len(busy):.0f}"))
    if peaks := _numbers(rows, "memory_peak_mib"):
        least, most = size(min(peaks)), size(max(peaks))
        parts.append(most if least == most else say("{least} to {most}", least=least, most=most))
    for name, unit in (("power_w", "W"), ("energy_wh", "Wh")):
        if values := _numbers(rows, name):
            parts.append(say("{amount} in all", amount=f"{sum(values):.0f} {unit}"))
    return say("{count} GPUs: {use}", count=len(rows), use=say(", ").join(parts))


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
    most = say("memory: {peak} at most", peak=size(peak))
    if peak < 1:
        most = say("memory: under 1 MiB")
    elif limit:
        most = say("memory: {peak} at most, of {limit} (its cgroup's limit)", peak=size(peak), limit=size(limit))
    parts = [most]
    if (count := int(snapshot.number("run.processes") or 0)) > 1:
        parts.append(say("{count} processes", count=count))
    cpu, whole = snapshot.number("run.cpu_seconds"), snapshot.number("run.seconds")
    if cpu and whole and whole >= 1:
        parts.append(say("{count} processors busy", count=f"{cpu / whole:.1f}"))
    return say("; ").join(parts)


def _gpu(row: Row) -> str:
    """A row of ``run_gpu`` in words: ``GPU 0: 71 % busy, 60.1 GiB of 79.1 GiB, 412 W; held down by sw_power_cap``."""
    parts = []
    if error := text_of(row.get("error")):
        parts.append(say("does not answer any more ({error})", error=error))
    if (busy := number_of(row.get("utilization"))) is not None:
        parts.append(say("{percent} % busy", percent=f"{busy:.0f}"))
    peak, whole = number_of(row.get("memory_peak_mib")), number_of(row.get("memory_mib"))
    if peak is not None:
        parts.append(say("{used} of {whole}", used=size(peak), whole=size(whole)) if whole else size(peak))
    for name, unit in (("power_w", "W"), ("temperature_c", "degrees C"), ("energy_wh", "Wh")):
        if (value := number_of(row.get(name))) is not None:
            parts.append(f"{value:g} {say(unit)}")
    gains = {name: gain for name in COUNTERS if (gain := number_of(row.get(name)))}
    parts += [say("{count} {errors}", count=f"{gain:.0f}", errors=say(COUNTERS[name])) for name, gain in gains.items()]
    use = say(", ").join(parts) or say("seen, and nothing read")
    if held := texts_of(row.get("held_down")):
        use = say("{use}; held down by {reasons}", use=use, reasons=", ".join(held))
    return one_line(say("{title}: {text}", title=f"GPU {text_of(row.get('index'))}", text=use))


def _duration(value: float) -> str:
    """A duration in seconds as text, from an hour on in hours and minutes: ``18 s``, ``2 min 5 s``, ``2 h 5 min``."""
    if value < 3600:
        return seconds(value)
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60} min"
