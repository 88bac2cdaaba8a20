"""How many GPUs a machine has, in people's words: ``the server has two A100``, ``only one GPU here``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 1

_NUMBERS = {"one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8}
_NUMBER = rf"(?P<n>{'|'.join(_NUMBERS)}|[1-9]\d?)"
_CARD = (
    r"(?:[ -]|[x×] ?| ?[x×] )(?:(?:nvidia|geforce|physical|identical|cuda|tesla|quadro|local|visible) )*"
    r"(?:gpus?|graphics cards?|cards?|(?:rtx|gtx|a|h|l|v|p|t)[ -]?\d{1,4}\w*)\b"
)
_MACHINE = (
    r"(?:machine|server|host|box|workstation|system|computer|node|laptop|pc|instance|vm|desktop|container|pod|job)"
)
_WORDS = (
    Pattern(
        rf"\b{_MACHINE}\b(?: only| just)? (?:has|with|have|got|offers|sees|shows)(?: only| just)?(?: an?| the)?"
        rf" {_NUMBER}{_CARD}",
        2,
    ),
    Pattern(rf"^\W*(?:(?:the|this|my|our) )?{_MACHINE}(?: hardware)?\s*:\s*(?:an? )?{_NUMBER}{_CARD}", 2),
    Pattern(rf"\b(?:only|just|there is|there are|i have|we have)(?: an?| the)? {_NUMBER}{_CARD}", 2),
    Pattern(rf"\b{_NUMBER}[ -]gpu {_MACHINE}\b", 2),
)
_NOT_HERE = Pattern(
    r"\b(?:works?|worked|other|another|different|expected|should|need\w*|requires?|want\w*|used?|using)\b", 2
)
_LISTED = Pattern(r"\bGPU \d{1,2}:\s?\S")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """``gpu.count``, from the first line that speaks of this machine's GPUs."""
    for label in paste.labels:
        if label.name.startswith("nvidia smi l") and (found := _LISTED.compiled.findall(label.value)):
            yield "gpu.count", Known(len(found), f"line {paste.numbers[label.index]}")
            return
    for index, line in enumerate(paste.bare):
        if not line or len(line) > 200 or line[0] in "|+" or _NOT_HERE.search(line):
            continue
        for pattern in _WORDS:
            if match := pattern.search(line):
                said = match["n"].lower()
                yield "gpu.count", Known(_NUMBERS.get(said) or int(said), f"line {paste.numbers[index]}")
                return
