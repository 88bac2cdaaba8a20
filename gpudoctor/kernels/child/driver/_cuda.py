"""libcuda.so.1, or nvcuda.dll, by ctypes: one GPU by CUDA's number, its primary context, memory, programs and launches.

Every call that fails raises `CudaError` with the driver's own name and words; what says nothing against the GPU (no
memory, another process holds it alone) raises `CannotRun`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Dict, List, Sequence, Tuple

from .._kernel import CannotRun
from ._ptx import entries

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
OUT_OF_MEMORY, UNAVAILABLE, NO_DEVICE, NO_JIT, JIT_DISABLED = 2, 46, 100, 221, 223
EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE = 1, 2, 3
"""CUcomputemode; the first is of drivers long gone."""
_COMPUTE_MODE, _MAJOR, _MINOR = 20, 75, 76
"""Numbers of CUdevice_attribute."""
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6
"""Numbers of CUjit_option."""


class CudaError(Exception):
    """A call of the driver that failed: ``cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal ...``."""

    __module__ = "builtins"  # so that its name is said without this file's

    def __init__(self, call: str, code: int, name: str, *words: str) -> None:
        super().__init__("; ".join(["%s: %s (%d)" % (call, name, code), *filter(None, words)]))
        self.call, self.code, self.name, self.words = call, code, name, words


class Driver:
    """libcuda, loaded and initialised; raises `CannotRun` where it cannot be loaded, `CudaError` where cuInit fails."""

    def __init__(self) -> None:
        os.environ["CUDA_CACHE_DISABLE"] = "1"  # what it compiles for us is not kept in the user's home
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CannotRun("the CUDA driver library cannot be loaded: %s" % error) from None
        self("cuInit", ctypes.c_uint(0))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call an exported function; raises `CudaError` if it fails, `CannotRun` if this driver lacks it."""
        function = getattr(self._library, name, None)
        if function is None:
            raise CannotRun("this driver has no %s" % name)
        code = int(function(*arguments))
        if code:
            raise CudaError(
                name.partition("_v")[0], code, self._error_text("Name", code), self._error_text("String", code)
            )

    def number(self, name: str, *arguments: Any) -> int:
        """The int that a call writes through its first argument."""
        value = ctypes.c_int()
        self(name, ctypes.byref(value), *arguments)
        return value.value

    def _error_text(self, what: str, code: int) -> str:
        """Name (`what` "Name") or description ("String") of an error code; where the driver knows none, ``CUDA error``
        or empty.
        """
        text = ctypes.c_char_p()
        function = getattr(self._library, "cuGetError" + what, None)
        if function is None or function(code, ctypes.byref(text)) or not text.value:
            return "CUDA error" if what == "Name" else ""
        return text.value.decode("utf-8", "replace")


def devices() -> List[Dict[str, Any]]:
    """``index``, ``name`` and ``exclusive`` (compute mode) of every GPU that CUDA lists, empty for none; creates no
    context.

    Raises `CannotRun` where the library cannot be loaded, `CudaError` where it fails otherwise.
    """
    try:
        driver = Driver()
    except CudaError as error:
        if error.code == NO_DEVICE:
            return []
        raise
    gpus = []
    for index in range(driver.number("cuDeviceGetCount")):
        device = driver.number("cuDeviceGet", index)
        mode = driver.number("cuDeviceGetAttribute", _COMPUTE_MODE, device)
        gpus.append(
            {"index": index, "name": _device_name(driver, device), "exclusive": mode in (EXCLUSIVE_THREAD, EXCLUSIVE)}
        )
    return gpus


def _device_name(driver: Driver, device: int) -> str:
    """The device's name, such as ``NVIDIA H100 80GB HBM3``."""
    text = ctypes.create_string_buffer(256)
    driver("cuDeviceGetName", text, len(text) - 1, device)
    return text.value.decode("utf-8", "replace")


class Machine:
    """One GPU with its primary context, current in this thread until the process ends; `number` is CUDA's.

    Raises `CannotRun` where its compute mode or lack of memory forbids a context.
    """

    on_cpu = False
    spent = False
    """Whether a launch went wrong: from then on the context answers every call with that error."""

    def __init__(self, number: int) -> None:
        self._driver = Driver()
        self._device = self._driver.number("cuDeviceGet", number)
        mode = self._attribute(_COMPUTE_MODE)
        if mode == PROHIBITED:
            raise CannotRun(
                "its compute mode is Prohibited: no process may compute on it (nvidia-smi -c DEFAULT allows)"
            )
        context = ctypes.c_void_p()
        try:
            self._driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        except CudaError as error:
            if error.code == OUT_OF_MEMORY:
                raise CannotRun("no memory is free on it, not even for a context (%s)" % error) from None
            if error.code == UNAVAILABLE and mode in (EXCLUSIVE_THREAD, EXCLUSIVE):
                raise CannotRun(
                    "its compute mode is Exclusive_Process, and another process has it (%s)" % error
                ) from None
            raise
        self._driver("cuCtxSetCurrent", context)

    def description(self) -> Dict[str, Any]:
        """``name``, ``compute_capability`` (``9.0``) and ``driver``, the CUDA version it serves as a number (13000)."""
        return {
            "name": _device_name(self._driver, self._device),
            "compute_capability": "%d.%d" % (self._attribute(_MAJOR), self._attribute(_MINOR)),
            "driver": self._driver.number("cuDriverGetVersion"),
        }

    def _attribute(self, number: int) -> int:
        """A CUdevice_attribute of the GPU, by its number."""
        return self._driver.number("cuDeviceGetAttribute", number, self._device)

    def memory_info(self) -> Tuple[int, int]:
        """Bytes of GPU memory: free, total."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of GPU memory; raises `CannotRun` where they are not free."""
        address = ctypes.c_uint64()
        try:
            self._driver("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        except CudaError as error:
            if error.code == OUT_OF_MEMORY:
                free = self.memory_info()[0] >> 10
                raise CannotRun("%d KiB are needed, and %d KiB free (%s)" % (-(-size >> 10), free, error)) from None
            raise
        return address.value

    def release(self, address: int) -> None:
        """Free the memory at `address`; does nothing after a failed launch."""
        if not self.spent:
            self._driver("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes from the host to GPU memory."""
        self._driver("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        """Copy `size` bytes of GPU memory to the host."""
        data = ctypes.create_string_buffer(size)
        self._driver("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def load(self, program: str) -> Dict[str, Any]:
        """PTX compiled to kernels by name; raises `CudaError` with the compiler's log, `CannotRun` without compiler."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), len(log))
        image = ctypes.c_char_p(program.encode())
        try:
            self._driver("cuModuleLoadDataEx", ctypes.byref(module), image, ctypes.c_uint(2), options, values)
        except CudaError as error:
            if error.code in (NO_JIT, JIT_DISABLED):
                raise CannotRun("the driver cannot compile PTX here (%s)" % error) from None
            log_text = log.value.decode("utf-8", "replace").strip()
            log_text = " ".join(["its compiler says:", *log_text.split()]) if log_text else ""
            raise CudaError(error.call, error.code, error.name, *error.words, log_text) from None
        return {
            name: self._kernel(module, name, list(entry.parameters.values()))
            for name, entry in entries(program).items()
        }

    def _kernel(self, module: Any, name: str, kinds: List[str]) -> Tuple[Any, List[str]]:
        """A kernel of a loaded module: its function handle, and `kinds`, the types of its parameters."""
        function = ctypes.c_void_p()
        self._driver("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        return function, kinds

    def launch(self, kernel: Tuple[Any, List[str]], blocks: int, threads: int, arguments: Sequence[int]) -> None:
        """Launch a kernel and wait for its end; a failure raises `CudaError` and makes the context unusable."""
        function, kinds = kernel
        values = [
            (ctypes.c_uint64 if kind == "u64" else ctypes.c_uint32)(value) for kind, value in zip(kinds, arguments)
        ]
        places = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        value, none = ctypes.c_uint(1), ctypes.c_uint(0)
        self._driver(
            "cuLaunchKernel",
            function,
            ctypes.c_uint(blocks),
            value,
            value,
            ctypes.c_uint(threads),
            value,
            value,
            none,
            ctypes.c_void_p(),
            places,
            ctypes.c_void_p(),
        )
        try:
            self._driver("cuCtxSynchronize")
        except CudaError:
            self.spent = True
            raise
