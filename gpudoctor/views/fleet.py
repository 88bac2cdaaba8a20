"""The report of many hosts: the verdict and whom it is about, what to type, then what was found where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fleet import Drain, Fleet
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._columns import width
from gpudoctor.views._terminal import Style, command, one_line, wrapped

_LOOKS = {"go": ("GO", "green"), "no-go": ("NO-GO", "red"), "unknown": ("UNKNOWN", "yellow")}
_FOLDED = ("fleet.", "machine.", "silence.", "outlier.", "split.")
"""Facts of the fold itself: the sentence of the finding says all of them."""
_MOST_DRAINS = 8
_MOST_EVIDENCE = 4
_MOST_ARGUMENTS = 2000
"""Characters of a command that is printed in full."""


def render(diagnosis: Diagnosis, fleet: Fleet, style: Style | None = None) -> str:
    """The whole report, ending without a newline."""
    style = style or Style()
    loud = [_brief(finding) for finding in diagnosis.findings if finding.severity != "info"]
    quiet = [finding for finding in diagnosis.findings if finding.severity == "info"]
    blocks = ["\n".join(_head(diagnosis, fleet, style))]
    if fleet.drain:
        blocks.append("\n".join(_drains(fleet, style)))
    blocks += text.findings(loud, style)
    if quiet:
        blocks.append("\n".join(_quiet(quiet, style)))
    if diagnosis.unjudged:
        blocks.append("\n".join(_unjudged(diagnosis, style)))
    blocks += ["\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes]
    blocks.append(_counts(diagnosis, fleet))
    return "\n\n".join(blocks)


def _head(diagnosis: Diagnosis, fleet: Fleet, style: Style) -> Iterator[str]:
    said = [say("fleet"), one_line(fleet.name), say("level {level}", level=diagnosis.snapshot.target.level)]
    said += [say("in {seconds} s", seconds=f"{fleet.seconds:.0f}")] if fleet.seconds >= 1 else []
    yield from wrapped(f"gpudoctor {diagnosis.tool_version}: {', '.join(said)}", hang=2)
    english, colour = _LOOKS[fleet.verdict]
    word = say(english)
    lines = wrapped(say("{title}: {text}", title=word, text=_conclusion(diagnosis, fleet)), hang=width(word) + 2)
    yield style.paint(lines[0], "bold", colour)
    yield from lines[1:]


def _conclusion(diagnosis: Diagnosis, fleet: Fleet) -> str:
    """``2 of 8 hosts have errors, 1 gave no answer; 5 are sound``."""
    silent = sum(not host.answered for host in fleet.hosts)
    bad = len(fleet.hosts) - silent - len(_without_errors(fleet))
    hosts = _many(len(fleet.hosts))
    have = "{bad} of {hosts} has errors" if bad == 1 else "{bad} of {hosts} have errors"
    said = [say(have, bad=bad, hosts=hosts)] if bad else []
    none = "{silent} gave no answer" if bad else "{silent} of {hosts} gave no answer"
    said += [say(none, silent=silent, hosts=hosts)] if silent else []
    if not said and fleet.verdict == "go":
        warnings = sum(finding.severity == "warning" for finding in diagnosis.findings)
        sound = "{hosts} sound, with the warnings below" if warnings else "{hosts} sound"
        said = [say(sound, hosts=_all(len(fleet.hosts)))]
    elif not said and fleet.verdict == "unknown":
        said = [say("no host has an error, and not every host could be called sound")]
    elif not said:
        said = [say("each host by itself is sound, and together they are not")]
    return say(", ").join(said) + (say("; {count} may train", count=len(fleet.sound)) if bad or silent else "")


def _without_errors(fleet: Fleet) -> list[str]:
    checks = [check.id for check in fleet.checks]
    return [
        host.name
        for host in fleet.hosts
        if host.answered and all(fleet.result(host.name, check).outcome != "error" for check in checks)
    ]


def _drains(fleet: Fleet, style: Style) -> Iterator[str]:
    """A command for each reason; without a scheduler the names."""
    typed = any(drain.argv for drain in fleet.drain)
    heading = "To take them out of service:" if typed else "To take out of service, by your scheduler:"
    yield style.paint(say(heading), "bold")
    for drain in fleet.drain[:_MOST_DRAINS]:
        yield _drain(drain)
    if more := fleet.drain[_MOST_DRAINS:]:
        hosts = sum(len(drain.hosts) for drain in more)
        yield f"  and {_many(hosts)} for {len(more)} more reasons; --json lists them"


def _drain(drain: Drain) -> str:
    if drain.argv and len(typed := command(drain.argv)) <= _MOST_ARGUMENTS:
        return f"  $ {typed}"
    shown = ", ".join(drain.hosts[:20]) + (f" and {len(drain.hosts) - 20} more" if len(drain.hosts) > 20 else "")
    return "\n".join(wrapped(f"{shown}: {drain.reason}", 2, 4))


def _brief(finding: Finding) -> Finding:
    """Without the evidence that its sentence says already; of one host the first few pieces, and the first cure."""
    evidence = tuple(item for item in finding.evidence if not _is_folded(item))
    return replace(finding, evidence=evidence[:_MOST_EVIDENCE], fixes=finding.fixes[:1])


def _is_folded(item: Evidence) -> bool:
    return item.fact.startswith(_FOLDED)


def _quiet(findings: Sequence[Finding], style: Style) -> Iterator[str]:
    yield style.paint(say("Worth knowing"), "bold")
    for finding in findings:
        yield from wrapped(f"{finding.title}  [{finding.id}]", 2, 4)


def _unjudged(diagnosis: Diagnosis, style: Style) -> Iterator[str]:
    yield style.paint(say("Not judged ({count}), because", count=len(diagnosis.unjudged)), "bold")
    for reason in report.reasons(diagnosis):
        yield from wrapped(f"{reason.why}: {', '.join(reason.rules)}", 2, 4)


def _counts(diagnosis: Diagnosis, fleet: Fleet) -> str:
    """Of the hosts, of all their checks together, and of the pages that look at the whole."""
    answered = sum(host.answered for host in fleet.hosts)
    counts = fleet.counts
    found = counts["error"] + counts["warning"] + counts["info"]
    sums = "{found} found, {unjudged} not judged, {passed} passed"
    cells = say(sums, found=found, unjudged=counts["unjudged"], passed=counts["ok"])
    what = "{answered} of {hosts} answered; hosts by {checks} checks: {counts}."
    said = say(what, answered=answered, hosts=_many(len(fleet.hosts)), checks=len(fleet.checks), counts=cells)
    return "\n".join([*wrapped(said), say("As a whole: {counts}", counts=report.counts(diagnosis))])


def _many(count: int) -> str:
    return say("{count} hosts" if count != 1 else "{count} host", count=count)


def _all(count: int) -> str:
    return say("its one host is") if count == 1 else say("all {count} hosts are", count=count)
