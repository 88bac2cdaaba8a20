"""What all views of a diagnosis share: its verdict, the causes to act on, why rules were not judged, what changed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Since, Unjudged, Verdict
from gpudoctor.core.fact import Absent, known, listed, text_of
from gpudoctor.core.fact import Reason as Kind
from gpudoctor.core.frozen import frozen, replace
from gpudoctor.core.language import phrase, say, worded
from gpudoctor.views._terminal import one_line, value

SEVERITY_COLOURS: Mapping[str, str] = {"error": "red", "warning": "yellow", "info": "green"}
VERDICT_COLOURS: Mapping[str, str] = {"sound": "green", "impaired": "yellow", "broken": "red", "unknown": "yellow"}
_VERDICTS: dict[Verdict, str] = {
    "sound": "Sound",
    "impaired": "Impaired: it works, with the warnings below",
    "broken": "Broken: the first finding is the one to act on first",
    "unknown": "No verdict: no error found, and too little could be read to call it sound",
}
_READ_IMPAIRED = "Impaired: the environment works, with the warnings below"
_ONE_CAUSE = "Broken: the finding below is why"
_ONLY_SYMPTOMS = "Broken: the symptoms are below, their cause is not known"
_UNPROVEN = "Broken, and no cause is proven: the first finding is where to look first"
ASK_FOR = (
    "nvidia-smi",
    "python -m torch.utils.collect_env",
    "sudo dmesg | grep -iE 'nvrm|xid|nvidia'",
    "env | grep -E 'CUDA|NVIDIA|NCCL|LD_'",
)
"""Commands whose output would let more of a pasted report be judged."""


@frozen
class Reason:
    """Why some rules were not judged: the reason, the facts that are missing, and ids of the rules that read them."""

    why: str
    facts: tuple[str, ...]
    rules: tuple[str, ...]
    kind: Kind = Kind.UNSPECIFIED


def verdict(diagnosis: Diagnosis) -> str:
    """The verdict as one translated sentence; for a broken one it says whether its cause is proven."""
    if diagnosis.verdict == "broken":
        first = diagnosis.findings[0]
        if first.confidence == "possible":
            return say(_UNPROVEN)
        if first.role == "symptom":
            return say(_ONLY_SYMPTOMS)
        if len(list(group_same_rule(diagnosis.findings))) == 1:
            return say(_ONE_CAUSE)
    if diagnosis.verdict == "impaired" and diagnosis.snapshot.pasted:  # what somebody pasted has mostly failed
        return say(_READ_IMPAIRED)
    return say(_VERDICTS[diagnosis.verdict])


def target_text(diagnosis: Diagnosis) -> str:
    """What was diagnosed: ``node17, level standard, /srv/venv/bin/python``; ``KIND, NAME`` if not this machine."""
    target = diagnosis.snapshot.target
    kind = diagnosis.snapshot.text("manifest.kind") or say(target.kind)
    is_local = target.kind == "local"
    parts = [target.name, say("level {level}", level=target.level)] if is_local else [kind, target.name]
    return one_line(say(", ").join([*parts, target.python] if target.python else parts))


def is_manifest(diagnosis: Diagnosis) -> bool:
    """True if the diagnosis is of a manifest: a file that says what to install or start."""
    return diagnosis.snapshot.known("manifest.kind") is not None


def packages_to_install(diagnosis: Diagnosis) -> Iterator[tuple[str, str, str]]:
    """(name, version, source) of each package that a manifest would install, if its name and version are known; nothing
    for any other diagnosis.
    """
    for row in listed(diagnosis.snapshot.rows("package") if is_manifest(diagnosis) else ()):
        name, version = text_of(row.get("name")), known(row.get("version"))
        if name and version:
            yield one_line(name), one_line(str(version.value)), one_line(version.source)


def group_same_rule(findings: Sequence[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """(first, others) of the findings of each rule id and severity, as for several GPUs, in the order of the first."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.id, finding.severity), []).append(finding)
    for first, *others in groups.values():
        yield first, others


@frozen
class Proof:
    """A fact that a finding rests on, as every format shows it."""

    evidence: Evidence
    name: str
    value: str
    source: str
    is_line: bool = False
    """Whether it is a line of a log or report that was read; it is shown without its name."""
    is_absent: bool = False
    """Whether the fact is absent; `source` then says why."""


@frozen
class Account:
    """What every output format shows of a finding, composed once; other fields are read from the finding itself."""

    finding: Finding
    same_of: str
    """``gpu 3, gpu 5``: subjects of the other findings with the same title."""
    also: tuple[str, ...]
    """Titles of the same rule's findings about other GPUs, where they differ from this one's."""
    proofs: tuple[Proof, ...]
    changes_lead: str
    changes: tuple[str, ...]
    confirm: str
    """How to confirm the finding; empty where it is certain."""


def headline(finding: Finding) -> str:
    """The finding's title, behind ``Possibly:`` (translated) if its confidence is ``possible``."""
    return say("Possibly: {title}", title=finding.title) if finding.confidence == "possible" else finding.title


def account(finding: Finding, others: Sequence[Finding] = ()) -> Account:
    """What every output format shows of a finding; `others` are findings of the same rule about other GPUs."""
    same_title, other_title = _split_by_title(finding, others)
    lead, changes = changes_before(finding) if finding.since else ("", [])
    return Account(
        finding=finding,
        same_of=", ".join(same_title),
        also=tuple(other.title for other in other_title),
        proofs=tuple(_proofs(finding)),
        changes_lead=lead,
        changes=tuple(changes),
        confirm="" if finding.confidence == "certain" else finding.confirm,
    )


def _proofs(finding: Finding) -> Iterator[Proof]:
    """The `_proof` of each piece of the finding's evidence, in the evidence's order, without those that are None.

    A log line that two patterns of the rule matched (same text and source) comes once.
    """
    lines: set[tuple[str, str]] = set()
    for item in finding.evidence:
        proof = _proof(item)
        if proof and not (proof.is_line and (proof.value, proof.source) in lines):
            lines.add((proof.value, proof.source))
            yield proof


def _proof(item: Evidence) -> Proof | None:
    """A fact of the evidence with name, value and source; for an absent fact the reason is the source.

    None for an unread fact, and for the fact ``text`` (how many lines were searched), which proves nothing.
    """
    if item.fact == "text":
        return None
    if fact := known(item.state):
        shown = value(replace(fact, value=worded(item.fact, fact.value)))
        is_line = item.fact == "text.line"
        return Proof(item, fact_name(item), shown if is_line else shown or say("none"), phrase(fact.source), is_line)
    if isinstance(item.state, Absent):
        return Proof(item, fact_name(item), say("none"), phrase(item.state.why), is_absent=True)
    return None


def _split_by_title(finding: Finding, others: Sequence[Finding]) -> tuple[list[str], list[Finding]]:
    """(subjects, findings): ``gpu 3`` for each of `others` with the finding's title; then the others themselves whose
    title differs, or that have no subject.
    """
    subjects, different = [], []
    for other in others:
        if other.title == finding.title and other.subject:
            kind = "gpu" if "gpu" in other.subject else next(iter(other.subject))
            subjects.append(f"{kind} {other.subject[kind]}")
        else:
            different.append(other)
    return subjects, different


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """Root causes to act on, the first finding of each rule; none of severity ``info`` or confidence ``possible``."""
    by_id: dict[str, Finding] = {}
    for finding in diagnosis.findings:
        if finding.role == "cause" and finding.severity != "info" and finding.confidence != "possible":
            by_id.setdefault(finding.id, finding)
    return list(by_id.values())


def actions(causes: Sequence[Finding]) -> list[tuple[Finding, str]]:
    """(cause, action) of each cause, the action as one line: the title of its first fix, else the cause's own title.

    ``TITLE, as in 1`` if the title of one of its fixes is already the action of an earlier cause (numbered from 1).
    """
    numbers: dict[str, int] = {}
    pairs = []
    for number, finding in enumerate(causes, 1):
        titles = [fix.title for fix in finding.fixes]
        shared = next((title for title in titles if title in numbers), "")
        action = (
            say("{act}, as in {number}", act=shared, number=numbers[shared]) if shared else [*titles, finding.title][0]
        )
        numbers.setdefault(action, number)
        pairs.append((finding, action))
    return pairs


def read_again(diagnosis: Diagnosis) -> str:
    """The command that reads a pasted report again, with the saved output of `ASK_FOR` (``OUTPUT``)."""
    name = one_line(diagnosis.snapshot.target.name)
    is_file = name == diagnosis.snapshot.target.name and name not in ("-", "report", "") and "," not in name
    return f"gpudoctor read --together {shlex.quote(name) if is_file else 'REPORT'} OUTPUT"


def reasons(diagnosis: Diagnosis) -> list[Reason]:
    """Why rules were not judged, one `Reason` per message, the one of most rules first; empty if all were judged."""
    by_reason: dict[str, list[Unjudged]] = {}
    for item in diagnosis.unjudged:
        by_reason.setdefault(item.why, []).append(item)
    reasons = [
        Reason(
            why=phrase(why),
            facts=tuple(dict.fromkeys(item.fact for item in items if item.fact)),
            rules=tuple(item.id for item in items),
            kind=next((item.reason for item in items if item.reason is not Kind.UNSPECIFIED), Kind.UNSPECIFIED),
        )
        for why, items in by_reason.items()
    ]
    return sorted(reasons, key=lambda reason: -len(reason.rules))


def fact_name(item: Evidence) -> str:
    """The fact's full name: ``driver.version``; ``gpu[0].name`` for one in a row."""
    group, _, column = item.fact.rpartition(".")
    return item.fact if item.index is None else f"{group}[{item.index}].{column}"


def without_gpu(diagnosis: Diagnosis) -> bool:
    """True if the GPU count is known to be 0: then every rule about a GPU passes, which proves nothing."""
    return diagnosis.snapshot.number("gpu.count") == 0


def counts(diagnosis: Diagnosis) -> str:
    """Counts of rules found, not judged and passed: ``2 found, 3 not judged, 90 passed``, translated.

    For a report that was read also how many of its lines gave a fact or matched a sign.
    """
    sentence = say(
        "{found} found, {unjudged} not judged, {passed} passed",
        found=len({finding.id for finding in diagnosis.findings}),  # by rule, as the others are counted
        unjudged=len(diagnosis.unjudged),
        passed=len(diagnosis.passed),
    )
    if without_gpu(diagnosis):
        sentence += say(" (no GPU to check)")
    if diagnosis.snapshot.known("report.lines"):
        count = len(set(_lines_that_count(diagnosis)))
        lines = "; {count} lines of the report gave a fact or matched a sign"
        sentence += say(lines if count != 1 else "; 1 line of the report gave a fact or matched a sign", count=count)
    return sentence


_LINES = re.compile(r"\blines? (\d+(?:(?:, | and |-| to )\d+)*)")
"""The lines that a source names: ``line 3``, ``report.txt, lines 3-5``, ``lines 3 and 7``."""
_MOST_LINES = 1000
"""Lines that one source is taken to name: its numbers may be those of a file's name."""


def _lines_that_count(diagnosis: Diagnosis) -> Iterator[tuple[str, int]]:
    """(file, line number) of each line that gave a fact or that a finding rests on; some more than once."""
    snapshot = diagnosis.snapshot
    rows = (row for group in snapshot.groups if group != "text" for row in listed(snapshot.rows(group)))
    facts = (fact for one in (snapshot.facts, *rows) for fact in one.values())
    proofs = (item.state for finding in diagnosis.findings for item in finding.evidence if item.fact == "text.line")
    for fact in (*facts, *proofs):
        found = known(fact)
        if found and (match := _LINES.search(found.source)):
            for part in re.split(", | and ", match[1]):
                first, *later = map(int, re.split("-| to ", part))
                for number in range(first, min(max([first, *later]), first + _MOST_LINES) + 1):
                    yield found.source[: match.start()], number


# ---- What changed before something was found ----

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def changes_before(finding: Finding) -> tuple[str, list[str]]:
    """(heading, sentences) of what changed before the finding: since it last worked, if known, else within 14 days."""
    recent = [change for change in finding.since if change.worked]
    lead = "What changed since it was last in order ({day})" if recent else "What changed within the 14 days before"
    day = _date_text(str(recent[0].worked)) if recent else ""
    return say(lead, day=day), [change_sentence(change) for change in recent or finding.since]


def change_sentence(change: Since) -> str:
    """A change as a sentence: ``driver went from 550.90.07 to 580.95.05 on 3 November 2025 by NAME (SOURCE)``."""
    when = say(" on {day}", day=_date_text(change.at)) if change.at else ""
    by = say(" by {who}", who=change.by) if change.by else ""
    sentence = _setting_change(change) if change.source.startswith("env.") else _version_change(change)
    return one_line(say("{said}{when}{by} ({source})", said=sentence, when=when, by=by, source=phrase(change.source)))


def _version_change(change: Since) -> str:
    """``driver went from 550.90.07 to 580.95.05``; or that it was installed (no `before`) or removed (no `after`)."""
    if change.before and change.after:
        return say("{what} went from {before} to {after}", what=change.what, before=change.before, after=change.after)
    if change.after:
        return say("{what} {version} was installed", what=change.what, version=change.after)
    return say("{what} {version} was removed", what=change.what, version=change.before or "")


def _setting_change(change: Since) -> str:
    """``LD_PRELOAD was 'a' and is 'b'``; or that the variable was set (no `before`) or unset (no `after`)."""
    if change.before is None:
        return say("{what} was not set and is {after}", what=change.what, after=repr(change.after))
    if change.after is None:
        return say("{what} was {before} and is not set", what=change.what, before=repr(change.before))
    sentence = "{what} was {before} and is {after}"
    return say(sentence, what=change.what, before=repr(change.before), after=repr(change.after))


def _date_text(moment: str) -> str:
    """The day of an ISO 8601 time: ``3 November 2025``, translated; any other text is returned unchanged."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)T", moment)
    if not match or not 1 <= int(match[2]) <= 12:
        return moment
    month = say(_MONTHS[int(match[2]) - 1])
    return say("{day} {month} {year}", day=int(match[3]), month=month, year=match[1])
