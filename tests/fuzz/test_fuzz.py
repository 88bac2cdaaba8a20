"""The short run of what `python -m tests.fuzz` and `tests.fuzz.hostile` do at length, and what they once found."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.readers import read_text
from gpudoctor.readers._paste import Paste
from tests.corpus import BOOK
from tests.fuzz.examine import examine
from tests.fuzz.hostile import lines, long_lines, reader_patterns
from tests.fuzz.mutate import case
from tests.fuzz.strange import RUNS

_SEED = 4
FULL = pytest.mark.full


@pytest.mark.parametrize(("first", "end"), [(0, 100), *(pytest.param(at, at + 200, marks=FULL) for at in (100, 300))])
def test_mutilated_cases(first: int, end: int) -> None:
    wrong = {}
    for number in range(first, end):
        kind, raw = case(_SEED, number)
        if problems := examine(raw, kind).problems:
            wrong[f"python -m tests.fuzz --seed {_SEED} --only {number}"] = problems
    assert wrong == {}


@FULL
@pytest.mark.parametrize(
    "unit",
    [*RUNS, "FROM nvidia/cuda:12.1.0-base\n", "GPU 0: NVIDIA A10\n", "+-----+\n", "NCCL version 2.19.3+cuda12.3\n"],
)
def test_endless_runs(unit: str) -> None:
    assert examine((unit * (500_000 // len(unit)))[:500_000].encode("utf-8"), "report").problems == ()


_SIGNS = [sign.match for rule in BOOK.rules for sign in rule.signs]


@FULL
@settings(max_examples=40)
@given(st.data())
def test_what_a_sign_hears_is_judged(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(_SIGNS))
    text = data.draw(st.from_regex(re.compile(pattern, re.IGNORECASE | re.MULTILINE)))
    assert examine(text.encode("utf-8", "surrogatepass"), "report").problems == ()


@FULL
def test_many_gpus_are_judged_in_time() -> None:
    lines = "".join(f"{n:02x}:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB]\n" for n in range(256))
    assert examine((lines * 8).encode(), "report").problems == ()


@FULL
@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.is_available()" + "=" * 3000,
        f"Radeon\n    Gpu {' ' * 30}{(' ' * 17 + ':') * 1000}\n",
        ("nvidia-smi: loaded\n" + "".join(f"-{' ' * (500 - n)}-\n" for n in range(12))) * 60,
    ],
    ids=["equals signs", "colons", "lines without words"],
)
def test_what_patterns_may_share_out_in_many_ways(text: str) -> None:
    assert examine(text.encode(), "report").problems == ()


@FULL
@pytest.mark.parametrize(
    "text",
    ["kernel module loaded" + "\n" * 4000, "machine" + "\n:" * 4000 + "no gpu", "workers=0 " * 20_000],
    ids=["line ends", "colons", "no end"],
)
def test_a_saved_line_that_is_none(text: str) -> None:
    line = {"line": {"value": text, "source": "line 1"}}
    raw = {"schema": "gpudoctor/1", "target": {"name": "x"}, "facts": {"text": [line]}}
    assert examine(json.dumps(raw).encode(), "snapshot").problems == ()


def test_digits_of_other_scripts_are_no_version() -> None:
    text = "PyTorch version: 2.6.0\nCUDA used to build PyTorch: ٣.٤\n[pip3] torch==2.6.0\n"
    assert examine(text.encode(), "report").problems == ()


_AT_ONCE = 125
"""Lines of 3,900 characters that are kept of one text."""
_PARTS = 4


def _hostile() -> list[str]:
    """A line of each shape of each pattern, as long as one is read."""
    shapes = dict.fromkeys(shape for _, pattern in reader_patterns() for shape in long_lines(pattern))
    return [line for shape in shapes for line in lines(shape, 4100)[:1]]


@FULL
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_pattern_takes_long_on_lines_made_against_it(part: int) -> None:
    texts = _hostile()
    assert len(texts) > 1500
    for first in range(part * _AT_ONCE, len(texts), _PARTS * _AT_ONCE):
        text = "\n".join(texts[first : first + _AT_ONCE])
        read_text(text)


def test_a_gap_is_read_a_hundred_wide() -> None:
    assert Paste(f"{' ' * 300}one{' ' * 100}two{' ' * 99}{chr(9) * 9}three").lines == [
        f"{' ' * 100}one{' ' * 100}two{' ' * 99}{chr(9)}three"
    ]
