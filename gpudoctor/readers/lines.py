"""Every line worth searching for a rule's signs, and how much of the paste the readers could place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

_FURNITURE = Pattern(
    r"[-+|=\s]+|Collecting environment information\.*|Versions of relevant libraries:|Is debug build: \w+"
    r"|[|] (?:GPU|Fan) .*"
)
"""Lines that carry nothing: frames, headings."""

EXACT = 0
"""Read last: by then the other readers have said which lines they understood."""
FACTS = (
    column("text.line", "text", "one line of machine-printed text"),
    fact("report.lines", "int", "lines in the pasted report that are not blank"),
    fact("report.placed", "int", "lines that a reader could place"),
    fact("report.trouble", "list", "readers that failed on this text, or found it too costly to read, and how"),
    fact("report.clashes", "list", "facts to which files that were read together give different answers"),
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """All kept lines that are not blank, as rows; `gpudoctor.readers` counts them when every reader is done."""
    for index, line in enumerate(paste.lines):
        if line[:1] in "+|=-$#CVI" and _FURNITURE.fullmatch(line):
            paste.use(index)
    for index in paste.commands:
        paste.use(index)
    numbered = list(zip(paste.numbers, paste.lines, strict=True))
    rows: list[dict[str, Fact]] = []
    for index, line in enumerate(paste.lines):
        if line.strip() and index not in paste.data:
            rows.append({"line": Known(line, f"line {paste.numbers[index]}")})
    rows += [{"line": Known(text, source)} for text, source in (*_unwrapped(numbered), *_unstamped(paste))]
    yield "text", tuple(rows)


def _unwrapped(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Messages of the driver that the kernel log shows over several lines, each on one: its text and its lines.

    The driver wraps at about 60 columns and repeats ``NVRM:``; a sentence goes on where the next line starts small.
    """
    words: list[str] = []
    first = last = 0
    for number, line in [*numbered, (0, "")]:
        body = found[1].strip() if "NVRM: " in line and (found := _NVRM.search(line)) else ""
        if body and words and not words[-1].endswith(".") and (body[0].islower() or len(words) > 1):
            words.append(body)
            last = number
            continue
        if len(words) > 1:
            yield "NVRM: " + " ".join(words), f"lines {first}-{last}"
        words, first = [body] if body else [], number


def _unstamped(paste: Paste) -> Iterator[tuple[str, str]]:
    """Lines of a program's log once more without what the logger put in front, where several follow each other.

    A message of several lines is one message, though torchrun writes ``[rank0]:`` and vLLM its time before each line.
    """
    run: list[tuple[str, str]] = []
    for index, (line, bare) in enumerate(zip(paste.lines, paste.bare, strict=True)) if paste.whole else ():
        listed = index in paste.listed or index in paste.commands
        if bare != line and not listed and "kernel:" not in line and not _KERNEL.match(line):
            if bare.strip():
                run.append((bare, f"line {paste.numbers[index]}"))
            continue
        if len(run) > 1:
            yield from run
        run = []
    if len(run) > 1:
        yield from run


_KERNEL = Pattern(r"\s*\[\s*\d+\.\d+\]")
_NVRM = Pattern(r"NVRM: (.*)")
