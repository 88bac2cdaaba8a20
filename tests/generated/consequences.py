"""What follows, on a real machine, from one thing that is wrong: each layer above fails in its own words."""

from collections.abc import Sequence
from typing import Any

from gpudoctor.core.fact import Absent, Known, Unread
from tests.generated.draft import Draft, row

CODES = {
    34: ("CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"),
    804: ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}
NO_GPUS = "RuntimeError: No CUDA GPUs are available"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
UNKNOWN = "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment"
UNEXPECTED = "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error "
KERNEL = "/dev/kmsg"


def says(draft: Draft, source: str, *lines: str) -> None:
    """Lines of a log or a program, as probes hand them on."""
    rows = draft.groups.get("text")
    kept = rows if isinstance(rows, list) else []
    draft.groups["text"] = [*kept, *(row(source, {"line": line}) for line in lines)]


def cuda_fails(draft: Draft, code: int, words: str = "") -> None:
    """cuInit answers with that code, and torch finds no device; `words` are torch's own."""
    name, sentence = CODES[code]
    draft.tell("libcuda", {"cuda_driver.state": "failed", "cuda_driver.init_code": code})
    draft.tell("libcuda", {"cuda_driver.init_name": name, "cuda_driver.init_error": sentence})
    draft.tell("libcuda", {"cuda_driver.message": sentence})
    if code == 100:
        draft.tell("libcuda", {"cuda_driver.count": 0})
        draft.lack("CUDA lists no device", "cuda_device")
    else:
        draft.blind(f"cuInit: {name} ({code}): {sentence}", "cuda_device cuda_driver.count")
        says(draft, "libcuda", f"cuInit: {name} ({code}): {sentence}")
    own = {100: NO_GPUS, 999: UNKNOWN, 34: NO_GPUS}.get(code, f"{UNEXPECTED}{code}: {sentence}")
    torch_sees_none(draft, words or own)


def no_libcuda(draft: Draft) -> None:
    """The loader finds no libcuda."""
    why = "the loader finds no libcuda.so.1"
    draft.tell("the loader", {"cuda_driver.state": "library not found"})
    draft.tell("the loader", {"cuda_driver.message": "libcuda.so.1: cannot open shared object file: No such file"})
    names = "init_code init_error init_name kind library version count"
    draft.lack(why, " ".join(f"cuda_driver.{name}" for name in names.split()))
    draft.lack(why, "cuda_device libs.libcuda libs.libcuda_kind libs.libcuda_version libs.compat_on_path")
    torch_sees_none(draft, NO_DRIVER)


def torch_sees_none(draft: Draft, words: str) -> None:
    """torch imports and finds no device; at level quick nobody asked it."""
    if draft.value("live.import_outcome") != "ok":
        return
    draft.tell("torch", {"live.cuda_available": False, "live.device_count": 0, "live.arch_list": []})
    draft.tell("torch", {"live.cuda_error": words})
    draft.lack("torch sees no CUDA device", "live_gpu")


def kernels_fail(draft: Draft, error: str, devices: Sequence[int] | None = None) -> None:
    """The small kernel fails on each device, or on those."""
    for index, device in enumerate(draft.each("live_gpu")):
        if devices is None or index in devices:
            device.update(row("torch", {"kernel": "error", "error": error}))


def import_fails(draft: Draft, error: str) -> None:
    """`import torch` ends in that line; at level quick nobody tried."""
    if draft.value("live.import_outcome") is None:
        return
    draft.tell("torch", {"live.import_outcome": "error", "live.import_error": error, "live.last_step": "import torch"})
    rest = "arch_list cuda_available cuda_error cudnn device_count nccl"
    draft.blind("import torch failed", " ".join(f"live.{name}" for name in rest.split()))
    draft.blind("import torch failed", "live_gpu")
    says(draft, "torch", "Traceback (most recent call last):", error)


def nvml_fails(draft: Draft, state: str, code: int | None, message: str, machine_has_bus: bool = True) -> None:
    """NVML does not start: what it would have told is not known; the bus still shows the GPUs."""
    draft.tell("NVML", {"nvml.state": state, "nvml.message": message, "nvml.code": code})
    why = f"NVML: {message}"
    draft.blind(why, "gpu.count gpu_process nvlink p2p mig nvml.library_version topology.pairs")
    if isinstance(draft.facts.get("driver.cuda_version"), Known):
        draft.blind(why, "driver.cuda_version")
    if machine_has_bus:
        shown = ("name", "address", "compute_capability")
        draft.groups["gpu"] = [{name: gpu[name] for name in shown} for gpu in draft.each("gpu")]
    else:
        draft.blind(why, "gpu")


def module_unloaded(draft: Draft) -> None:
    """The kernel module nvidia is not loaded: no version, no device files, no driver bound."""
    why = "the nvidia module is not loaded (no /sys/module/nvidia)"
    draft.tell("no /sys/module/nvidia", {"driver.module_loaded": False, "driver.uvm_loaded": False})
    names = "bound_count excluded gsp_files gsp_firmware module_kind module_params module_version nodes_missing version"
    draft.lack(why, " ".join(f"driver.{name}" for name in names.split()))
    draft.rows("node", "/dev", [])
    draft.tell("/sys/bus/pci/devices", {"pci.nvidia_drivers": []})
    for device in draft.each("pci"):
        device["driver"] = Absent("no driver is bound")
    nvml_fails(draft, "driver not loaded", 9, "Driver Not Loaded")
    cuda_fails(draft, 100)


def driver_files_gone(draft: Draft) -> None:
    """Nothing of a driver is on the disk."""
    names = "module_disk_version library_version module_kernels dkms"
    draft.lack("no driver is installed", " ".join(f"driver.{name}" for name in names.split()))
    draft.tell("no file of a driver", {"driver.installed": False, "driver.module_on_disk": False})
    draft.tell("no file of a driver", {"driver.library_versions": None})
    message = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
    nvml_fails(draft, "library not found", None, message)
    no_libcuda(draft)


def kernel_says(draft: Draft, *lines: str, fails: bool = False) -> None:
    """Lines of the kernel's log; `fails` marks those in which the driver says that it cannot start a GPU."""
    if isinstance(draft.facts.get("kernel_log.init_failures"), Unread):
        return
    says(draft, KERNEL, *lines)
    if fails:
        draft.tell(KERNEL, {"kernel_log.init_failures": list(lines)})


def xid(draft: Draft, code: int, address: str, words: str, **columns: Any) -> None:
    """An Xid in the kernel's log."""
    line = f"NVRM: Xid (PCI:{address.removesuffix('.0')}): {code}, {words}"
    told = {"code": code, "address": address, "line": line, "count": 1, "age_s": 3000, "last_age_s": 3000}
    silent = dict.fromkeys(("unit", "fatal", "link"))
    draft.groups["xid"] = [*draft.each("xid"), row(KERNEL, {**told, **silent, **columns})]
    kernel_says(draft, line)
