"""Texts made against one pattern: near-matches of it, on as many different lines as are read.

python -m tests.fuzz.hostile [--name PART ...]

Each line holds the words without which the pattern is not even tried, and a beginning of a match, once or as often as
there is room, or what the pattern repeats, behind what leads to it. Between such lines may stand others that hold
nothing but what is repeated, for a match may go over the ends of lines. What costs most on a few lines is run at full
length: each pattern alone, the signs of each page together through the whole path, and what the readers look for. Ends
with 1 where something takes too long.
"""

import argparse
import importlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from gpudoctor import readers
from gpudoctor.core.fact import Known
from gpudoctor.core.pattern import TooCostlyError
from gpudoctor.core.rule import Sign
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge.signs import Text
from gpudoctor.diagnosis.rulebook.compiled import word_index
from gpudoctor.readers._pattern import Pattern
from tests.fuzz.examine import examine
from tests.fuzz.pump import runs, sample, units

SLOW = 0.3
"""Processor time that one pattern may take on the whole of a text; a run has 600 of them, on one text."""
WHOLE, READ = 2.0, 1.0
"""And the whole of a run; its readers."""
SIZE = 500_000
_SMALL = 20_000
"""Characters on which a text is tried first."""
_WIDTHS = (118, 580)
_READ_WIDTHS = (118, 3900)
_NARROW = 96
"""Characters of a shorter run of what is repeated, again and again in a line: gaps are read no wider than this."""
_MOST_STEMS = 24
_AROUND = 12
"""Lines between two with words: as many as are searched around both."""

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_codes: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")


class Shape(NamedTuple):
    """What a line begins with, what it repeats, the words that it must hold, its width, and lines without words.

    The last is how many lines of nothing but what is repeated follow each.
    """

    lead: str
    stem: str
    words: str
    width: int
    between: int = 0


_NONE = Shape("", "", "", 0)


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


def shapes(pattern: str, required_words: Sequence[Sequence[str]]) -> Iterator[Shape]:
    """Every kind of line that may drive the pattern to despair."""
    words = " ".join(one[0] for one in required_words)
    for stem in stems(pattern):
        for width in _WIDTHS:
            yield Shape("", stem, words, width)
    for lead, stem in _runs(pattern):
        yield Shape(lead, stem, words, _WIDTHS[-1])
        yield Shape(lead, stem, words, _WIDTHS[-1], between=_AROUND)


def _runs(pattern: str) -> list[tuple[str, str]]:
    found = dict.fromkeys((lead.replace("\n", " "), stem.replace("\n", " ")) for lead, stem in runs(pattern))
    return list(found)[:: 1 + len(found) // _MOST_STEMS]


def lines(shape: Shape, size: int) -> list[str]:
    """So many characters of such lines, no two alike: the words behind, in front of or amid what is repeated."""
    lead, stem, words, width, between = shape
    room = max(1, width - len(lead) - len(words) - 10)
    body = (stem * (1 + room // len(stem)))[: room - room % len(stem) or len(stem)]
    half = len(body) // len(stem) // 2 * len(stem)
    kinds = (f"{lead}{body} {words}", f"{words} {lead}{body}", f"{lead}{body[:half]} {words} {body[half:]}")
    found: list[str] = []
    for number in range(size // (len(kinds[0]) + 6) // (1 + between)):
        found.append(f"{kinds[number % 3]} {number}")
        found += [body[: len(body) - (number * between + one) % len(body)] for one in range(between)]
    return found


def heard(sign: Sign, text: Sequence[str]) -> float:
    """Seconds that one search for the sign takes in these lines."""
    rows = tuple({"line": Known(line, "line 1")} for line in text)
    searched = Text(Snapshot(Target("report", "hostile"), {}, {"text": rows}), word_index([sign]))
    started = time.process_time()
    with suppress(TooCostlyError):
        searched.find(sign)
    return time.process_time() - started


def worst(sign: Sign) -> Attempt:
    """The shape on which the sign's pattern is slowest."""
    suspects = sorted((heard(sign, lines(shape, _SMALL)), shape) for shape in shapes(sign.match, sign.required_words))[
        -3:
    ]
    return max(Attempt(_at_length(sign, shape, seconds), shape) for seconds, shape in suspects)


def _at_length(sign: Sign, shape: Shape, seconds: float) -> float:
    """Seconds at full length; of what is far too slow already, as many as it would at least take."""
    length = seconds * SIZE / _SMALL
    return length if seconds > SLOW else heard(sign, lines(shape, SIZE))


def reader_patterns() -> Iterator[tuple[str, str]]:
    """Every pattern of a reader, by module and name."""
    readers.readers_by_exactness()
    parts = [module for name, module in sys.modules.items() if name.startswith("gpudoctor.readers.")]
    for module in dict.fromkeys([*modules_of(readers), *parts]):
        for name, value in vars(module).items():
            if isinstance(value, (Pattern, re.Pattern)):
                source = value.source if isinstance(value, Pattern) else value.pattern
                yield f"{module.__name__.rpartition('.')[2]}.{name}", source


def read_in(text: Sequence[str]) -> float:
    """Seconds that the readers take for these lines."""
    started = time.process_time()
    readers.read_text("\n".join(text))
    return time.process_time() - started


def worst_read(pattern: str) -> Attempt:
    """The shape on which the readers are slowest; `pattern` is one of theirs."""
    tried = [Shape("", stem, "", width) for stem in stems(pattern) for width in _READ_WIDTHS]
    tried += long_lines(pattern)
    seconds, shape = max(((read_in(lines(shape, _SMALL)), shape) for shape in tried), default=(0, _NONE))
    return Attempt(seconds * SIZE / _SMALL if seconds > READ else read_in(lines(shape, SIZE)), shape)


def long_lines(pattern: str) -> list[Shape]:
    """What leads to what the pattern repeats, with that to the end of the line, or with less of it over and over."""
    width = _READ_WIDTHS[-1]
    long = [Shape(lead, stem, "", width) for lead, stem in _runs(pattern)]
    return long + [Shape("", lead + stem * (_NARROW // len(stem)), "", width) for lead, stem in _runs(pattern)]


def together(attempts: Sequence[Attempt]) -> str:
    """One document with lines of all these shapes."""
    return "\n".join(line for one in attempts for line in lines(one.shape, SIZE // len(attempts)))


def main() -> int:
    """Print the slowest patterns, readers and documents, and each that is too slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", nargs="+", default=[""], help="only pages whose id, or readers whose name, holds one")
    parts = parser.parse_args().name
    named: list[tuple[str, Attempt]] = []
    documents: list[tuple[str, Attempt]] = []
    for rule in rulebook.load().rules:
        if any(part in rule.id for part in parts) and rule.signs:
            attempts = [worst(sign) for sign in rule.signs]
            named += [(f"{rule.id} sign {number}", one) for number, one in enumerate(attempts, 1)]
            examined = examine(together(attempts).encode(), "report")
            documents.append((f"all of {rule.id} {examined.problems}", Attempt(examined.seconds, _NONE)))
    read = [(name, worst_read(pattern)) for name, pattern in reader_patterns() if any(part in name for part in parts)]
    told = (
        _told("patterns", named, SLOW),
        _told("documents", documents, WHOLE),
        _told("readers' patterns", read, READ),
    )
    return int(any(told))


def _told(what: str, attempts: Sequence[tuple[str, Attempt]], most: float) -> int:
    """Print the slowest; how many took longer than `most` seconds."""
    order = sorted(attempts, key=lambda entry: -entry[1].seconds)
    slow = sum(one.seconds > most for _, one in order)
    print(f"{len(order)} {what}, {slow} of them over {most} s; the slowest:")
    for name, one in order[: max(8, slow)]:
        print(f"  {one.seconds:.2f} s  {name}  {one.shape}")
    return slow


if __name__ == "__main__":
    sys.exit(main())
