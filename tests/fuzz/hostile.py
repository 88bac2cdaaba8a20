"""Texts made against one pattern: near-matches of it, on as many different lines as are read.

python -m tests.fuzz.hostile [--name PART] [--readers] [--share N/M]

Each line holds the words without which the pattern is not even tried, and a beginning of a match, once or as often as
there is room. What costs much on a few lines is run at full length. Ends with 1 where one pattern takes longer than
`SLOW` seconds.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpudoctor import readers, rulebook
from gpudoctor.discovery import modules_of
from gpudoctor.judge.signs import Text
from gpudoctor.model.fact import Known
from gpudoctor.model.rule import Sign
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.readers._pattern import Pattern
from tests.fuzz.pump import sample, units

SLOW = 0.3
"""Processor time that one pattern may take on the whole of a text; a run has 600 of them, on one text."""
SIZE = 500_000
_SMALL = 20_000
"""Characters on which a text is tried first."""
_WIDTHS = (118, 580)
_MOST_STEMS = 24

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_codes: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")


Shape = tuple[str, str, int]


class Attempt(NamedTuple):
    """A shape of line that was tried on a pattern, and the seconds it took at full length."""

    seconds: float
    shape: Shape


def stems(pattern: str) -> list[str]:
    """Beginnings of matches, longer and longer, through each alternative; and what the pattern repeats."""
    begun = [*units(pattern), *_stems(list(_parser.parse(pattern)), "")]
    found = dict.fromkeys(stem.replace("\n", " ") for stem in begun if 0 < len(stem) < 400)
    return list(found)[:: 1 + len(found) // _MOST_STEMS]


def _stems(items: Sequence[tuple[Any, Any]], before: str) -> Iterator[str]:
    for operation, argument in items:
        if operation is _codes.BRANCH:
            for branch in argument[1]:
                yield from _stems(list(branch), before)
        elif operation is _codes.SUBPATTERN:
            yield from _stems(list(argument[3]), before)
        elif operation in (_codes.MAX_REPEAT, _codes.MIN_REPEAT):
            yield from _stems(list(argument[2]), before)
        before += sample([(operation, argument)])
        yield before


def shapes(pattern: str, needles: Sequence[Sequence[str]]) -> Iterator[Shape]:
    """What a line repeats, the words that it must hold, and its width."""
    words = " ".join(one[0] for one in needles)
    for stem in stems(pattern):
        for width in _WIDTHS:
            yield stem, words, width


def lines(shape: Shape, size: int) -> list[str]:
    """So many characters of such lines, no two alike: the words behind, in front of or amid what is repeated."""
    stem, words, width = shape
    room = max(1, width - len(words) - 10)
    body = (stem * (1 + room // len(stem)))[: room - room % len(stem) or len(stem)]
    half = len(body) // len(stem) // 2 * len(stem)
    kinds = (f"{body} {words}", f"{words} {body}", f"{body[:half]} {words} {body[half:]}")
    return [f"{kinds[number % 3]} {number}" for number in range(size // (len(kinds[0]) + 6))]


def heard(sign: Sign, text: Sequence[str]) -> float:
    """Seconds that one search for the sign takes in these lines."""
    rows = tuple({"line": Known(line, "line 1")} for line in text)
    searched = Text(Snapshot(Target("report", "hostile"), {}, {"text": rows}))
    started = time.process_time()
    searched.find(sign)
    return time.process_time() - started


def worst(sign: Sign) -> Attempt:
    """The shape on which the sign's pattern is slowest."""
    suspects = sorted((heard(sign, lines(shape, _SMALL)), shape) for shape in shapes(sign.match, sign.needles))[-3:]
    return max(Attempt(_at_length(sign, shape, seconds), shape) for seconds, shape in suspects)


def _at_length(sign: Sign, shape: Shape, seconds: float) -> float:
    """Seconds at full length; of what is far too slow already, as many as it would at least take."""
    length = seconds * SIZE / _SMALL
    return length if seconds > SLOW else heard(sign, lines(shape, SIZE))


def reader_patterns() -> Iterator[tuple[str, Any]]:
    """Every pattern of a reader, by module and name."""
    parts = [module for name, module in sys.modules.items() if name.startswith("gpudoctor.readers.")]
    for module in dict.fromkeys([*modules_of(readers), *parts]):
        for name, value in vars(module).items():
            if isinstance(value, (Pattern, re.Pattern)):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", value


def main() -> int:
    """Print the slowest patterns, and every one that is too slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="", help="only pages whose id holds this")
    options = parser.parse_args()
    found = []
    for rule in rulebook.load().rules:
        for number, sign in enumerate(rule.signs, 1):
            if options.name in rule.id:
                attempt = worst(sign)
                found.append((attempt, f"{rule.id} sign {number}"))
                if attempt.seconds > SLOW:
                    print(f"{attempt.seconds:.2f} s  {rule.id} sign {number}  {attempt.shape}", flush=True)
    found.sort(reverse=True)
    print(
        f"{len(found)} patterns, {sum(attempt.seconds > SLOW for attempt, _ in found)} of them too slow; the slowest:"
    )
    for attempt, name in found[:10]:
        print(f"  {attempt.seconds:.2f} s  {name}  {attempt.shape}")
    return int(any(attempt.seconds > SLOW for attempt, _ in found))


if __name__ == "__main__":
    sys.exit(main())
