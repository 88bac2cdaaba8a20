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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
INVALID_VALUE, NOT_SUPPORTED = 1, 801
ATTRIBUTES = (13, 16, 18, 20, 32, 36, 37, 38, 41, 75, 76, 83, 88, 89, 97, 115, 116, 124, 128, 132, 133)
"""Numbers of CUdevice_attribute, which never change; their meanings stand where the answers are understood."""

_protocol = os.dup(1)
os.dup2(2, 1)  # whatever a library prints is no answer


def send(**entry: Any) -> None:
    """Write the entry at once, as a marked line of JSON to the original standard output."""
    os.write(_protocol, ("\n@gpudoctor " + json.dumps(entry) + "\n").encode())


class _LinkMap(ctypes.Structure):
    """The first fields of glibc's ``struct link_map``."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def file_of(library: Any) -> str:
    """Path of the loaded CUDA driver library, by dlinfo, else by the memory map (on Windows by its own call).

    The bare name `LIBRARY` if neither tells; may raise `OSError`.
    """
    if sys.platform == "win32":
        name = ctypes.create_unicode_buffer(32768)
        handle = ctypes.c_void_p(library._handle)  # noqa: SLF001 - as below
        ctypes.windll.kernel32.GetModuleFileNameW(handle, name, len(name))
        return name.value.replace("\\", "/") or LIBRARY
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


def open_library() -> Any:
    """The CUDA driver's library, opened by ctypes.

    Raises `OSError`; on Windows its text has "No such file" only where System32 lacks the file.
    """
    if sys.platform != "win32":
        return ctypes.CDLL(LIBRARY)
    try:
        return ctypes.WinDLL(LIBRARY)
    except FileNotFoundError as error:
        system = os.path.join(os.environ.get("SYSTEMROOT", ""), "System32", LIBRARY)
        raise OSError(str(error) if os.path.isfile(system) else "%s: No such file in System32" % LIBRARY) from None


def load() -> Any:
    """Load the CUDA driver's library by the loader's rules, as any CUDA program does, and send its path or the error.

    The library; None if it cannot be loaded.
    """
    send(ask="library", gpu=None)
    try:
        library = open_library()
    except OSError as error:
        send(gpu=None, call="library", code=None, text=str(error))
        return None
    try:
        path = file_of(library)
    except OSError:
        path = LIBRARY
    answer = {"is": path, "real": os.path.realpath(path) if "/" in path else path}
    send(gpu=None, call="library", **answer)
    return library


class Asker:
    """Calls driver functions and sends each call and its answer; `gpu` is the device they are about, None for none."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.gpu: Optional[int] = None

    def __call__(self, key: str, value: Callable[[], Any], symbols: Sequence[str], *arguments: Any) -> bool:
        """Call the first of `symbols` that the driver has; send its failure, or what `value` then returns.

        True if it succeeded; nothing is sent if the driver has none of them, and no answer for what is not supported.
        """
        function = next((found for found in (getattr(self.library, name, None) for name in symbols) if found), None)
        if function is None:
            return False
        send(ask=key, gpu=self.gpu)
        code = self.code_of(function, arguments)
        if code == 0:
            send(gpu=self.gpu, call=key, **{"is": value()})
        elif code != NOT_SUPPORTED and not (code == INVALID_VALUE and key.startswith("cuDeviceGetAttribute")):
            send(
                gpu=self.gpu,
                call=key,
                code=code,
                name=self.error_text("Name", code),
                text=self.error_text("String", code),
            )
        return bool(code == 0)

    def code_of(self, function: Any, arguments: Sequence[Any]) -> Any:
        """Call the function and return its code; on Windows an access violation in it ends this process."""
        if sys.platform != "win32":
            return function(*arguments)
        try:
            return function(*arguments)
        except OSError:
            return ctypes.windll.kernel32.TerminateProcess(ctypes.c_void_p(-1), 0xC0000005)

    def error_text(self, what: str, code: int) -> Optional[str]:
        """The driver's ``Name`` or ``String`` (`what`) for an error code; None if it has none, as in a stub."""
        output = ctypes.c_char_p()
        function = getattr(self.library, "cuGetError" + what, None)
        if function is None or function(code, ctypes.byref(output)) != 0 or output.value is None:
            return None
        return output.value.decode("utf-8", "replace")

    def number(self, name: str, *arguments: Any, key: str = "") -> Optional[int]:
        """The int that the call `name`, sent as `key` if given, writes to its first argument; None if it failed."""
        output = ctypes.c_int()
        succeeded = self(key or name, lambda: output.value, (name,), ctypes.byref(output), *arguments)
        return output.value if succeeded else None


def ask_device(ask: Asker, device: int) -> None:
    """Ask for one device's name, UUID, PCI address, memory and attributes, and send each answer."""
    text = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t()
    uuid = (ctypes.c_ubyte * 16)()

    def decoded() -> str:
        """The text buffer's content as UTF-8."""
        return text.value.decode("utf-8", "replace")

    memory, identity = ("cuDeviceTotalMem_v2", "cuDeviceTotalMem"), ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")
    ask("cuDeviceGetName", decoded, ("cuDeviceGetName",), text, len(text) - 1, device)
    ask("cuDeviceGetUuid", lambda: bytes(uuid).hex(), identity, uuid, device)
    ask("cuDeviceGetPCIBusId", decoded, ("cuDeviceGetPCIBusId",), text, len(text) - 1, device)
    ask("cuDeviceTotalMem", lambda: size.value, memory, ctypes.byref(size), device)
    for attribute in ATTRIBUTES:
        ask.number("cuDeviceGetAttribute", attribute, device, key="cuDeviceGetAttribute(%d)" % attribute)


def ask_devices(ask: Asker, count: int) -> None:
    """Ask for and send every device's properties, then which devices can reach each other's memory."""
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
    """Load the library, ask its version and, unless `depth` is ``version``, initialise it and ask for the device count.

    ``devices`` also asks for each device, ``unmasked`` first removes CUDA_VISIBLE_DEVICES.
    """
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
    send(done=True)


if __name__ == "__main__":
    main(sys.argv[1])
