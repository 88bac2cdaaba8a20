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


def say(**entry: Any) -> None:
    """One line of the protocol, out at once."""
    os.write(_protocol, ("\n@gpudoctor " + json.dumps(entry) + "\n").encode())


def words(library: Any, name: str, argument: Any) -> str:
    """What a function of NCCL that returns text says; empty where this release has none."""
    function = getattr(library, name, None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return (function(argument) or b"").decode("utf-8", "replace")


def call(library: Any, name: str, argument: Any) -> bool:
    """Make the call, saying how it failed."""
    say(ask=name)
    code = getattr(library, name)(argument)
    if code:
        say(
            call=name,
            code=code,
            name=words(library, "ncclGetErrorString", code).partition(" (run with")[0],
            text=words(library, "ncclGetLastError", None),
        )
    return not code


def main(path: str) -> None:
    say(ask="library")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        say(call="library", code=None, text=str(error))
        return
    say(call="library", **{"is": path})
    version = ctypes.c_int()
    if call(library, "ncclGetVersion", ctypes.byref(version)):
        say(call="ncclGetVersion", **{"is": version.value})
    if call(library, "ncclGetUniqueId", ctypes.create_string_buffer(ID_BYTES)):
        say(call="ncclGetUniqueId", **{"is": True})
    ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    main(sys.argv[1])
    say(done=True)
    os._exit(0)  # NCCL's listening thread need not be waited for
