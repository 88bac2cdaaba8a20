"""The host compiler that nvcc and torch's extension builder would take: part of the probe cuda_toolkit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.target import Target
from gpudoctor.target.protocol import printable

_CCBIN = pattern(r"(?:-ccbin|--compiler-bindir)[=\s]+(\S+)")
_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc"})


def facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """The C++ compiler that nvcc and torch's extension builder would take, its version and kind."""
    try:
        source, path = _chosen(target)
    except OSError as error:
        unread = Unread(f"the compiler that a variable names: {error.strerror or error}")
        yield from ((f"cuda.host_compiler{part}", unread) for part in ("", "_version", "_kind"))
        return
    if not path:
        missing = Absent(source)
        yield from ((f"cuda.host_compiler{part}", missing) for part in ("", "_version", "_kind"))
        return
    yield "cuda.host_compiler", Known(path, source)
    version, kind = _told_by(target, path)
    yield "cuda.host_compiler_version", version
    yield "cuda.host_compiler_kind", kind


def _chosen(target: Target) -> tuple[str, str | None]:
    """Where the choice comes from and the compiler's path; the reason and None where there is none."""
    for variable in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CXX"):
        value = target.environ.get(variable, "").strip()
        if variable.endswith("_FLAGS"):
            flag = _CCBIN.search(value)
            value = flag[1] if flag else ""
        if not value:
            continue
        words = _words(value)
        word = next((word for word in words if word.rpartition("/")[2] not in _LAUNCHERS), value)
        if variable != "CXX" and target.exists(f"{word}/g++"):
            word = f"{word}/g++"
        path = word if "/" in word and target.exists(word) else target.which(word)
        return (variable, path) if path else (f"{variable}={value}, which is not there", None)
    for name in ("g++", "gcc", "c++", "clang++"):
        path = target.which(name)
        if path:
            return "PATH", path
    return "no C++ compiler on PATH, and neither NVCC_CCBIN nor CXX is set", None


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value) or [value]
    except ValueError:
        return [value]


def _told_by(target: Target, path: str) -> tuple[Fact, Fact]:
    """Version and kind by the first line it prints: ``g++ (Debian 12.2.0-14) 12.2.0``, ``clang version 17.0.6``."""
    try:
        answer = target.run([path, "--version"], timeout=2.0)
    except OSError as error:
        unread = Unread(f"{path} could not be started: {error.strerror or error}")
        return unread, unread
    first = (answer.out.strip().splitlines() or [""])[0]
    source = f"{path} --version"
    clang = re.search(r"clang version (\d+(?:\.\d+)+)", first)
    if clang:
        return Known(clang[1], source), Known("clang", source)
    gcc = re.search(r"\)\s+(\d+(?:\.\d+)+)", first)
    if gcc and ("Free Software Foundation" in answer.out or "gcc" in first.lower() or "g++" in first):
        return Known(gcc[1], source), Known("gcc", source)
    unread = Unread(printable(f"`{source}` is neither gcc's nor clang's answer ({answer.how}): {first}"))
    return unread, unread
