"""Compile every Triton kernel of ours for GPU architectures: ``python compiled_ahead.py 90 100``; prints JSON.

As the launcher would: pointers, and the sizes that 16 divides, are known to be so. Each kernel gives its cubin's first
bytes and size, the target that its PTX names, its shared memory, and how many matrix instructions there are in it.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.kernels.faults import inject

BLOCK = {"BLOCK": 1024}
SIGNATURES = {
    "add": ("*fp32 *fp32 *fp32 i32 fp32", BLOCK, 4),
    "softmax": ("*fp32 *fp32 *fp32 i32", BLOCK, 4),
    "histogram": ("*i32 *i32 i32", BLOCK, 4),
}


def kernels(root: str) -> Any:
    """Name, function, types of its arguments, constants, warps."""
    functions = importlib.import_module(root + ".compiled._kernels")
    for name, (said, constants, warps) in SIGNATURES.items():
        yield name, getattr(functions, name), said.split(), constants, warps
    for dtype, kind in importlib.import_module(root + ".compiled.matmul").KINDS.items():
        types = [f"*{dtype}", f"*{dtype}", "*fp32", "i32", "i32:16", "i32"]
        constants = dict(zip("MNK", kind.tile, strict=True), WIDEN=False)
        yield f"matmul.{dtype}", functions.matmul, types, constants, kind.warps


def compiled(function: Any, types: list[str], constants: dict[str, Any], warps: int, capability: int) -> Any:
    """By Triton's own ptxas; needs neither a GPU nor its driver."""
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found,unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-not-found,unused-ignore]

    names = function.arg_names
    signature = dict(zip(names, [one.partition(":")[0] for one in types] + ["constexpr"] * len(constants), strict=True))
    known = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(at,): [["tt.divisibility", 16]] for at, one in enumerate(types) if one[0] == "*" or one[-3:] == ":16"}
    source = ASTSource(function, signature, constexprs=known, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})


def main(capability: int) -> dict[str, Any]:
    """All of them."""
    told = {}
    for name, function, types, constants, warps in kernels(inject.package()):
        made = compiled(function, types, constants, warps, capability)
        ptx, cubin = made.asm["ptx"], made.asm["cubin"]
        told[name] = {
            "begins": cubin[:4].hex(),
            "size": len(cubin),
            "target": re.findall(r"^\.target (\w+)", ptx, re.MULTILINE)[0],
            "shared": made.metadata.shared,
            "matrix": len(re.findall(r"\b(?:wmma|mma\.sync|wgmma\.mma|tcgen05\.mma)", ptx)),
        }
    return told


if __name__ == "__main__":
    print(json.dumps({one: main(int(one)) for one in sys.argv[1:]}))  # noqa: T201 - its answer
