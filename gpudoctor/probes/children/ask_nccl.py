"""Ask a libnccl for its version and for the address at which it would let other ranks meet; no GPU is touched.

Run as ``python -I -S ask_nccl.py PATH_OF_LIBNCCL``. `ncclGetUniqueId` chooses an interface and listens there until the
process ends, which is at once. What NCCL prints goes to standard error. Each line is ``@gpudoctor`` and a JSON object:
``{"ask": call}`` before a call, then ``{"call": call, "is": answer}``, or ``"code"``, ``"name"`` and ``"text"`` where
it failed. ``{"done": true}`` is the last line. Standard library only; Python 3.8.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

ID_BYTES = 128

_protocol = os.dup(1)
os.dup2(2, 1)  # whatever the library prints is no answer of ours


def send(**entry: Any) -> None:
    """Write the entry at once, as a marked line of JSON to the original standard output."""
    os.write(_protocol, ("\n@gpudoctor " + json.dumps(entry) + "\n").encode())


def text_of(library: Any, name: str, argument: Any) -> str:
    """The text that an NCCL function returns; empty if this release lacks the function."""
    function = getattr(library, name, None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return (function(argument) or b"").decode("utf-8", "replace")


def call(library: Any, name: str, argument: Any) -> bool:
    """Call an NCCL function, announcing it before; send its code and texts if it fails; True if it succeeded."""
    send(ask=name)
    code = getattr(library, name)(argument)
    if code:
        send(
            call=name,
            code=code,
            name=text_of(library, "ncclGetErrorString", code).partition(" (run with")[0],
            text=text_of(library, "ncclGetLastError", None),
        )
    return not code


def main(path: str) -> None:
    """Load libnccl at `path`, then ask for its version and for a unique id, sending each step and answer."""
    send(ask="library")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        send(call="library", code=None, text=str(error))
        return
    send(call="library", **{"is": path})
    version = ctypes.c_int()
    if call(library, "ncclGetVersion", ctypes.byref(version)):
        send(call="ncclGetVersion", **{"is": version.value})
    if call(library, "ncclGetUniqueId", ctypes.create_string_buffer(ID_BYTES)):
        send(call="ncclGetUniqueId", **{"is": True})
    ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    main(sys.argv[1])
    send(done=True)
    os._exit(0)  # NCCL's listening thread need not be waited for
