"""The program's own words: each that is said has its Chinese, each Chinese is of a sentence that is said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import gpudoctor
from gpudoctor.core import language
from gpudoctor.core.language import words
from gpudoctor.core.rule import CONFIDENCES
from gpudoctor.views import _report, _terminal, html
from tests.corpus import speaking

PACKAGE = Path(gpudoctor.__file__).parent
WORDS = words("zh")
HOLE = re.compile(r"\{(\w+)\}")


@lru_cache(maxsize=1)
def _trees() -> tuple[ast.AST, ...]:
    ours = (path for path in PACKAGE.rglob("*.py") if "language" not in path.relative_to(PACKAGE).parts)
    return tuple(ast.parse(path.read_text("utf-8")) for path in ours)


def _said() -> Iterator[str]:
    """The sentences that are written where they are said."""
    for tree in _trees():
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        if not any(node.module == "gpudoctor.core.language" for node in imports):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                first = node.args[0]
                parts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                yield from (str(part.value) for part in parts if isinstance(part, ast.Constant))


def test_every_sentence_has_its_chinese_with_the_same_holes() -> None:
    said = set(_said())
    assert len(said) > 200
    assert said - set(WORDS) == set()
    assert [one for one in said if sorted(HOLE.findall(WORDS[one])) != sorted(HOLE.findall(one))] == []


@pytest.mark.parametrize(
    "word",
    [
        *CONFIDENCES,
        *_report._VERDICTS.values(),
        *_terminal._MARKS.values(),
        *html._MARKS.values(),
        *(severity.upper() for severity in _report.SEVERITY_COLOURS),
    ],
)
def test_every_word_that_a_report_chooses_has_its_chinese(word: str) -> None:
    assert word in WORDS


def test_every_translation_is_of_a_sentence_that_stands_in_the_program() -> None:
    constants = {node.value for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert set(WORDS) - constants == set()


def test_english_is_said_as_it_stands_and_loads_no_words() -> None:
    words.cache_clear()
    assert language.say("To undo: {how}", how="reboot {now}") == "To undo: reboot {now}"
    assert words.cache_info().currsize == 0


def test_what_has_no_translation_stays_english_and_values_are_never_templates() -> None:
    with speaking("zh"):
        assert language.say("nobody has translated this") == "nobody has translated this"
        assert language.say("To undo: {how}", how="reboot {now}") == "撤销：reboot {now}"
    assert language.current() == "en"


def test_a_language_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no language 'fr'; available: en, zh"):
        language.use("fr")
