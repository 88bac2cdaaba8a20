"""What keeps a hostile text or a broken file from costing more than it says, or from harming who reads our answer."""

import importlib
import json
import pkgutil
import re
from typing import Any

import pytest

import gpudoctor
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Known
from gpudoctor.core.pattern import LazyPattern, pattern
from gpudoctor.core.rule import Sign
from gpudoctor.core.snapshot import MOST_GPUS, MOST_OTHER_ROWS, Snapshot, Target
from gpudoctor.diagnosis.judge.signs import Match, Text
from gpudoctor.diagnosis.rulebook.compiled import word_index
from gpudoctor.diagnosis.rulebook.required_words import alternative_parts, may_span_lines
from gpudoctor.readers import read_text
from gpudoctor.views import document


def _text(sign: Sign, *lines: str) -> Text:
    rows = tuple({"line": Known(line, f"line {number}")} for number, line in enumerate(lines, 1))
    return Text(Snapshot(Target("report", "x"), {}, {"text": rows}), word_index([sign]))


def _found(sign: Sign, *lines: str) -> Match | None:
    return _text(sign, *lines).find(sign)


def _sign(match: str) -> Sign:
    return Sign(match, True)


@pytest.mark.parametrize("before", [0, 850, 990, 2600])
def test_a_message_is_heard_wherever_it_stands_in_a_long_line(before: int) -> None:
    line = "x" * before + " CUDA error: out of memory " + "y" * 1500
    heard = _found(_sign("CUDA error: (?P<what>out of memory)"), "first", line)
    assert heard is not None
    assert heard.groups == {"what": "out of memory"}
    assert [item.index for item in heard.evidence] == [1]


def test_a_row_of_several_lines_is_searched_line_by_line() -> None:
    sign = _sign(r"^Xid (?P<code>\d+)$")
    text = _text(sign, "first", "second\n\n \nXid 79\n" + "\n" * 5000 + "third")
    heard = text.find(sign)
    assert heard is not None
    assert [item.index for item in heard.evidence] == [1]
    assert text.searched == "first\nsecond\nXid 79\nthird"
    assert _found(_sign("again\\nagain"), "again", "again") is not None


def _told(*match: str, words: str) -> Sign:
    pattern = "".join(match)
    return Sign(
        pattern,
        True,
        required_words=((words,),),
        goes_on=may_span_lines(pattern),
        ways=alternative_parts(pattern),
    )


@pytest.mark.parametrize(("between", "there"), [(10, True), (2000, False)])
def test_what_stands_pages_apart_is_heard_as_far_as_the_page_says(between: int, there: bool) -> None:
    sign = _told(r"first(?P<what> \w+)[\s\S]{0,4000}?", r"last error", words="first")
    found = _found(sign, "first miss", *(f"line {number}" for number in range(between)), "a last error", "first hit")
    assert (found is not None) == there


def test_words_on_every_line_are_tried_at_both_ends() -> None:
    lines = [f"NCCL says {number} and nothing that matters here" for number in range(8000)]
    for place in (3, 7990):
        said = [*lines[:place], "NCCL failed", *lines[place + 1 :]]
        heard = _found(_told(r"NCCL (?P<what>failed)", words="nccl"), *said)
        assert heard is not None
        assert [item.index for item in heard.evidence] == [place]


def test_saved_snapshots_and_pastes_without_end_are_cut_or_refused() -> None:
    raw: dict[str, Any] = {"schema": "gpudoctor/1", "target": {"name": "x"}}
    many = {**raw, "facts": {"xid": [{"code": {"value": 13, "source": "log"}}] * (2 * MOST_OTHER_ROWS)}}
    device = "3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB]"
    bus = "".join(f"{n:02x}:00.0 {device}\n" for n in range(200))
    for text, group, most in ((json.dumps(many), "xid", MOST_OTHER_ROWS), (bus, "pci", MOST_GPUS)):
        rows = read_text(text).rows(group)
        assert isinstance(rows, tuple)
        assert len(rows) == most
    with pytest.raises(DocumentError, match="1000 GPUs"):
        read_text(json.dumps({**raw, "facts": {"gpu": [{}] * 1000}}))


def test_half_a_surrogate_pair_never_leaves() -> None:
    told = document.facts(
        Snapshot(Target("local", "x\udcff"), {"a.b": Known(("\ud800", "\\ud800"), "\U0001f600")}), "1"
    )
    raw = json.loads(told)
    assert raw["target"]["name"] == "x\ufffd"
    assert raw["facts"]["a.b"] == {"value": ["\ufffd", "\\ud800"], "source": "\U0001f600"}
    told.encode("utf-8").decode("utf-8")


def _ours() -> list[tuple[str, LazyPattern]]:
    found = []
    for info in pkgutil.walk_packages(gpudoctor.__path__, "gpudoctor."):
        if any(part in info.name for part in (".child", "__main__", ".tui", ".windows_processes")):
            continue
        module = importlib.import_module(info.name)
        found += [(f"{info.name}.{name}", one) for name, one in vars(module).items() if isinstance(one, LazyPattern)]
    return found


def test_each_of_ours_compiles() -> None:
    ours = _ours()
    assert len(ours) > 90
    for name, one in ours:
        assert isinstance(one.pattern, (str, bytes)), name


def test_a_lazy_pattern_answers_as_the_compiled_one_and_a_broken_one_says_so() -> None:
    ours, theirs = pattern(r"(?P<a>x+)(y)?", re.IGNORECASE), re.compile(r"(?P<a>x+)(y)?", re.IGNORECASE)
    text = "aXXy bxb"
    assert ours.findall(text) == theirs.findall(text)
    assert [one.span() for one in ours.finditer(text)] == [(1, 4), (6, 7)]
    assert ours.sub("-", text) == theirs.sub("-", text)
    assert ours.subn("-", text) == ("a- b-b", 2)
    assert ours.split(text) == theirs.split(text)
    assert (ours.match(text), ours.fullmatch("x") is not None, ours.search(text) is not None) == (None, True, True)
    for name in ("pattern", "flags", "groups", "groupindex"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert pattern(rb"\d").search(b"a1") is not None
    broken = pattern("(")
    with pytest.raises(re.error, match="unterminated"):
        broken.search("x")
    with pytest.raises(AttributeError, match="no_such"):
        broken.no_such  # type: ignore[attr-defined] # noqa: B018
