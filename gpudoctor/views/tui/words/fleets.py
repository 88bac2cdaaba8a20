"""A fleet in cells and words: its checks and pairs as heat maps, its suspects, and what is known of a host."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.model.fleet import Fleet, Host, Outcome, Result, Suspect, Verdict
from gpudoctor.model.rule import Severity
from gpudoctor.views._terminal import one_line, safe
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain
from gpudoctor.views.tui.words import pairs
from gpudoctor.views.tui.words.cells import Level, Mark, share

MOST_ROWS = 32
"""Hosts up to which all are shown; of more, only those with something to see."""
VERDICT: dict[Verdict, tuple[str, str, str]] = {
    "go": ("✓", "GO", "sound"),
    "no-go": ("✗", "NO-GO", "broken"),
    "unknown": ("?", "UNKNOWN", "unknown"),
}
"""Glyph and word of each verdict, and the band's class."""
_OUTCOMES: dict[Outcome, tuple[str, Level]] = {
    "ok": ("·", "good"),
    "error": ("✗", "bad"),
    "warning": ("!", "low"),
    "info": ("i", "info"),
    "unjudged": ("?", "unread"),
}
_SEVERITIES: dict[Outcome, Severity] = {"error": "error", "warning": "warning", "info": "info"}
_HANG = 7


def mark(result: Result) -> Mark:
    """A check of a host as a cell: tenths where it measured, and the outcome's own glyph else."""
    glyph, level = _OUTCOMES[result.outcome]
    if result.ratio is not None and result.outcome in ("error", "warning"):
        glyph = share(result.ratio, good=1.0).glyph
    return Mark(glyph, level, result.words)


_WAYS = (
    ("gpudoctor fleet --hosts node[01-08] --tui", "these, over ssh"),
    ("gpudoctor fleet --slurm --tui", "the nodes of this job"),
    ("gpudoctor fleet RESULTS… --tui", "from what each host wrote"),
)
_WHY = (
    "The same checks on every host show what one alone cannot: the driver that differs, the link that is slow, "
    "the host that all others wait for. Asked for with:"
)


def nothing(said: str) -> Iterator[Block]:
    """Why there is no fleet to show, what one is asked for, and by which commands."""
    yield Block(plain(said, "bold"))
    yield GAP
    yield Block(plain(_WHY))
    yield GAP
    for command, about in _WAYS:
        yield Block(plain(about), Content.assemble(plain(f"{command:<43}", "$primary")), 43)


def shown_hosts(fleet: Fleet, everyone: bool) -> list[Host]:
    """All hosts, or of many those of which there is something to say."""
    if everyone or len(fleet.hosts) <= MOST_ROWS:
        return list(fleet.hosts)
    return [host for host in fleet.hosts if not _quiet(fleet, host)]


def _quiet(fleet: Fleet, host: Host) -> bool:
    return host.answered and all(fleet.result(host.name, check.id).outcome == "ok" for check in fleet.checks)


def about(fleet: Fleet) -> str:
    """``2 hosts to take out, 1 unreachable``."""
    silent = sum(not host.answered for host in fleet.hosts)
    said = [_many(len(fleet.drained), "host") + " to take out"] if fleet.drained else []
    said += [f"{silent} unreachable"] if silent else []
    return ", ".join(said) or {"go": "every host is sound", "no-go": "not to be trained on"}.get(
        fleet.verdict, "not all could be judged"
    )


def sizes(fleet: Fleet) -> list[str]:
    """``8 hosts · 64 × H100 80GB HBM3 · fleet check, 31 s``, and shorter."""
    gpus: dict[str, int] = {}
    for host in fleet.hosts:
        gpus[host.gpu] = gpus.get(host.gpu, 0) + host.gpus
    kinds = [f"{count} × {one_line(name)}" if name else f"{count} GPUs" for name, count in gpus.items() if count]
    took = f"fleet check, {fleet.seconds:.0f} s" if fleet.seconds else ""
    words = [word for word in (_many(len(fleet.hosts), "host"), ", ".join(kinds[:3]), took) if word]
    return [" · ".join(words[:count]) for count in range(len(words), 0, -1)]


def counts(fleet: Fleet) -> str:
    """``7 of 8 hosts answered · 66 passed · 10 not judged · 4 found``."""
    answered = sum(host.answered for host in fleet.hosts)
    found = sum(fleet.counts[outcome] for outcome in _SEVERITIES)
    return (
        f"{answered} of {_many(len(fleet.hosts), 'host')} answered · {fleet.counts['ok']} passed"
        f" · {fleet.counts['unjudged']} not judged · {found} found"
    )


def conclusion(fleet: Fleet) -> str:
    """``Without node04 and node07: 5 of 8 hosts are sound and may train.``"""
    drained = [host.name for host in fleet.hosts if host.name in fleet.drained]
    few = f"{', '.join(drained[:-1])} and {drained[-1]}" if 1 < len(drained) <= 4 else ", ".join(drained)
    without = f"Without {few if len(drained) <= 4 else f'{len(drained)} hosts'}: " if drained else ""
    return f"{without}{len(fleet.sound)} of {_many(len(fleet.hosts), 'host')} are sound and may train."


def drain_command(fleet: Fleet) -> str:
    """All that takes the hosts out, in one line; their names where no scheduler is known."""
    commands = [shlex.join(drain.argv) for drain in fleet.drain if drain.argv]
    return safe(" && ".join(commands) if commands else ",".join(sorted(fleet.drained)))


def drain_blocks(fleet: Fleet) -> Iterator[Block]:
    """The conclusion, and what takes the others out."""
    yield Block(plain(conclusion(fleet), "bold"))
    if fleet.drain:
        yield GAP
    for drain in fleet.drain:
        if drain.argv:
            yield Block(plain(safe(shlex.join(drain.argv)), "$primary"), Content.styled("$ ", "dim"), 2)
        else:
            yield Block(plain(f"{', '.join(drain.hosts)}: {drain.reason}"))
    if fleet.drain:
        yield GAP
        yield Block(Content.styled("● changes the system  c copies it all, w writes the sound hosts to a file", "dim"))


def suspects(fleet: Fleet) -> Sequence[Suspect]:
    """Those of the document; where it has none, what the pairs alone say."""
    return fleet.suspects or tuple(pairs.suspects(fleet.pairwise) if fleet.pairwise else ())


def who(suspect: Suspect) -> str:
    """``gpu041 GPU 6``, ``node01 ↔ node02``, ``node03 +2`` of three."""
    if len(suspect.names) > 2:
        return one_line(f"{suspect.names[0]} +{len(suspect.names) - 1}")
    between = {"link": " ↔ ", "gpu": " "}.get(suspect.kind, ", ")
    return one_line(between.join(suspect.names))


def suspect_blocks(suspect: Suspect) -> Iterator[Block]:
    """What is, how it is known, what to do."""
    glyph, word, colour = marks.SEVERITY[suspect.severity]
    head = Content.styled(f" {glyph} {word} ", f"bold reverse {colour}")
    yield Block(plain(_first_up(suspect.title), "bold"), Content.assemble(head, " "), head.cell_length + 1)
    yield GAP
    because = Content.styled("Since", "bold")
    for evidence in suspect.evidence:
        yield Block(plain(evidence), because, _HANG)
        because = Content("")
    if suspect.do:
        yield GAP
        yield Block(plain(suspect.do), Content.styled("Do", "bold"), _HANG)
    yield GAP
    where = f"{suspect.kind} {who(suspect)}"
    yield Block(plain(" · ".join(word for word in (where, suspect.confidence, suspect.id) if word), "dim"))


def host_blocks(fleet: Fleet, host: Host, check: str = "") -> Iterator[Block]:
    """What is known of a host, the check under the cursor first."""
    place = " · ".join(word for word in (f"{host.gpus} × {host.gpu}" if host.gpus else "", host.switch) if word)
    if not host.answered:
        yield Block(plain(host.because), Content.styled(" ? NOT JUDGED ", "bold reverse $primary"), 15)
        yield GAP
        yield Block(plain("Nothing is known of it: it counts neither as sound nor as bad."))
        yield Block(plain(place, "dim"))
        return
    results = [(one, fleet.result(host.name, one.id)) for one in fleet.checks]
    results.sort(key=lambda item: item[0].id != check)
    said = [(one, result) for one, result in results if result.outcome != "ok" or one.id == check]
    for one, result in said:
        yield Block(plain(one.title, "bold"), _lead(result.outcome), _HANG + 6)
        words = result.words or ("as it should be" if result.outcome == "ok" else "")
        if words:
            yield Block(plain(words), hang=_HANG + 6)
        if result.finding:
            yield Block(plain(result.finding, "dim"), hang=_HANG + 6)
    passed = sum(result.outcome == "ok" for _, result in results)
    yield GAP
    yield Block(plain(f"{passed} of {len(results)} checks passed · {place}", "dim"))


def _lead(outcome: Outcome) -> Content:
    if outcome == "ok":
        return Content.styled(f" {marks.PASSED} PASSED", "$success")
    if outcome == "unjudged":
        return Content.styled(f" {marks.UNREAD} UNJUDGED", "$primary")
    glyph, word, colour = marks.SEVERITY[_SEVERITIES[outcome]]
    return Content.styled(f" {glyph} {word}", f"bold {colour}")


def _first_up(text: str) -> str:
    """A sentence's first letter large, unless a name begins it."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"
