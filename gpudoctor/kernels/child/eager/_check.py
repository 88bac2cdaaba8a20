"""Whether a result is right, against a reference that the device had no part in.

Two ways. `exact`: inputs are whole numbers, chosen so that every product and every partial sum is exact in the
accumulator and the result exact in its own type, in whatever order it is summed; one wrong bit is one wrong value.
`close`: where rounding differs by design, a bound from the type, over results that are all of like size, so that no
small value hides a flipped bit; `mantissa_bits` says which bits of the mantissa such a bound can see.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple


class Judged(NamedTuple):
    """How many values are wrong, of how many; where the first of them is."""

    differ: int
    compared: int
    first: Tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """``3 of 4096 values are wrong, the first at (17, 3)``; nothing where none is."""
        if not self.differ:
            return ""
        verb = "is" if self.differ == 1 else "are"
        return "%d of %d values %s wrong, the first at %s" % (self.differ, self.compared, verb, list(self.first))

    def outcome(self) -> Any:
        """As the start of an outcome."""
        return {"right": self.differ == 0, "differ": self.differ, "compared": self.compared, "words": self.words}


def exact(torch: Any, result: Any, reference: Any) -> Judged:
    """Every value against `reference` (both brought to the CPU); NaN is never equal."""
    here = result.detach().cpu()
    wrong = here.to(torch.float64) != reference.to(torch.float64)
    return _judged(wrong)


def close(torch: Any, result: Any, reference: Any, bound: float) -> Judged:
    """Every value within `bound` of the float64 `reference`, as a share of its size."""
    here = result.detach().cpu().to(torch.float64)
    wrong = ~((here - reference).abs() <= bound * reference.abs())  # so that NaN is wrong
    return _judged(wrong)


def _judged(wrong: Any) -> Judged:
    count = int(wrong.sum())
    first = tuple(int(at) for at in wrong.nonzero()[0]) if count else ()
    return Judged(count, wrong.numel(), first)
