"""CUDA_VISIBLE_DEVICES as CUDA reads it; each row was also put to torch.cuda of 2.9, which counted the same."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge.variables import visible_asked, visible_by_number, visible_by_uuid, visible_none

UUIDS = ("GPU-aaaa1111", "GPU-aaab2222", "GPU-bbbb3333", "GPU-cccc4444")


def seen(value: str) -> int:
    """GPUs of four that are left visible."""
    if visible_none(value):
        return 0
    counts = (visible_by_number(value, len(UUIDS)), visible_by_uuid(value, UUIDS))
    return next((count for count in counts if not isinstance(count, Nothing)), 0)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("0", 1),
        ("3,0", 2),
        ("1x,2y", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("4", 0),
        ("0,0", 0),
        ("all", 0),
        ("NoDevFiles", 0),
        (",0", 0),
        ("0,", 1),
        ("0,,1", 1),
        ("GPU-aaaa1111", 1),
        ("GPU-b,GPU-c", 2),
        ("GPU-b,GPU-aaa,GPU-c", 1),
        ("GPU-b,GPU-bbbb3333", 0),
        ("GPU-zz,GPU-b", 0),
        ("GPU-b,0", 1),
    ],
)
def test_what_is_left_visible(value: str, count: int) -> None:
    assert seen(value) == count


def test_each_count_is_only_for_lists_of_its_kind() -> None:
    assert isinstance(visible_by_number("GPU-aaaa1111", 4), Nothing)
    assert isinstance(visible_by_uuid("0,1", UUIDS), Nothing)
    assert isinstance(visible_by_number(NOTHING, 4), Nothing)


def test_reports_write_none_for_not_set() -> None:
    assert not visible_none("None")


@pytest.mark.parametrize(("value", "count"), [("0,1,2", 3), ("0,1,", 2), ("", 0)])
def test_how_many_are_named(value: str, count: int) -> None:
    assert visible_asked(value) == count


def test_a_count_that_is_none_cannot_be_judged() -> None:
    with pytest.raises(CannotJudge):
        visible_by_number("0", "many")
