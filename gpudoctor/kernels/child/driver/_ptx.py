"""PTX programs as they lie beside this file, and what all who run them must know: entries and parameters."""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)\s*\{(.*?)\n\}", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+\.(\w+)\s+(\w+)")


class Entry(NamedTuple):
    """A kernel: the types of its parameters by name, in order, and its statements as text."""

    name: str
    parameters: Dict[str, str]
    body: str


def text(name: str) -> str:
    """The program ``name.ptx`` of this folder."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".ptx"), encoding="ascii") as file:
        return file.read()


def programs() -> List[str]:
    """The names of all of them."""
    here = os.listdir(os.path.dirname(os.path.abspath(__file__)))
    return sorted(name[:-4] for name in here if name.endswith(".ptx"))


def entries(program: str) -> Dict[str, Entry]:
    """Its kernels by name. Comments are gone from their bodies."""
    bare = re.sub(r"//[^\n]*", "", program)
    return {
        name: Entry(name, {parameter: kind for kind, parameter in _PARAMETER.findall(parameters)}, body)
        for name, parameters, body in _ENTRY.findall(bare)
    }


def size_of(kind: str) -> int:
    """Bytes of ``u32``, ``b64``, ``f32``, ..."""
    return int(kind[1:]) // 8
