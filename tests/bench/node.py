"""The node on which programs are measured: eight healthy H100, simulated, and a real environment with torch.

What a program of a node finds beside the driver is this machine's: compilers and what tells of processors. The
`nvidia-smi` of the node is a script: it starts faster than NVIDIA's and answers what doctors ask.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.sim import scenario
from tests.sim.root import Machine, libraries_of

TOOLS = ("cat", "g++", "gcc", "hostname", "ldconfig", "lscpu", "ps", "uname", "which")
_MIB = 1 << 20


def node(root: Path, torch: str, cache: Path) -> Machine:
    """The node laid out in `root`; `torch` is the environment's interpreter, `cache` holds programs to be run."""
    raw = json.loads((scenario.PROFILES / "hgx-h100.json").read_text("utf-8"))
    raw["machine"]["torch"] = None
    prefix, base, site = _places(torch)
    machine = Machine(scenario.expanded(raw), root, sorted({prefix, base, str(cache)}))
    for path in filter(None, map(shutil.which, TOOLS)):
        machine.lend_program(path)
    machine.lend(*libraries_of(*map(str, Path(site, "torch").rglob("*.so"))))
    smi = root / "usr/bin/nvidia-smi"
    smi.unlink(missing_ok=True)
    smi.write_text(nvidia_smi(raw["nvml"]))
    smi.chmod(0o755)
    return machine


def _places(python: str) -> list[str]:
    ask = "import os, sys, sysconfig; print(sys.prefix, sys.base_prefix, sysconfig.get_path('purelib'), sep='\\n')"
    said = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True, timeout=600).stdout
    return [str(Path(line)) for line in said.splitlines()]


def nvidia_smi(nvml: Mapping[str, Any]) -> str:
    """A script that answers as nvidia-smi of these GPUs: its banner, ``-L``, ``--query-gpu`` and ``-q -x``."""
    gpus = [{**nvml["every"], **own} for own in nvml["gpus"]]
    version, cuda = nvml["system"]["nvmlSystemGetDriverVersion"], nvml["system"]["nvmlSystemGetCudaDriverVersion"]
    release = f"{cuda // 1000}.{cuda % 1000 // 10}"
    banner = f"| NVIDIA-SMI {version}    Driver Version: {version}    CUDA Version: {release} |"
    listed = [f"GPU {at}: {gpu['nvmlDeviceGetName']} (UUID: {gpu['nvmlDeviceGetUUID']})" for at, gpu in enumerate(gpus)]
    return "\n".join(
        (
            "#!/bin/sh",
            f"tell() {{ cat <<'END'\n{banner}\nEND\n}}",
            "query() {",
            *(line for at, gpu in enumerate(gpus) for line in _row(at, _fields(at, gpu, version))),
            "}",
            'case "$1" in',
            '"") tell;;',
            "-L) cat <<'END'\n" + "\n".join(listed) + "\nEND\n;;",
            '--query-gpu=*) wanted=${1#*=}; case "$*" in *noheader*) ;; *) echo "$wanted";; esac; query;;',
            "-q) cat <<'END'\n" + "".join(_xml(gpus, version, release)) + "END\n;;",
            "*) exit 6;;",
            "esac\n",
        )
    )


def _fields(at: int, gpu: Mapping[str, Any], version: str) -> dict[str, str]:
    memory = gpu["nvmlDeviceGetMemoryInfo"]
    return {
        "index": str(at),
        "name": gpu["nvmlDeviceGetName"],
        "gpu_name": gpu["nvmlDeviceGetName"],
        "uuid": gpu["nvmlDeviceGetUUID"],
        "driver_version": version,
        "compute_cap": ".".join(map(str, gpu["nvmlDeviceGetCudaComputeCapability"])),
        "memory.total": f"{memory['total'] // _MIB} MiB",
        "memory.used": f"{memory.get('used', 0) // _MIB} MiB",
        "memory.free": f"{memory.get('free', memory['total']) // _MIB} MiB",
    }


def _row(at: int, fields: Mapping[str, str]) -> Iterator[str]:
    cases = " ".join(f"{name}) v='{value}';;" for name, value in fields.items())
    yield "line=; IFS=,; for field in $wanted; do"
    yield f'case $field in {cases} *) echo "Field \\"$field\\" is not a valid field to query."; exit 2;; esac'
    yield 'line="${line:+$line, }$v"; done; echo "$line"'


def _xml(gpus: list[dict[str, Any]], version: str, release: str) -> Iterator[str]:
    yield f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>{version}</driver_version>\n'
    yield f"<cuda_version>{release}</cuda_version>\n<attached_gpus>{len(gpus)}</attached_gpus>\n"
    for gpu in gpus:
        total = gpu["nvmlDeviceGetMemoryInfo"]["total"] // _MIB
        yield f"<gpu><product_name>{gpu['nvmlDeviceGetName']}</product_name><uuid>{gpu['nvmlDeviceGetUUID']}</uuid>"
        yield f"<fb_memory_usage><total>{total} MiB</total></fb_memory_usage></gpu>\n"
    yield "</nvidia_smi_log>\n"
