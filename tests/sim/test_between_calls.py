"""A driver that goes, or is replaced on disk, between two calls of one check: what is said is true of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sim import scenario
from tests.sim.root import Machine

GOES = {
    "NVML: not loaded any more": ({"nvml": {"call": "nvmlDeviceGetMemoryInfo", "do": 9}}, {"nvml.failed"}, 1),
    "NVML: library replaced": ({"nvml": {"call": "nvmlInit", "do": 18}}, {"driver.version-mismatch"}, 1),
    "NVML before, CUDA after the library was replaced": ({"cuda": {"call": "cuInit", "do": 803}}, None, 1),
    "CUDA: the first call answers, then none": ({"cuda": {"call": "cuDeviceGet", "do": 999}}, set(), 3),
    "CUDA: asked for its name, it is gone": ({"cuda": {"call": "cuDeviceGetName", "do": 999}}, set(), 0),
}
"""Faults by library, the findings of severity error (None: one at least), the exit code. torch is not installed."""


@pytest.mark.parametrize(("faults", "ids", "code"), GOES.values(), ids=GOES)
def test_a_driver_that_goes_between_two_calls(
    tmp_path: Path, faults: Mapping[str, Any], ids: set[str] | None, code: int
) -> None:
    record = scenario.expanded({"profile": "a10", "machine": {"torch": None}})
    sections = {name: copy.deepcopy(getattr(record, name)) for name in ("nvml", "cuda")}
    for name, fault in faults.items():
        sections[name]["faults"] = [fault]
    ran = Machine(replace(record, **sections), tmp_path).gpudoctor("--json")
    found = {one["id"] for one in ran.document["findings"] if one["severity"] == "error"}
    assert "Traceback" not in ran.err
    assert (ran.code, found == ids if ids is not None else bool(found)) == (code, True), found
