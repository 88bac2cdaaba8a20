"""Conditions have three answers, and remember what they read."""

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.expression import Evaluator, Facts, evaluate, fill

FACTS: dict[str, Fact] = {
    "driver.version": Known("570.124.06", "case"),
    "torch.cuda": Known("12.10", "case"),
    "torch.hip": Absent("a CUDA build"),
    "nvml.state": Unread("the child was stopped"),
    "gpu.count": Known(2, "case"),
    "torch.archs": Known(("sm_80", "sm_90"), "case"),
}
GROUPS: dict[str, Rows] = {
    "gpu": ({"name": Known("A", "case")}, {"name": Known("B", "case"), "mig": Unread("not asked")}),
    "pci": Unread("/sys is not mounted"),
    "lib": Absent("no library found"),
    "text": ({"line": Known("all is quiet", "line 1")}, {"line": Known("NVRM: Xid 79", "line 2")}),
}


def facts() -> Facts:
    return Facts(Snapshot(Target("local", "case"), FACTS, GROUPS))


def value(text: str) -> object:
    return evaluate(text, Evaluator(facts(), {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version(driver.version) >= '570'", True),
        ("version(torch.cuda) > '12.9'", True),
        ("version(torch.cuda).minor == 10", True),
        ("torch.hip == '5.0'", False),
        ("torch.hip != '5.0'", False),
        ("gpu.count > 0.7 * torch.hip", False),
        ("torch.hip / 2 + 1 - gpu.count < 99", False),
        ("version(torch.hip) < '99'", False),
        ("absent(torch.hip)", True),
        ("present(driver.version)", True),
        ("'sm_90' in torch.archs", True),
        ("'x' not in torch.hip", False),
        ("gpu.count == len(gpu)", True),
        ("any(g.name == 'B' for g in gpu)", True),
        ("[g.name for g in gpu][0] == 'A'", True),
        ("len(lib) == 0", True),
        ("True or nvml.state == 'ok'", True),
        ("nvml.state == 'ok' or True", True),
        ("nvml.state == 'ok' and False", False),
        ("matches(driver.version, r'^570')", True),
        (r"says(text, r'nvrm: xid \d+')", True),
        ("says(text, 'bus error')", False),
        ("known(driver.version)", True),
        ("known(torch.hip)", False),
        ("known(nvml.state)", False),
        ("known(nvml.state) and nvml.state == 'ok'", False),
        ("'for ' + words(torch.archs) == 'for sm_80, sm_90'", True),
        ("words(set([g.name for g in gpu])) == 'A, B'", True),
        ("words([]) == 'none'", True),
    ],
)
def test_an_expression_is_true_or_false(text: str, expected: bool) -> None:
    assert value(text) is expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nvml.state == 'ok'", "nvml.state"),
        ("nvml.state == 'ok' or False", "nvml.state"),
        ("not nvml.state", "nvml.state"),
        ("len(pci) == 0", "pci"),
        ("any(p.vendor == 'nvidia' for p in pci)", "pci"),
        ("any(g.mig for g in gpu)", "gpu.mig"),
        ("host.os == 'x'", "host.os"),
        ("version(nvml.state) < '1'", "nvml.state"),
        ("version('words') < '1'", "words against 1"),
    ],
)
def test_an_unread_fact_leaves_it_unjudged_and_is_named(text: str, what: str) -> None:
    with pytest.raises(CannotJudge) as caught:
        value(text)
    assert caught.value.what == what


def test_every_fact_read_is_remembered_with_its_row() -> None:
    seen = facts()
    evaluate("gpu.count > 1 and any(g.name == 'A' for g in gpu)", Evaluator(seen, {}))
    assert set(seen.touched) == {("gpu.count", None), ("gpu", None), ("gpu.name", 0)}  # row 0 settles it
    seen = facts()
    evaluate("any(g.name == 'C' for g in gpu)", Evaluator(seen, {}))
    assert set(seen.touched) == {("gpu", None), ("gpu.name", 0), ("gpu.name", 1)}
    seen = Facts(Snapshot(Target("local", "case"), FACTS, GROUPS), "gpu", 1)
    evaluator = Evaluator(seen, {})
    assert evaluate("gpu.name == 'B' and gpu.count == 2", evaluator) is True
    assert set(seen.touched) == {("gpu.name", 1), ("gpu.count", None)}


def test_one_row_that_decides_does_so_whatever_another_lacks() -> None:
    rows: tuple[Row, ...] = ({"name": Unread("hung")}, {"name": Known("B", "NVML")}, {"name": Known("A", "NVML")})
    seen = Facts(Snapshot(Target("local", "case"), {}, {"gpu": rows}))
    evaluator = Evaluator(seen, {})
    assert evaluate("any(g.name == 'A' for g in gpu)", evaluator) is True
    assert evaluate("all(g.name == 'A' for g in gpu)", evaluator) is False
    assert evaluate("any(True for g in gpu if g.name == 'A')", evaluator) is True
    with pytest.raises(CannotJudge, match="hung"):
        evaluate("any(g.name == 'C' for g in gpu)", evaluator)
    assert evaluate("any(g.name == 'B' and h.name == 'A' for g in gpu for h in gpu)", evaluator) is True


def test_a_sentence_shows_values_and_admits_or_leaves_out_what_is_not_known() -> None:
    sentence = fill(
        "driver {driver.version}, {torch.archs}, {torch.hip}, {nvml.state}, {extra}",
        Evaluator(facts(), {}),
        {"extra": "e"},
    )
    assert sentence == "driver 570.124.06, sm_80, sm_90, none, (not known), e"
    evaluator = Evaluator(facts(), {})
    assert fill("NVML{' says ' + nvml.state | ''}.", evaluator) == "NVML."
    assert fill("NVML{' says ' + nvml.state | is silent}.", evaluator) == "NVMLis silent."


ROWS: dict[str, Rows] = {
    "xid": (
        {"address": Known("01", "case"), "code": Known(79, "case")},
        {"address": Known("02", "case"), "code": Known(48, "case")},
        {"address": Absent("none"), "code": Known(13, "case")},
    ),
    "aer": ({"gpu": Known("01", "case"), "code": Known(1, "case")}, {"gpu": Unread("torn"), "code": Known(2, "case")}),
}


def _of_rows(text: str) -> tuple[object, set[tuple[str, int | None]]]:
    seen = Facts(Snapshot(Target("local", "case"), FACTS, ROWS))
    found = evaluate(text, Evaluator(seen, {}))
    return found, set(seen.touched)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("any(x.address == '02' and x.code == 48 for x in xid)", True),
        ("any(x.address == '02' and x.code == 79 for x in xid)", False),
        ("any(x.address == '03' for x in xid)", False),
        ("any(x.address == torch.hip for x in xid)", False),
        ("any(x.address == '03' or x.code == 13 for x in xid)", True),
        ("any(a.gpu == '01' and a.code == 1 for a in aer)", True),
        ("any(a.code == 9 and a.gpu == nvml.state for a in aer)", False),
        ("all(x.address == '01' for x in xid)", False),
    ],
)
def test_rows_are_told_apart_by_a_column(text: str, expected: bool) -> None:
    assert _of_rows(text)[0] is expected


@pytest.mark.parametrize("text", ["any(a.gpu == '03' for a in aer)", "any(x.address == nvml.state for x in xid)"])
def test_rows_of_which_nobody_can_say_leave_it_unjudged(text: str) -> None:
    with pytest.raises(CannotJudge):
        _of_rows(text)


def test_rows_told_apart_are_proof_where_none_is_alike() -> None:
    _, proof = _of_rows("any(x.address == '03' for x in xid)")
    assert proof >= {("xid.address", 0), ("xid.address", 1), ("xid.address", 2)}
    _, proof = _of_rows("any(x.address == '02' for x in xid)")
    assert {name for name in proof if name[1] is not None} == {("xid.address", 1)}


def test_the_line_that_says_it_is_the_proof_and_without_text_nobody_can_say() -> None:
    seen = facts()
    assert evaluate("says(text, 'xid')", Evaluator(seen, {}))
    assert seen.touched["text.line", 1] == Known("NVRM: Xid 79", "line 2")
    with pytest.raises(CannotJudge):
        evaluate("says(text, 'xid')", Evaluator(Facts(Snapshot(Target("local", "case"), FACTS)), {}))


@pytest.mark.parametrize("condition", ["matches(live.cuda_error, '{}')", "says(text, '{}')"])
def test_of_a_value_without_end_only_the_beginning_is_searched(condition: str) -> None:
    endless = "first " + "workers=0 " * 20_000 + "last"
    row = {"line": Known(endless, "line 1")}
    snapshot = Snapshot(Target("report", "x"), {"live.cuda_error": Known(endless, "line 1")}, {"text": (row,)})
    seen = Evaluator(Facts(snapshot), {})
    assert evaluate(condition.format("first"), seen)
    assert not evaluate(condition.format("last"), seen)
