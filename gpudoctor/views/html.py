"""The report as one HTML file, or as a notebook's output: nothing is loaded, nothing runs, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from gpudoctor.language import say, spoken
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.measurement import Measurements
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views import plots
from gpudoctor.views._since import since
from gpudoctor.views._terminal import command, drawable, noted, value
from gpudoctor.views.plots import STYLE

_LANGUAGES = {"en": "en", "zh": "zh-Hans"}
_MARKS = {"error": "✗ Error", "warning": "! Warning", "info": "i Info"}
_VERDICTS = {"sound": "✓", "impaired": "!", "broken": "✗", "unknown": "?"}
_HEADING = re.compile(r"<(/?)h([1-3])(?=[ >])([^>]*)>")


def render(diagnosis: Diagnosis, found: Measurements | None = None) -> str:
    """The whole document, ending without a newline; `found` is what kernels measured there."""
    return "\n".join(_document(diagnosis, found))


def cell(diagnosis: Diagnosis, found: Measurements | None = None) -> str:
    """A part of a page that is somebody else's: its styles go no further, and its headings are not in the contents."""
    body = "\n".join(_body(diagnosis, found))
    return f'<style>{CELL}</style>\n<div class="gpudoctor cell">\n{_HEADING.sub(_no_heading, body)}\n</div>'


def _no_heading(heading: re.Match[str]) -> str:
    return "</div>" if heading[1] else f'<div role="heading" aria-level="{heading[2]}"{heading[3]}>'


def _document(diagnosis: Diagnosis, found: Measurements | None) -> Iterator[str]:
    yield "<!doctype html>"
    yield f'<html lang="{_LANGUAGES[spoken()]}">'
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>gpudoctor: {_text(report.about(diagnosis))}</title>"
    yield f"<style>{PAGE}</style>"
    yield '<main class="gpudoctor page">'
    yield from _body(diagnosis, found)
    yield "</main>"
    yield "</html>"


def _body(diagnosis: Diagnosis, found: Measurements | None) -> Iterator[str]:
    sign, said = _VERDICTS[diagnosis.verdict], _text(report.verdict(diagnosis))
    yield f'<h1 class="{_text(diagnosis.verdict)}">{sign} {said}</h1>'
    yield f"<p>{_text(report.about(diagnosis))}</p>"
    yield f"<p>{_text(report.counts(diagnosis))}</p>"
    if installed := list(report.installs(diagnosis)):
        yield f"<h2>{say('What it would bring')}</h2>"
        yield "<ul>"
        for name, version, source in installed:
            yield f"<li><code>{_text(f'{name} {version}')}</code> ({_text(source)})</li>"
        yield "</ul>"
    if len(causes := report.causes(diagnosis)) > 1:
        yield f"<h2>{say('To act on, in this order')}</h2>"
        yield "<ol>"
        yield from (f"<li>{_text(act)} <code>{_text(one.id)}</code></li>" for one, act in report.acts(causes))
        yield "</ol>"
    for finding, others in report.together(diagnosis.findings):
        yield f'<section class="{_text(finding.severity)}">'
        yield from _finding(finding, others)
        yield "</section>"
    yield from (f"<p>{_text(note.text)}</p>" for note in diagnosis.notes)
    yield from plots.sections(diagnosis, found)
    yield from _rest(diagnosis)
    yield f'<p class="quiet">gpudoctor {_text(diagnosis.tool_version)}</p>'


def _finding(finding: Finding, others: Sequence[Finding]) -> Iterator[str]:
    guess = say("possibly: ") if finding.confidence == "possible" else ""
    word = say(_MARKS[finding.severity])
    yield f'<h2><span class="word">{word}</span> {guess}{_text(finding.title)}</h2>'
    alike, unlike = report.elsewhere(finding, others)
    yield from (f"<p>{say('Also: {title}', title=_text(other.title))}</p>" for other in unlike)
    if alike:
        yield f"<p>{say('The same of {names}.', names=_text(', '.join(alike)))}</p>"
    yield f"<p>{_text(finding.why)}</p>"
    for fix in finding.fixes:
        yield from _fix(fix)
    yield f"<h3>{say('How it is known ({confidence})', confidence=_text(say(finding.confidence)))}</h3>"
    yield from _table(finding.evidence)
    if finding.since:
        lead, changes = since(finding)
        yield f"<h3>{_text(lead)}</h3>"
        yield f"<ul>{''.join(f'<li>{_text(change)}</li>' for change in changes)}</ul>"
    if finding.by_rule:
        newer = "Judged by rule, not by record: newer than the tables: {facts}."
        yield f"<p>{say(newer, facts=_text(', '.join(finding.by_rule)))}</p>"
    if finding.confidence != "certain" and finding.confirm:
        yield f"<p>{say('To be sure: {how}', how=_text(finding.confirm))}</p>"
    if finding.explains:
        yield f"<p>{say('This explains: {ids}.', ids=_text(', '.join(finding.explains)))}</p>"
    name, page = f"<code>{_text(finding.id)}</code>", f"<code>{_text(command(finding.more))}</code>"
    yield f'<p class="quiet">{say("{id}, more: {command}", id=name, command=page)}</p>'


def _table(evidence: Sequence[Evidence]) -> Iterator[str]:
    yield f"<table><tr><th>{say('fact')}</th><th>{say('value')}</th><th>{say('read from')}</th></tr>"
    for item in evidence:
        name = f"<code>{_text(report.fact_name(item))}</code>"
        if isinstance(item.state, Known):
            known = _text(value(item.state) or say("none"))
            yield f"<tr><td>{name}</td><td>{known}</td><td>{_text(item.state.source)}</td></tr>"
        elif isinstance(item.state, Absent):
            yield f"<tr><td>{name}</td><td>{say('none')}</td><td>{_text(item.state.why)}</td></tr>"
    yield "</table>"


def _fix(fix: Fix) -> Iterator[str]:
    yield f"<h3>{say('What to do: {title}', title=_text(fix.title))}</h3>"
    for step in fix.steps:
        note = noted(step.text, step.needs, step.touches)
        if note:
            yield f"<p>{_text(note)}</p>"
        if step.argv:
            yield f"<pre>{_text(command(step.argv))}</pre>"
    if fix.undo:
        yield f"<p>{say('To undo: {how}', how=_text(fix.undo))}</p>"


def _rest(diagnosis: Diagnosis) -> Iterator[str]:
    """What was not judged, and what passed: folded."""
    if diagnosis.unjudged:
        unjudged = say("{count} rules were not judged", count=len(diagnosis.unjudged))
        yield f"<details><summary>{unjudged}</summary><ul>"
        for reason in report.reasons(diagnosis):
            facts = f" ({', '.join(reason.facts)})" if reason.facts else ""
            yield f"<li>{_text(reason.why + facts)}: {_text(', '.join(reason.rules))}</li>"
        yield "</ul></details>"
    if diagnosis.passed:
        passed = say("{count} rules passed", count=len(diagnosis.passed))
        yield f"<details><summary>{passed}</summary>"
        yield f"<p>{_text(', '.join(diagnosis.passed))}</p></details>"


def _text(text: str) -> str:
    """Foreign text, in an element or an attribute: never a tag, never a control character."""
    return escape(drawable(text), quote=True)


# ---- How the report looks on a page of its own, and as a part of another ----
# Every selector begins at our own class.

_COMMON = """
.gpudoctor { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); overflow-wrap: anywhere; }
.gpudoctor h1, .gpudoctor [aria-level="1"] { font-size: 1.4em; font-weight: 700; margin: .6em 0;
  border-left: .3em solid var(--mark); padding-left: .5em; }
.gpudoctor h2, .gpudoctor [aria-level="2"] { font-size: 1.15em; font-weight: 700; margin: 1.2em 0 .4em; }
.gpudoctor section > :first-child { margin-top: 0; }
.gpudoctor h3, .gpudoctor [aria-level="3"] { font-size: 1em; font-weight: 700; margin: 1em 0 .3em; }
.gpudoctor p { margin: .4em 0; }
.gpudoctor section { border: 1px solid var(--line); border-left: .4em solid var(--mark, var(--line));
  border-radius: .3em; padding: 1em; margin: 1em 0; }
.gpudoctor .error, .gpudoctor .broken { --mark: var(--error); }
.gpudoctor .warning, .gpudoctor .impaired { --mark: var(--warning); }
.gpudoctor .info, .gpudoctor .unknown { --mark: var(--info); } .gpudoctor .sound { --mark: var(--sound); }
.gpudoctor .word { color: var(--mark); } .gpudoctor .quiet { color: var(--quiet); }
.gpudoctor pre { background: var(--panel); color: inherit; padding: .6em .8em; border-radius: .3em;
  white-space: pre-wrap; margin: .4em 0; }
.gpudoctor code { background: none; color: inherit; padding: 0; }
.gpudoctor code, .gpudoctor pre { font-family: ui-monospace, monospace; font-size: .9em; }
.gpudoctor table { border-collapse: collapse; width: 100%; margin: 0; font-size: 1em; table-layout: auto; }
.gpudoctor table tr { background: none; }
.gpudoctor table tr td, .gpudoctor table tr th { text-align: left; vertical-align: top; max-width: none;
  white-space: normal; border: 0; border-bottom: 1px solid var(--line); padding: .25em .6em .25em 0; }
.gpudoctor summary { cursor: pointer; }
"""
PAGE = f"""
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: var(--paper); }}
:root {{ --ink: #1c1c1c; --quiet: #595959; --paper: #fff; --panel: #f2f2f2; --line: #d0d0d0;
  --error: #b00000; --warning: #7a5000; --info: #005faf; --sound: #006b38; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #d7d7d7; --quiet: #a0a0a0; --paper: #121212; --panel: #1f1f1f; --line: #3a3a3a;
    --error: #ff7b7b; --warning: #ffd75f; --info: #7fbfff; --sound: #5fd787; }} }}
{_COMMON}{STYLE}
.gpudoctor.page {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
@media print {{
  :root {{ --ink: #000; --quiet: #444; --paper: #fff; --panel: #f2f2f2; --line: #bbb;
    --error: #b00000; --warning: #7a5000; --info: #005faf; --sound: #006b38; }}
  .gpudoctor.page {{ max-width: none; margin: 0; font-size: 11px; }}
  .gpudoctor section {{ break-inside: avoid; }} .gpudoctor h2 {{ break-after: avoid; }}
}}
"""
"""For a page of its own: the reader's system says whether it is light or dark; paper is light."""

CELL = f"""
.gpudoctor.cell {{ --ink: currentColor; --quiet: color-mix(in srgb, currentColor 70%, transparent);
  --panel: color-mix(in srgb, currentColor 8%, transparent); --line: color-mix(in srgb, currentColor 22%, transparent);
  --error: #d64545; --warning: #a87500; --info: #2f7fc9; --sound: #2c8f57; }}
{_COMMON}{STYLE}
.gpudoctor.cell {{ font-size: 14px; color: inherit; max-width: 60rem; }}
"""
"""For a notebook: ink and paper are those of its theme, and the marks are told from both white and black."""
