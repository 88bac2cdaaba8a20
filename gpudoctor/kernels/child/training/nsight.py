"""How to look further: Nsight Systems where it is installed, torch.profiler where it is not."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from .._kernel import Outcome, Spec
from ._rung import Context

KERNELS = (Spec("readiness.nsight", "profilers", scope="node", seconds=30.0),)

PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
)
"""Where NVIDIA's packages and the toolkit put it, beside PATH."""

COMMAND = "-t cuda,nvtx,osrt,cudnn,cublas -o report --stats=true python train.py"
_SYS_ADMIN, _PERFMON = 21, 38
"""Capabilities by their bits in /proc/self/status (linux/capability.h)."""
_CALLS = 7


def run(context: Context, _: Spec) -> Outcome:
    """Whether nsys is there; torch.profiler, which always is, must count exactly the calls that were made."""
    counted = _profiled(context)
    path = found(os.environ.get("PATH", ""))
    version = version_of(path) if path else None
    notes = limits(
        _read("/proc/sys/kernel/perf_event_paranoid"), _read("/proc/driver/nvidia/params"), _read("/proc/self/status")
    )
    where = "Nsight Systems %s is at %s." % (version or "of an unknown version", path) if path else "nsys is not here."
    return Outcome(
        right=counted == _CALLS,
        differ=abs(counted - _CALLS),
        compared=_CALLS,
        words=" ".join([where, "torch.profiler saw %d of %d calls." % (counted, _CALLS), *notes]),
        advice=advice(path),
        details={"nsys": path or "", "version": version or "", "command": command(path)},
    )


def advice(path: Optional[str]) -> str:
    """What to type, with nsys or without."""
    if path:
        return "To see where a step's time goes: " + command(path)
    return (
        "Without it: with torch.profiler.profile() as p: step(); p.export_chrome_trace('trace.json'), opened in"
        " ui.perfetto.dev. nsys itself is the package nsight-systems-cli of NVIDIA's repository."
    )


def command(path: Optional[str]) -> str:
    """The command to go further with; empty without nsys."""
    return "%s profile %s" % (path, COMMAND) if path else ""


def found(path: str, places: Tuple[str, ...] = PLACES) -> Optional[str]:
    """nsys on that PATH, else the newest where it is usually installed."""
    there = shutil.which("nsys", path=path)
    others = [name for place in places for name in glob.glob(place) if os.access(name, os.X_OK)]
    return there or max(others, key=_numbers, default=None)


def _numbers(text: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def version_of(path: str) -> Optional[str]:
    """``2024.6.2``, as it says itself; None where it does not within 5 s."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    number = re.search(r"\d{4}\.\d+(\.\d+)?", said)
    return number.group() if number else None


def limits(paranoid: str, params: str, status: str) -> List[str]:
    """What profilers may not do here, in sentences, from the texts of three files."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    held = int(effective.group(1), 16) if effective else 0
    admin = bool(held >> _SYS_ADMIN & 1)
    notes = []
    if paranoid.strip().lstrip("-").isdigit() and int(paranoid) > 2 and not (admin or held >> _PERFMON & 1):
        notes.append(
            "CPU samples are refused (kernel.perf_event_paranoid is %s): sysctl kernel.perf_event_paranoid=2 as root,"
            " or nsys --sample=none." % paranoid.strip()
        )
    if re.search(r"^RmProfilingAdminOnly:\s*1", params, re.MULTILINE) and not admin:
        notes.append(
            "GPU counters (nsys --gpu-metrics-devices, ncu) are for administrators only: start the container with"
            " --cap-add=SYS_ADMIN, or load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0."
        )
    return notes


def _profiled(context: Context) -> int:
    """Of so many calls of mm, how many the profiler counts."""
    torch = context.torch
    side = torch.ones(8, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(_CALLS):
            torch.mm(side, side)
    events: Dict[str, Any] = {event.key: event for event in profile.key_averages()}
    return int(events["aten::mm"].count) if "aten::mm" in events else 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
