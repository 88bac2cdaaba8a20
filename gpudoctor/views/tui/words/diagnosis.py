"""A diagnosis in words: a finding with all that is known of it, and what sums up the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from textual.content import Content

from gpudoctor.core.diagnosis import Diagnosis, Finding, Note
from gpudoctor.core.fact import Reason as Kind
from gpudoctor.core.language import say
from gpudoctor.core.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import command, one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.findings import Entry, by_topic
from gpudoctor.views.tui.widgets.prose import GAP, Block, badge, labelled, plain
from gpudoctor.views.tui.words import summary
from gpudoctor.views.tui.words.facts import fact_label
from gpudoctor.views.tui.work import Reading

# ---- A finding: what is, what follows, what to do, how it is known, what would confirm it ----

_HANG = 6
_MOST_EVIDENCE = 12
_MOST_OTHERS = 12
_NAME = 30
"""Columns that names of facts get at most, so that their values stand in a column."""


def finding_blocks(
    finding: Finding,
    others: Sequence[Finding] = (),
    under: Sequence[Finding] = (),
    notes: Iterable[Note] = (),
    cure_first: bool = False,
) -> Iterator[Block]:
    """All that is known of a finding: title, fixes, consequence, evidence, what changed, and the notes about it.

    `others` are the same about other GPUs, `under` the findings folded under it. `cure_first` puts the fixes before the
    consequence: if there are few lines, the command is on the first of them.
    """
    glyph, word, colour = marks.SEVERITY[finding.severity]
    account = report.account(finding, others)
    yield badge(report.headline(finding), f"{glyph} {word}", colour)
    also = list(account.also[:_MOST_OTHERS])
    if (more := len(account.also) - _MOST_OTHERS) > 0:
        also.append(say("{more} more of this kind; a saved report names each", more=more))
    also += [say("the same of {names}", names=account.same_of)] if account.same_of else []
    yield from (labelled("also", text, _HANG, "dim") for text in also)
    parts = (_cures(finding.fixes), _follows(finding, under))
    for part in parts if cure_first else reversed(parts):
        yield from part
    yield GAP
    yield labelled("Read", say("{confidence}, because", confidence=say(finding.confidence)), _HANG)
    yield from _proofs(account.proofs)
    if account.changes:
        yield GAP
        yield labelled("Since", f"{account.changes_lead}{say(': ')}{say('; ').join(account.changes)}", _HANG)
    if finding.by_rule:
        newer = say("newer than the tables: {names}", names=", ".join(finding.by_rule))
        yield Block(plain(say("judged by rule, not by record; {newer}", newer=newer)), hang=_HANG)
    if account.confirm:
        yield GAP
        yield labelled("Sure?", account.confirm, _HANG)
    for note in notes:
        if finding.id in note.rules:
            yield GAP
            yield labelled("Note", note.text, _HANG)
    yield GAP
    yield Block(plain(f"{finding.id} · {finding.layer} · {say(finding.role)}", "dim"))


def commands(finding: Finding) -> list[str]:
    """Every command of the finding's fixes, in their order, as one types it; empty if there are none."""
    return [command(step.argv) for fix in finding.fixes for step in fix.steps if step.argv]


def commands_alone(finding: Finding) -> list[str]:
    """Lines with every command of the finding's fixes, under the fixes' titles as shell comments."""
    lines: list[str] = []
    for number, fix in enumerate(finding.fixes, 1):
        own = [command(step.argv) for step in fix.steps if step.argv]
        words = one_line(fix.title)
        lines += [*([""] if lines else []), f"# {say('or {number}', number=number) if number > 1 else number}: {words}"]
        lines += own or [f"# {say('in words only: see gpudoctor')}"]
    return lines


def _follows(finding: Finding, under: Sequence[Finding]) -> Iterator[Block]:
    """A blank line; then what follows from the finding, if known, and how many symptoms are folded under it, if there
    are any.
    """
    yield GAP
    if finding.why:
        yield labelled("So", one_line(finding.why), _HANG)
    if under:
        many = "Explains the {count} symptoms folded under it."
        if len(under) == 1:
            many = "Explains the symptom folded under it."
        yield Block(Content(say(many, count=len(under))), hang=_HANG)


def _cures(fixes: Sequence[Fix]) -> Iterator[Block]:
    """Every fix: title, steps with what they need, their commands, and how to undo it."""
    for number, fix in enumerate(fixes, 1):
        yield GAP
        label = say("Do {number}", number=number) if number == 1 else say("or {number}", number=number)
        yield labelled(label, plain(fix.title, "bold"), _HANG)
        for step in fix.steps:
            if step.text:
                yield Block(plain(step.text), hang=_HANG)
            if labels := "  ".join(marks.step_labels(step.needs, step.touches)):
                yield Block(plain(labels, "$warning" if "▲" in labels else "dim"), hang=_HANG)
            if step.argv:
                yield labelled("      $ ", plain(command(step.argv), "$primary"), _HANG + 2, "dim")
        if fix.undo:
            yield Block(plain(say("undo: {undo}", undo=fix.undo), "dim"), hang=_HANG)


def _proofs(proofs: Sequence[report.Proof]) -> Iterator[Block]:
    """Name, value and source of each fact that the finding rests on, at most `_MOST_EVIDENCE`, and how many more."""
    shown = proofs[:_MOST_EVIDENCE]
    names = [fact_label(proof.evidence.fact, proof.evidence.index) for proof in shown]
    lengths = [len(name) for name, proof in zip(names, shown, strict=True) if not proof.is_line]
    width = min(max(lengths, default=0), _NAME)
    for name, proof in zip(names, shown, strict=True):
        text = plain(proof.value) if proof.is_line else plain(f"{name:<{width}}  ") + plain(proof.value, "bold")
        yield Block(text + plain(f"  {proof.source}", "dim"), hang=_HANG)
    if (more := len(proofs) - _MOST_EVIDENCE) > 0:
        yield Block(Content.styled(say("and {more} more facts; 3 shows them all", more=more), "dim"), hang=_HANG)


# ---- The rest: what to do first, what passed, what was not judged and what would help, notes ----

_AGAIN = "Cure what was found first; r reads again."
_HANGS = "What should answer hangs."
_HELP = {
    Kind.NO_LOG: "Give it the log of the job that failed, too: gpudoctor read LOG",
    Kind.NO_MESSAGE: "Its message would be in the log of the job that failed, or further up in this one.",
    Kind.NOT_STATED: "The report that was read does not show it.",
    Kind.PENDING: "It was stopped before it had answered: r reads again.",
    Kind.NEEDS_STANDARD: "Ask for it: gpudoctor --level standard",
    Kind.NEEDS_DEEP: "Ask for it: gpudoctor --level deep",
    Kind.CONTAINED: "Run gpudoctor on the host, too: from inside a container it cannot be seen.",
    Kind.DENIED: "Root may read it: sudo gpudoctor",
    Kind.TIMED_OUT: _HANGS,
    Kind.CRASHED: _HANGS,
    Kind.NVML_FAILED: "NVIDIA's library gives no answer here.",
    Kind.TORCH_FAILED: "torch could not be asked.",
    Kind.NOT_ASKED: "It can be judged once the facts that it rests on are read. Facts (3) shows what was tried.",
}
_CURED_BY_OTHERS = (Kind.TIMED_OUT, Kind.CRASHED, Kind.NVML_FAILED, Kind.TORCH_FAILED)
"""Reasons that go when what was found first is cured."""


def trouble(reading: Reading, title: str) -> Iterator[Block]:
    """Why nothing could be read of `title`, and which keys help."""
    yield badge(reading.trouble, f"{marks.UNREAD} NOTHING READ", "$primary")
    yield GAP
    yield Block(plain(say("Nothing is known of {title}: neither that it is sound nor that it is not.", title=title)))
    yield GAP
    yield labelled("Do", say("r  reads again"), _HANG)
    yield Block(plain(say("q  leaves; gpudoctor --help tells what can be asked for")), hang=_HANG)


def waiting(reading: Reading) -> Iterator[Block]:
    """The text while sources are read and nothing is found yet, with what they report and how many are left."""
    yield Block(plain(say("Nothing found yet."), "bold"))
    yield GAP
    yield Block(plain(say("What is found is shown at once, and may be re-ranked by what comes later;")))
    yield Block(plain(say("the cursor stays where you put it.")))
    for detail in filter(None, (source.detail for source in reading.sources.values() if source.asked)):
        yield GAP
        yield Block(plain(detail, "bold"))
    if left := len(reading.sources) - reading.done:
        yield GAP
        yield Block(
            plain(
                say("{left} sources are still being read.", left=left)
                if left > 1
                else say("One source is still being read.")
            )
        )


def more_to_come() -> Iterator[Block]:
    """A warning under a finding that sources are still read, and may bring a worse one."""
    yield GAP
    text = say("Not all is read yet: what comes may take the lead; the cursor stays on what you choose.")
    yield Block(plain(text, "dim"))


def section_blocks(diagnosis: Diagnosis, entry: Entry) -> Iterator[Block]:
    """The text of a summary line of the list: what to do first, the notes, what was not judged, or what passed."""
    if entry.section == "order":
        yield Block(plain(say("To act on, in this order:"), "bold"))
        for number, (finding, act) in enumerate(report.actions(summary.to_act_on(diagnosis)), 1):
            yield GAP
            glyph, _, colour = marks.SEVERITY[finding.severity]
            yield labelled(f"{number:>3}.", plain(act, "bold"), _HANG)
            yield Block(plain(finding.title), Content.styled(f"    {glyph}", colour), _HANG)
            yield Block(plain(finding.id, "dim"), hang=_HANG)
    elif entry.section == "notes":
        for note in diagnosis.notes:
            yield labelled("Note", note.text, _HANG)
            yield GAP
    elif entry.section == "unjudged":
        yield from _unjudged(diagnosis)
    else:
        yield from _passed(diagnosis, entry)


def reason_blocks(diagnosis: Diagnosis, entry: Entry) -> Iterator[Block]:
    """For an entry of what was not judged: why, which facts are missing, what would help, and which rules they are."""
    assert entry.reason
    yield badge(entry.reason.why, f"{marks.UNREAD} NOT JUDGED", "$primary")
    yield GAP
    if entry.reason.facts:
        yield labelled("Miss", ", ".join(entry.reason.facts), _HANG)
    yield labelled("So", say("It may be so or not: nothing that was read tells."), _HANG)
    yield GAP
    kind = entry.reason.kind
    cure = say(_HELP.get(kind, "Facts (3) show what was tried, and what came of it."))
    yield labelled("Do", f"{cure}{say(' ')}{say(_AGAIN)}" if kind in _CURED_BY_OTHERS else cure, _HANG)
    yield from _ask_for(diagnosis)
    yield GAP
    yield labelled("Rules" if len(entry.names) > 1 else "Rule", ", ".join(entry.names), _HANG)
    if entry.rule:
        yield GAP
        yield Block(plain(say("e explains what this rule looks for."), "dim"))


def _ask_for(diagnosis: Diagnosis) -> Iterator[Block]:
    """Commands whose output would let more be judged, if a pasted report was read; else nothing."""
    if diagnosis.snapshot.pasted and not report.is_manifest(diagnosis):
        yield GAP
        for lead, lines in (
            (say("To have more judged, save the output of these:"), report.ASK_FOR),
            (say("and read it with what you have:"), (report.read_again(diagnosis),)),
        ):
            yield Block(plain(lead), hang=_HANG)
            for line in lines:
                yield labelled("      $ ", plain(line, "$primary"), _HANG + 2, "dim")


def _unjudged(diagnosis: Diagnosis) -> Iterator[Block]:
    """Why rules were not judged, with the number of rules for each reason; if unknown, also what would help."""
    if diagnosis.verdict == "unknown":
        message = say("No error was found, and too little could be read to call it sound.")
        yield badge(message, f"{marks.UNREAD} UNKNOWN", "$primary", style="")
        yield GAP
    yield labelled(
        marks.UNREAD, say("{count} rules were not judged, because", count=len(diagnosis.unjudged)), 2, "$primary"
    )
    for why in report.reasons(diagnosis):
        yield labelled(f"{len(why.rules):>5}", why.why, 7)
    if diagnosis.verdict == "unknown":
        yield from _ask_for(diagnosis)
    yield GAP
    yield Block(plain(say("u or enter lists them, with what would help."), "dim"))


def _passed(diagnosis: Diagnosis, entry: Entry) -> Iterator[Block]:
    """Ids of the entry's rules that passed, by topic; without a GPU or from a pasted report, how little that proves."""
    yield Block(plain(say("Looked for and not there:"), "bold"))
    if report.without_gpu(diagnosis):
        yield Block(
            plain(say("There is no GPU: what can be wrong with one passes, and says nothing of one that comes."))
        )
    for topic, names in by_topic(entry.names).items():
        yield GAP
        rest = ", ".join(name.partition(".")[2] for name in names)
        yield Block(plain(rest), Content.styled(f"{marks.PASSED} {topic}", "$success"), 13)
    yield GAP
    yield Block(plain(say("gpudoctor explain driver.missing, say, tells how each is looked for."), "dim"))
    if diagnosis.snapshot.pasted:
        yield Block(plain(say("As far as the text that was read tells."), "dim"))
