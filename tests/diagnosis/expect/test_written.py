"""A profile from a machine that is as it should be: it holds there and on its like, and not on a sick one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known, Unread, Value
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.expect import Profile
from gpudoctor.diagnosis.expect.writing import profile_text
from gpudoctor.diagnosis.knowledge import complete
from tests.diagnosis.expect.machines import folded, held, known, machine, profile, unjudged, unmet
from tests.sim import scenario

_TODAY = "2026-11-22"
_HEALTHY = scenario.names(scenario.PROFILES)


def golden(folder: Path, *names: str) -> Profile:
    return profile(folder, profile_text([complete(machine(name)) for name in names], _TODAY, "golden"), "golden")


def another(snapshot: Snapshot) -> Snapshot:
    """Another healthy machine of the kind: what is one's own, or of the moment, is otherwise."""
    moved: dict[str, Value] = {
        "temperature_c": 61,
        "clock_mhz": 1980,
        "memory_used_mib": 4096,
        "power_w": 411,
        "utilization": 93,
        "pstate": 0,
        "link_generation": 5,
        "processes": 3,
        "vbios": "96.00.99.00.02",
        "inforom": "G520.0200.00.06",
        "throttle_reasons": ("sw_power_cap",),
        "ecc_corrected": 2,
        "remapped_corrected": 1,
        "numa_node": 0,
    }
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    gpus = tuple(
        {
            **row,
            **{name: Known(value, "a test") for name, value in moved.items() if isinstance(row.get(name), Known)},
            "uuid": Known(f"GPU-{index:08x}", "a test"),
            "serial": Known(f"99{index}", "a test"),
            "address": Known(f"0000:{index + 0x60:02x}:00.0", "a test"),
        }
        for index, row in enumerate(rows)
    )
    own = {"host.uptime_s": Known(77, "a test"), "host.kernel": Known("6.8.0-81-generic", "a test")}
    facts = {name: own.get(name, state) for name, state in snapshot.facts.items()}
    return replace(snapshot, facts=facts, groups={**snapshot.groups, "gpu": gpus})


@pytest.mark.parametrize("name", _HEALTHY)
def test_the_machine_it_was_written_from_and_its_like_are_as_expected(name: str, tmp_path: Path) -> None:
    expected = golden(tmp_path, name)
    for snapshot in (machine(name), another(machine(name))):
        diagnosis = held(snapshot, expected)
        assert not unmet(diagnosis)
        assert not folded(diagnosis)
        assert not unjudged(diagnosis)


_SICK = {
    "lost-gpu-h100": ("hgx-h100", {"gpu-error"}),
    "nvlink-three-links-h100": ("hgx-h100", {"nvlink-active"}),
    "throttled-heat-h100": ("hgx-h100", {"gpu-throttle-reasons"}),
    "fabric-manager-stopped": ("hgx-h100", {"driver-fabric-manager"}),
    "driver-missing-hgx": ("hgx-h100", {"driver-version"}),
    "mig-no-instance-a100": ("hgx-a100", {"gpu-mig"}),
    "nvlink5-gpu-dark-b200": ("hgx-b200", {"nvlink-active"}),
    "infiniband-port-fell": ("hgx-h100", {"rdma-400"}),
    "torch-cpu-build-4090": ("rtx4090", {"torch-cuda"}),
}


@pytest.mark.parametrize("name", _SICK)
def test_a_machine_that_deviates_does_not_pass(name: str, tmp_path: Path) -> None:
    base, lines = _SICK[name]
    diagnosis = held(machine(name), golden(tmp_path, base))
    assert lines <= {*unmet(diagnosis), *folded(diagnosis)}
    assert diagnosis.verdict == "broken"


@pytest.mark.parametrize(
    ("fact", "value", "line"),
    [
        ("driver.version", "570.124.06", "driver-version"),
        ("driver.version", "590.44.01", "driver-version"),
        ("gpu.count", 7, "gpu-count"),
        ("torch.version", "2.8.0+cu128", "torch-version"),
        ("limits.memlock_kib", 64, "limits-memlock-kib"),
    ],
)
def test_one_thing_changed_is_one_line_unmet(fact: str, value: Value, line: str, tmp_path: Path) -> None:
    snapshot = machine("hgx-h100")
    changed = replace(snapshot, facts={**snapshot.facts, fact: Known(value, "a test")})
    diagnosis = held(changed, golden(tmp_path, "hgx-h100"))
    assert line in {*unmet(diagnosis), *folded(diagnosis)}


def test_a_newer_driver_of_the_branch_is_as_good(tmp_path: Path) -> None:
    snapshot = machine("hgx-h100")
    newer = replace(snapshot, facts={**snapshot.facts, "driver.version": Known("580.105.08", "a test")})
    assert "driver-version" not in unmet(held(newer, golden(tmp_path, "hgx-h100")))


def test_nothing_of_it_is_one_machines_own() -> None:
    snapshot = machine("hgx-h100")
    text = profile_text([complete(snapshot)], _TODAY)
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    for column in ("uuid", "serial", "address", "vbios"):
        for row in rows:
            state = row[column]
            assert isinstance(state, Known)
            assert str(state.value) not in text
    assert snapshot.target.name not in text.replace("hgx-h100", "")


def test_from_several_machines_what_differs_is_loosened_or_left_out(tmp_path: Path) -> None:
    expected = golden(tmp_path, "hgx-h100", "hgx-h200")
    for name in ("hgx-h100", "hgx-h200"):
        diagnosis = held(machine(name), expected)
        assert not unmet(diagnosis)
        assert diagnosis.verdict == "sound"
    text = profile_text([complete(machine(name)) for name in ("hgx-h100", "hgx-h200")], _TODAY)
    assert 'gpu.name = ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]' in text
    assert 'gpu.memory_mib = ">= 81559"' in text
    assert 'driver.version = ">= 580.95.05, < 581"' in text
    assert {"gpu-links", "gpu-name"} <= set(unmet(held(machine("hgx-a100"), expected)))


def test_what_is_not_known_everywhere_is_a_comment(tmp_path: Path) -> None:
    snapshot = complete(machine("hgx-h100"))
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    gpus = ({**rows[0], "ecc": Unread("denied")}, *rows[1:])
    text = profile_text([replace(snapshot, groups={**snapshot.groups, "gpu": gpus})], _TODAY)
    assert "# gpu.ecc: known of 7 of 8 only" in text
    assert "gpu-ecc" not in profile(tmp_path, text).lines


def test_rates_that_were_measured_become_floors(tmp_path: Path) -> None:
    rows = [
        {"kernel": "matmul.bf16", "gpu": gpu, "value": rate, "status": "ran", "rung": "torch"}
        for gpu, rate in enumerate((684.0, 671.0))
    ]
    snapshot = known({"gpu.count": 2}, "deep", measured=rows)
    text = profile_text([snapshot], _TODAY)
    assert 'matmul.bf16 = ">= 604 TFLOP/s"' in text
    assert not unmet(held(snapshot, profile(tmp_path, text)))
    slow = known({"gpu.count": 2}, "deep", measured=[{**rows[0], "value": 520.0}])
    assert list(unmet(held(slow, profile(tmp_path, text)))) == ["matmul-bf16"]


def test_names_that_are_no_toml_are_written_so_that_they_are_read_again(tmp_path: Path) -> None:
    odd = 'A "quoted" \\ name\x1b[31m\n# \u2603 \x7f'
    snapshot = known({"gpu.count": 1}, gpu=[{"name": odd}], mig=[{"profile": "1g'\"\\ \n"}])
    expected = profile(tmp_path, profile_text([snapshot], _TODAY))
    assert not unmet(held(snapshot, expected))
    assert {"gpu-name", "mig-layout"} <= set(expected.lines)


def test_of_a_machine_of_which_nothing_is_known_there_is_no_profile() -> None:
    with pytest.raises(UsageError, match="nothing that another machine could be held to"):
        profile_text([known()], _TODAY)
