"""Reads the words of every error code from NVIDIA's real libraries: ``python -m tests.sim.words [--write]``.

They answer without a GPU and without being initialised. The table that it prints, or writes, is the program's own
(`gpudoctor.target.error_words`, from its JSON), and the simulated libraries speak from it, too.
"""

import ctypes
import datetime
import json
import re
import sys
from pathlib import Path

from gpudoctor.target import error_words
from tests import needs

TABLE = Path(error_words.__file__).with_suffix(".json")
_MOST = 1000


def _nvml(folder: Path) -> dict[str, str]:
    """nvmlErrorString by code."""
    text = ctypes.CDLL(str(folder / "libnvidia-ml.so.1")).nvmlErrorString
    text.restype = ctypes.c_char_p
    return {str(code): text(code).decode() for code in range(_MOST) if text(code) != text(_MOST) or code == _MOST - 1}


def _cuda(folder: Path) -> dict[str, tuple[str, str]]:
    """cuGetErrorName and cuGetErrorString by code."""
    cuda = ctypes.CDLL(str(folder / "libcuda.so.1"))
    name, words = ctypes.c_char_p(), ctypes.c_char_p()
    found = {}
    for code in range(_MOST):
        if cuda.cuGetErrorName(code, ctypes.byref(name)) == cuda.cuGetErrorString(code, ctypes.byref(words)) == 0:
            found[str(code)] = (name.value or b"").decode(), (words.value or b"").decode()
    return found


def table() -> str:
    """The file as it should be, a code a line."""
    folder = needs.nvidia_driver()
    library = (folder / "libcuda.so.1").resolve()
    version = library.name.removeprefix("libcuda.so.")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    parts = [f' "libraries": {json.dumps(f"libnvidia-ml and libcuda {version}, read {today}")}']
    for name, words in (("nvml", _nvml(folder)), ("cuda", _cuda(folder))):
        rows = ",\n".join(f"  {json.dumps(code)}: {json.dumps(text)}" for code, text in words.items())
        parts.append(f' "{name}": {{\n{rows}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def undated(text: str) -> str:
    return re.sub(r"read [\d-]+", "", text)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        TABLE.write_text(table(), "utf-8")
    else:
        sys.stdout.write(table())
