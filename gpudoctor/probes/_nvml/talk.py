"""The children that ask NVML: where one hangs or crashes, another asks the rest without the call at fault."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from gpudoctor.model.frozen import field, frozen
from gpudoctor.probes._child import CHILDREN, script
from gpudoctor.probes._nvml.told import HANDLE, Fault, Told
from gpudoctor.target import Answer, Target, Watch
from gpudoctor.target.protocol import answers, patience, printable

_ALONE = {"LD_PRELOAD": ""}
"""NVML is asked without what the session preloads: that is about its own programs."""
SECONDS = patience("GPUDOCTOR_NVML_TIMEOUT", 5.0)
"""Seconds for each GPU to open, or to answer. NVML needs milliseconds where the driver stays loaded; without
persistence mode each GPU takes 1 to 3 s to open, one after the other; 6.6 s were seen with confidential computing.
"""

QUICK_WAIT = 30.0
"""Seconds that GPUs may take to open at level quick, where `Target.wait` says nothing else."""

_MOST = 8 << 20
"""Bytes that a child may print; sixteen GPUs of eighteen links need a tenth of it."""
_LEAST = 0.25
"""Seconds below which another child is not worth starting."""


@frozen
class Limits:
    """Seconds: for all GPUs to open, for all that is asked of them then, and for one call to return."""

    opening: float
    asking: float
    call: float

    @property
    def whole(self) -> float:
        """For all children together."""
        return self.opening + self.asking


def limits(target: Target, gpus: int, seconds: float = SECONDS) -> Limits:
    """What a machine of so many GPUs is given; the kernel's driver is entitled to seconds for each of them."""
    opening = max(6, 1 + gpus) * seconds
    if target.wait is not None:
        opening = target.wait
    elif target.level == "quick":
        opening = min(QUICK_WAIT, 6 * seconds)
    return Limits(opening, (4 + gpus) * seconds, 2 * seconds)


@frozen
class Order:
    """What the children are to do: open all GPUs, or where some are `asleep` (their indices and why) only `awake`
    (index and PCI address of each).
    """

    limits: Limits
    awake: Sequence[tuple[int, str]] | None = None
    asleep: Mapping[int, str] = field(default_factory=dict)
    unprivileged: bool = False
    """Whether they give up the right to load kernel modules and to make device files."""


def ask(target: Target, order: Order) -> Told:
    """Ask until everything was answered, the time is up, or a call is at fault a second time."""
    told = Told(faults=[Fault(gpu, HANDLE, "asleep", why) for gpu, why in order.asleep.items()])
    argv = child_argv("ask_nvml.py")
    if not argv:
        told.broken = "the package nvidia-ml-py is not installed beside gpudoctor"
        return told
    until = time.monotonic() + order.limits.whole
    left_out: list[tuple[int | None, str]] = []
    while not told.done:
        left = until - time.monotonic()
        options = {
            "left_out": left_out,
            "seconds": min(order.limits.opening, left),
            "awake": order.awake,
            "unprivileged": order.unprivileged,
        }
        argv_now, watch = [*argv, json.dumps(options)], _watching(target, order.limits.opening)
        try:
            answer = target.run(argv_now, left, _ALONE, limit=_MOST, silence=order.limits.call, watch=watch)
        except OSError as error:
            told.broken = f"the child that asks NVML could not be started: {error.strerror or error}"
            break
        fault = _understood(told, answer, left, order.limits.call)
        left_out += [(late.gpu, "*") for late in told.faults if late.call == HANDLE and (late.gpu, "*") not in left_out]
        if not fault or until - time.monotonic() < _LEAST or not _leaves_out(left_out, told.faults, fault):
            break
    target.listener("nvml", "")
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


def _watching(target: Target, opening: float) -> Watch:
    """Tells the target's listener what NVML is waited for; ends a child whose NVML does not start, or does not end."""
    unopened = False

    def watch(line: str | None) -> bool:
        nonlocal unopened
        if not line or not any(word in line for word in ('"waking"', '"starting"', '"unopened"', '"opened"', '"done"')):
            return True
        for entry in answers(line):
            if "waking" in entry:
                words = f"GPU {entry['waking']} of {entry['of']} is waking, {entry['seconds']:.0f} s"
                target.listener("nvml", words)
            elif "starting" in entry:
                target.listener("nvml", f"NVML is starting, {entry['seconds']:.0f} s")
                if entry["seconds"] > opening:
                    return False
            elif "opened" in entry:
                target.listener("nvml", "")
            unopened = unopened or "unopened" in entry
            if "done" in entry and unopened:
                return False
        return True

    return watch


def _understood(told: Told, answer: Answer, seconds: float, quiet: float) -> Fault | None:
    """Take in what the child said; the fault in which it ended, None where it came to its end or broke by itself."""
    current = told.hear(answer)
    if answer.stuck is not None:
        told.stuck = answer.stuck
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
    if not told.started or where == "nvmlDeviceGetCount":  # no GPU is open yet: waited for as long as for GPUs to open
        return "hung", f"{where} did not return within {answer.seconds:.0f} s{left}"
    if answer.seconds < seconds:
        return "hung", f"{where} did not return within {quiet:g} s{left}"
    slowest = f", {told.slowest[1]} alone {told.slowest[0]:.1f} s" if told.slowest[1] else ""
    calls = f"{len(told.asked)} calls took {seconds:.2g} s{slowest}"
    return "slow", f"NVML is slow: {calls}; the time was up at {where}{left}"


def _leaves_out(left_out: list[tuple[int | None, str]], before: list[Fault], fault: Fault) -> bool:
    """Leave out the call at fault, or all of a GPU that hangs; a function that fails again, for every GPU.

    False where leaving something out cannot help: NVML is slow, does not start, or did not mind.
    """
    again = [one for one in before if (one.function, one.state) == (fault.function, fault.state)]
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
