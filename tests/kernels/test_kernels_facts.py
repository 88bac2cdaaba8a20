"""Measurements as facts, and back: what a snapshot keeps, whether siblings agree, what is known of each rung."""

from dataclasses import replace

from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.measurement import Device, Kernel, Meanwhile, Measurements, Run, Step
from gpudoctor.core.snapshot import Snapshot, Target, from_json
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.kernels import facts, ladder, specs
from gpudoctor.kernels.facts import measured
from tests.measured import node, too_old

MATMUL = next(one.kernel for one in specs.all_kernels() if one.spec.id == "matmul.fp32")
FOUR = tuple(Device(gpu, "H100") for gpu in range(4))
NOTHING = Snapshot(Target("local", "node05"), {})


def column(rows: Rows, name: str) -> list[Fact]:
    assert isinstance(rows, tuple)
    return [row[name] for row in rows]


def of_digests(*digests: str, devices: tuple[Device, ...] = FOUR) -> list[Fact]:
    runs = tuple(
        Run(MATMUL.id, gpu, "ran", right=True, details={"digest": digest} if digest else {})
        for gpu, digest in enumerate(digests)
    )
    return column(facts.rows(Measurements("node05", (MATMUL,), devices, runs))[0], "agrees")


def known(*values: bool) -> list[Fact]:
    return [Known(value, facts.SOURCE) for value in values]


def test_digests_are_compared_with_those_of_siblings() -> None:
    assert of_digests("a", "a", "b", "a") == known(True, True, False, True)
    assert of_digests("a", "b", devices=FOUR[:2]) == known(False, False)
    mixed = (*FOUR[:2], Device(2, "L40S"), Device(3, "H100"))
    assert of_digests("a", "a", "b", "", devices=mixed) == [*known(True, True), Absent("none"), Absent("none")]


def rungs(*runs: Run) -> list[tuple[object, Fact, Fact]]:
    rows = facts.rows(Measurements("node05", (MATMUL,), FOUR, runs))[1]
    assert isinstance(rows, tuple)
    return [(getattr(row["name"], "value", None), row["held"], row["message"]) for row in rows]


def test_a_rung_holds_as_long_as_nothing_on_it_fails_and_untried_it_is_unread() -> None:
    ran = Run("a", 0, "ran", ladder=(Step("driver", True), Step("torch", True)))
    bad = Run("b", 0, "failed", ladder=(Step("driver", True), Step("torch", False, "b: no image")))
    late = Run("c", 0, "failed", ladder=(Step("torch", False, "c: hangs"),))
    none = Run("d", 0, "not-run", ladder=(Step("torch", None, "no memory"),))
    driver = ("driver", Known(True, facts.SOURCE), Absent("none"))
    found = Measurements("x", tuple(Kernel(name, name, "") for name in "abcd"), FOUR, (none, ran, bad, late))
    rows = facts.rows(found)[1]
    assert [(row["name"], row["held"], row["message"]) for row in rows] == [
        (Known("torch", facts.SOURCE), Known(False, facts.SOURCE), Known("b: no image", facts.SOURCE)),
        (Known("driver", facts.SOURCE), *driver[1:]),
    ]
    run = Run(MATMUL.id, 0, "not-run", ladder=(Step("driver", False, "cuInit: 999"), Step("torch", None, "not tried")))
    assert rungs(run) == [
        ("driver", Known(False, facts.SOURCE), Known("cuInit: 999", facts.SOURCE)),
        ("torch", Unread("not tried"), Known("not tried", facts.SOURCE)),
    ]


def test_every_column_is_declared() -> None:
    snapshot = measured(NOTHING, node())
    assert list(catalog().misfits(snapshot)) == []


def through_a_file(found: Measurements) -> Measurements:
    snapshot = from_json(measured(NOTHING, found).to_json())
    recalled = ladder.measurements(replace(snapshot, target=NOTHING.target))
    assert recalled
    return recalled


def test_a_snapshot_gives_the_measurements_back() -> None:
    """Of kernels of ours all of it but what the tables say; of a device its name."""
    seen = Meanwhile(1110, 1980, 412, 700, 88, ("hw_slowdown",), 5, 16)
    steps = (Step("driver", True), Step("torch", False, "matmul.fp32: 3 of 4096 values are wrong"))
    run = Run(
        MATMUL.id,
        0,
        "ran",
        710.5,
        0.004,
        None,
        False,
        3,
        4096,
        "3 of 4096 values are wrong",
        "",
        steps,
        seen,
        "take it out",
        {"digest": "f00", "repeats": 5, "rates": [1.0, 2.0]},
    )
    held = Run(MATMUL.id, 1, "not-run", because="in use by pid 7, train.py")
    together = Run(MATMUL.id, -1, "failed", because="no NCCL", ladder=(Step("torch", False, "no NCCL"),))
    devices = (Device(0, "H100"), Device(1, "H100", "pid 7, train.py"))
    found = Measurements("node05", (MATMUL,), devices, (run, held, together))
    assert through_a_file(found) == found
    assert ladder.measurements(NOTHING) is None
    assert ladder.measurements(replace(NOTHING, groups={"measured": Unread("asked at level deep")})) is None
    for found in (node(), too_old()):
        again = through_a_file(found)
        assert [(run.kernel, run.gpu, run.status, run.value) for run in again.runs] == [
            (run.kernel, run.gpu, run.status, run.value) for run in found.runs
        ]


def test_bits_are_compared_only_of_those_that_computed_as_much() -> None:
    """Where memory is short the matrices are smaller: other bits, and nothing wrong."""
    said = {"status": "ran", "right": True}
    runs = tuple(
        Run(MATMUL.id, gpu, **said, compared=64 if gpu == 2 else 256, details={"digest": "b" if gpu == 2 else "a"})  # type: ignore[arg-type]
        for gpu in range(4)
    )
    agrees = column(facts.rows(Measurements("node05", (MATMUL,), FOUR, runs))[0], "agrees")
    assert agrees == [*known(True, True), Absent("none"), *known(True)]
