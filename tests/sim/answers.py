"""What CUDA and torch answer on a machine whose NVML answers are known."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.target import error_words
from tests.sim import software


def cuda_of(nvml: Mapping[str, Any]) -> dict[str, Any]:
    """The driver API's answers of the machine that NVML describes; where MIG is on, of its first MIG device only."""
    system = nvml["system"]
    whole = [{**nvml.get("every", {}), **own} for own in nvml.get("gpus", ())]
    sliced = [{**said, **said["mig"][0]} for said in whole if said.get("mig")]
    gpus = [_cuda_device(said) for said in sliced[:1] or whole]
    for index, said in enumerate(whole if not sliced else ()):
        apart = [peer for peer in range(len(whole)) if peer != index and _p2p(said, peer)]
        gpus[index].update({f"cuDeviceCanAccessPeer({peer})": 0 for peer in apart})
    version = system["nvmlSystemGetCudaDriverVersion"]
    return {
        "system": {"cuInit": 0, "cuDriverGetVersion": version, "cuDeviceGetCount": len(gpus)},
        "every": {"cuDeviceCanAccessPeer": 1, "cuDeviceGetAttribute(41)": 1, "cuDeviceGetAttribute(83)": 1},
        "gpus": gpus,
    }


_NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
    " NVIDIA driver is installed and running."
)
_MISMATCH, _DRIVER_NOT_LOADED = 18, 9


def smi_of(nvml: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What nvidia-smi answers, whatever it is asked, where NVML does not start; nothing where it does."""
    faults = {fault["call"]: fault["do"] for fault in nvml.get("faults", ())}
    code = faults.get("nvmlInit", nvml.get("init", 0))
    if code == "hang":
        return [{"argv": ["/usr/bin/nvidia-smi"], "do": "hang"}]
    if code not in error_words.NVML or not code:
        return []
    words = f"Failed to initialize NVML: {error_words.NVML[code]}"
    if code == _DRIVER_NOT_LOADED:
        words = _NOT_LOADED
    elif code == _MISMATCH:
        library = nvml.get("system", {}).get("nvmlSystemGetNVMLVersion", "12.580.95").partition(".")[2]
        words += "\nNVML library version: " + ".".join(library.split(".")[:2])
    return [{"argv": ["/usr/bin/nvidia-smi"], "status": min(code, 255), "out": f"{words}\n"}]


def _cuda_device(said: Mapping[str, Any]) -> dict[str, Any]:
    """What CUDA answers about a GPU: clocks in kHz, memory without what the driver keeps."""
    major, minor = said["nvmlDeviceGetCudaComputeCapability"]
    pci = said["nvmlDeviceGetPciInfo"]
    memory = said.get("nvmlDeviceGetMemoryInfo") or {}
    uuid = said["nvmlDeviceGetUUID"].removeprefix("GPU-").removeprefix("MIG-")
    ecc = said.get("nvmlDeviceGetEccMode")
    return {
        "cuDeviceGetName": said["nvmlDeviceGetName"],
        "cuDeviceTotalMem": memory.get("total", 0) - memory.get("reserved", 0),
        "cuDeviceGetUuid": uuid.replace("-", ""),
        "cuDeviceGetPCIBusId": f"{pci['domain']:04x}:{pci['bus']:02x}:{pci['device']:02x}.0",
        "cuDeviceGetAttribute(13)": said.get("nvmlDeviceGetMaxClockInfo(1)", 0) * 1000,
        "cuDeviceGetAttribute(20)": said.get("nvmlDeviceGetComputeMode", 0),
        "cuDeviceGetAttribute(32)": ecc[0] if isinstance(ecc, list) else 0,
        "cuDeviceGetAttribute(75)": major,
        "cuDeviceGetAttribute(76)": minor,
    }


def _p2p(said: Mapping[str, Any], peer: int) -> int:
    """NVML's status of reading a peer's memory; 0 is that it works."""
    call = "nvmlDeviceGetP2PStatus"
    keys = (f"{call}({peer},0)", f"{call}(*,0)", f"{call}({peer},*)", call)
    return int(next((said[key] for key in keys if isinstance(said.get(key), int)), 0))


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
    gpus = []
    if cuda and not cuda["system"].get("cuInit"):
        gpus = [{**cuda.get("every", {}), **gpu} for gpu in cuda["gpus"]]
    yield {"step": "cuda init"}
    yield {"name": "cuda_available", "value": bool(gpus)}
    yield {"name": "device_count", "value": len(gpus)}
    cubins, ptx = torch.get("archs") or software.BUILDS[built]
    listed = [f"sm_{arch}" for arch in cubins] + [f"compute_{arch}" for arch in ptx]
    yield {"name": "arch_list", "value": listed if gpus else []}
    if not gpus:
        yield from _words_of(cuda)
    wheels = software.WHEELS[built.partition(".")[0]]
    cudnn, nccl = (next(version for name, version in wheels.items() if word in name) for word in ("cudnn", "nccl"))
    numbers = [int(part) for part in cudnn.split(".")]
    yield from ({"step": "cudnn"}, {"name": "cudnn", "value": numbers[0] * 10_000 + numbers[1] * 100 + numbers[2]})
    yield from ({"step": "nccl"}, {"name": "nccl", "value": [int(part) for part in nccl.split(".")]})
    for index, gpu in enumerate(gpus):
        major, minor = gpu["cuDeviceGetAttribute(75)"], gpu["cuDeviceGetAttribute(76)"]
        yield {"step": f"kernel on GPU {index}"}
        yield {"gpu": index, "name": gpu["cuDeviceGetName"]}
        yield {"gpu": index, "compute_capability": f"{major}.{minor}"}
        yield {"gpu": index, "kernel": "ok"}
    yield {"step": "done"}


_UNEXPECTED = (
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions"
    " before calling NumCudaDevices() that might have already set an error? Error {}"
)
_UNKNOWN = (
    "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, e.g."
    " changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
)


def _words_of(cuda: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """torch's own words where it finds no device: c10/cuda/CUDAFunctions.cpp and torch/csrc/cuda/Module.cpp."""
    code = cuda["system"].get("cuInit", 0) if cuda else None
    if code is None:
        words = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"
        yield {"name": "cuda_error", "error": f"RuntimeError: {words} from http://www.nvidia.com/Download/index.aspx"}
        return
    if code == 999:
        yield {"name": "cuda_warning", "value": _UNKNOWN}
    elif code in (802, 803, 804):
        yield {"name": "cuda_warning", "value": _UNEXPECTED.format(f"{code}: {error_words.CUDA[code][1]}")}
    yield {"name": "cuda_error", "error": "RuntimeError: No CUDA GPUs are available"}
