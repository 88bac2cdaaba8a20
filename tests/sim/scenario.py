"""Scenarios: healthy profiles, and sick machines told as what differs from a profile.

A profile is a record (see `gpudoctor.target.record`) whose host may be told in words, ``machine``. A scenario names its
``profile`` and gives, under the same keys, what is different: objects are laid over the profile's, ``null`` takes
away, a list is replaced unless it is patched by index (``"gpus": {"3": {...}}``); ``host.without`` takes paths away.
GPUs that the driver no longer lists are still on the bus, as the profile has them. What CUDA and torch answer follows
from NVML's answers where nobody says otherwise.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor.target.record import Record, from_json
from tests.sim import machine

FOLDER = Path(__file__).parent
PROFILES = FOLDER / "profiles"
SICK = FOLDER / "scenarios"


def names(folder: Path) -> list[str]:
    """The scenarios of a folder, by name."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load(path: Path) -> Record:
    """A whole machine from a scenario's file; raises `DocumentError` for what is none."""
    return expanded(json.loads(path.read_text("utf-8")))


def expanded(raw: Mapping[str, Any]) -> Record:
    """A whole machine: the profile under it, the host rendered from words, CUDA's and torch's answers."""
    told, bus = _based(raw)
    words = told.pop("machine", {})
    nvml = told.get("nvml")
    own = told.pop("host", {})
    without = own.pop("without", [])
    rendered = machine.render(words, bus)
    for path in without:
        for kind in ("files", "bytes", "links", "devices"):
            for key in [key for key in rendered[kind] if key == path or key.startswith(f"{path}/")]:
                del rendered[kind][key]
    for kind in ("files", "bytes", "links", "devices"):  # a path has one kind: the scenario's
        for path in own.get(kind, {}):
            for other in ("files", "bytes", "links", "devices"):
                rendered[other].pop(path, None)
    told["host"] = merged(rendered, own)
    torch = {**machine.DEFAULTS, **words}["torch"]
    if "cuda" not in told and nvml:
        told["cuda"] = cuda_of(nvml)
    if "torch_child" not in told and torch:
        told["torch_child"] = {"out": list(torch_of(torch, told.get("cuda")))}
    return from_json({"schema": "gpudoctor-record/1", **told})


def _based(raw: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The scenario laid over its profile, which may lie over another one, and NVML's answers where it last had GPUs:
    they stay on the bus when the driver lists none.
    """
    told, bus = dict(raw), None
    if "profile" in told:
        below = json.loads((PROFILES / f"{told.pop('profile')}.json").read_text("utf-8"))
        profile, bus = _based({key: value for key, value in below.items() if key != "expect"})
        told = merged(profile, told)
    nvml = told.get("nvml")
    return told, nvml if nvml and nvml.get("gpus") else bus


def merged(base: Any, patch: Any, keep: bool = False) -> Any:
    """`patch` laid over `base`; `keep` says that a null is an answer: this GPU has not what every GPU has."""
    if isinstance(base, list) and isinstance(patch, Mapping):
        out = copy.deepcopy(base)
        for index, change in patch.items():
            out[int(index)] = merged(out[int(index)], change, keep=True)
        return out
    if not isinstance(base, Mapping) or not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    whole: dict[str, Any] = dict(base)
    for key, value in patch.items():
        if value is None and not keep:
            whole.pop(key, None)
        else:
            whole[key] = merged(whole.get(key), value, keep)
    return whole


def cuda_of(nvml: Mapping[str, Any]) -> dict[str, Any]:
    """The driver API's answers of the machine that NVML describes."""
    system = nvml["system"]
    gpus = []
    for own in nvml.get("gpus", ()):
        said = {**nvml.get("every", {}), **own}
        major, minor = said["nvmlDeviceGetCudaComputeCapability"]
        pci = said["nvmlDeviceGetPciInfo"]
        memory = said.get("nvmlDeviceGetMemoryInfo", {})
        gpus.append(
            {
                "cuDeviceGetName": said["nvmlDeviceGetName"],
                "cuDeviceTotalMem": memory.get("total", 0) - memory.get("reserved", 0),
                "cuDeviceGetUuid": said["nvmlDeviceGetUUID"].removeprefix("GPU-").replace("-", ""),
                "cuDeviceGetPCIBusId": f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0",
                "cuDeviceGetAttribute(75)": major,
                "cuDeviceGetAttribute(76)": minor,
            }
        )
    every = {"cuDeviceCanAccessPeer": 1}
    version = system["nvmlSystemGetCudaDriverVersion"]
    return {
        "system": {"cuInit": 0, "cuDriverGetVersion": version, "cuDeviceGetCount": len(gpus)},
        "every": every,
        "gpus": gpus,
    }


def torch_of(torch: Mapping[str, Any], cuda: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """What the child that imports torch prints where CUDA answers so."""
    yield from ({"step": "start"}, {"step": "import torch"})
    yield {"name": "import", "value": "/opt/venv/lib/python3.12/site-packages/torch/__init__.py"}
    yield {"name": "version", "value": torch["version"]}
    built = torch.get("cuda") or torch.get("hip")
    yield {"name": "built_for", "value": built}
    if not built:
        yield {"name": "cuda_available", "value": False}
        yield from (
            {"step": "cudnn"},
            {"name": "cudnn", "value": None},
            {"step": "nccl"},
            {"name": "nccl", "value": None},
        )
        yield {"step": "done"}
        return
    gpus = list(cuda["gpus"]) if cuda and not cuda["system"].get("cuInit") else []
    yield {"step": "cuda init"}
    yield {"name": "cuda_available", "value": bool(gpus)}
    yield {"name": "device_count", "value": len(gpus)}
    yield {
        "name": "arch_list",
        "value": ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"] if gpus else [],
    }
    if not gpus:
        yield from _words_of(cuda)
    yield from ({"step": "cudnn"}, {"name": "cudnn", "value": 91002})
    yield from ({"step": "nccl"}, {"name": "nccl", "value": [2, 27, 5]})
    for index, gpu in enumerate(gpus):
        major, minor = gpu["cuDeviceGetAttribute(75)"], gpu["cuDeviceGetAttribute(76)"]
        yield {"step": f"kernel on GPU {index}"}
        yield {"gpu": index, "name": gpu["cuDeviceGetName"]}
        yield {"gpu": index, "compute_capability": f"{major}.{minor}"}
        yield {"gpu": index, "kernel": "ok"}
    yield {"step": "done"}


_UNEXPECTED = (
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before"
    " calling NumCudaDevices() that might have already set an error? Error {}"
)
_UNKNOWN = (
    "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, e.g."
    " changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
)
_TEXTS = {
    802: "802: system not yet initialized",
    803: "803: system has unsupported display driver / cuda driver combination",
    804: "804: forward compatibility was attempted on non supported HW",
}


def _words_of(cuda: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """torch's own words where it finds no device: c10/cuda/CUDAFunctions.cpp and torch/csrc/cuda/Module.cpp."""
    code = cuda["system"].get("cuInit", 0) if cuda else None
    if code is None:
        words = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"
        yield {"name": "cuda_error", "error": f"RuntimeError: {words} from http://www.nvidia.com/Download/index.aspx"}
        return
    if code == 999:
        yield {"name": "cuda_warning", "value": _UNKNOWN}
    elif code in _TEXTS:
        yield {"name": "cuda_warning", "value": _UNEXPECTED.format(_TEXTS[code])}
    yield {"name": "cuda_error", "error": "RuntimeError: No CUDA GPUs are available"}
