"""One checked computation, and what comes of repeating it.

A kernel's file gives ``cases(context, name, size)``; ``run`` and the test that flips bits go through the same cases.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple

from .._kernel import CannotRun
from ._check import Judged, bits, exact

REPEATS = 3
_ROOM = 256 << 20
"""Bytes that must be free on a GPU for anything of this rung: what is reckoned with, and what libraries load for it."""
_REFUSALS = ("NOT_SUPPORTED", "not implemented for")
UNSEEN = -1
"""As the bound of a `Case` that does not promise to see any single flipped bit."""


class Case(NamedTuple):
    """One computation on the device, and how its result is judged."""

    name: str
    """As words take it: ``exp of fp16``."""
    compute: Callable[[], Any]
    """The result, one real tensor on the device, the same bits at every call; may raise `CannotRun`."""
    judge: Callable[[Any], Judged]
    ulps: int = 0
    """The bound that `judge` allows, in units of the last place; 0 where all must be exact; or `UNSEEN`."""


def exactly(context: Any, name: str, values: Any, reference: Any, work: Callable[[Any], Any]) -> Case:
    """What the device makes of the values must be the reference to the bit."""
    return Case(
        name,
        lambda: work(values.to(context.device)),
        lambda result: exact(context.torch, result, reference),
    )


def checked(context: Any, cases: Iterable[Case]) -> Dict[str, Any]:
    """Compute each case three times, judge it, and say so as the start of an outcome.

    A repetition whose bits are those of the first needs no judging anew; what the CPU judged is the first itself.
    """
    if not context.on_cpu:
        context.need(_ROOM)
    said: List[str] = []
    missing: Dict[str, None] = {}
    differ = compared = 0
    equal, digest = True, hashlib.blake2b(digest_size=8)
    for case in cases:
        try:
            first = _computed(context, case)
        except CannotRun as error:
            missing[str(error)] = None
            continue
        verdicts = [case.judge(first)]
        _update(digest, first)
        for _ in range(REPEATS - 1):
            again = _computed(context, case)
            same = context.torch.equal(bits(context.torch, first), bits(context.torch, again))
            equal = equal and same
            verdicts.append(verdicts[0] if same else case.judge(again))
        compared += verdicts[0].compared
        worst = max(verdicts, key=lambda one: one.differ)
        differ += worst.differ
        if worst.differ:
            said.append("%s: %s, %s" % (case.name, worst.words, recurrence(verdicts)))
    if not compared:
        raise CannotRun("; ".join(missing) or "there is nothing to compute")
    absent = ["Not run: " + "; ".join(missing)] if missing else []
    details: Dict[str, Any] = {"repeats_equal": equal}
    if equal:
        details["digest"] = digest.hexdigest()
    if not equal and not differ:
        said.append("repetitions differ from each other, each within the bound")
    words = ". ".join(said + absent)
    return {"right": not differ, "differ": differ, "compared": compared, "words": words, "details": details}


def _computed(context: Any, case: Case) -> Any:
    """Its result; what is raised says which case it was."""
    try:
        return case.compute()
    except RuntimeError as error:
        if "bf16" in case.name and before_bf16(context, error):
            raise CannotRun("bf16: not on this device") from error
        error.args = ("%s: %s" % (case.name, error),)
        raise


def before_bf16(context: Any, error: Exception) -> bool:
    """Whether a library says so that it has none for a GPU before compute capability 8.0, which has no such units.

    cuBLAS multiplies bf16 on Volta and Turing, not on Pascal: pytorch/pytorch issue 57773 (May 2021).
    """
    old = not context.on_cpu and context.capability() < (8, 0)
    return old and any(words in str(error) for words in _REFUSALS)


def recurrence(verdicts: List[Judged]) -> str:
    """``the same 3 in 3 of 3 repetitions: not noise``, or in how many of them any value was wrong."""
    always = frozenset.intersection(*(one.places for one in verdicts))
    if always:
        return "the same %d in %d of %d repetitions: not noise" % (len(always), len(verdicts), len(verdicts))
    bad = sum(1 for one in verdicts if one.differ)
    return "in %d of %d repetitions, never at the same place in all" % (bad, len(verdicts))


def _update(digest: Any, values: Any) -> None:
    """Feed the tensor's bytes; numpy, which torch would need for it, may not be there."""
    here = values.detach().cpu().contiguous()
    size = here.numel() * here.element_size()
    if size:
        digest.update((ctypes.c_char * size).from_address(here.data_ptr()))
