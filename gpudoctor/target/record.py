"""A machine kept as a value: what its files held, its commands printed, and its drivers and torch answered.

``nvml`` and ``cuda`` hold a native library's answers by the name of its function, its arguments behind the handle in
parentheses: ``{"system": {call: answer}, "every": {call: answer}, "gpus": [{call: answer}], "faults": [...]}``. An
answer is the JSON of the value, or ``{"code": n}``; a call that is nowhere is not supported by that machine.

A sparse file has only the parts of it that were read; `level` is how deep the machine was asked. What is left out was
there and is not in the record: it reads as unread, never as missing. `record_json` has the file format.

``kernels`` holds what the children of a ladder were asked and said, ``{"children": [{"ask": {...}, "out": [...], "err":
"", "status": 0}], "meanwhile": [{"kernel": id, "gpu": n, ...}]}``, the latter what NVML said of a GPU while one ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """What a program answered. `status` is its exit code, negative for a signal; `hangs`: it never ended."""

    argv: tuple[str, ...]
    status: int = 0
    out: str = ""
    err: str = ""
    hangs: bool = False


@dataclass(frozen=True, slots=True)
class Sparse:
    """The parts read of a file of `size` bytes, by offset."""

    size: int
    parts: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One machine. Paths are absolute, without ``.`` and ``..``; `space` is total and free bytes of a file system,
    `times` when files were written last, in seconds since 1970.
    """

    title: str = ""
    level: str = "standard"
    files: Mapping[str, bytes] = field(default_factory=dict)
    sparse: Mapping[str, Sparse] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    denied: Sequence[str] = ()
    space: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    name: str = "record"
    commands: Sequence[Command] = ()
    nvml: Mapping[str, Any] | None = None
    cuda: Mapping[str, Any] | None = None
    torch_child: Mapping[str, Any] | None = None
    kernels: Mapping[str, Any] | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)
