"""The probe of NVML over the simulated library, which answers as a section ``nvml`` of a scenario says."""

import copy
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes import nvml
from gpudoctor.probes._nvml.client import Limits
from gpudoctor.target.local import Local
from tests.sim import build, scenario

Section = dict[str, Any]
Facts = dict[str, "Fact | Rows"]
Ask = Callable[..., Facts]


def h100(gpus: int = 2, **every: Any) -> Section:
    """So many healthy H100, each of which answers also what `every` says; ``Name`` is nvmlDeviceGetName."""
    raw = json.loads((scenario.PROFILES / "hgx-h100.json").read_text("utf-8"))
    section: Section = copy.deepcopy(raw["nvml"])
    section["gpus"] = section["gpus"][:gpus]
    section["system"]["nvmlDeviceGetCount"] = gpus
    section["every"].update((f"nvmlDeviceGet{name}", answer) for name, answer in every.items())
    return section


def faulty(call: str, do: str | int, gpu: int | None = None, gpus: int = 2, start: int = 1) -> Section:
    """Healthy H100 but for this call, from its `start`-th time on."""
    fault: dict[str, Any] = {"call": call, "do": do, "from": start}
    return {**h100(gpus), "faults": [fault if gpu is None else {**fault, "gpu": gpu}]}


def asker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opening: float = 300.0,
    asking: float = 300.0,
    call: float = 60.0,
    listener: Callable[[str, str], None] = lambda _source, _detail: None,
) -> Ask:
    """Runs the probe over a section (None: there is no library), `smi` being the script that is nvidia-smi.

    The seconds are NVML's; only a test of something that hangs needs less than a busy machine may take.
    """
    monkeypatch.setattr(nvml, "limits", lambda *_: Limits(opening, asking, call))
    monkeypatch.setattr(nvml, "_SMI_SECONDS", 30.0)
    for name in ("cat", "head", "sleep"):
        (tmp_path / name).symlink_to(shutil.which(name) or f"/bin/{name}")

    def run(section: Section | None, smi: str = "", where: str = "") -> Facts:
        environ = {"PATH": str(tmp_path), "LD_LIBRARY_PATH": where or str(tmp_path)}
        if section is not None:
            environ.update(simulated(section, tmp_path / "answers"))
        if smi:
            program = tmp_path / "nvidia-smi"
            program.write_text("#!/bin/sh\n" + smi)
            program.chmod(0o755)
        target = Local(environ=environ)
        target.listener = listener
        return dict(nvml.probe(target))

    return run


def simulated(section: Section, answers: Path) -> dict[str, str]:
    """The variables under which a process finds a library that answers so."""
    build.write_answers(section, None, answers)
    return {"LD_LIBRARY_PATH": str(build.libraries()), "GPUDOCTOR_SIM_ANSWERS": str(answers)}


def known(state: Fact | Rows) -> object:
    assert isinstance(state, Known), state
    return state.value


def why(state: Fact | Rows) -> str:
    assert isinstance(state, (Absent, Unread)), state
    return state.why


def rows(facts: Mapping[str, Fact | Rows], group: str = "gpu") -> tuple[Row, ...]:
    found = facts[group]
    assert isinstance(found, tuple), found
    return found


def values(row: Row) -> dict[str, object]:
    """The known columns of a row."""
    return {name: state.value for name, state in row.items() if isinstance(state, Known)}
