"""The children that ask NVML: where one hangs or crashes, another asks the rest without the call at fault."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec

from gpudoctor.probes._child import CHILDREN, script
from gpudoctor.probes._nvml.told import Fault, Told
from gpudoctor.target import Answer, Target
from gpudoctor.target.protocol import patience, printable

TIMEOUT = patience("GPUDOCTOR_NVML_TIMEOUT", 5.0)
"""Seconds for NVML: it needs milliseconds where the driver stays loaded, seconds per GPU where it must wake them."""

_MOST = 8 << 20
"""Bytes that a child may print; sixteen GPUs of eighteen links need a tenth of it."""


def total(timeout: float) -> float:
    """Seconds for all the children together."""
    return timeout * 1.2


def silence(timeout: float) -> float:
    """Seconds after which a call that has not returned is taken to hang; initialisation may take all of `timeout`."""
    return timeout / 2


def ask(target: Target, timeout: float) -> Told:
    """Ask until everything was answered, the time is up, or a call is at fault a second time."""
    told = Told()
    argv = child_argv("ask_nvml.py")
    if not argv:
        told.broken = "the package nvidia-ml-py is not installed beside gpudoctor"
        return told
    started = time.monotonic()
    left_out: list[tuple[int | None, str]] = []
    while not told.done:
        left = total(timeout) - (time.monotonic() - started)
        try:
            answer = target.run(
                [*argv, json.dumps(left_out)], min(timeout, left), limit=_MOST, silence=silence(timeout)
            )
        except OSError as error:
            told.broken = f"the child that asks NVML could not be started: {error.strerror or error}"
            break
        fault = _heard(told, answer, min(timeout, left), silence(timeout))
        left = total(timeout) - (time.monotonic() - started)
        if not fault or left < _least(timeout) or not _leaves_out(left_out, told.faults, fault):
            break
    return told


def child_argv(name: str, *more: str) -> list[str]:
    """What runs that child: our own interpreter, where the binding is; nothing where there is no binding."""
    spec = find_spec("pynvml")
    if not spec or not spec.origin:
        return []
    folder = os.path.dirname(spec.origin)  # noqa: PTH120 - inside a zip file it is no folder to pathlib either
    if spec.submodule_search_locations:  # the older binding of that name is a package
        folder = os.path.dirname(folder)  # noqa: PTH120
    return [sys.executable, "-I", "-S", *script(name), str(CHILDREN), folder, *more]


def _least(timeout: float) -> float:
    """Seconds below which another child is not worth starting."""
    return timeout / 20


def _heard(told: Told, answer: Answer, seconds: float, quiet: float) -> Fault | None:
    """Take in what the child said; the fault in which it ended, None where it came to its end or broke by itself."""
    current = told.hear(answer)
    if "nvmlInit" in told.failures.get(None, {}) or "library" in told.failures.get(None, {}) or told.done:
        return None
    gpu, call = current or (None, "")
    name = call.partition("(")[0] if call != "library" else "the load of the library"
    where = name if gpu is None else f"{name} of GPU {gpu}"
    if call and answer.status is None and not answer.cut:
        state, why = _stopped(told, where, answer, seconds, quiet)
    elif call and answer.status is not None and answer.status < 0:
        state, why = "crashed", f"{where} crashed: {answer.how}"
    else:
        last = (answer.err.strip().splitlines() or [""])[-1]
        told.broken = printable(f"the child that asks NVML ended at {call or 'its start'}: {answer.how} {last}".strip())
        return None
    fault = Fault(gpu, call, state, why)
    told.faults.append(fault)
    return fault


def _stopped(told: Told, where: str, answer: Answer, seconds: float, quiet: float) -> tuple[str, str]:
    """Whether the child that was stopped had fallen silent, or was only slow."""
    left = f" (pid {answer.stuck} cannot be stopped and is left behind)" if answer.stuck else ""
    if answer.seconds < seconds:
        return "hung", f"{where} did not return within {quiet:g} s{left}"
    if not told.started:
        return "hung", f"{where} did not return within {seconds:.2g} s{left}"
    slowest = f", {told.slowest[1]} alone {told.slowest[0]:.1f} s" if told.slowest[1] else ""
    calls = f"{len(told.asked)} calls took {seconds:.2g} s{slowest}"
    return "slow", f"NVML is slow: {calls}; the time was up at {where}{left}"


def _leaves_out(left_out: list[tuple[int | None, str]], before: list[Fault], fault: Fault) -> bool:
    """Leave out the call at fault, or all of a GPU that hangs; a function that fails again, for every GPU.

    False where leaving something out cannot help: NVML is slow, does not start, or did not mind.
    """
    again = [one for one in before if one.function == fault.function]
    if fault.state == "slow" or fault.function in ("nvmlInit", "library") or len(again) > 2:
        return False
    if len(again) == 2:
        if again[0].gpu == fault.gpu:
            return False
        left_out[:] = [one for one in left_out if one[0] not in (again[0].gpu,)]
        left_out.append((None, fault.function))
    elif fault.gpu is None:
        left_out.append((None, fault.function))
    else:
        left_out.append((fault.gpu, "*" if fault.state == "hung" else fault.call))
    return True
