"""A running job in words: what each rank does, the order in which ranks are listed, and all that is known of one."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from textual.content import Content

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, listed, number_of, text_of, texts_of, value_of
from gpudoctor.core.language import JOBS, phrase, say
from gpudoctor.core.rule import Severity
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.views import job as report
from gpudoctor.views._terminal import one_line, plural
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, badge, labelled, plain
from gpudoctor.views.tui.words.diagnosis import finding_blocks
from gpudoctor.views.tui.words.gpu import gib_text
from gpudoctor.views.tui.work import JobLook

_HANG = 8
_HALTED = ("gone", "stopped", "frozen")
_LIBRARY = re.compile(r"^.*/(?:(?:site|dist)-packages|lib(?:64)?/python[\d.]+)/")
"""Where libraries are: what stands behind it tells enough."""
_FEW = 4
"""Ranks that do the same are odd where they are less than one in so many."""
_FRAMES = 12
_KERNEL = {"D": "cannot be interrupted", "T": "stopped", "t": "stopped by a debugger", "Z": "ended, not taken leave of"}
TYPED = (
    ("gpudoctor job PID --tui", "the job that has this process"),
    ("gpudoctor job --slurm JOBID --tui", "a Slurm job, on all of its nodes"),
    ("gpudoctor job PID --hosts NODESET --tui", "its ranks on these hosts, over ssh"),
)


def rank_name(row: Row) -> str:
    """Name of a row of ``rank``: ``Rank 7``, or ``Process 812`` (its pid) if it has no rank number."""
    number = number_of(row.get("rank"))
    return (
        say("Rank {number:.0f}", number=number)
        if number is not None
        else say("Process {pid:.0f}", pid=number_of(row.get("pid")) or 0)
    )


def is_awaited(row: Row) -> bool:
    """True if the other ranks wait for that one."""
    return bool(value_of(row.get("awaited")))


def doing_text(row: Row, several: bool) -> str:
    """What a rank like this one does, as verb for one or `several`: ``waits in all_reduce``, ``wait in all_reduce``."""
    state = text_of(row.get("state"))
    words = report.STATES.get(state, (state, state))[several]
    call = say(text_of(row.get("collective")))
    return one_line(say("{does} in {call}", does=say(words), call=call) if state == "waits" else say(words))


def state_text(row: Row, look: JobLook | None = None) -> str:
    """What the rank does: ``waits in all_reduce``, ``stopped``, ``ended: exit code 3``, ``? its stack is hidden``.

    It ends in ``…`` if `look` is one before the stacks were read.
    """
    state, worker = text_of(row.get("state")), number_of(row.get("worker"))
    words = doing_text(row, False).removeprefix("is ")
    if state == "loads":
        words = say("in its DataLoader") + (
            "" if worker is None else say(", worker {worker:.0f} stands", worker=worker)
        )
    elif state == "gone":
        words = (
            say("ended: {exit}", exit=text_of(row.get("exit"))) if text_of(row.get("exit")) else say("has no process")
        )
    elif state == "reads":
        words = say("waits for {what}", what=text_of(row.get("what")) or say("a file or a device"))
    elif state == "unseen" or (text_of(row.get("unseen")) and state not in _HALTED):
        words = f"{marks.UNREAD} {say('its stack is hidden')}"
    if text_of(row.get("kernel_state")) == "D":
        words = say("D state: {words}", words=words)
    return one_line(words if look is None or look.read_at or state in _HALTED else f"{words} …")


def place_text(row: Row) -> str:
    """Where in the program the rank is, the line first (the end may be cut): ``train.py:41 load``; empty if unknown."""
    name, mark, line = text_of(row.get("place")).rpartition(" (")
    return one_line(f"{line.removesuffix(')')} {name}" if mark else line)


def in_order(snapshot: Snapshot, by_number: bool) -> list[Row]:
    """The rows of ``rank``: awaited ones, then halted ones, then, if the job stands still, those that do what few do;
    else by rank number.

    `by_number`: by rank number alone.
    """
    rows = sorted(listed(snapshot.rows("rank")), key=_number)
    if by_number:
        return rows
    still = bool(snapshot.value("job.still"))
    alike = Counter(map(_doing, rows))
    few = len(rows) / _FEW

    def rank(row: Row) -> tuple[bool, bool, int]:
        """Sort key of a row: (not awaited, not halted, how many do the same), the last only if the job stands still."""
        halted = text_of(row.get("state")) in _HALTED
        count = alike[_doing(row)] if still and alike[_doing(row)] < few else len(rows)
        return not is_awaited(row), not halted, count

    return sorted(rows, key=rank)


def _number(row: Row) -> tuple[float, float]:
    """Sort key of rows of ``rank``: the rank number (none: last), then the process id."""
    number = number_of(row.get("rank"))
    return number if number is not None else float("inf"), number_of(row.get("pid")) or 0.0


def _doing(row: Row) -> tuple[str, str]:
    """State, and collective or else place: ranks with the same pair do the same."""
    return text_of(row.get("state")), text_of(row.get("collective")) or text_of(row.get("place"))


def findings_of(diagnosis: Diagnosis, row: Row) -> Sequence[Finding]:
    """The findings about that rank, found by host and rank number, or by process id if it has no number."""
    number, host, pid = number_of(row.get("rank")), text_of(row.get("host")), number_of(row.get("pid"))
    found = []
    for finding in diagnosis.findings:
        for subject in finding.subjects:
            same_host = subject.get("host") in (None, host)
            of_it = subject.get("rank") == number if number is not None else subject.get("process") == pid
            if same_host and of_it and ("rank" in subject or "process" in subject):
                found.append(finding)
                break
    return found


def severity_of(diagnosis: Diagnosis, row: Row) -> Severity | None:
    """The worst severity of the findings about that rank; None if there are none."""
    found = {finding.severity for finding in findings_of(diagnosis, row)}
    return next((severity for severity in ("error", "warning", "info") if severity in found), None)


def headline(look: JobLook) -> str:
    """The job in one sentence: for whom the ranks wait, that this is not known yet, or that no process is left.

    Without a diagnosis why there is none.
    """
    diagnosis = look.diagnosis
    if diagnosis is None:
        return say(look.trouble)
    if look.ended_at:
        return say("no process of it is left") + (f"{say(': ')}{look.exit}" if look.exit else "")
    ranks = plural(int(diagnosis.snapshot.number("job.ranks") or 0), "rank")
    return (
        report.summary(diagnosis)
        if look.read_at
        else say("{ranks}: who waits for whom is known in some seconds", ranks=ranks)
    )


def size_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """``NAME · 8 ranks on 2 hosts``: name and size of the job, then two shorter versions for a narrow screen."""
    snapshot = diagnosis.snapshot
    hosts = snapshot.texts("job.hosts")
    where = hosts[0] if len(hosts) == 1 else plural(len(hosts), "host")
    ranks = plural(int(snapshot.number("job.ranks") or 0), "rank")
    yield one_line(
        say("{name} · {ranks} on {where}", name=phrase(snapshot.target.name, JOBS), ranks=ranks, where=where)
    )
    yield one_line(say("{ranks} on {where}", ranks=ranks, where=where))
    yield ranks


def freshness(look: JobLook, asked: bool, recorded: bool) -> str:
    """How old what is shown is: ``live · stacks read 3 s ago, ...``; that it is being read (`asked`), or has ended.

    A recording says only that it is one.
    """
    if recorded:
        return say("recorded · one look at the job; nothing is read again")
    if look.ended_at:
        return say("ended {ago}; as it was seen last", ago=_ago(look.ended_at))
    if look.reading or asked or not look.read_at:
        return say("reading the stacks …" if look.local else "asking the hosts …")
    stacks = say("stacks read {ago}", ago=_ago(look.read_at))
    return (
        say("live · {stacks}, each 10 s and on r", stacks=stacks)
        if look.local
        else say("{stacks}, again each {every:.0f} s", stacks=stacks, every=look.every)
    )


def _ago(moment: float) -> str:
    """How long ago a moment of the Unix clock is: ``3 s ago``, ``5 min ago``."""
    seconds = max(0.0, time.time() - moment)
    return (
        say("{seconds:.0f} s ago", seconds=seconds)
        if seconds < 120
        else say("{seconds:.0f} min ago", seconds=seconds / 60)
    )


def found_blocks(look: JobLook, diagnosis: Diagnosis, cure_first: bool) -> Iterator[Block]:
    """Every finding with all that is known of it, or that nothing was found; then what was not seen, and traffic.

    After the job's end first that it has ended; `cure_first` puts what to do before what follows.
    """
    findings = diagnosis.findings
    if look.ended_at:
        yield from _ended_blocks(diagnosis)
    for number, finding in enumerate(findings):
        if number:
            yield from (GAP, GAP)
        yield from finding_blocks(finding, notes=diagnosis.notes, cure_first=cure_first)
    if not findings and not look.ended_at:
        yield Block(plain(say("Nothing is found. {summary}.", summary=report.summary(diagnosis)), "bold"))
        yield GAP
        seconds = diagnosis.snapshot.number("job.looked_s") or 0.0
        looked = say("Looked at for {seconds:.0f} s.", seconds=seconds)
        yield Block(plain(say("{looked} A rank is named only where others wait for it all the time.", looked=looked)))
    for reason in diagnosis.snapshot.texts("job.unseen"):
        yield GAP
        yield Block(
            plain(phrase(reason, report.UNSEEN)),
            Content.styled(f" {marks.UNREAD} {say('NOT SEEN')} ", "bold reverse $primary") + " ",
            12,
        )
    yield from _network(diagnosis)


def _ended_blocks(diagnosis: Diagnosis) -> Iterator[Block]:
    """That the job has ended, how each rank ended as far as known, and which commands tell why."""
    ends: dict[str, list[Row]] = {}
    for row in listed(diagnosis.snapshot.rows("rank")):
        ends.setdefault(text_of(row.get("exit")) or say("its launcher alone knows"), []).append(row)
    head = Content.styled(f" {marks.ABSENT} {say('ENDED')} ", "bold reverse") + " "
    yield Block(Content.styled(say("No process of the job is left."), "bold"), head, head.cell_length)
    for end, rows in ends.items():
        more = say(" and {count} more", count=len(rows) - _FRAMES) if rows[_FRAMES:] else ""
        names = say(", ").join(map(rank_name, rows[:_FRAMES]))
        yield Block(plain(f"{names}{more}{say(': ')}{end}"), hang=head.cell_length)
    yield GAP
    yield labelled("Do", say("Why it ended stands in its log, and the next time at its end:"), 6)
    for command in ("gpudoctor read LOG", "gpudoctor run -- COMMAND"):
        yield labelled("      $ ", plain(command, "$primary"), 8, "dim")
    if diagnosis.findings:
        yield GAP
        yield Block(Content.styled(say("Found while it ran:"), "bold underline"))
        yield GAP


def _network(diagnosis: Diagnosis) -> Iterator[Block]:
    """A line for each of the first hosts: MB/s that its network sends and receives; a host without rates has none."""
    hosts = listed(diagnosis.snapshot.rows("job_host"))
    for row in hosts[:_FEW]:
        rates = [
            number_of(row.get(name)) for name in ("sent_mb_s", "received_mb_s", "rdma_sent_mb_s", "rdma_received_mb_s")
        ]
        if rates[0] is None or rates[1] is None:
            continue
        yield GAP
        rdma = f" · RDMA ↑{rates[2]:g} ↓{rates[3]:g}" if rates[2] is not None and rates[3] is not None else ""
        resent = number_of(row.get("resent"))
        again = say(" · {segments} sent again", segments=plural(int(resent), "segment")) if resent else ""
        carried = f"{text_of(row.get('host'))} ↑{rates[0]:g} ↓{rates[1]:g} MB/s{rdma}{again}"
        yield labelled("network", carried, _HANG + 2, "dim")


def rank_blocks(diagnosis: Diagnosis, row: Row, look: JobLook) -> Iterator[Block]:
    """All that is known of that rank: state, findings, processes, place, GPU and the first frames of its stack."""
    severity = severity_of(diagnosis, row)
    look_of_it = f"bold reverse {marks.SEVERITY[severity][2]}" if severity else "bold reverse"
    head = Content.styled(f" {say('AWAITED')} ", look_of_it) + " " if is_awaited(row) else Content("")
    yield Block(plain(state_text(row, look), "bold"), head, head.cell_length)
    for finding in findings_of(diagnosis, row):
        glyph, _, colour = marks.SEVERITY[finding.severity]
        yield Block(plain(finding.id), Content.styled(f" {glyph} ", f"bold reverse {colour}"), 4)
    yield GAP
    for label, text in _known_lines(row):
        yield labelled(label, text, _HANG, "dim")
    if unseen := text_of(row.get("unseen")):
        yield Block(plain(phrase(unseen), "bold"), Content.styled(f" {marks.UNREAD} ", "bold reverse $primary"), 4)
    frames = texts_of(row.get("stack"))
    if frames:
        yield GAP
        yield labelled("stack", say("the innermost function first; enter reads all threads"), _HANG, "dim")
    for frame in frames[:_FRAMES]:
        own = frame == text_of(row.get("place"))
        yield Block(plain(frame, "bold" if own else ""), plain("     ▸ " if own else ""), _HANG)
    if len(frames) > _FRAMES:
        yield Block(Content.styled(say("and {count} more", count=len(frames) - _FRAMES), "dim"), hang=_HANG)


def _known_lines(row: Row) -> Iterator[tuple[str, str]]:
    """A label and a text for each thing known of a rank: process, place, what it waits for, worker, kernel, GPU."""
    pid = number_of(row.get("pid"))
    process = (
        say(
            "pid {pid:.0f} {process} on {host}",
            pid=pid,
            process=text_of(row.get("process")),
            host=text_of(row.get("host")),
        )
        if pid
        else say("none")
    )
    yield "process", process
    if place := text_of(row.get("place")):
        yield "at", place
    if what := text_of(row.get("what")):
        mount = text_of(row.get("mount"))
        yield (
            "waits",
            say("for {what}", what=what)
            + (
                say(", on {mount} ({mount_kind})", mount=mount, mount_kind=text_of(row.get("mount_kind")))
                if mount
                else ""
            ),
        )
    if worker := number_of(row.get("worker_pid")):
        what = text_of(row.get("worker_what"))
        place = text_of(row.get("worker_place"))
        yield (
            "worker",
            f"pid {worker:.0f}"
            + (say(" at {place}", place=place) if place else "")
            + (say(", for {what}", what=what) if what else ""),
        )
    if state := text_of(row.get("kernel_state")):
        function = text_of(row.get("kernel_function"))
        yield (
            "kernel",
            say(", ").join(
                filter(
                    None,
                    (state, say(_KERNEL.get(state, "")), say("in {function}", function=function) if function else ""),
                )
            ),
        )
    cpu = number_of(row.get("cpu"))
    if cpu is not None and text_of(row.get("state")) != "gone":
        yield "CPU", say("{cpu:.0f} % of one processor, with what it has started", cpu=cpu)
    yield "GPU", _gpu_text(row)


def _gpu_text(row: Row) -> str:
    """The rank's GPUs, how busy the first is, and the memory held; or why nothing is known of them."""
    gpus, gpu = value_of(row.get("gpus")), row.get("gpu")
    if not isinstance(gpu, Known):
        return phrase(gpu.why) if isinstance(gpu, Absent | Unread) else say("not known")
    numbers = ", ".join(map(str, gpus)) if isinstance(gpus, tuple) else text_of(gpu)
    busy, memory = number_of(row.get("gpu_busy")), number_of(row.get("gpu_memory_mib"))
    if busy is None and memory is None and isinstance(unread := row.get("gpu_busy"), Unread):
        return f"{numbers}{say('; ')}{phrase(unread.why)}"
    used = "" if busy is None else say("{busy:.0f} % busy", busy=busy)
    held = "" if memory is None else say("{memory} GiB held", memory=gib_text(memory))
    return " · ".join(filter(None, (numbers, used, held)))


def cell(state: Fact | None, form: str = "{:.0f}") -> tuple[str, str]:
    """Text and style of a number, formatted by `form`; ``?`` if it could not be read, ``-`` if there is none."""
    number = number_of(state)
    if number is not None:
        return form.format(number), ""
    return (marks.UNREAD, "info") if isinstance(state, Unread) else (marks.ABSENT, "dim")


def nothing_blocks(trouble: str) -> Iterator[Block]:
    """Why no job is shown (`trouble`), and the commands that show one."""
    yield badge(say(trouble), f"{marks.UNREAD} NO JOB", "$primary")
    yield GAP
    yield Block(
        Content(say("A running job's ranks are shown here: what each does, and which of them the others wait for."))
    )
    yield GAP
    for at, (command, words) in enumerate(TYPED):
        yield labelled("" if at else "Do", say(words), 6)
        yield labelled("      $ ", plain(command, "$primary"), 8, "dim")


def stack_blocks(entries: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Block]:
    """Stacks as blocks, given by heading and frames; library paths are shortened. A sentence if there are none."""
    empty = True
    for heading, frames in entries:
        if not empty:
            yield GAP
        empty = False
        yield Block(plain(heading, "bold underline"))
        for frame in frames:
            name, _, place = frame.partition(" (")
            short = _LIBRARY.sub("", place.removesuffix(")"))
            look = "dim" if short != place.removesuffix(")") or place.startswith("<") else "bold"
            yield Block(Content.assemble(plain(name, look), "  ", plain(short, look)), Content("  "), 4)
    if empty:
        yield Block(plain(say("No stack of it is known: it has no process, or none that shows one.")))
