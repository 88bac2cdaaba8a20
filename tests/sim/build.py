"""Compiles the simulated driver libraries, and writes the answers that they give.

``libraries()`` is a folder with ``libnvidia-ml.so.1`` and ``libcuda.so.1``; ``write_answers`` flattens the ``nvml`` and
``cuda`` sections of a scenario into the text file that both read (its format is told in native/store.h).
"""

import fcntl
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.target import error_words
from tests import needs

NATIVE = Path(__file__).parent / "native"
LIBRARIES = {"libnvidia-ml.so.1": "nvml*.c", "libcuda.so.1": "cuda*.c"}
WORDS = {
    "nvml_words.inc": "".join(f"NVML_WORDS({code}, {json.dumps(text)})\n" for code, text in error_words.NVML.items()),
    "cuda_words.inc": "".join(
        f"CUDA_WORDS({code}, {json.dumps(name)}, {json.dumps(text)})\n"
        for code, (name, text) in error_words.CUDA.items()
    ),
}
"""What the libraries call their errors: NVIDIA's own words."""
FLAGS = (
    "-std=gnu17",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-pthread",
)

MOST_DEPTH = 8
LONGEST_KEY = 160
_KEY = re.compile(r"[A-Za-z_]\w*(\((\*|-?\d+)(,(\*|-?\d+)){0,2}\))?", re.ASCII)
_DEED = re.compile(r"hang|crash|dstate|sleep:\d{1,9}")
_TIMES = ("wake_ms", "call_ms")
_SECTIONS = frozenset({"library", "init", "init_text", "system", "every", "gpus", "faults", *_TIMES})
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"})


@functools.cache
def libraries() -> Path:
    """The folder of the compiled libraries; compiled once for these sources, whichever process comes first."""
    compiler = needs.program("cc")
    header = nvml_header()
    sources = sorted(NATIVE.iterdir())
    content = hashlib.sha256(repr((FLAGS, LIBRARIES, WORDS, compiler)).encode())
    for path in (header, Path(__file__), *sources):
        content.update(path.read_bytes())
    cache = Path(tempfile.gettempdir()) / f"gpudoctor-sim-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    made = cache / content.hexdigest()[:16]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                unfinished = Path(folder) / "made"
                unfinished.mkdir()
                _compile(compiler, header, unfinished)
                unfinished.rename(made)
    return made


def write_words(header: Path, folder: Path) -> None:
    """Write the files that the sources include: a stub for each function of nvml.h, and the words of the errors."""
    names = sorted(set(re.findall(r"DECLDIR[\s\w*]*?\s(nvml\w+)\s*\(", header.read_text("utf-8"))))
    (folder / "nvml_names.inc").write_text("".join(f"STUB({name})\n" for name in names))
    for name, lines in WORDS.items():
        (folder / name).write_text(lines)


def _compile(compiler: str, header: Path, folder: Path) -> None:
    write_words(header, folder)
    for library, pattern in LIBRARIES.items():
        sources = [*sorted(NATIVE.glob("store*.c")), *sorted(NATIVE.glob(pattern))]
        argv = [compiler, *FLAGS, f"-Wl,-soname,{library}", f"-I{folder}", f"-I{header.parent}"]
        done = subprocess.run(
            [*argv, "-o", str(folder / library), *map(str, sources), "-ldl"],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{library} does not compile:\n{done.stderr}")


def nvml_header() -> Path:
    """nvml.h, which no library of ours may be compiled without: it has the layouts of the structs."""
    try:
        files = importlib.metadata.files("nvidia-nvml-dev") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "nvml.h":
            return Path(str(file.locate()))
    return needs.missing("nvml.h of the package nvidia-nvml-dev")


def write_answers(nvml: Mapping[str, Any] | None, cuda: Mapping[str, Any] | None, path: Path) -> None:
    """Write both sections as the libraries read them; raises `ValueError`, naming the place, for what is no answer."""
    lines: list[bytes] = []
    for name, section in (("nvml", nvml), ("cuda", cuda)):
        if section is not None:
            _check(name, section)
            flat = _flat(name, section, 0)
            lines += (line.encode("utf-8", "surrogateescape") for line in flat)
    path.write_bytes(b"".join(sorted(lines)))


def _check(name: str, section: Any) -> None:
    """The section's own shape: which parts it has, GPUs that are objects, faults that can be."""
    if not isinstance(section, Mapping):
        raise ValueError(f"{name}: an object is wanted, not {_kind(section)}")
    unknown = sorted(map(str, set(section) - _SECTIONS))
    if unknown:
        raise ValueError(f"{name}: no part of a section is called {', '.join(unknown)}")
    for part, wanted, word in (
        ("system", dict, "an object"),
        ("every", dict, "an object"),
        ("gpus", list, "a list"),
        ("faults", list, "a list"),
    ):
        if not isinstance(section.get(part, wanted()), wanted):
            raise ValueError(f"{name}.{part}: {word} is wanted, not {_kind(section[part])}")
    for index, gpu in enumerate(section.get("gpus", ())):
        if not isinstance(gpu, Mapping):
            raise ValueError(f"{name}.gpus[{index}]: an object is wanted, not {_kind(gpu)}")
    own = {f"{name}.gpus[{index}]": gpu for index, gpu in enumerate(section.get("gpus", ()))}
    for place, owner in {name: section, **own}.items():
        for word in _TIMES:
            if not isinstance(owner.get(word, 0), (int, float)) or owner.get(word, 0) < 0:
                raise ValueError(f"{place}.{word}: milliseconds are wanted, not {_kind(owner[word])}")
    for index, fault in enumerate(section.get("faults", ())):
        _check_fault(f"{name}.faults[{index}]", fault)


def _check_fault(place: str, fault: Any) -> None:
    if not isinstance(fault, Mapping):
        raise ValueError(f"{place}: an object is wanted, not {_kind(fault)}")
    call, deed = fault.get("call"), fault.get("do")
    if not isinstance(call, str) or not (call == "*" or _KEY.fullmatch(call)):
        raise ValueError(f"{place}.call: a function's bare name or * is wanted")
    if not (isinstance(deed, str) and _DEED.fullmatch(deed)) and not _is_int(deed):
        raise ValueError(f"{place}.do: hang, crash, dstate, sleep:MS or a return code is wanted")
    for name in ("gpu", "from"):
        if not _is_int(fault.get(name, 1)):
            raise ValueError(f"{place}.{name}: a whole number is wanted")
    unknown = sorted(map(str, set(fault) - {"call", "gpu", "do", "from"}))
    if unknown:
        raise ValueError(f"{place}: a fault has no {', '.join(unknown)}")


def _flat(path: str, value: Any, depth: int) -> Iterator[str]:
    """The lines of a value and of all that is in it."""
    if depth > MOST_DEPTH:
        raise ValueError(f"{path}: nested too deep")
    if isinstance(value, Mapping) and set(value) == {"code"} and _is_int(value["code"]):
        yield f"{path}\t!{value['code']}\n"
    elif isinstance(value, Mapping):
        yield f"{path}\t{{\n"
        for key, inner in value.items():
            if not isinstance(key, str) or len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
                raise ValueError(f"{path}: {str(key)[:LONGEST_KEY]!r} is no name of a call or a field")
            yield from _flat(f"{path}.{key}", inner, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        yield f"{path}\t[{len(value)}\n"
        for index, inner in enumerate(value):
            yield from _flat(f"{path}[{index}]", inner, depth + 1)
    else:
        yield f"{path}\t{_scalar(path, value)}\n"


def _scalar(path: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return '"' + value.translate(_ESCAPES)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return f"={int(value)}"
    if isinstance(value, float) and math.isfinite(value):
        return f"~{value!r}"
    raise ValueError(f"{path}: {_kind(value)} is no answer")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31


def _kind(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
