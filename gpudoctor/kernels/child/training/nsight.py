"""How to look further: Nsight Systems where it is installed, torch.profiler where it is not."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from .._kernel import Outcome, Spec
from ..eager import Context
from ._host import read_text

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
    """Find Nsight Systems and what limits profilers here; right if torch.profiler counts exactly the calls made."""
    counted = _profiler_count(context)
    path = find_nsys(os.environ.get("PATH", ""))
    version = version_of(path) if path else None
    notes = profiling_limits(
        read_text("/proc/sys/kernel/perf_event_paranoid"),
        read_text("/proc/driver/nvidia/params"),
        read_text("/proc/self/status"),
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
    """What to type to profile, with nsys at `path` or without it (None)."""
    if path:
        return "To see where a step's time goes: " + command(path)
    return (
        "Without it: with torch.profiler.profile() as p: step(); p.export_chrome_trace('trace.json'), opened in"
        " ui.perfetto.dev. nsys itself is the package nsight-systems-cli of NVIDIA's repository."
    )


def command(path: Optional[str]) -> str:
    """The nsys command for a training script; empty without nsys."""
    return "%s profile %s" % (path, COMMAND) if path else ""


def find_nsys(path: str, places: Tuple[str, ...] = PLACES) -> Optional[str]:
    """Path of nsys: on that PATH, else the newest in its usual places; None if there is none."""
    on_path = shutil.which("nsys", path=path)
    others = [name for place in places for name in glob.glob(place) if os.access(name, os.X_OK)]
    return on_path or max(others, key=_version_numbers, default=None)


def _version_numbers(text: str) -> List[int]:
    """All numbers in the text, for comparing versions."""
    return [int(part) for part in re.findall(r"\d+", text)]


def version_of(path: str) -> Optional[str]:
    """nsys's version, such as ``2024.6.2``; None where it does not give one within 5 s."""
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    number = re.search(r"\d{4}\.\d+(\.\d+)?", output)
    return number.group() if number else None


def profiling_limits(paranoid: str, params: str, status: str) -> List[str]:
    """Sentences on what profilers may not do, from perf_event_paranoid, NVIDIA's params and /proc/self/status."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    capabilities = int(effective.group(1), 16) if effective else 0
    admin = bool(capabilities >> _SYS_ADMIN & 1)
    notes = []
    if paranoid.strip().lstrip("-").isdigit() and int(paranoid) > 2 and not (admin or capabilities >> _PERFMON & 1):
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


def _profiler_count(context: Context) -> int:
    """How many of the `_CALLS` calls of mm torch.profiler counts."""
    torch = context.torch
    side = torch.ones(8, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(_CALLS):
            torch.mm(side, side)
    events: Dict[str, Any] = {event.key: event for event in profile.key_averages()}
    return int(events["aten::mm"].count) if "aten::mm" in events else 0
