"""A pasted text, cleaned of what terminals, mail programs and chat windows put around it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from gpudoctor.model.secrets import without_secret_lines
from gpudoctor.readers._labels import Label, label_of
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._select import select

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SPACES = dict.fromkeys("\xa0\u2007\u202f\u3000", " ") | dict.fromkeys("\r\v\f\x85\u2028\u2029", "\n")
_SHARE = 4
"""How little is kept of each piece of a log, for all of them are selected from once more."""
_FENCE = re.compile(r"\s*(?:```|~~~)[\w+-]*\s*$")
_NARROW = 200
"""Characters of a line that is not worth a look for gaps."""
_GAP = re.compile(r"(?<=\s{100})\s+")
"""What goes of a gap in a line: no table has one as wide, and a pattern may try every way to share it out."""
_QUOTE = re.compile(r"(?:>(?!>> ) ?)+")

_STAMP = re.compile(
    r"\s*(?:"
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s+"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+"
    r"|[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \S+ (?:[\w./@-]+\[\d+\]: ?|(?=\S+: ))"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]+:\d+\] ?"
    r"|\[\s*\d+\.\d+\]\s+"
    r"|\[[Rr]ank ?\d+\]:?\s+"
    r"|\[\d+,\d+\]<std(?:out|err)>:\s?"
    r"|\([\w -]+ pid=\d+(?:, ip=[\d.]+)?\)\s+"
    r"|[a-zA-Z][\w.\-]{1,40}[-_]\d+\s+\|\s"
    r")"
)
_NUMBER = re.compile(r"\s*(\d{1,6})(?:\s?[|:]|\t)\s?")
_PROMPT = re.compile(
    r"\s*(?:\([\w.\-]+\) ?)?"
    r"(?:"
    r"(?:\[?[\w.\-]+@[\w.\-]+[:\s~/][^$#>\n]{0,120}?\]?)\s*[$#%>]\s?"
    r"|\[[^\]\n]{1,60}\]\s*[$#]\s"
    r"|(?:~(?:/[^\s$#%>]{0,120})?|/[\w.\-/]{0,120}) ?(?:\$\s+(?=\S)"
    r"|#\s+(?=[A-Z][A-Z_]{2,40}=\S|(?:nvidia-smi|nvcc|python3?|pip3?|ls|env|echo|cat|export|ldconfig|ldd|df)\b))"
    r"|(?:ba|k|z)?sh-\d\.\d{1,2}[$#]\s"
    r"|(?:#\s+)?[$%❯➜]\s+"
    r"|#\s+(?=(?:sudo|nvidia-smi|nvcc|python3?|pip3?|conda|cat|export|env|printenv|echo|dmesg|journalctl|lsmod"
    r"|lspci|uname|ulimit|df|docker|dkms|mokutil|modinfo|modprobe|ls|ldd|gcc|systemctl)\b)"
    r"|PS [A-Za-z]:[^>\n]{0,120}>\s?"
    r"|[A-Za-z]:\\[^>\n]{0,120}>\s?"
    r"|!(?=\s?[a-z])"
    r"|>>> "
    r"|In ?\[\d*\]: ?"
    r")"
)

_FAILED = re.compile(
    r"\bERR!|Unknown Error|GPU is lost|requires reset|Insufficient Permissions|Driver Not Loaded|Not Found\b"
)
"""What NVIDIA's tools print in place of a value when the driver gave an error: NVML's words for its return codes."""


class Paste:
    """The lines, and which of them a reader could place.

    `lines` are cleaned: no control characters, fences and documentation emptied, quote marks taken off. Of a large log
    only the lines worth reading are kept (see `_select`); `use` still names the line as the paste counts it.
    """

    def __init__(self, text: str) -> None:
        kept = select(_plain(text))
        self.numbers = kept.numbers
        self.total = kept.total
        self.whole = kept.whole
        self.lines = without_secret_lines([_clean(line) for line in kept.lines])
        self.used: set[int] = set()
        self.listed: set[int] = set()
        self.data: set[int] = set()
        if self.whole:
            for index in documentation(self.lines, [at for at, line in enumerate(self.lines) if _PROMPT.match(line)]):
                self.used.add(index)
                self.lines[index] = ""

    @cached_property
    def text(self) -> str:
        """All kept lines as one string."""
        return "\n".join(self.lines)

    @cached_property
    def lower(self) -> str:
        """`text` in lower case, for cheap tests before any pattern is tried."""
        return self.text.lower()

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line.lower()) + 1 for line in self.lines), initial=0))[:-1]

    @cached_property
    def commands(self) -> dict[int, str]:
        """What was typed at a prompt, by index of the line."""
        found = ((index, _PROMPT.match(line)) for index, line in enumerate(self.lines) if line)
        return {index: self.lines[index][match.end() :].strip() for index, match in found if match}

    @cached_property
    def bare(self) -> list[str]:
        """The lines without prompts, time stamps and line numbers in front."""
        lines = [self.commands.get(index, line) for index, line in enumerate(self.lines)]
        return _unnumbered([_without(_STAMP, _without(_STAMP, line)) for line in lines])

    @cached_property
    def labels(self) -> list[Label]:
        """Every line that reads ``label: value``."""
        found = (label_of(index, line) for index, line in enumerate(self.bare) if line)
        return [label for label in found if label]

    def having(self, *needles: str) -> Iterator[tuple[int, str]]:
        """Index and text of each line that holds one of `needles` (lower case), in order."""
        hits: set[int] = set()
        for needle in needles:
            place = self.lower.find(needle)
            while place >= 0:
                index = bisect_right(self._starts, place) - 1
                hits.add(index)
                place = self.lower.find(needle, self._starts[index] + len(self.lines[index].lower()))
        for index in sorted(hits):
            yield index, self.lines[index]

    def output(self, index: int, most: int = 200) -> Iterator[tuple[int, str]]:
        """The lines that follow the command in line `index`: to the next command, or to the second blank line."""
        blanks = 0
        for after in range(index + 1, min(len(self.lines), index + 1 + most)):
            blanks = blanks + 1 if not self.lines[after].strip() else 0
            if after in self.commands or blanks > 1:
                return
            if not blanks:
                yield after, self.lines[after]

    def asked(self, *words: str) -> Iterator[tuple[int, str]]:
        """Index and text of each command that starts with, or pipes from, one of `words`."""
        for index, command in self.commands.items():
            head = command.removeprefix("sudo ").lstrip()
            if head.startswith(words):
                yield index, command

    def use(self, first: int, last: int | None = None) -> str:
        """Mark the lines as placed; returns their source, as facts name it."""
        last = first if last is None else last
        self.used.update(range(first, last + 1))
        if first == last:
            return f"line {self.numbers[first]}"
        return f"lines {self.numbers[first]}-{self.numbers[last]}"

    def understand(self, *indexes: int, data: bool = False) -> None:
        """Mark lines of a listing of state, such as nvidia-smi -q, that a reader understood.

        `data`: they hold values only (CSV, XML), in which no rule looks for messages either. A line that shows a value
        which the tool could not get stays what it was.
        """
        told = {index for index in indexes if not _FAILED.search(self.lines[index])}
        self.used |= told
        self.listed |= told
        if data:
            self.data |= told


def clean(text: str) -> str:
    """One line of text without control characters, for anything that is shown."""
    return _plain(_ANSI.sub("", text)).replace("\n", " ")


def worth_reading(piece: str) -> str:
    """The lines of a piece of a log worth reading, each where it stood: the others are empty."""
    plain = _plain(piece)
    kept = select(plain, _SHARE)
    lines: list[str] = []
    last = 1
    for number, line in zip(kept.numbers, kept.lines, strict=True):
        lines.append("\n" * (number - last) + line)
        last = number
    return "".join(lines) + "\n" * (plain.count("\n") + 1 - last)


def _plain(text: str) -> str:
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n")
    for mark, plain in _SPACES.items():
        if mark in text:
            text = text.replace(mark, plain)
    return _CONTROL.sub("", text)


def _clean(line: str) -> str:
    line = line.rstrip()
    if not line:
        return line
    if len(line) > _NARROW:
        line = _GAP.sub("", line)
    if line[0] in "`~ \t" and _FENCE.match(line):
        return ""
    if line[0] == ">" and not line.startswith(">>> "):
        return _QUOTE.sub("", line, count=1)
    return line


def _unnumbered(lines: list[str]) -> list[str]:
    """The lines without the counting 1, 2, 3 that an editor or a viewer put in front, if it did."""
    filled = [line for line in lines if line.strip()]
    heads = [match for line in filled[:200] if (match := _NUMBER.match(line))]
    if len(heads) < 4 or len(heads) < 0.7 * min(len(filled), 200):
        return lines
    numbers = [int(match.group(1)) for match in heads]
    rising = sum(one < other for one, other in pairwise(numbers))
    if rising < 0.9 * (len(numbers) - 1):
        return lines
    return [_without(_NUMBER, line) for line in lines]


def _without(head: re.Pattern[str], line: str) -> str:
    """The line without what `head` matches at its beginning."""
    match = head.match(line)
    return line[match.end() :] if match else line


# ---- Documentation inside a paste ----
# What a tool prints of its own options and fields says nothing of the machine.

_TOOLS = r"(?:nvidia-smi|dcgmi|nv-hostengine|nv-fabricmanager|nvidia-bug-report\.sh|nvidia-ctk)"
_ASKED = Pattern(rf"[^\n|]*\b{_TOOLS}(?: [\w.-]+)* (?:-h|--help[\w-]*)\s*$|(?:sudo )?man {_TOOLS}\s*$")
_FIELDS = Pattern(r"\s*List of valid properties to query for the switch \"--query-")
_NAMED = Pattern(r"\"[a-z][\w.]*\"(?: or \"[\w.]+\")*$")
_OPTION = Pattern(r"\s{2,}-\w{1,5},?\s+--[a-z][\w-]+(?:=|\s|$)")
_FIELD = Pattern(r"\s*(?:\"|Section about )")
_HELP = Pattern(r"NVIDIA System Management Interface -- v\d")
_OPTIONS = Pattern(r"nvidia-smi \[OPTION1 ")
_HELP_END = Pattern(r"Please see the nvidia-smi\(1\) manual page")
_USAGE = Pattern(rf"\s*Usage: {_TOOLS}\b")
_MANUAL = Pattern(r"\s*nvidia-smi\(1\)\s.*nvidia-smi\(1\)\s*$", 2)
_LEGEND = Pattern(r"\s*(?:NIC )?Legend:\s*$")
_MEANING = Pattern(r"\s+(?:[A-Z][A-Z0-9#]{0,5}\s+= |NIC\d+: \w)")
_BORDER = Pattern(r"\s*(?:[#=*_~-]{10,}\s*$|\+[-=]{10,}|=+NVSMI LOG=+|<\?xml )")


def documentation(lines: Sequence[str], commands: Sequence[int]) -> Iterator[int]:
    """Indexes of the lines that are documentation; `commands` are the lines at which something was typed."""
    typed = set(commands)
    index = 0
    while index < len(lines):
        end = _end(lines, index, typed)
        yield from range(index + (index in typed), end)
        index = max(end, index + 1)


def _end(lines: Sequence[str], start: int, typed: set[int]) -> int:
    """Where the block of documentation that begins at `start` ends; `start` where none begins."""
    line = lines[start]
    if start in typed:
        return _through(lines, start + 1, typed) if _ASKED.match(line.rstrip()) else start
    if _FIELDS.match(line) or _NAMED.match(line.rstrip()):
        return _paragraphs(lines, start + 1, typed)
    if _HELP.match(line):
        return _help(lines, start + 1, typed)
    if _USAGE.match(line) or _OPTION.match(line):
        return next((at for at in range(start + 1, len(lines)) if at in typed or lines[at][:1].strip()), len(lines))
    if _LEGEND.match(line):
        after = start + 1
        while after < len(lines) and (not lines[after].strip() or _MEANING.match(lines[after])):
            after += 1
        return after
    if _MANUAL.match(line):
        feet = [at for at in range(start + 1, len(lines)) if _MANUAL.match(lines[at])]
        return feet[-1] + 1 if feet else start + 1
    return start


def _through(lines: Sequence[str], start: int, typed: set[int]) -> int:
    """To the next command, or to the line that frames another output."""
    framed = start < len(lines) and _BORDER.match(lines[start])
    first = start + 1 if framed else start
    return next((at for at in range(first, len(lines)) if at in typed or _BORDER.match(lines[at])), len(lines))


def _paragraphs(lines: Sequence[str], start: int, typed: set[int]) -> int:
    """To the first paragraph that describes no field."""
    for at in range(start, len(lines)):
        begins = bool(lines[at].strip()) and not lines[at - 1].strip()
        if at in typed or _BORDER.match(lines[at]) or (begins and not _FIELD.match(lines[at])):
            return at
    return len(lines)


def _help(lines: Sequence[str], start: int, typed: set[int]) -> int:
    """To the last sentence of ``nvidia-smi -h``, else to what is not indented behind its options."""
    options = False
    for at in range(start, len(lines)):
        line = lines[at]
        if _HELP_END.match(line):
            return at + 1
        if at in typed or _BORDER.match(line) or (options and line[:1].strip()):
            return at
        options = options or bool(_OPTIONS.match(line))
    return len(lines)
