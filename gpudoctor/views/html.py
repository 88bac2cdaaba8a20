"""The report as one HTML file, or as a notebook's output: nothing is loaded, nothing runs, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from gpudoctor.core import shipped
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.language import current, say
from gpudoctor.core.measurement import Measurements
from gpudoctor.views import _report as report
from gpudoctor.views import plots
from gpudoctor.views._terminal import command, drawable, joined, step_text

_LANGUAGES = {"en": "en", "zh": "zh-Hans"}
_MARKS = {"error": "✗ Error", "warning": "! Warning", "info": "i Info"}
_VERDICT_SIGNS = {"sound": "✓", "impaired": "!", "broken": "✗", "unknown": "?"}
_HEADING = re.compile(r"<(/?)h([1-3])(?=[ >])([^>]*)>")


def cell(diagnosis: Diagnosis, measurements: Measurements | None = None) -> str:
    """The report as HTML for a notebook's output; styles and headings do not affect the rest of the notebook."""
    body = "\n".join(_body_parts(diagnosis, measurements))
    return f'<style>{CELL}</style>\n<div class="gpudoctor cell">\n{_HEADING.sub(_heading_as_div, body)}\n</div>'


def _heading_as_div(heading: re.Match[str]) -> str:
    """What replaces a matched heading tag: a ``div`` tag with the same role and level, or its end tag."""
    return "</div>" if heading[1] else f'<div role="heading" aria-level="{heading[2]}"{heading[3]}>'


@joined
def render(diagnosis: Diagnosis, measurements: Measurements | None = None) -> Iterator[str]:
    """The report as one HTML document, ending without a newline; `measurements` are what kernels measured there."""
    yield "<!doctype html>"
    yield f'<html lang="{_LANGUAGES[current()]}">'
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>gpudoctor: {_text(report.target_text(diagnosis))}</title>"
    yield f"<style>{PAGE}</style>"
    yield '<main class="gpudoctor page">'
    yield from _body_parts(diagnosis, measurements)
    yield "</main>"
    yield "</html>"


def _body_parts(diagnosis: Diagnosis, measurements: Measurements | None) -> Iterator[str]:
    """HTML of the report: verdict, counts, what to act on, findings, notes, figures, rules not judged, rules passed."""
    sign, verdict = _VERDICT_SIGNS[diagnosis.verdict], _text(report.verdict(diagnosis))
    yield f'<h1 class="{_text(diagnosis.verdict)}">{sign} {verdict}</h1>'
    yield f"<p>{_text(report.target_text(diagnosis))}</p>"
    yield f"<p>{_text(report.counts(diagnosis))}</p>"
    if installed := list(report.packages_to_install(diagnosis)):
        yield f"<h2>{say('What it would bring')}</h2>"
        yield "<ul>"
        for name, version, source in installed:
            yield f"<li><code>{_text(f'{name} {version}')}</code> ({_text(source)})</li>"
        yield "</ul>"
    if len(causes := report.causes(diagnosis)) > 1:
        yield f"<h2>{say('To act on, in this order')}</h2>"
        yield "<ol>"
        yield from (
            f"<li>{_text(act)} <code>{_text(finding.id)}</code></li>" for finding, act in report.actions(causes)
        )
        yield "</ol>"
    for finding, others in report.group_same_rule(diagnosis.findings):
        yield f'<section class="{_text(finding.severity)}">'
        yield from _finding_parts(finding, others)
        yield "</section>"
    yield from (f"<p>{_text(note.text)}</p>" for note in diagnosis.notes)
    yield from plots.sections(diagnosis, measurements)
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
    yield f'<p class="quiet">gpudoctor {_text(diagnosis.tool_version)}</p>'


def _finding_parts(finding: Finding, others: Sequence[Finding]) -> Iterator[str]:
    """HTML of one finding: why, fixes, evidence, changes, what it explains.

    `others` are findings of the same rule about other GPUs.
    """
    account = report.account(finding, others)
    word = say(_MARKS[finding.severity])
    yield f'<h2><span class="word">{word}</span> {_text(report.headline(finding))}</h2>'
    yield from (f"<p>{say('Also: {title}', title=_text(title))}</p>" for title in account.also)
    if account.same_of:
        yield f"<p>{say('The same of {names}.', names=_text(account.same_of))}</p>"
    yield f"<p>{_text(finding.why)}</p>"
    for fix in finding.fixes:
        yield f"<h3>{say('What to do: {title}', title=_text(fix.title))}</h3>"
        for step in fix.steps:
            note = step_text(step.text, step.needs, step.touches)
            if note:
                yield f"<p>{_text(note)}</p>"
            if step.argv:
                yield f"<pre>{_text(command(step.argv))}</pre>"
        if fix.undo:
            yield f"<p>{say('To undo: {how}', how=_text(fix.undo))}</p>"
    yield f"<h3>{say('How it is known ({confidence})', confidence=_text(say(finding.confidence)))}</h3>"
    yield f"<table><tr><th>{say('fact')}</th><th>{say('value')}</th><th>{say('read from')}</th></tr>"
    for proof in account.proofs:
        shown, source = _text(proof.value), _text(proof.source)
        yield f"<tr><td><code>{_text(proof.name)}</code></td><td>{shown}</td><td>{source}</td></tr>"
    yield "</table>"
    if account.changes:
        yield f"<h3>{_text(account.changes_lead)}</h3>"
        yield f"<ul>{''.join(f'<li>{_text(change)}</li>' for change in account.changes)}</ul>"
    if finding.by_rule:
        newer = "Judged by rule, not by record: newer than the tables: {facts}."
        yield f"<p>{say(newer, facts=_text(', '.join(finding.by_rule)))}</p>"
    if account.confirm:
        yield f"<p>{say('To be sure: {how}', how=_text(account.confirm))}</p>"
    if finding.explains:
        yield f"<p>{say('This explains: {ids}.', ids=_text(', '.join(finding.explains)))}</p>"
    name, page = f"<code>{_text(finding.id)}</code>", f"<code>{_text(command(finding.more))}</code>"
    yield f'<p class="quiet">{say("{id}, more: {command}", id=name, command=page)}</p>'


def _text(text: str) -> str:
    """Foreign text escaped for an element or attribute of HTML, on one line, control characters as escapes."""
    return escape(drawable(text), quote=True)


# ---- How the report looks on a page of its own, and as a part of another ----
# Every selector begins at our own class.


def _style(name: str) -> str:
    """The CSS of ``views/NAME.css``, with the rules of ``report.css`` in it."""
    rules = shipped.text("views/report.css")
    return f"\n{shipped.text(f'views/{name}.css').replace('/* report.css */', rules, 1)}"


PAGE = _style("page")
"""For a page of its own: the reader's system says whether it is light or dark; paper is light."""
CELL = _style("cell")
"""For a notebook: ink and paper are those of its theme, and the marks are told from both white and black."""
