"""Beyond the tables is not broken: what is newer than every row draws no error and no warning by itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpudoctor.app import pipeline
from gpudoctor.core.fact import Fact, Known, Row, Rows, Unread, Value
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.knowledge import complete
from tests.diagnosis.expect.machines import BOOK, machine

DRIVER = (
    "driver.version",
    "driver.module_version",
    "driver.module_disk_version",
    "driver.library_version",
    "driver.fabric_manager_version",
    "fabric.installed_version",
    "imex.version",
)
DRIVERS = {"620.40.01": "13.4", "650.10": "14.0", "700.20.03": "15.1"}
TORCH = {"torch.version": "3.0.0+cu140", "torch.cuda": "14.0", "torch.cudnn": "10.2.0.1", "torch.nccl": "2.40.1"}
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "sm_130", "compute_130")
PROFILES = ("hgx-h100", "rtx4090", "rtx5090", "laptop-4070", "t4", "docker", "wsl2-4080", "gb200-nvl", "dgx-spark")


def changed(snapshot: Snapshot, facts: Mapping[str, Value], rows: Mapping[str, Mapping[str, Value]]) -> Snapshot:
    """The machine with other values of what it knows; what it does not know stays so."""

    def other(value: Value | None, fact: Fact) -> Fact:
        return Known(value, "test") if value is not None and isinstance(fact, Known) else fact

    def row(group: str, old: Row) -> Row:
        return {name: other(rows.get(group, {}).get(name), fact) for name, fact in old.items()}

    groups: dict[str, Rows] = {
        group: tuple(row(group, one) for one in found) if isinstance(found, tuple) else found
        for group, found in snapshot.groups.items()
    }
    known = {name: other(facts.get(name), fact) for name, fact in snapshot.facts.items()}
    return complete(replace(snapshot, facts=known, groups=groups))


def unasked(snapshot: Snapshot) -> Snapshot:
    """The same where CUDA and torch were not started: pages judge by versions alone."""
    why = Unread("asked from level standard on")
    facts = {name: why if name.startswith(("live.", "cuda_driver.")) else fact for name, fact in snapshot.facts.items()}
    groups: dict[str, Rows] = {
        name: why if name in ("live_gpu", "cuda_device") else rows for name, rows in snapshot.groups.items()
    }
    return replace(snapshot, facts=facts, groups=groups)


def newer(driver: str, *what: str) -> tuple[dict[str, Value], dict[str, dict[str, Value]]]:
    """Facts and columns of a machine of tomorrow: its driver, and besides torch, the GPU or Python."""
    facts: dict[str, Value] = dict.fromkeys(DRIVER, driver)
    facts |= {"driver.library_versions": (driver,), "nvml.library_version": f"15.{driver}"}
    facts |= {"driver.cuda_version": DRIVERS[driver], "cuda_driver.version": DRIVERS[driver]}
    rows: dict[str, dict[str, Value]] = {}
    if "torch" in what:
        facts |= TORCH | {"torch.archs": ARCHS, "live.arch_list": ARCHS, "live.cudnn": "10.2.0", "live.nccl": "2.40.1"}
        facts["torch.installs"] = ("pip 3.0.0+cu140 in /opt/venv/lib/python3.12/site-packages",)
    if "gpu" in what:
        named: dict[str, Value] = {"name": "NVIDIA X300", "compute_capability": "13.0", "architecture": "Noether"}
        rows |= dict.fromkeys(("gpu", "cuda_device", "live_gpu"), named)
    if "python" in what:
        facts["python.version"] = "3.16.2"
    return facts, rows


CHANGES = [
    *[(driver,) for driver in DRIVERS],
    *[("650.10", *what) for what in (("torch",), ("python",), ("torch", "python"), ("gpu", "torch"))],
    ("700.20.03", "torch", "gpu"),
    ("700.20.03", "gpu", "torch", "python"),
]


@pytest.mark.parametrize("asked", [True, False], ids=["standard", "versions alone"])
@pytest.mark.parametrize("name", PROFILES)
def test_what_is_newer_than_every_row_is_not_broken(name: str, asked: bool) -> None:
    before = machine(name)
    before = before if asked else unasked(before)
    old = {one.id for one in pipeline.diagnose(before, BOOK).findings if one.severity != "info"}
    for change in CHANGES:
        after = pipeline.diagnose(changed(before, *newer(*change)), BOOK)
        new = [one.title for one in after.findings if one.severity != "info" and one.id not in old]
        assert new == [], change
