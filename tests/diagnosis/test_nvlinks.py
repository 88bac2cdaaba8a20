"""Which NVLinks of a GPU are called lost."""

from __future__ import annotations

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.knowledge import complete


def gpu(index: int, name: str = "NVIDIA A100-SXM4-80GB", **columns: Fact) -> Row:
    row: Row = {"index": Known(index, "NVML"), "name": Known(name, "NVML"), "error": Absent("it answers")}
    return {**row, **columns}


def link(of: int, at: int, active: Fact, remote: str = "switch") -> Row:
    return {"gpu": Known(of, "NVML"), "link": Known(at, "NVML"), "active": active, "remote": Known(remote, "NVML")}


def links(of: int, states: str, remote: str = "switch") -> tuple[Row, ...]:
    """``"110"``: two links up, the third down."""
    return tuple(link(of, at, Known(state == "1", "NVML"), remote) for at, state in enumerate(states))


def lost(gpus: tuple[Row, ...], nvlink: Rows, kind: str = "local", column: str = "links_lost") -> list[object]:
    rows = complete(Snapshot(Target(kind, "case"), {}, {"gpu": gpus, "nvlink": nvlink})).rows("gpu")
    assert isinstance(rows, tuple)
    return [state.value if isinstance(state := row[column], Known) else type(state).__name__ for row in rows]


def test_a_link_that_is_up_on_a_sibling() -> None:
    both = (gpu(0), gpu(1))
    states = (*links(0, "1111"), *links(1, "1001"))
    assert lost(both, states) == [(), (1, 2)]
    assert lost(both, states, column="links_down") == [(), (1, 2)]
    assert lost(both, states, column="links") == [4, 4]


def test_another_model_is_no_sibling() -> None:
    assert lost((gpu(0), gpu(1, "NVIDIA A800-SXM4-80GB")), (*links(0, "1111"), *links(1, "1100"))) == [(), ()]


def test_mig_switches_links_off() -> None:
    sliced = gpu(1, mig=Known(True, "NVML"))
    assert lost((gpu(0), sliced), (*links(0, "11"), *links(1, "00"))) == [(), "Absent"]


def test_what_was_not_read_is_unread_and_what_is_not_there_is_absent() -> None:
    silent = gpu(1, error=Known("GPU is lost", "NVML"))
    assert lost((gpu(0), silent), links(0, "11")) == [(), "Unread"]
    assert lost((gpu(0), gpu(1)), links(0, "11")) == [(), "Absent"]
    assert lost((gpu(0), gpu(1)), links(0, "11"), kind="report") == [(), "Unread"]
    assert lost((gpu(0),), Absent("no GPU here has NVLink")) == ["Absent"]
    assert lost((gpu(0),), (*links(0, "1"), link(0, 1, Unread("hung")))) == ["Unread"]
