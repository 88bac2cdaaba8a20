"""Programs that read the simulated driver, each in a process of its own, and what they are given to read."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.sim import build

FOLDER = Path(__file__).parent
PROFILES = FOLDER.parent / "profiles"


def hgx(gpus: int = 2, **parts: Any) -> dict[str, Any]:
    """NVML of the first GPUs of a healthy HGX H100; `parts` are laid over the section, ``every`` key by key."""
    nvml: dict[str, Any] = json.loads((PROFILES / "hgx-h100.json").read_text("utf-8"))["nvml"]
    nvml["gpus"] = nvml["gpus"][:gpus]
    nvml["system"]["nvmlDeviceGetCount"] = gpus
    nvml["every"].update(parts.pop("every", {}))
    return {**nvml, **parts}


def environ(folder: Path, nvml: Mapping[str, Any] | None, cuda: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The environment of a program that shall find our libraries, which answer from a file in `folder`."""
    answers = folder / "answers"
    build.write_answers(nvml, cuda, answers)
    own = {"LD_LIBRARY_PATH": str(build.libraries()), "GPUDOCTOR_SIM_ANSWERS": str(answers)}
    return {**os.environ, **own, "PYTHONPATH": str(FOLDER.parents[2])}


def run(
    argv: Sequence[str], env: Mapping[str, str], stdin: str = "", timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    """This interpreter with `argv`; raises `subprocess.TimeoutExpired` after killing it."""
    return subprocess.run(
        [sys.executable, *argv], env=env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )
