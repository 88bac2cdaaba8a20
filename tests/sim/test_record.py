"""``gpudoctor record`` inside a simulated machine: the record, read here, gives the findings of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import doctor
from gpudoctor.compare import compare
from tests.sim import scenario
from tests.sim.root import Machine

_HUNG = {"call": "nvmlDeviceGetTemperature", "gpu": 3, "do": "hang"}
_MACHINES: dict[str, dict[str, Any]] = {
    "eight GPUs": {"profile": "hgx-h100"},
    "two bridged": {"profile": "rtx3090-bridge"},
    "a MIG slice": {"profile": "mig-slice"},
    "WSL": {"profile": "wsl2-4080"},
    "a pod": {"profile": "k8s-pod"},
    "NVML crashes": {"profile": "hgx-a100", "nvml": {"faults": [{**_HUNG, "do": "crash"}]}},
    "NVML hangs": {"profile": "hgx-h100", "nvml": {"faults": [_HUNG]}},
    "other versions": {"profile": "l40s", "nvml": {"init": 18}},
    "a GPU is lost": {"profile": "hgx-h100", "nvml": {"faults": [{"call": "*", "gpu": 2, "do": 15}]}},
}


@pytest.mark.parametrize("name", _MACHINES)
def test_the_record_tells_what_the_machine_tells(name: str, tmp_path: Path) -> None:
    machine = Machine(scenario.expanded(_MACHINES[name]), tmp_path)
    live, made = machine.gpudoctor("--json"), machine.gpudoctor("record")
    assert (made.code, made.err) == (0, "")
    a, b = doctor.read(live.out, "live"), doctor.read(made.out, "record")
    assert [(one.id, one.severity, one.confidence) for one in b.findings] == [
        (one.id, one.severity, one.confidence) for one in a.findings
    ]
    assert json.loads(made.out)["expect"]["ids"] == [one.id for one in a.findings if one.severity != "info"]
    known = [change.name for changes in compare(a, b).layers.values() for change in changes]
    assert not [name for name in known if not name.startswith(("env.", "container.requested"))], "names are hidden"


def test_nothing_of_the_machine_can_be_told_from_its_record(tmp_path: Path) -> None:
    record = scenario.expanded({"profile": "hgx-h100"})
    assert record.nvml
    made = Machine(record, tmp_path).gpudoctor("record")
    for gpu in record.nvml["gpus"]:
        for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial"):
            if call in gpu:
                assert gpu[call].removeprefix("GPU-") not in made.out
