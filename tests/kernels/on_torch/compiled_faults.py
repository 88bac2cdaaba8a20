"""Flip single bits of what our Triton kernels give on the CPU: ``python compiled_faults.py TRIALS SEED``."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
os.environ["TRITON_INTERPRET"] = "1"

from tests.kernels.faults import inject


def main(trials: int, seed: int) -> None:
    """As with the eager kernels, each Triton kernel in turn."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    root = inject.package()
    inject.SIZES["triton"] = 40
    ran = inject.Trials(root, torch, seed)
    ran.rung = importlib.import_module(root + ".compiled")
    modules = list(importlib.import_module(root + "._main").modules("compiled"))
    every = [(module, spec.id) for module in modules for spec in module.KERNELS if spec.id.startswith("triton.")]
    while ran.count["flipped"] < trials:
        ran.run(*every[ran.count["flipped"] % len(every)])
    print(json.dumps({**ran.count, "bad": ran.bad, "kernels": sorted(ran.by_kernel)}))  # noqa: T201 - its answer


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
