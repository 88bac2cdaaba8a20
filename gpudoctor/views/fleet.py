"""The report of many hosts: the verdict and whom it is about, what to type, then what was found where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fleet import Drain, Fleet, Host
from gpudoctor.core.language import say
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._terminal import PLAIN, Style, command, one_line, width, wrapped

_VERDICT_WORDS = {"go": ("GO", "green"), "no-go": ("NO-GO", "red"), "unknown": ("UNKNOWN", "yellow")}
_DERIVED = ("fleet.", "machine.", "silence.", "outlier.", "split.")
"""Groups of facts derived from all hosts together; a finding's title already states them."""
_MOST_DRAINS = 8
_MOST_EVIDENCE = 4
_MOST_CHARACTERS = 2000
"""Characters of a command that is printed in full."""


def render(diagnosis: Diagnosis, fleet: Fleet, style: Style = PLAIN) -> str:
    """The whole report of a fleet as text, ending without a newline."""
    serious = [_shortened(finding) for finding in diagnosis.findings if finding.severity != "info"]
    information = [finding for finding in diagnosis.findings if finding.severity == "info"]
    blocks = ["\n".join(_head_lines(diagnosis, fleet, style))]
    if fleet.drain:
        blocks.append("\n".join(_drain_lines(fleet, style)))
    blocks += text.findings(serious, style)
    if information:
        lines = [row for finding in information for row in wrapped(f"{finding.title}  [{finding.id}]", 2, 4)]
        blocks.append("\n".join([style.paint(say("Worth knowing"), "bold"), *lines]))
    if diagnosis.unjudged:
        reasons = (
            say("{title}: {text}", title=reason.why, text=", ".join(reason.rules))
            for reason in report.reasons(diagnosis)
        )
        heading = style.paint(say("Not judged ({count}), because", count=len(diagnosis.unjudged)), "bold")
        blocks.append("\n".join([heading, *(row for reason in reasons for row in wrapped(reason, 2, 4))]))
    blocks += ["\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes]
    counts = fleet.counts
    found = counts["error"] + counts["warning"] + counts["info"]
    sums = "{found} found, {unjudged} not judged, {passed} passed"
    sentence = say(
        "{answered} of {hosts} answered; hosts by {checks} checks: {counts}.",
        answered=sum(host.answered for host in fleet.hosts),
        hosts=_host_count(len(fleet.hosts)),
        checks=len(fleet.checks),
        counts=say(sums, found=found, unjudged=counts["unjudged"], passed=counts["ok"]),
    )
    blocks.append("\n".join([*wrapped(sentence), say("As a whole: {counts}", counts=report.counts(diagnosis))]))
    return "\n\n".join(blocks)


def _head_lines(diagnosis: Diagnosis, fleet: Fleet, style: Style) -> Iterator[str]:
    """Lines with the fleet's name, level and duration, then its verdict in colour."""
    parts = [say("fleet"), one_line(fleet.name), say("level {level}", level=diagnosis.snapshot.target.level)]
    parts += [say("in {seconds} s", seconds=f"{fleet.seconds:.0f}")] if fleet.seconds >= 1 else []
    yield from wrapped(f"gpudoctor {diagnosis.tool_version}{say(': ')}{say(', ').join(parts)}", hang=2)
    english, colour = _VERDICT_WORDS[fleet.verdict]
    word = say(english)
    lines = wrapped(say("{title}: {text}", title=word, text=_verdict_text(diagnosis, fleet)), hang=width(word) + 2)
    yield style.paint(lines[0], "bold", colour)
    yield from lines[1:]


def _verdict_text(diagnosis: Diagnosis, fleet: Fleet) -> str:
    """The verdict: ``2 of 8 hosts have errors, 1 gave no answer; 5 may train``; that all are sound, or why not."""
    silent = sum(not host.answered for host in fleet.hosts)
    bad = sum(host.answered and _has_error(fleet, host) for host in fleet.hosts)
    hosts = _host_count(len(fleet.hosts))
    have = "{bad} of {hosts} has errors" if bad == 1 else "{bad} of {hosts} have errors"
    parts = [say(have, bad=bad, hosts=hosts)] if bad else []
    none = "{silent} gave no answer" if bad else "{silent} of {hosts} gave no answer"
    parts += [say(none, silent=silent, hosts=hosts)] if silent else []
    if not parts and fleet.verdict == "go":
        warned = any(finding.severity == "warning" for finding in diagnosis.findings)
        sound = "{hosts} sound, with the warnings below" if warned else "{hosts} sound"
        count = len(fleet.hosts)
        parts = [say(sound, hosts=say("its only host is") if count == 1 else say("all {count} hosts are", count=count))]
    elif not parts and fleet.verdict == "unknown":
        parts = [say("no host has an error, and not every host could be called sound")]
    elif not parts:
        parts = [say("each host by itself is sound, and together they are not")]
    return say(", ").join(parts) + (say("; {count} may train", count=len(fleet.sound)) if bad or silent else "")


def _has_error(fleet: Fleet, host: Host) -> bool:
    """True if any check of the host has the outcome ``error``; a check that could not be judged has not."""
    return any(fleet.result(host.name, check.id).outcome == "error" for check in fleet.checks)


def _drain_lines(fleet: Fleet, style: Style) -> Iterator[str]:
    """How to take hosts out of service, a text for each of the first `_MOST_DRAINS` reasons: command or host names."""
    has_commands = any(drain.argv for drain in fleet.drain)
    heading = "To take them out of service:" if has_commands else "To take out of service, by your scheduler:"
    yield style.paint(say(heading), "bold")
    for drain in fleet.drain[:_MOST_DRAINS]:
        yield _drain_text(drain)
    if rest := fleet.drain[_MOST_DRAINS:]:
        hosts = sum(len(drain.hosts) for drain in rest)
        yield say("  and {hosts} for other reasons; --json lists them", hosts=_host_count(hosts))


def _drain_text(drain: Drain) -> str:
    """The drain command; if there is none or it is too long, the first 20 host names and the reason, in lines."""
    if drain.argv and len(line := command(drain.argv)) <= _MOST_CHARACTERS:
        return f"  $ {line}"
    more = say(" and {count} more", count=len(drain.hosts) - 20) if len(drain.hosts) > 20 else ""
    return "\n".join(wrapped(say("{title}: {text}", title=", ".join(drain.hosts[:20]) + more, text=drain.reason), 2, 4))


def _shortened(finding: Finding) -> Finding:
    """The finding without evidence derived from the fleet as a whole, at most `_MOST_EVIDENCE` pieces, and one fix."""
    evidence = tuple(item for item in finding.evidence if not item.fact.startswith(_DERIVED))
    return replace(finding, evidence=evidence[:_MOST_EVIDENCE], fixes=finding.fixes[:1])


def _host_count(count: int) -> str:
    """The count with its noun, translated: ``1 host``, ``8 hosts``."""
    return say("{count} hosts" if count != 1 else "{count} host", count=count)
