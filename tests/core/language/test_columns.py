"""Chinese in a terminal: two columns a character, lines broken without blanks, and never before a comma."""

from __future__ import annotations

import textwrap
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.views._terminal import WIDTH, fold_wide, has_wide, width, wrapped

WORDS = st.lists(st.text("驱动内核模块，。、；：）（“”gpu-3_./", max_size=12).map("中".__add__), min_size=1).map(
    " ".join
)


def _columns(text: str) -> int:
    """By the standard alone: what a terminal advances."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def test_a_chinese_character_takes_two_columns_and_a_latin_one_takes_one() -> None:
    assert [width(text) for text in ("驱动", "gpu", "GPU 没有了。")] == [4, 3, 12]
    assert has_wide("GPU 没有了")
    assert not has_wide("a “quoted” word … and a café × 8")


def test_a_line_ends_behind_any_character_but_not_before_what_closes() -> None:
    assert fold_wide("没有驱动，也没有模块。", 9, "", "") == ["没有驱", "动，也没", "有模块。"]
    assert fold_wide("（需要 root）（会改动系统）", 12, "", "") == ["（需要", "root）（会改", "动系统）"]


def test_a_command_or_an_id_stays_whole_and_blanks_within_a_line_stay() -> None:
    assert fold_wide("运行 nvidia-smi --query-gpu=name，看结果", 20, "", "") == [
        "运行 nvidia-smi",
        "--query-gpu=name，看",
        "结果",
    ]
    assert fold_wide("错误  没有驱动", 20, "", "") == ["错误  没有驱动"]


@given(WORDS)
def test_every_line_holds_in_a_terminal_and_nothing_is_lost(text: str) -> None:
    lines = wrapped(f"中 {text}", 2, 4)
    assert "".join("".join(lines).split()) == "中" + "".join(text.split())
    for line in lines:
        assert line[:2] == "  "
        assert line.lstrip()[0] not in "，。、；：）”"
        assert _columns(line) <= WIDTH or not any(map(str.isspace, line.strip()))


@given(st.text("abc ,.-('…×é ", max_size=300))
def test_text_without_wide_characters_is_wrapped_as_ever(text: str) -> None:
    told = [line for line in wrapped(text) if line]
    expected = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    assert told == expected
