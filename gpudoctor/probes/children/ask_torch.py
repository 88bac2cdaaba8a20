"""Import torch as the user would, start CUDA, and run one checked kernel on each GPU, saying each step before it.

Run as ``python ask_torch.py SECONDS`` by the interpreter being diagnosed, with its own site-packages and variables.
Each line is ``@gpudoctor`` and a JSON object: ``{"step": "start", "pid": its process id}``, ``{"step": name}`` before
each step, then ``{"name": fact, "value": ...}``, ``{"name": fact, "error": text}``, or a GPU's ``{"gpu": index, ...}``;
``{"step": "done"}`` is the last. Tracebacks and warnings go to stderr. Whoever waits for it decides how long; SIGUSR1
makes it print where it is, from a handler that needs no GIL, and SECONDS end it where nobody waits any more. Standard
library and torch only; Python 3.8.
"""

from __future__ import annotations

import json
import os
import sys

_protocol = os.dup(1)
os.dup2(2, 1)  # whatever torch or its plug-ins print is no answer

import ctypes  # noqa: E402 - nothing may print before the protocol has its own descriptor
import faulthandler  # noqa: E402
import importlib.util  # noqa: E402
import signal  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402
from typing import Any, Callable, Dict  # noqa: E402

COMPUTE_MODE = 20  # of CUdevice_attribute
MODES = {
    1: "left alone: compute mode Exclusive_Thread lets one process at a time in, and a job may be about to start",
    2: "left alone: compute mode Prohibited lets no process compute",
    3: "left alone: compute mode Exclusive_Process lets one process at a time in, and a job may be about to start",
}
LEAST_FREE = 256 << 20
"""Bytes of a GPU's memory below which it is left alone: a context would fail, or take what its job needs next."""

SIDE = 256
"""Side of the matrices: their products stay below 2**24, exact in float32 and in TF32 alike."""


def send(**entry: Any) -> None:
    """Write the entry at once, as a marked line of JSON to the original standard output."""
    os.write(_protocol, ("\n@gpudoctor " + json.dumps(entry) + "\n").encode())


def last_line(error: BaseException) -> str:
    """The end of a traceback on one line: ``OSError: libcudart.so.12: cannot open shared object file``."""
    lines = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    while lines and lines[0][:1] in {"", " "}:  # a SyntaxError shows the place first
        del lines[0]
    return " ".join(" ".join(lines).split()) or type(error).__name__


def report(name: str, getter: Callable[[], Any]) -> Any:
    """Send what the getter returns as fact `name`, or its error; returns the value, None if it raised."""
    try:
        value = getter()
    except Exception as error:
        traceback.print_exc()
        send(name=name, error=last_line(error))
        return None
    send(name=name, value=value)
    return value


def import_torch() -> Any:
    """Import torch and send the result; the module, None if it is missing or its import failed."""
    send(step="import torch")
    try:
        if importlib.util.find_spec("torch") is None:
            send(missing=True)
            return None
        import torch  # type: ignore[import-not-found,unused-ignore]
    except BaseException as error:  # SystemExit and MemoryError are answers too
        traceback.print_exc()
        send(name="import", error=last_line(error))
        return None
    if not getattr(torch, "__file__", None):
        send(name="import", error="a folder named torch without __init__.py: %s" % list(torch.__path__))
        return None
    send(name="import", value=str(torch.__file__))
    return torch


def start_cuda(torch: Any) -> None:
    """Start CUDA; send is_available, device count, architectures, and its initialisation's errors or warnings."""
    send(step="cuda init")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report("cuda_available", lambda: bool(torch.cuda.is_available()))
        report("device_count", lambda: int(torch.cuda.device_count()))
        report("arch_list", lambda: [str(name) for name in torch.cuda.get_arch_list()])
        try:
            torch.cuda.init()
        except Exception as error:
            traceback.print_exc()
            send(name="cuda_error", error=last_line(error))
    messages = ["%s: %s" % (warning.category.__name__, warning.message) for warning in caught]
    for words in messages:
        sys.stderr.write(words + "\n")
    # Where CUDA fails, NVML's count of the GPUs fails after it.
    relevant = [words for words in messages if "CUDA" in words] or [words for words in messages if "NVML" in words]
    if relevant:
        send(name="cuda_warning", value=relevant[-1])


def check_kernel(torch: Any, device: Any) -> str:
    """``ok``, or ``wrong`` if the device's sum or product of two matrices differs from the CPU's integers."""
    left = torch.arange(SIDE * SIDE).reshape(SIDE, SIDE) % 7
    right = torch.arange(SIDE * SIDE).reshape(SIDE, SIDE) % 5
    device_left, device_right = left.float().to(device), right.float().to(device)
    total = (device_left + device_right).cpu().long()
    product = (device_left @ device_right).cpu().long()
    return "ok" if torch.equal(total, left + right) and torch.equal(product, left @ right) else "wrong"


def reason_not_to_run(index: int) -> Dict[str, str]:
    """``{"left_alone": why}`` or ``{"error": why}`` if a context on this GPU could fail a job; empty if it cannot.

    Only the driver and NVML are asked, which makes no context; what they do not answer forbids nothing.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, mode, pci_bus_id = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(32)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return {}
    if driver.cuDeviceGetAttribute(ctypes.byref(mode), COMPUTE_MODE, device) == 0 and mode.value in MODES:
        return {"left_alone": MODES[mode.value]}
    if driver.cuDeviceGetPCIBusId(pci_bus_id, len(pci_bus_id), device):
        return {}
    free = free_memory(pci_bus_id.value)
    if free is None or free >= LEAST_FREE:
        return {}
    return {"error": "out of memory before it began: %d MiB are free, too few for a context" % (free >> 20)}


class Memory(ctypes.Structure):
    """NVML's nvmlMemory_t; sizes in bytes."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def free_memory(pci_bus_id: bytes) -> Any:
    """Free bytes on the GPU at that PCI address, by NVML; None if it does not answer."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, memory = ctypes.c_void_p(), Memory()
        if nvml.nvmlInit_v2():
            return None
        try:
            if nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, ctypes.byref(handle)):
                return None
            return None if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) else memory.free
        finally:
            nvml.nvmlShutdown()
    except (AttributeError, OSError):
        return None


def try_kernel(torch: Any, index: int, nvidia: bool) -> None:
    """Run the kernel on one GPU, and send its name, compute capability and the result: ok, wrong, error or not run.

    `nvidia`: only then it is asked first whether one may be run.
    """
    send(step="kernel on GPU %d" % index)
    try:
        send(gpu=index, name=str(torch.cuda.get_device_name(index)))
        send(gpu=index, compute_capability="%d.%d" % tuple(torch.cuda.get_device_capability(index)))
        why = reason_not_to_run(index) if nvidia else {}
        if why:
            send(gpu=index, kernel="not run", **why)
            return
        send(gpu=index, kernel=check_kernel(torch, torch.device("cuda", index)))
    except Exception as error:
        traceback.print_exc()
        send(gpu=index, kernel="error", error=last_line(error))


def main() -> None:
    """Import torch, start CUDA, ask for cuDNN and NCCL and try a kernel on each GPU, sending each step before it."""
    sys.dont_write_bytecode = True  # the patient's folders stay as they are
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    if sys.path and sys.path[0] in {"", here}:
        del sys.path[0]
    torch = import_torch()
    if torch is None:
        return
    report("version", lambda: str(torch.__version__))
    built = report("built_for", lambda: torch.version.cuda or getattr(torch.version, "hip", None))
    if built:
        start_cuda(torch)
    else:
        report("cuda_available", lambda: bool(torch.cuda.is_available()))
    send(step="cudnn")
    report("cudnn", torch.backends.cudnn.version)
    send(step="nccl")
    report("nccl", lambda: torch.cuda.nccl.version() if built else None)
    if built and torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            try_kernel(torch, index, bool(torch.version.cuda))
    send(step="done")


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1)
    send(step="start", pid=os.getpid())
    main()
    sys.stderr.flush()
    os._exit(0)  # a crash while torch is torn down is no symptom of the patient
