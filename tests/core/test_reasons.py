"""Reasons are typed: rewording a message changes no diagnosis, and no code takes a message apart."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import gpudoctor
from gpudoctor.app.commands.rules import snapshot_of
from gpudoctor.core.fact import Absent, Reason, Unread, fact_from_json, fact_to_json
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.texts import map_texts, screened
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.rulebook import Rulebook, cases
from gpudoctor.diagnosis.rulebook import load as load_rulebook

EVERY = 40
"""Of the pages' cases one in so many is reworded: each takes a whole diagnosis, twice."""
PACKAGE = Path(gpudoctor.__file__).parent
ALLOWED = {
    # whether hiding secrets changed it at all
    ("core/texts.py", "why == value.why"),
    # what NCCL and Gloo print of a rank that only waited for another: machine-printed evidence, in the child itself
    ("kernels/child/_ranks.py", "_WAITED.search(end.why)"),
    # prints once what many runs failed of in the very same words
    ("views/bench.py", "run.because not in common_failures"),
    # compares the sentence that a page's case expects with the one that was said: it is the test of the words
    ("app/commands/rules.py", "case.unjudged in item.because"),
    # leaves out a sentence that the line above it has said already
    ("views/tui/words/measured.py", "run.because not in step.message"),
}


@pytest.mark.parametrize("fact", [Absent("none", Reason.MISSING), Unread("lost", False, Reason.TIMED_OUT)])
def test_a_reason_goes_to_json_and_back(fact: Absent | Unread) -> None:
    again = fact_from_json(fact_to_json(fact))
    assert isinstance(again, (Absent, Unread))
    assert (again, again.reason) == (fact, fact.reason)


@pytest.mark.parametrize("raw", [{"absent": "none"}, {"unread": "lost", "reason": "of-a-later-version"}])
def test_documents_without_a_known_reason_load(raw: dict[str, str]) -> None:
    fact = fact_from_json(raw)
    assert isinstance(fact, (Absent, Unread))
    assert fact.reason is Reason.UNSPECIFIED


def test_hiding_keeps_the_reason() -> None:
    fact = Unread("password=hunter2hunter2: refused", reason=Reason.DENIED)
    hidden = screened(fact)
    assert hidden.why != fact.why
    assert hidden.reason is Reason.DENIED
    assert map_texts(fact, lambda text, _: text.upper()).reason is Reason.DENIED


def test_rewording_every_message_changes_no_verdict() -> None:
    rulebook = load_rulebook()
    for snapshot in map(snapshot_of, cases()[::EVERY]):
        reworded = replace(snapshot, facts=_reworded(snapshot.facts), groups=_reworded(snapshot.groups))
        assert _answers(reworded, rulebook) == _answers(snapshot, rulebook), snapshot.target.name


def _answers(snapshot: Snapshot, rulebook: Rulebook) -> tuple[str, list[str], list[str]]:
    found = judge(snapshot, rulebook)
    return found.verdict, [finding.id for finding in found.findings], [item.id for item in found.unjudged]


def _reworded(state: Any) -> Any:
    if isinstance(state, (Absent, Unread)):
        return replace(state, why="in other words")
    if isinstance(state, Mapping):
        return {name: _reworded(item) for name, item in state.items()}
    return tuple(map(_reworded, state)) if isinstance(state, tuple) else state


def test_no_code_decides_by_the_words_of_a_reason() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), ast.unparse(node))
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _decides_by_words(node)
    }
    assert found - ALLOWED == set()
    assert ALLOWED - found == set(), "no longer there: take it out of the list"


def _decides_by_words(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(map(_is_message, (node.left, *node.comparators)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method, called_on = node.func.attr, node.func.value
        if method in {"startswith", "endswith", "find", "index", "partition", "split"}:
            return _is_message(called_on)
        return method in {"search", "match", "fullmatch", "findall"} and any(map(_is_message, node.args))
    return False


def _is_message(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in {"why", "because"}
