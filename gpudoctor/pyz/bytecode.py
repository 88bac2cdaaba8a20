"""Byte code of a tree of modules, made by the Python that is to run it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpudoctor import shipped
from gpudoctor.model.errors import UsageError

_PATIENCE = 300.0
_WHICH = "import sys; print(sys.version_info >= (3, 10), sys.implementation.cache_tag)"


def tag(python: str) -> str:
    """What that Python calls its byte code: ``cpython-311``. Raises `UsageError` for none that is 3.10 or newer."""
    new, _, name = _said(python, _WHICH).partition(" ")
    if new != "True":
        raise UsageError(f"--python {python}: give a Python 3.10 or newer")
    return name


def compile_with(python: str, tree: Path, goal: Path) -> None:
    """Compile every module of the tree into the folder `goal`; raises `UsageError` where it cannot."""
    _said(python, shipped.text("pyz/compile_tree.py"), str(tree), str(goal))


def _said(python: str, code: str, *words: str) -> str:
    argv = [python, "-I", "-S", "-c", code, *words]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    except OSError as error:
        raise UsageError(f"--python {python}: it cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"--python {python}: it did not come to an end within {_PATIENCE:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise UsageError(f"--python {python}: give a Python 3.10 or newer ({last})")
    return done.stdout.strip()
