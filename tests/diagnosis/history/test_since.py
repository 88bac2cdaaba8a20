"""What is said to have changed, since its rule passed; the best rate of each GPU and kernel, and where it falls."""

import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import pipeline, soak
from gpudoctor.core.diagnosis import Diagnosis, Since
from gpudoctor.core.fact import Absent, Fact, Known, Row
from gpudoctor.core.frozen import replace
from gpudoctor.core.measurement import Measurements
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.history import Shelf
from gpudoctor.diagnosis.history.best_rates import NAME, with_best
from gpudoctor.diagnosis.history.changes_since import FAMILIES, with_changes
from gpudoctor.diagnosis.history.changes_since import keep_with_changes as keep
from gpudoctor.views import text
from tests import rates

DAY = 86400
APT = "/var/log/apt/history.log"
PYTHON = "/v/bin/python"


def change(name: str, before: str, after: str, days: float, by: str = "apt upgrade", source: str = APT) -> Row:
    """A row as the probe makes it, of so many days ago."""

    def said(text: str) -> Fact:
        return Known(text, source) if text else Absent("the log does not say")

    stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - days * DAY))
    return {
        "name": Known(name, source),
        "before": said(before),
        "after": said(after),
        "time": Known(stamp, source),
        "age_s": Known(int(days * DAY), source),
        "by": said(by),
        "user": said(""),
    }


def diagnosis(facts: dict[str, Any], *changes: Row, python: str = PYTHON) -> Diagnosis:
    """What the real rules say of these facts."""
    known = {name: value if isinstance(value, Absent) else Known(value, "test") for name, value in facts.items()}
    snapshot = Snapshot(Target("local", "node", python, "quick"), known, {"package_change": changes})
    return pipeline.diagnose(snapshot, book())


@cache
def book() -> rulebook.Rulebook:
    return rulebook.load()


WELL = {
    "nvml.state": "ok",
    "driver.module_version": "580.82.07",
    "driver.library_version": "580.82.07",
    "driver.version": "580.82.07",
    "cuda_driver.init_code": 0,
    "live.cuda_available": True,
    "host.kernel": "6.8.0-79-generic",
}
MISMATCH = {
    **WELL,
    "nvml.state": "version mismatch",
    "driver.library_version": "580.95.05",
    "cuda_driver.init_code": 803,
}
MISMATCH["live.cuda_available"] = False
DRIVER = (
    change("nvidia-driver-580", "580.82.07-0ubuntu1", "580.95.05-0ubuntu1", 1, "unattended-upgrades"),
    change("libnvidia-compute-580", "580.82.07-0ubuntu1", "580.95.05-0ubuntu1", 1, "unattended-upgrades"),
    change("nvidia-settings", "510.47.03-0ubuntu1", "580.95.05-1", 1, "unattended-upgrades"),
)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "history/node")


def kept(shelf: Shelf, days: float, found: Diagnosis) -> None:
    """Keep that run, so many days ago."""
    before = {run.place for run in shelf.runs()}
    shelf.keep(found, "1.0")
    (place,) = {run.place for run in shelf.runs()} - before
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time() - days * DAY))
    place.rename(place.with_name(stamp + place.name[15:]))


def since(found: Diagnosis, rule: str = "driver.version-mismatch") -> tuple[Since, ...]:
    (one,) = [finding for finding in found.findings if finding.id == rule]
    return one.since


def told(
    found: Diagnosis, rule: str = "driver.version-mismatch"
) -> list[tuple[str, str | None, str | None, str | None]]:
    return [(one.what, one.before, one.after, one.by) for one in since(found, rule)]


def test_a_drivers_twenty_packages_are_one_change(shelf: Shelf) -> None:
    kept(shelf, 3, diagnosis(WELL))
    assert told(with_changes(diagnosis(MISMATCH, *DRIVER), shelf)) == [
        ("driver", "580.82.07", "580.95.05", "unattended-upgrades")
    ]


def test_a_branch_that_took_the_place_of_another_is_one_change(shelf: Shelf) -> None:
    kept(shelf, 3, diagnosis(WELL))
    rows = (
        change("nvidia-driver-580", "", "580.95.05-0ubuntu1", 1),
        change("nvidia-driver-550", "550.90.07-0ubuntu1", "", 1),
    )
    assert told(with_changes(diagnosis(MISMATCH, *rows), shelf))[0][:3] == ("driver", "550.90.07", "580.95.05")


def test_what_changed_before_it_was_in_order_is_not_said(shelf: Shelf) -> None:
    kept(shelf, 0.5, diagnosis(WELL))
    facts = [one.what for one in since(with_changes(diagnosis(MISMATCH, *DRIVER), shelf)) if one.by]
    assert facts == []


def test_the_facts_tell_where_no_log_does(shelf: Shelf) -> None:
    kept(shelf, 3, diagnosis(WELL))
    (one,) = since(with_changes(diagnosis(MISMATCH), shelf))
    assert (one.what, one.before, one.after, one.at, one.by) == ("driver", "580.82.07", "580.95.05", None, None)
    assert one.source == "driver.library_version"


def test_without_a_log_and_without_a_run_nothing_is_said(shelf: Shelf) -> None:
    found = diagnosis(MISMATCH)
    assert with_changes(found, shelf) == found
    assert "What changed" not in text.render(found)
    assert "since" not in found.findings[0].to_json()


def test_a_machine_that_stays_sick_keeps_the_day_on_which_it_worked(shelf: Shelf) -> None:
    kept(shelf, 30, diagnosis(WELL))
    for days in (20, 10, 5, 1):
        kept(shelf, days, diagnosis(MISMATCH, *DRIVER))
    rows = [change("nvidia-driver-580", "580.82.07-0ubuntu1", "580.95.05-0ubuntu1", 25)]
    (one,) = since(with_changes(diagnosis(MISMATCH, *rows), shelf))
    assert one.at
    assert one.worked == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(shelf.runs()[-1].stamp))


def test_what_was_broken_by_something_else_still_passed_this_rule(shelf: Shelf) -> None:
    """It never was sound: what counts is when this rule passed."""
    missing = diagnosis({**WELL, "torch.version": "2.9.0+cpu", "torch.flavor": "cpu"})
    kept(shelf, 3, missing)
    assert since(with_changes(diagnosis(MISMATCH, *DRIVER), shelf))[0].worked


def test_without_a_run_only_the_last_days_count() -> None:
    old = change("nvidia-driver-580", "1-1", "2-1", 15)
    assert since(diagnosis(MISMATCH, old)) == ()
    (one,) = since(diagnosis(MISMATCH, *DRIVER, old))
    assert one.worked is None
    flat = " ".join(text.render(diagnosis(MISMATCH, *DRIVER)).split())
    assert "What changed within the 14 days before: driver went from 580.82.07 to 580.95.05 on" in flat


@pytest.mark.parametrize("days", [-2, -4000, 1e7])
def test_a_log_by_another_clock_is_not_believed(days: float) -> None:
    row = change("nvidia-driver-580", "1-1", "2-1", 1)
    assert since(diagnosis(MISMATCH, {**row, "age_s": Known(int(days * DAY), APT)})) == ()


def test_a_kernel_is_told_with_its_revision_and_the_running_one_by_its_boot(shelf: Shelf) -> None:
    kept(shelf, 3, diagnosis(WELL))
    rows = (
        change("linux-image-generic", "6.8.0-79.79", "6.8.0-80.80", 2),
        change("linux-image-6.8.0-80-generic", "", "6.8.0-80.80", 2),
        change("linux-headers-generic", "6.8.0-79.79", "6.8.0-80.80", 2),
    )
    facts = {**MISMATCH, "host.kernel": "6.8.0-80-generic", "host.uptime_s": 3600}
    said = since(with_changes(diagnosis(facts, *rows), shelf))
    assert ("kernel", "6.8.0-79.79", "6.8.0-80.80") in [(one.what, one.before, one.after) for one in said]
    running = next(one for one in said if one.what == "running kernel")
    assert running.at
    assert running.after == "6.8.0-80-generic"


TORCH = {**WELL, "torch.version": "2.9.0+cpu", "torch.flavor": "cpu", "torch.cuda": "", "live.cuda_available": False}
RECORD = "/v/lib/python3.12/site-packages/torch-2.9.0+cpu.dist-info/RECORD"


def test_torch_by_pip_and_what_was_before_by_the_run(shelf: Shelf) -> None:
    kept(shelf, 3, diagnosis({**WELL, "torch.version": "2.9.0+cu128", "torch.flavor": "cuda", "torch.cuda": "12.8"}))
    rows = (
        change("torch", "", "2.9.0+cpu", 1, "pip", RECORD),
        change("docker-ce", "1", "2", 1),
        change("nvidia-cuda-toolkit", "1", "2", 1),
    )
    found = with_changes(diagnosis(TORCH, *rows), shelf)
    ids = [finding.id for finding in found.findings]
    assert "torch.cpu-build" in ids, ids
    assert told(found, "torch.cpu-build")[0] == ("torch", "2.9.0+cu128", "2.9.0+cpu", "pip")


def test_a_run_of_another_interpreter_tells_nothing_of_torch(shelf: Shelf) -> None:
    well = {**WELL, "torch.version": "2.9.0+cu128", "torch.flavor": "cuda", "torch.cuda": "12.8"}
    kept(shelf, 3, diagnosis(well, python="/other/bin/python"))
    found = with_changes(diagnosis(TORCH), shelf)
    assert [one for one in since(found, "torch.cpu-build") if one.what == "torch"] == []


def test_a_log_that_is_of_something_else_is_not_believed(shelf: Shelf) -> None:
    found = diagnosis(MISMATCH, *DRIVER)
    folded = {child for finding in found.findings for child in finding.explains}
    assert [finding.since for finding in found.findings if finding.id in folded] == [()] * len(
        [finding for finding in found.findings if finding.id in folded]
    )
    wheel = "/v/lib/python3.12/site-packages/nvidia_cuda_runtime_cu12-12.8.90.dist-info/RECORD"
    rows = (
        change("nvidia-cuda-runtime-cu12", "", "12.8.90", 1, "pip", wheel),
        change("nvidia-ml-py", "", "13.580", 1, "pip", wheel),
    )
    assert since(diagnosis(MISMATCH, *rows)) == ()


def test_an_environment_variable_that_was_set_since(shelf: Shelf) -> None:
    kept(shelf, 3, diagnosis({**WELL, "gpu.count": 1, "env.CUDA_VISIBLE_DEVICES": Absent("not set")}))
    now = {**WELL, "gpu.count": 1, "env.CUDA_VISIBLE_DEVICES": "", "live.cuda_available": False}
    found = with_changes(diagnosis(now), shelf)
    says = [one for finding in found.findings for one in finding.since if one.what == "CUDA_VISIBLE_DEVICES"]
    assert [(one.before, one.after) for one in says] == [(None, "")]
    assert "CUDA_VISIBLE_DEVICES was not set and is '' (env.CUDA_VISIBLE_DEVICES)" in " ".join(
        text.render(found).split()
    )


def test_every_family_is_of_facts_that_there_are() -> None:
    names = catalog().specs
    for family in FAMILIES:
        for prefix in family.facts:
            assert any(name.startswith(prefix) for name in names), (family.what, prefix)
        for fact in family.versions:
            assert fact in names, (family.what, fact)


def test_after_many_sick_runs_it_is_still_known_when_it_worked(shelf: Shelf) -> None:
    """Each run says of what it found when that was in order: the runs between may be gone."""
    kept(shelf, 30, diagnosis(WELL))
    sick = diagnosis(MISMATCH, *DRIVER)
    for _ in range(5):
        keep(sick, shelf)
        time.sleep(0.002)  # names have milliseconds
    first = shelf.runs()[0]
    assert first.worked("driver.version-mismatch", inside=True) == shelf.runs()[-1].id
    for run in shelf.runs()[1:-1]:
        run.place.unlink()
    (one,) = since(with_changes(sick, shelf))
    assert one.worked == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(shelf.runs()[-1].stamp))


SOUND = rates.sound("H100")
SLOWER = rates.changed(SOUND, [3], "matmul.bf16", rates.slower(0.9))
BOOK = rulebook.load()


def node(found: Measurements, **facts: str) -> Snapshot:
    """The machine with those measurements; facts by name, ``__`` for a dot."""
    snapshot = rates.snapshot("H100", found)
    named = {name.replace("__", "."): Known(value, "a test") for name, value in facts.items()}
    return replace(snapshot, facts={**snapshot.facts, **named})


def behind(snapshot: Snapshot) -> list[Row]:
    """The rows of ``best`` that lost 5 % and more."""
    rows = snapshot.rows("best")
    assert isinstance(rows, tuple)
    return [row for row in rows if float(value(row, "share")) < 0.95]


def value(row: Row, name: str) -> Any:
    state = row[name]
    assert isinstance(state, Known)
    return state.value


def test_the_first_time_there_is_nothing_to_compare_with(shelf: Shelf) -> None:
    assert isinstance(with_best(node(SOUND), shelf).rows("best"), Absent)
    assert len(json.loads((shelf.folder / NAME).read_text())["rates"]) > 8
    assert isinstance(with_best(node(SOUND), None).rows("best"), Absent)
    assert shelf.everything() == [], "kept rates are no runs"


def test_what_is_as_fast_as_ever_is_no_finding(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    again = with_best(node(rates.sound("H100", seed=2, spread=0.01)), shelf)
    assert not [one.id for one in pipeline.diagnose(again, BOOK).findings if one.id == "gpu.below-own-best"]


def test_a_loss_is_told_with_the_date_and_what_has_changed_since(shelf: Shelf) -> None:
    with_best(node(SOUND, driver__version="570.124.06", host__bios="2.1"), shelf)
    later = with_best(node(SLOWER, driver__version="580.95.05", host__bios="2.4"), shelf)
    (row,) = behind(later)
    assert (value(row, "gpu"), value(row, "kernel")) == (3, "matmul.bf16")
    assert value(row, "share") == pytest.approx(0.909)
    assert value(row, "changed") == ("driver 570.124.06 -> 580.95.05", "BIOS 2.1 -> 2.4")
    (finding,) = [one for one in pipeline.diagnose(later, BOOK).findings if one.id == "gpu.below-own-best"]
    assert finding.severity == "info"
    assert "GPU 3 (H100 80GB HBM3): matmul.bf16 reaches" in finding.title
    assert "changed since: driver 570.124.06 -> 580.95.05, BIOS 2.1 -> 2.4" in finding.title


def test_the_same_driver_counts_before_another_one(shelf: Shelf) -> None:
    with_best(node(SLOWER, driver__version="580.95.05"), shelf)
    with_best(node(SOUND, driver__version="570.124.06"), shelf)
    assert not behind(with_best(node(SLOWER, driver__version="580.95.05"), shelf))


def test_the_best_is_kept_not_the_last(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    with_best(node(SLOWER), shelf)
    (row,) = behind(with_best(node(SLOWER), shelf))
    assert value(row, "changed") == ()


def test_runs_at_another_clock_are_not_compared(shelf: Shelf) -> None:
    with_best(node(SOUND), shelf)
    held = rates.changed(SOUND, range(8), "", rates.slower(0.6, sm_clock_mhz=900))
    assert isinstance(with_best(node(held), shelf).rows("best"), Absent)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "[]",
        '{"schema": "other/1", "rates": {}}',
        '{"schema": "gpudoctor-best-rates/1", "rates": {"GPU|k": {"570": {"value": "many"}}}}',
        '{"schema": "gpudoctor-best-rates/1", "rates": {"GPU|k": {"570": {"value": 1e999, "at": 1, "stack": {}}}}}',
        '{"schema": "gpudoctor-best-rates/1", "rates": [1, 2]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_as_none(shelf: Shelf, raw: str) -> None:
    shelf.folder.mkdir(parents=True)
    (shelf.folder / NAME).write_text(raw)
    assert isinstance(with_best(node(SOUND), shelf).rows("best"), Absent)
    kept: Mapping[str, Any] = json.loads((shelf.folder / NAME).read_text())
    assert len(kept["rates"]) > 8


def test_bench_compares_and_keeps(shelf: Shelf) -> None:
    machine = rates.machine("H100")
    assert pipeline.benched(machine, SOUND, shelf).findings == ()
    found = pipeline.benched(machine, SLOWER, shelf).findings
    assert "gpu.below-own-best" in {one.id for one in found}


def test_a_soak_compares_and_keeps(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "looked_at", lambda _: rates.machine("H100"))
    monkeypatch.setattr(pipeline, "of_this_machine", lambda: shelf)
    found = []
    for measurements in (SOUND, SLOWER):
        monkeypatch.setattr(soak, "run", lambda *_, now=measurements: soak.Soaked(now, 1, 60.0, 60.0))
        found.append({one.id for one in pipeline.soak(60.0).findings})
    assert "gpu.below-own-best" not in found[0]
    assert "gpu.below-own-best" in found[1]
