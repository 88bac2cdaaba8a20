"""What CUDA and torch answer on a machine whose NVML answers are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.sim.software import BUILDS, WHEELS


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
    cubins, _ = torch.get("archs") or BUILDS[torch["cuda"]]
    yield {"name": "arch_list", "value": [f"sm_{arch}" for arch in cubins] if gpus else []}
    if not gpus:
        yield from _words_of(cuda)
    cudnn, nccl = (_numbers(version) for version in WHEELS[torch["cuda"].partition(".")[0]].values())
    yield from ({"step": "cudnn"}, {"name": "cudnn", "value": cudnn[0] * 10000 + cudnn[1] * 100 + cudnn[2]})
    yield from ({"step": "nccl"}, {"name": "nccl", "value": nccl[:3]})
    for index, gpu in enumerate(gpus):
        major, minor = gpu["cuDeviceGetAttribute(75)"], gpu["cuDeviceGetAttribute(76)"]
        yield {"step": f"kernel on GPU {index}"}
        yield {"gpu": index, "name": gpu["cuDeviceGetName"]}
        yield {"gpu": index, "compute_capability": f"{major}.{minor}"}
        yield {"gpu": index, "kernel": "ok"}
    yield {"step": "done"}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


_UNEXPECTED = (
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions"
    " before calling NumCudaDevices() that might have already set an error? Error {}"
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
