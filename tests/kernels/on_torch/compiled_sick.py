"""Have Triton fail at something, and print what we tell of it: ``python compiled_sick.py STEP``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.kernels.faults import inject
from tests.kernels.on_torch import compiled_ahead


def build(_: str) -> None:
    """What its launcher is built with."""
    from triton.runtime.build import compile_module_from_src  # type: ignore[import-not-found,unused-ignore]

    compile_module_from_src("int nothing;", "nothing")


def driver(_: str) -> None:
    """Where it looks for the driver."""
    from triton.backends.nvidia.driver import libcuda_dirs  # type: ignore[import-not-found,unused-ignore]

    libcuda_dirs()


def ahead(capability: str) -> None:
    """Compile one kernel for that GPU."""
    root = inject.package()
    _, function, types, constants, warps = next(compiled_ahead.kernels(root))
    compiled_ahead.compiled(function, types, constants, warps, int(capability))


def main(step: str, argument: str) -> None:
    """One of them."""
    causes = importlib.import_module(inject.package() + ".compiled")
    try:
        {"build": build, "driver": driver, "ahead": ahead}[step](argument)
    except Exception as error:
        told = causes.classify_error(error, False)
        print(f"{type(told).__name__}: {told}; {getattr(told, 'advice', '')}")  # noqa: T201 - its answer
    else:
        print("nothing failed")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], (sys.argv[2:] or [""])[0])
