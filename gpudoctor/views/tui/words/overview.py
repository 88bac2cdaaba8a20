"""A diagnosis as a whole in words: what to do first, what passed, what was not judged and what would help, notes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views import _report as report
from gpudoctor.views._report import Reason
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.reading import Reading
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain
from gpudoctor.views.tui.words import counts, entries
from gpudoctor.views.tui.words.entries import Entry

_HANG = 6
_AGAIN = "Cure what was found first; r reads again."
_HELP = (
    (r"no log was read", "Give it the log of the job that failed, too: gpudoctor read LOG"),
    (r"none of its messages", "Its message would be in the log of the job that failed, or further up in this one."),
    (r"the report does not say", "The report that was read does not show it."),
    (r"still being asked", "It was stopped before it had answered: r reads again."),
    (r"from level (\w+) on", r"Ask for it: gpudoctor --level \1"),
    (r"inside a container|the host's", "Run gpudoctor on the host, too: from inside a container it cannot be seen."),
    (r"(?i)permission|not permitted|denied|needs? root", "Root may read it: sudo gpudoctor"),
    (r"did not return|stopped after|was stopped|could not be stopped|died", f"What should answer hangs. {_AGAIN}"),
    (r"NVML|nvidia-smi", f"NVIDIA's library gives no answer here. {_AGAIN}"),
    (r"import of torch", f"torch could not be asked. {_AGAIN}"),
    (r"^not asked$", "It is asked only where what it rests on gave an answer. Facts (3) say how far it came."),
)


def trouble(reading: Reading, title: str) -> Iterator[Block]:
    """Why nothing could be read, and what to type."""
    head = Content.assemble((f" {marks.UNREAD} NOTHING READ ", "bold reverse $primary"), " ")
    yield Block(plain(reading.trouble, "bold"), head, head.cell_length)
    yield GAP
    yield Block(plain(f"Nothing is known of {title}: neither that it is sound nor that it is not."))
    yield GAP
    yield Block(plain("r  reads again"), Content.styled("Do", "bold"), _HANG)
    yield Block(
        plain("q  leaves; gpudoctor --help tells what can be asked for"),
        hang=_HANG,
    )


def waiting(reading: Reading) -> Iterator[Block]:
    """What is shown while nothing is found yet."""
    yield Block(plain("Nothing found yet.", "bold"))
    yield GAP
    yield Block(plain("What is found is shown at once, and may be re-ranked by what comes later;"))
    yield Block(plain("the cursor stays where you put it."))
    for detail in filter(None, (source.detail for source in reading.sources.values() if source.asked)):
        yield GAP
        yield Block(plain(detail, "bold"))
    if left := len(reading.sources) - reading.done:
        yield GAP
        yield Block(plain(f"{left} sources are still being read." if left > 1 else "One source is still being read."))


def more_to_come() -> Iterator[Block]:
    """What is to be borne in mind while sources are still being read."""
    yield GAP
    said = "Not all is read yet: what comes may take the lead; the cursor stays on what you choose."
    yield Block(plain(said, "dim"))


def whole(diagnosis: Diagnosis, entry: Entry) -> Iterator[Block]:
    """What sums up the rest, by the entry's section."""
    if entry.section == "order":
        yield from _order(diagnosis)
    elif entry.section == "notes":
        for note in diagnosis.notes:
            yield Block(plain(note.text), Content.styled("Note", "bold"), _HANG)
            yield GAP
    elif entry.section == "unjudged":
        yield from _unjudged(diagnosis)
    else:
        yield from _passed(diagnosis, entry)


def reason(diagnosis: Diagnosis, entry: Entry) -> Iterator[Block]:
    """Why rules were not judged, what would help, and which they are."""
    assert entry.reason
    head = Content.assemble((f" {marks.UNREAD} NOT JUDGED ", "bold reverse $primary"), " ")
    yield Block(plain(entry.reason.why, "bold"), head, head.cell_length)
    yield GAP
    if entry.reason.facts:
        yield Block(plain(", ".join(entry.reason.facts)), Content.styled("Miss", "bold"), _HANG)
    yield Block(plain("Whether it is so or not: neither is known."), Content.styled("So", "bold"), _HANG)
    yield GAP
    yield from _help(diagnosis, entry.reason)
    yield GAP
    yield Block(
        plain(", ".join(entry.names)), Content.styled("Rules" if len(entry.names) > 1 else "Rule", "bold"), _HANG
    )
    if entry.rule:
        yield GAP
        yield Block(plain("e explains what this rule looks for.", "dim"))


def _help(diagnosis: Diagnosis, why: Reason) -> Iterator[Block]:
    do = Content.styled("Do", "bold")
    for pattern, help_ in _HELP:
        if found := re.search(pattern, why.why):
            yield Block(plain(found.expand(help_)), do, _HANG)
            break
    else:
        yield Block(plain("Facts (3) show what was tried, and what came of it."), do, _HANG)
    yield from _ask_for(diagnosis)


def _ask_for(diagnosis: Diagnosis) -> Iterator[Block]:
    """What would tell more, where a report was read and not the machine."""
    if diagnosis.snapshot.pasted and not report.manifest(diagnosis):
        yield GAP
        yield Block(plain("To have more judged, save the output of these, and read it with what you have:"), hang=_HANG)
        for line in (*report.ASK_FOR, "gpudoctor read --together FIRST SECOND"):
            yield Block(plain(line, "$primary"), Content.styled("      $ ", "dim"), _HANG + 2)


def _order(diagnosis: Diagnosis) -> Iterator[Block]:
    yield Block(plain("To act on, in this order:", "bold"))
    for number, (finding, act) in enumerate(report.acts(counts.to_act_on(diagnosis)), 1):
        yield GAP
        glyph, _, colour = marks.SEVERITY[finding.severity]
        yield Block(plain(act, "bold"), Content.styled(f"{number:>3}.", "bold"), _HANG)
        yield Block(plain(finding.title), Content.styled(f"    {glyph}", colour), _HANG)
        yield Block(plain(finding.id, "dim"), hang=_HANG)


def _unjudged(diagnosis: Diagnosis) -> Iterator[Block]:
    if diagnosis.verdict == "unknown":
        head = Content.assemble((f" {marks.UNREAD} UNKNOWN ", "bold reverse $primary"), " ")
        yield Block(plain("No error was found, and too little could be read to call it sound."), head, head.cell_length)
        yield GAP
    yield Block(
        plain(f"{len(diagnosis.unjudged)} rules were not judged, because"), Content.styled(marks.UNREAD, "$primary"), 2
    )
    for why in report.reasons(diagnosis):
        yield Block(plain(why.why), Content.styled(f"{len(why.rules):>5}", "bold"), 7)
    if diagnosis.verdict == "unknown":
        yield from _ask_for(diagnosis)
    yield GAP
    yield Block(plain("u or enter lists them, with what would help.", "dim"))


def _passed(diagnosis: Diagnosis, entry: Entry) -> Iterator[Block]:
    yield Block(plain("Looked for and not there:", "bold"))
    if report.without_gpu(diagnosis):
        yield Block(plain("There is no GPU: what can be wrong with one passes, and says nothing of one that comes."))
    for topic, names in entries.topics(entry.names).items():
        yield GAP
        rest = ", ".join(name.partition(".")[2] for name in names)
        yield Block(plain(rest), Content.styled(f"{marks.PASSED} {topic}", "$success"), 13)
    yield GAP
    yield Block(plain("gpudoctor explain driver.missing, say, tells how each is looked for.", "dim"))
    if diagnosis.snapshot.pasted:
        yield Block(plain("As far as the text that was read tells.", "dim"))
