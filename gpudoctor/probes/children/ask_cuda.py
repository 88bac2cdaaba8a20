"""Ask the CUDA driver library what it is and what it lists, saying each call before it is made; no context is made.

Run as ``python -I -S ask_cuda.py version`` (the library and its CUDA version: nothing is initialised), ``... devices``
(then also ``cuInit`` and every device) or ``... unmasked`` (then ``cuInit`` and the count, CUDA_VISIBLE_DEVICES taken
away). Each line is ``@gpudoctor`` and a JSON object: ``{"ask": key, "gpu": index or null}`` before a call, then
``{"gpu": ..., "call": key, "is": answer}``, or ``"code"``, ``"name"`` and ``"text"`` where it failed; a call that this
driver does not know says nothing. ``{"done": true}`` is the last line. The key is the function's name without its ABI
version, what follows the device in parentheses: ``cuDeviceGetAttribute(75)``. Standard library only; Python 3.8.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, Callable, Optional, Sequence

LIBRARY = "libcuda.so.1"
INVALID_VALUE, NOT_SUPPORTED = 1, 801
ATTRIBUTES = (13, 16, 18, 20, 32, 36, 37, 38, 41, 75, 76, 83, 88, 89, 97, 115, 116, 124, 128, 132, 133)
"""Numbers of CUdevice_attribute, which never change; their meanings stand where the answers are understood."""

_protocol = os.dup(1)
os.dup2(2, 1)  # whatever a library prints is no answer


def say(**entry: Any) -> None:
    """One line of the protocol, out at once."""
    os.write(_protocol, ("\n@gpudoctor " + json.dumps(entry) + "\n").encode())


class _LinkMap(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def file_of(library: Any) -> str:
    """The file that the loader took, by the loader's own word, else by the memory map."""
    try:
        entry = ctypes.POINTER(_LinkMap)()
        linkmap = 2  # RTLD_DI_LINKMAP
        handle = ctypes.c_void_p(library._handle)  # noqa: SLF001 - documented nowhere, and the only way
        if ctypes.CDLL(None).dlinfo(handle, linkmap, ctypes.byref(entry)) == 0 and entry.contents.name:
            return os.path.abspath(os.fsdecode(entry.contents.name))
    except (AttributeError, OSError):
        pass
    with open("/proc/self/maps", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith("libcuda.so"):
                return "/" + path
    return LIBRARY


def load() -> Any:
    """The library as any CUDA program gets it: by the loader's rules alone. None where it is not had; says which."""
    say(ask="library", gpu=None)
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        say(gpu=None, call="library", code=None, text=str(error))
        return None
    try:
        path = file_of(library)
    except OSError:
        path = LIBRARY
    answer = {"is": path, "real": os.path.realpath(path) if "/" in path else path}
    say(gpu=None, call="library", **answer)
    return library


class Asker:
    """Makes the driver's calls, about the machine (`gpu` is None) or about one device."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.gpu: Optional[int] = None

    def __call__(self, key: str, value: Callable[[], Any], symbols: Sequence[str], *arguments: Any) -> bool:
        """Call the first of `symbols` that the driver has; say its failure, or what `value` then gives."""
        function = next((found for found in (getattr(self.library, name, None) for name in symbols) if found), None)
        if function is None:
            return False
        say(ask=key, gpu=self.gpu)
        code = function(*arguments)
        if code == 0:
            say(gpu=self.gpu, call=key, **{"is": value()})
        elif code != NOT_SUPPORTED and not (code == INVALID_VALUE and key.startswith("cuDeviceGetAttribute")):
            say(gpu=self.gpu, call=key, code=code, name=self.words("Name", code), text=self.words("String", code))
        return bool(code == 0)

    def words(self, what: str, code: int) -> Optional[str]:
        """The driver's own name or sentence for a code; None where it has none, as a stub."""
        told = ctypes.c_char_p()
        function = getattr(self.library, "cuGetError" + what, None)
        if function is None or function(code, ctypes.byref(told)) != 0 or told.value is None:
            return None
        return told.value.decode("utf-8", "replace")

    def number(self, name: str, *arguments: Any, key: str = "") -> Optional[int]:
        """A call that writes one int first; None where it failed."""
        told = ctypes.c_int()
        good = self(key or name, lambda: told.value, (name,), ctypes.byref(told), *arguments)
        return told.value if good else None


def ask_device(ask: Asker, device: int) -> None:
    """What one device is."""
    text = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t()
    uuid = (ctypes.c_ubyte * 16)()

    def words() -> str:
        return text.value.decode("utf-8", "replace")

    memory, identity = ("cuDeviceTotalMem_v2", "cuDeviceTotalMem"), ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")
    ask("cuDeviceGetName", words, ("cuDeviceGetName",), text, len(text) - 1, device)
    ask("cuDeviceGetUuid", lambda: bytes(uuid).hex(), identity, uuid, device)
    ask("cuDeviceGetPCIBusId", words, ("cuDeviceGetPCIBusId",), text, len(text) - 1, device)
    ask("cuDeviceTotalMem", lambda: size.value, memory, ctypes.byref(size), device)
    for attribute in ATTRIBUTES:
        ask.number("cuDeviceGetAttribute", attribute, device, key="cuDeviceGetAttribute(%d)" % attribute)


def ask_devices(ask: Asker, count: int) -> None:
    """Every device, then which of them reach each other's memory."""
    devices = {}
    for index in range(count):
        ask.gpu = index
        device = ask.number("cuDeviceGet", index)
        if device is not None:
            devices[index] = device
            ask_device(ask, device)
    for index in devices:
        ask.gpu = index
        for peer in devices:
            if peer != index:
                key = "cuDeviceCanAccessPeer(%d)" % peer
                ask.number("cuDeviceCanAccessPeer", devices[index], devices[peer], key=key)


def main(depth: str) -> None:
    """Load, ask the version, and unless `depth` is ``version`` initialise the driver and ask on."""
    if depth == "unmasked":
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    library = load()
    if library is None:
        return
    ask = Asker(library)
    ask.number("cuDriverGetVersion")
    if depth != "version" and ask("cuInit", lambda: 0, ("cuInit",), ctypes.c_uint(0)):
        count = ask.number("cuDeviceGetCount") or 0
        if depth == "devices":
            ask_devices(ask, count)
    say(done=True)


if __name__ == "__main__":
    main(sys.argv[1])
