"""Open a rung on a device and run its kernels, saying each before it begins and what it gave once it is over.

A rung is a folder: its ``__init__`` opens it (`opened`), each other file without a leading underscore measures.

Asked with ``{"family": folder, "device": "cuda:0" | "cpu" | "node", "kernels": [ids], "seed": n, "work": seconds for
each kernel of level soak}``. Lines:
``{"opening": family, "pid": n}``, ``{"opened": {...}}`` or ``{"closed": why, "failed": bool}``; for each kernel
``{"step": id, "seconds": n}`` and ``{"kernel": id, "status": "ran" | "failed" | "not-run", ...}``; at the end
``{"done": true}``.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import pkgutil
import signal
import sys
import traceback
from types import ModuleType
from typing import Any, Dict, Iterator, Mapping

from . import _ranks, _scratch
from ._kernel import Broken, CannotRun, Outcome, last_line, no_memory, reserve_stdout, say

_ROOT = __name__.rpartition(".")[0]


def modules(family: str, root: str = _ROOT) -> Iterator[ModuleType]:
    """Import and yield the measurement modules of a folder, by name; a leading underscore leaves one out."""
    package = importlib.import_module(root + "." + family)
    for name in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        if not name.startswith("_"):
            yield importlib.import_module(package.__name__ + "." + name)


def main(ask: Mapping[str, Any]) -> None:
    """Open the rung and run every requested kernel in order, reporting each; ends the process with exit status 0."""
    _ranks.die_with_parent(os.getppid())
    reserve_stdout()
    faulthandler.enable()
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1)  # who gives it up before the rung is open wants to know where it is
    say(opening=ask["family"], pid=os.getpid())
    context = _open_rung(ask)
    if context is not None:
        _run_kernels(ask, context)
        say(done=True)
    _scratch.remove_all()
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def _open_rung(ask: Mapping[str, Any]) -> Any:
    """The context for the kernels of the rung ``ask["family"]``, or None if it did not open; reports either."""
    rung = importlib.import_module("%s.%s" % (_ROOT, ask["family"]))
    try:
        context = rung.opened(ask)
    except CannotRun as error:
        say(closed=str(error), failed=False)
    except BaseException as error:  # SystemExit and MemoryError are answers too
        because = last_line(error)
        lacking = _no_memory_message(because)
        if not lacking:
            traceback.print_exc()
        say(closed=lacking or because, failed=not lacking)
    else:
        say(opened=context.description())
        return context
    return None


def _run_kernels(ask: Mapping[str, Any], context: Any) -> None:
    """Run the kernels in ``ask["kernels"]`` and report each; stops early once the GPU's context is unusable."""
    kernels_by_id = {spec.id: (module, spec) for module in modules(ask["family"]) for spec in module.KERNELS}
    for name in ask["kernels"]:
        module, spec = kernels_by_id[name]
        say(step=name, seconds=spec.seconds)
        say(kernel=name, **_run_kernel(module, spec, context))
        if getattr(context, "spent", False):
            return  # an error that outlives its kernel: with those after it a new process goes on


def _run_kernel(module: ModuleType, spec: Any, context: Any) -> Dict[str, Any]:
    """Run one kernel; its outcome, or its error as status ``failed`` or ``not-run``, as a protocol entry."""
    try:
        outcome: Outcome = module.run(context, spec)
    except CannotRun as error:
        return {"status": "not-run", "because": str(error)}
    except Broken as error:
        traceback.print_exc()
        return {"status": "failed", "because": str(error), "advice": error.advice}
    except Exception as error:
        because = last_line(error)
        lacking = _no_memory_message(because)
        if lacking:
            return {"status": "not-run", "because": lacking}
        traceback.print_exc()
        return {"status": "failed", "because": because}
    return dict(outcome.to_json(), status="ran")


def _no_memory_message(because: str) -> str:
    """``no memory is free for it: ...`` where the error says that memory ran out; empty for any other error."""
    return "no memory is free for it: " + because if no_memory(because) else ""
