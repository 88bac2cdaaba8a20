"""The report as one HTML file: nothing is loaded, nothing runs, light and dark as the reader's system has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import command, marks, safe, value

_MARKS = {"error": "✗ Error", "warning": "! Warning", "info": "i Info"}
_VERDICTS = {"sound": "✓", "impaired": "!", "broken": "✗", "unknown": "?"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --quiet: #595959; --paper: #fff; --panel: #f2f2f2; --line: #d0d0d0;
  --error: #b00000; --warning: #7a5000; --info: #005faf; --sound: #006b38; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #d7d7d7; --quiet: #a0a0a0; --paper: #121212; --panel: #1f1f1f; --line: #3a3a3a;
    --error: #ff7b7b; --warning: #ffd75f; --info: #7fbfff; --sound: #5fd787; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; border-left: .4rem solid var(--mark); padding-left: .7rem; }
h2 { font-size: 1.15rem; margin-top: 0; } h3 { font-size: 1rem; margin-bottom: .3rem; }
section { border: 1px solid var(--line); border-left: .4rem solid var(--mark, var(--line)); border-radius: .3rem;
  padding: 1rem; margin: 1rem 0; }
.error, .broken { --mark: var(--error); } .warning, .impaired { --mark: var(--warning); }
.info, .unknown { --mark: var(--info); } .sound { --mark: var(--sound); }
.word { color: var(--mark); } .quiet { color: var(--quiet); }
pre { background: var(--panel); padding: .6rem .8rem; border-radius: .3rem; white-space: pre-wrap; margin: .4rem 0; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); padding: .25rem .6rem .25rem 0; }
"""


def render(diagnosis: Diagnosis) -> str:
    """The whole document, ending without a newline."""
    return "\n".join(_document(diagnosis))


def _document(diagnosis: Diagnosis) -> Iterator[str]:
    about, verdict = report.about(diagnosis), report.verdict(diagnosis)
    yield "<!doctype html>"
    yield '<html lang="en">'
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>gpudoctor: {_text(about)}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<h1 class="{_text(diagnosis.verdict)}">{_VERDICTS[diagnosis.verdict]} {_text(verdict)}</h1>'
    yield f"<p>{_text(about)}</p>"
    yield f"<p>{_text(report.counts(diagnosis))}</p>"
    if len(causes := report.causes(diagnosis)) > 1:
        yield "<h2>To act on, in this order</h2>"
        yield "<ol>"
        yield from (f"<li>{_text(report.act(one))} <code>{_text(one.id)}</code></li>" for one in causes)
        yield "</ol>"
    for finding, others in report.together(diagnosis.findings):
        yield f'<section class="{_text(finding.severity)}">'
        yield from _finding(finding, others)
        yield "</section>"
    yield from (f"<p>{_text(note.text)}</p>" for note in diagnosis.notes)
    yield from _rest(diagnosis)
    yield f'<p class="quiet">gpudoctor {_text(diagnosis.tool_version)}</p>'
    yield "</html>"


def _finding(finding: Finding, others: Sequence[Finding]) -> Iterator[str]:
    guess = "possibly: " if finding.confidence == "possible" else ""
    word = _MARKS[finding.severity]
    yield f'<h2><span class="word">{word}</span> {guess}{_text(finding.title)}</h2>'
    alike, unlike = report.elsewhere(finding, others)
    yield from (f"<p>Also: {_text(other.title)}</p>" for other in unlike)
    if alike:
        yield f"<p>The same of {_text(', '.join(alike))}.</p>"
    yield f"<p>{_text(finding.why)}</p>"
    if not finding.nearness:  # what only words point to is to be made sure of first
        for fix in finding.fixes:
            yield from _fix(fix)
    yield f"<h3>How it is known ({_text(finding.confidence)})</h3>"
    yield from _table(finding.evidence)
    if finding.by_rule:
        newer = ", ".join(finding.by_rule)
        yield f"<p>Judged by rule, not by record: newer than the tables: {_text(newer)}.</p>"
    if finding.confidence != "certain" and finding.confirm:
        yield f"<p>To be sure: {_text(finding.confirm)}</p>"
    if finding.explains:
        yield f"<p>This explains: {_text(', '.join(finding.explains))}.</p>"
    name = _text(finding.id)
    yield f'<p class="quiet"><code>{name}</code>, more: <code>gpudoctor explain {name}</code></p>'


def _table(evidence: Sequence[Evidence]) -> Iterator[str]:
    yield "<table><tr><th>fact</th><th>value</th><th>read from</th></tr>"
    for item in evidence:
        name = f"<code>{_text(report.fact_name(item))}</code>"
        if isinstance(item.state, Known):
            known = _text(value(item.state) or "none")
            yield f"<tr><td>{name}</td><td>{known}</td><td>{_text(item.state.source)}</td></tr>"
        elif isinstance(item.state, Absent):
            yield f"<tr><td>{name}</td><td>none</td><td>{_text(item.state.why)}</td></tr>"
    yield "</table>"


def _fix(fix: Fix) -> Iterator[str]:
    yield f"<h3>What to do: {_text(fix.title)}</h3>"
    for step in fix.steps:
        note = f"{step.text} {marks(step.needs, step.touches)}".strip()
        if note:
            yield f"<p>{_text(note)}</p>"
        if step.argv:
            yield f"<pre>{_text(command(step.argv))}</pre>"
    if fix.undo:
        yield f"<p>To undo: {_text(fix.undo)}</p>"


def _rest(diagnosis: Diagnosis) -> Iterator[str]:
    """What was not judged, and what passed: folded."""
    if diagnosis.unjudged:
        yield f"<details><summary>{len(diagnosis.unjudged)} rules were not judged</summary><ul>"
        for reason in report.reasons(diagnosis):
            facts = f" ({', '.join(reason.facts)})" if reason.facts else ""
            yield f"<li>{_text(reason.why + facts)}: {_text(', '.join(reason.rules))}</li>"
        yield "</ul></details>"
    if diagnosis.passed:
        yield f"<details><summary>{len(diagnosis.passed)} rules passed</summary>"
        yield f"<p>{_text(', '.join(diagnosis.passed))}</p></details>"


def _text(text: str) -> str:
    """Foreign text, in an element or an attribute: never a tag, never a control character."""
    return escape(safe(text), quote=True)
