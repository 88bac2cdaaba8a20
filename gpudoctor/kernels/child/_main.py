"""Open a rung on a device and run its kernels, saying each before it begins and what it gave once it is over.

Asked with ``{"family": folder, "device": "cuda:0" | "cpu" | "node", "kernels": [ids], "seed": n}``. Lines:
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

from . import _protocol, _ranks
from ._kernel import Broken, CannotRun, Outcome, no_memory

_ROOT = __name__.rpartition(".")[0]


def modules(family: str, root: str = _ROOT) -> Iterator[ModuleType]:
    """The measurements of that folder, by name."""
    package = importlib.import_module(root + "." + family)
    for name in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        if not name.startswith("_"):
            yield importlib.import_module(package.__name__ + "." + name)


def main(ask: Mapping[str, Any]) -> None:
    """Every kernel that was asked for, in that order."""
    _ranks.end_with(os.getppid())
    _protocol.begin()
    faulthandler.enable()
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1)  # who gives it up before the rung is open wants to know where it is
    _protocol.say(opening=ask["family"], pid=os.getpid())
    context = _opened(ask)
    if context is not None:
        _run_all(ask, context)
        _protocol.say(done=True)
    sys.stderr.flush()
    os._exit(0)  # a crash while libraries are torn down is no symptom of the patient


def _opened(ask: Mapping[str, Any]) -> Any:
    """What the rung's kernels work with, None where the rung does not hold; says which."""
    rung = importlib.import_module("%s.%s._rung" % (_ROOT, ask["family"]))
    try:
        context = rung.opened(ask)
    except CannotRun as error:
        _protocol.say(closed=str(error), failed=False)
    except BaseException as error:  # SystemExit and MemoryError are answers too
        because = _protocol.last_line(error)
        lacking = _lacking(because)
        if not lacking:
            traceback.print_exc()
        _protocol.say(closed=lacking or because, failed=not lacking)
    else:
        _protocol.say(opened=context.told())
        return context
    return None


def _run_all(ask: Mapping[str, Any], context: Any) -> None:
    found = {spec.id: (module, spec) for module in modules(ask["family"]) for spec in module.KERNELS}
    for name in ask["kernels"]:
        module, spec = found[name]
        _protocol.say(step=name, seconds=spec.seconds)
        _protocol.say(kernel=name, **_run(module, spec, context))
        if getattr(context, "spent", False):
            return  # an error that outlives its kernel: with those after it a new process goes on


def _run(module: ModuleType, spec: Any, context: Any) -> Dict[str, Any]:
    try:
        outcome: Outcome = module.run(context, spec)
    except CannotRun as error:
        return {"status": "not-run", "because": str(error)}
    except Broken as error:
        traceback.print_exc()
        return {"status": "failed", "because": str(error), "advice": error.advice}
    except Exception as error:
        because = _protocol.last_line(error)
        lacking = _lacking(because)
        if lacking:
            return {"status": "not-run", "because": lacking}
        traceback.print_exc()
        return {"status": "failed", "because": because}
    return dict(outcome.to_json(), status="ran")


def _lacking(because: str) -> str:
    """What was not to be had where that is all that an error says; it says nothing against the device."""
    return "no memory is free for it: " + because if no_memory(because) else ""
