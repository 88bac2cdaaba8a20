"""Reads the words of every error code from NVIDIA's real libraries: ``python -m tests.sim.words [--write]``.

They answer without a GPU and without being initialised. The table that it prints, or writes, is the program's own
(`gpudoctor.target.error_words`), and the simulated libraries speak from it, too.
"""

from __future__ import annotations

import ctypes
import datetime
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.target import error_words
from tests import needs

TABLE = Path(error_words.__file__)
_MOST = 1000


def _texts(folder: Path) -> Iterator[str]:
    """The table's lines, all but the head."""
    nvml = ctypes.CDLL(str(folder / "libnvidia-ml.so.1")).nvmlErrorString
    nvml.restype = ctypes.c_char_p
    unknown = nvml(_MOST)
    yield "NVML = {"
    for code in range(_MOST):
        words = nvml(code)
        if words != unknown or code == _MOST - 1:
            yield f"    {code}: {_quoted(words)},"
    yield "}"
    yield '"""nvmlErrorString; what it does not know it calls as it calls 999."""'
    yield ""
    cuda = ctypes.CDLL(str(folder / "libcuda.so.1"))
    name, words = ctypes.c_char_p(), ctypes.c_char_p()
    yield "CUDA = {"
    for code in range(_MOST):
        if cuda.cuGetErrorName(code, ctypes.byref(name)) == cuda.cuGetErrorString(code, ctypes.byref(words)) == 0:
            yield from _entry(code, _quoted(name.value), _quoted(words.value))
    yield "}"
    yield '"""cuGetErrorName and cuGetErrorString."""'


def _quoted(text: bytes | None) -> str:
    return '"' + (text or b"").decode().replace("\\", "\\\\").replace('"', '\\"') + '"'


def _entry(code: int, name: str, words: str) -> Iterator[str]:
    line = f"    {code}: ({name}, {words}),"
    if len(line) <= 120:
        yield line
    else:
        long = "  # noqa: E501" if len(words) > 111 else ""
        yield from (f"    {code}: (", f"        {name},", f"        {words},{long}", "    ),")


def table() -> str:
    """The module as it should be."""
    folder = needs.nvidia_driver()
    library = (folder / "libcuda.so.1").resolve()
    version = library.name.removeprefix("libcuda.so.")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    head = (
        '"""What NVIDIA\'s libraries call their error codes, read from them by ``python -m tests.sim.words``."""\n'
        f'\nLIBRARIES = "libnvidia-ml and libcuda {version}, read {today}"\n'
    )
    return "\n".join((head, *_texts(folder))) + "\n"


def undated(text: str) -> str:
    return re.sub(r"read [\d-]+", "", text)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        TABLE.write_text(table(), "utf-8")
    else:
        sys.stdout.write(table())
