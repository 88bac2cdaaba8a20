"""Arrays of machine words, and how they differ from those that we reckoned: how many, where first, in which bits."""

from __future__ import annotations

from array import array
from typing import Any, Dict, Sequence

from .._kernel import Outcome


def turned(data: bytes) -> bytes:
    """Each bit inverted: what lies where an answer is to come, so that none that was there before is taken for it."""
    return bytes(data).translate(_TURNED)


_TURNED = bytes(range(255, -1, -1))


def dice(context: Any, count: int, salt: int) -> "array[int]":
    """So many random words of 32 bits."""
    bits: int = context.random(salt).getrandbits(32 * count)
    return array("I", bits.to_bytes(4 * count, "little"))


def judged(what: str, got: bytes, wanted: bytes) -> Outcome:
    """Two arrays of 32-bit words, bit by bit."""
    count = len(wanted) // 4
    if got == wanted:
        return Outcome(right=True, differ=0, compared=count)
    pairs = list(zip(array("I", got), array("I", wanted)))
    bad = [(at, one ^ other) for at, (one, other) in enumerate(pairs) if one != other]
    at, bits = bad[0]
    said = "%s: %d of %d values %s wrong, the first at %d, where %s" % (
        what,
        len(bad),
        count,
        "is" if len(bad) == 1 else "are",
        at,
        bits_in_words(bits),
    )
    return Outcome(right=False, differ=len(bad), compared=count, words=said)


def bits_in_words(difference: int) -> str:
    """``bit 5 is wrong``; ``bits 0, 1, 7 are wrong``; of many, how many."""
    bits = [at for at in range(difference.bit_length()) if difference >> at & 1]
    if len(bits) > 8:
        return "%d bits are wrong" % len(bits)
    return "bit%s %s %s wrong" % ("s" * (len(bits) > 1), ", ".join(map(str, bits)), "are" if len(bits) > 1 else "is")


def together(parts: Sequence[Outcome], **details: Any) -> Outcome:
    """Several comparisons as one outcome."""
    wrong = [part for part in parts if not part.right]
    more: Dict[str, Any] = details
    return Outcome(
        right=not wrong,
        differ=sum(part.differ or 0 for part in parts),
        compared=sum(part.compared or 0 for part in parts),
        words="; ".join(part.words for part in wrong[:2]),
        details=more or None,
    )
