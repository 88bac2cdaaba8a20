"""Every line worth searching for a rule's signs, and how much of the paste the readers could place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Rows
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
    """Rows of ``text``: every kept line that is not blank; after these, as further rows, driver messages that were
    wrapped, each as one line, and runs of log lines without their prefix.

    Lines that hold values only are left out; frames, headings and commands are marked as placed.
    """
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
    rows += [
        {"line": Known(text, source)}
        for text, source in (*_rejoined_driver_messages(numbered), *_without_log_prefix(paste))
    ]
    yield "text", tuple(rows)


def _rejoined_driver_messages(numbered: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Driver messages that the kernel log wraps over several lines, each as one text with its source.

    The driver wraps at about 60 columns and repeats ``NVRM:``; a message continues where the next line starts lower
    case, and from there on up to a line that ends with a full stop.
    """
    parts: list[str] = []
    first = last = 0
    for number, line in [*numbered, (0, "")]:
        body = message[1].strip() if "NVRM: " in line and (message := _NVRM.search(line)) else ""
        if body and parts and not parts[-1].endswith(".") and (body[0].islower() or len(parts) > 1):
            parts.append(body)
            last = number
            continue
        if len(parts) > 1:
            yield "NVRM: " + " ".join(parts), f"lines {first}-{last}"
        parts, first = [body] if body else [], number


def _without_log_prefix(paste: Paste) -> Iterator[tuple[str, str]]:
    """Text and source of consecutive log lines without the logger's prefix (``[rank0]:``, a time).

    Only runs of two lines and more: a message over several lines is then one message. Nothing where the paste was cut.
    """
    consecutive: list[tuple[str, str]] = []
    for index, (line, bare) in enumerate(zip(paste.lines, paste.bare, strict=True)) if paste.whole else ():
        listed = index in paste.listed or index in paste.commands or _DAEMON.search(line)
        if bare != line and not listed and "kernel:" not in line and not _KERNEL.match(line):
            if bare.strip():
                consecutive.append((bare, f"line {paste.numbers[index]}"))
            continue
        if len(consecutive) > 1:
            yield from consecutive
        consecutive = []
    if len(consecutive) > 1:
        yield from consecutive


_DAEMON = Pattern(r" (?!nvidia|slurm|docker|container)[a-z-]+d\[\d+\]: ")
"""syslog's prefix of a system service, sshd or rpcbind: without it nothing tells its messages from the job's."""
_KERNEL = Pattern(r"\s*\[\s*\d+\.\d+\]")
_NVRM = Pattern(r"NVRM: (.*)")
