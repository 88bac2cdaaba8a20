"""What is worked out from a pattern, so that it is tried only where it can match: words, lines, parts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge.signs import Text
from gpudoctor.diagnosis.rulebook.compiled import word_index
from gpudoctor.diagnosis.rulebook.required_words import alternative_parts, may_span_lines, required_words
from gpudoctor.readers import read_text
from tests.fuzz.seeds import seeds


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"Xid \(PCI:\w+\): 79", [("xid (pci:",), ("): 79",)]),
        (r"out of memory|CUBLAS_STATUS_ALLOC_FAILED", [("cublas_status_alloc_failed", "out of memory")]),
        (r"(?:driver|library) mismatch", [(" mismatch",), ("driver", "library")]),
        (r"\d+ (?:a|bc) \w*", []),
        (r"(?P<who>libcudnn)+\.so", [("libcudnn",), (".so",)]),
        (r"(unclosed", []),
    ],
)
def test_needles_are_the_words_a_pattern_cannot_do_without(pattern: str, words: list[tuple[str, ...]]) -> None:
    assert list(required_words(pattern)) == words


@pytest.mark.parametrize(
    ("pattern", "over_the_end"),
    [
        (r"one[^\n]*two .{3}\w+[a-z: ]\d", False),
        (r"one\s+two", True),
        (r"one[^:]+two", True),
        (r"(?:a|b\W)", True),
        (r"a(?!\D)", True),
        (r"[\t-\r]", True),
    ],
)
def test_whether_a_match_goes_over_the_end_of_a_line(pattern: str, over_the_end: bool) -> None:
    assert may_span_lines(pattern) == over_the_end


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (r"plain|[|\]] (a|b)", [[("plain", 0)], [(r"[|\]] (a|b)", 0)]]),
        (r"a\d|bc|(?:one|two) \w", [[(r"(?:one|two) \w", 0)], [(r"a\d|bc", 0)]]),
        (r"(one|two)three", []),
        (r"(a)\1word|other", []),
        (r"one[\s\S]{0,90}?two", [[("one", 90), ("two", 0)]]),
        (r"one[\s\S]*?two|three", [[("one", 1 << 30), ("two", 0)], [("three", 0)]]),
        (r"(?P<a>\w)[\s\S]{0,9}(?!(?P=a)\b)b(?P=a)c", [[(r"(?P<a>\w)", 9), (r"b[^\n]*?c", 0)]]),
        (r"one(?:(?!\bGPU)[\s\S]){0,700}?two", [[("one", 700), ("two", 0)]]),
        (r"one(?![\s\S]{0,80}?two)", []),
        (r"[\s\S]*two", []),
    ],
)
def test_parts_that_may_stand_pages_apart(pattern: str, parts: list[list[tuple[str, int]]]) -> None:
    assert [[(part.match, part.reach) for part in way] for way in alternative_parts(pattern)] == parts


SIGNS = [sign for rule in rulebook.load().rules for sign in rule.signs]
FLAGS = re.IGNORECASE | re.MULTILINE


@settings(max_examples=50)
@given(st.data())
def test_no_sign_of_any_page_matches_a_text_without_its_needles(data: st.DataObject) -> None:
    sign = data.draw(st.sampled_from(SIGNS))
    text = data.draw(st.from_regex(re.compile(sign.match, FLAGS | re.ASCII)))
    assert all(any(word in text.lower() for word in words) for words in sign.required_words)


@pytest.mark.full
def test_a_sign_is_heard_where_its_pattern_matches_the_whole_text() -> None:
    for report in seeds().reports[::48]:
        text = Text(read_text(report), word_index(SIGNS))
        for sign in SIGNS:
            heard = text.find(sign)
            matched = (
                match for match in re.compile(sign.match, FLAGS).finditer(text.searched) if not text.denies(match)
            )
            first_one = next(matched, None)
            assert (heard and heard.groups) == (first_one and {k: v or "" for k, v in first_one.groupdict().items()})
