"""Programs that ask for more GPUs than they find, by their refusals: Lightning, vLLM, verl, and Ray with its status."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 6
FACTS = (
    fact("request.program", "text", "program that asks for GPUs and refuses to start: Lightning, vLLM, verl, Ray"),
    fact("request.gpus_asked", "int", "GPUs that it asks for"),
    fact("request.gpus_there", "int", "GPUs that it finds"),
    fact("request.numbers_missing", "list", "numbers of GPUs that it asks for and does not find"),
)

_COUNTS = (
    (
        "vLLM",
        "world_size (",
        Pattern(
            r"\b(?:local_)?world_size \((?P<asked>\d{1,5})\) (?:must be less than or equal to the number of visible"
            r" devices|is less than than max local gpu count) \((?P<there>\d{1,5})\)"
        ),
    ),
    (
        "vLLM",
        "world size (",
        Pattern(
            r"\bWorld size \((?P<asked>\d{1,5})\) is larger than the number of available GPUs \((?P<there>\d{1,5})\)"
            r" in this node\b"
        ),
    ),
    (
        "verl",
        "total available gpus ",
        Pattern(
            r"\bTotal available GPUs (?P<there>\d{1,5})(?:\.0)? is less than total desired GPUs (?P<asked>\d{1,5})\b"
        ),
    ),
)
_REQUESTED = Pattern(r"\bYou requested (?:gpu|GPUs): \[(?P<numbers>\d[\d, ]{0,60})\]")
_ONLY_HAS = Pattern(r"\s*But your machine only has: \[(?P<numbers>[\d, ]{0,60})\]")
_BUNDLE = Pattern(
    r"\bNo available node types can fulfill resource request [^\n]{0,120}?'GPU': (?P<asked>\d{1,4})(?:\.0)?[,}]"
)
_USAGE = Pattern(r"\s*[\d.]{1,9}/(?P<there>\d{1,5})(?:\.0)? GPU\s*$")
_PROCESSORS = Pattern(r"\s*[\d.]{1,9}/[\d.]{1,9} CPU\s*$")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """What the first such refusal asks for and finds; nothing of Ray without its status."""
    for program, words, pattern in _COUNTS:
        for index, line in paste.having(words):
            if match := pattern.search(line):
                source = paste.use(index)
                yield from _counts(program, int(match["asked"]), int(match["there"]), source)
                return
    for index, line in paste.having("you requested gpu"):
        match = _REQUESTED.search(line)
        below = " ".join(paste.bare[index : index + 2])
        if match and (only := _ONLY_HAS.search(below[below.find("]") + 1 :])):
            asked, there = (_numbers(found["numbers"]) for found in (match, only))
            source = paste.use(index, min(index + 1, len(paste.lines) - 1))
            yield from _counts("Lightning", len(asked), len(there), source)
            yield "request.numbers_missing", Known(tuple(one for one in asked if one not in there), source)
            return
    yield from _ray(paste)


def _ray(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """What Ray's autoscaler finds no node for, beside the GPUs that its status lists; none where it lists CPUs only."""
    there: int | None = None
    for index, line in paste.having(" gpu", " cpu"):
        if match := _USAGE.match(paste.bare[index]):
            there = int(match["there"])
        elif there is None and _PROCESSORS.match(line):
            there = 0
    for index, line in paste.having("no available node types can fulfill"):
        if there is not None and (match := _BUNDLE.search(line)) and int(match["asked"]) > there:
            yield from _counts("Ray", int(match["asked"]), there, paste.use(index))
            return


def _counts(program: str, asked: int, there: int, source: str) -> Iterator[tuple[str, Fact]]:
    """The facts that every refusal gives."""
    yield "request.program", Known(program, source)
    yield "request.gpus_asked", Known(asked, source)
    yield "request.gpus_there", Known(there, source)


def _numbers(text: str) -> tuple[str, ...]:
    """The numbers in a list."""
    return tuple(number.strip() for number in text.split(",") if number.strip())
