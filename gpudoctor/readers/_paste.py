"""A pasted text by lines, commands and labels, cleaned of what terminals, mail and chat put around it."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from gpudoctor.core.frozen import frozen
from gpudoctor.core.secrets import without_secret_lines
from gpudoctor.readers._pattern import Pattern, select

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SPACES = dict.fromkeys("\xa0\u2007\u202f\u3000", " ") | dict.fromkeys("\r\v\f\x85\u2028\u2029", "\n")
_SHARE = 4
"""How little is kept of each piece of a log, for all of them are selected from once more."""
_FENCE = re.compile(r"\s*(?:```|~~~)[\w+-]*\s*$")
_MOST_DOCUMENTS = 64
"""Lines that may begin a JSON object and are tried."""
_NARROW_CHARACTERS = 200
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
    r"|#\d{1,3} \d{1,6}\.\d{1,3} (?=\S)"  # BuildKit: step and seconds
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
    """A pasted text as cleaned lines, with a record of which lines a reader understood (placed).

    `lines` have no control characters, code fences, quote marks or secrets; documentation is emptied. Of a large log
    only the lines worth reading are kept (see `select`); `numbers` are their line numbers in the original, `total` its
    non-blank lines, `whole` whether all were kept. `used`, `listed` and `data` are indexes of lines: placed, of a
    listing, without messages.
    """

    def __init__(self, text: str) -> None:
        selection = select(_without_control_characters(text))
        self.numbers = selection.numbers
        self.total = selection.total
        self.whole = selection.whole
        lines = _without_test_sources(selection.lines) if self.whole else selection.lines
        self.lines = without_secret_lines(_without_own_words([_without_markup(line) for line in lines]))
        self.used: set[int] = set()
        self.listed: set[int] = set()
        self.data: set[int] = set()
        if self.whole:
            for index in documentation(self.lines, [at for at, line in enumerate(self.lines) if _PROMPT.match(line)]):
                self.used.add(index)
                self.lines[index] = ""

    @cached_property
    def text(self) -> str:
        """All kept lines of the pasted text, cleaned, joined by newlines."""
        return "\n".join(self.lines)

    @cached_property
    def lower(self) -> str:
        """`text` in lower case, for cheap tests before a pattern is tried."""
        return self.text.lower()

    @cached_property
    def _starts(self) -> list[int]:
        """Offset in `lower` at which each line starts."""
        return list(accumulate((len(line.lower()) + 1 for line in self.lines), initial=0))[:-1]

    @cached_property
    def commands(self) -> dict[int, str]:
        """Commands typed at a prompt in the pasted text, without the prompt, by line index."""
        prompts = ((index, _PROMPT.match(line)) for index, line in enumerate(self.lines) if line)
        return {index: self.lines[index][match.end() :].strip() for index, match in prompts if match}

    @cached_property
    def bare(self) -> list[str]:
        """The pasted lines without prompts, line numbers, and up to two prefixes of a log in front, such as a time, a
        rank, a service.
        """
        lines = [self.commands.get(index, line) for index, line in enumerate(self.lines)]
        return _without_line_numbers([_without_prefix(_STAMP, _without_prefix(_STAMP, line)) for line in lines])

    @cached_property
    def labels(self) -> list[Label]:
        """The ``label: value`` lines of the pasted text, in order; the answers of a bug form come last."""
        parsed = (label_of(index, line) for index, line in enumerate(self.bare) if line)
        return [label for label in (*parsed, *self._form_answers()) if label]

    def _form_answers(self) -> Iterator[Label]:
        """The answers of one line below the headings of a bug form on GitHub: ``### label``, a blank line, the value.

        A heading or the end of the text follows such an answer.
        """
        filled = [(index, line) for index, line in enumerate(self.lines) if line.strip()]
        for (_, heading), (at, value), (_, after) in zip(filled, filled[1:], [*filled[2:], (0, "### ")], strict=False):
            if heading.startswith("### ") and not value.startswith("#") and after.startswith("### "):
                yield Label(at, normalized_label(heading), value.strip())

    @cached_property
    def documents(self) -> list[tuple[int, int, dict[str, object]]]:
        """Index of first and last line, and content, of each JSON object that begins a line; broken ones are left out.

        Empty where not all of the text was kept; at most 64 lines are tried.
        """
        if not self.whole or ('": ' not in self.text and '" : ' not in self.text and '":' not in self.text):
            return []
        found: list[tuple[int, int, dict[str, object]]] = []
        decoder = json.JSONDecoder()
        starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        tries = _MOST_DOCUMENTS
        index = 0
        while index < len(self.lines) and tries:
            line = self.lines[index]
            if line.lstrip()[:1] == "{":
                tries -= 1
                try:
                    content, end = decoder.raw_decode(self.text, starts[index] + len(line) - len(line.lstrip()))
                except (ValueError, RecursionError):
                    index += 1
                    continue
                last = bisect_right(starts, end - 1) - 1
                found.append((index, last, content))
                index = last
            index += 1
        return found

    def having(self, *needles: str) -> Iterator[tuple[int, str]]:
        """Index and text of each line that contains one of `needles` (given in lower case), in order."""
        hits: set[int] = set()
        for needle in needles:
            offset = self.lower.find(needle)
            while offset >= 0:
                index = bisect_right(self._starts, offset) - 1
                hits.add(index)
                offset = self.lower.find(needle, self._starts[index] + len(self.lines[index].lower()))
        for index in sorted(hits):
            yield index, self.lines[index]

    def matches(
        self, find: Callable[[str], re.Match[str] | None], *needles: str
    ) -> Iterator[tuple[re.Match[str], str]]:
        """Match and source for each line that has one of `needles` and that `find` matches; these lines are placed."""
        for index, line in self.having(*needles):
            if match := find(line):
                yield match, self.use(index)

    def output(self, index: int, most: int = 200) -> Iterator[tuple[int, str]]:
        """Index and text of the non-blank lines printed by the command in line `index`.

        They end at the next command, at the second blank line in a row, or after `most` lines.
        """
        blanks = 0
        for after in range(index + 1, min(len(self.lines), index + 1 + most)):
            blanks = blanks + 1 if not self.lines[after].strip() else 0
            if after in self.commands or blanks > 1:
                return
            if not blanks:
                yield after, self.lines[after]

    def commands_starting(self, *prefixes: str) -> Iterator[tuple[int, str]]:
        """Index and text of each command that starts with one of `prefixes`, also behind ``sudo``, which is kept."""
        for index, command in self.commands.items():
            program = command.removeprefix("sudo ").lstrip()
            if program.startswith(prefixes):
                yield index, command

    def use(self, first: int, last: int | None = None) -> str:
        """Mark pasted lines (by index) as placed; returns their source, as facts name it: ``line 3``, ``lines 3-5``."""
        last = first if last is None else last
        self.used.update(range(first, last + 1))
        if first == last:
            return f"line {self.numbers[first]}"
        return f"lines {self.numbers[first]}-{self.numbers[last]}"

    def mark_listed(self, *indexes: int, data: bool = False) -> None:
        """Mark lines of a state listing, such as nvidia-smi -q, as placed, so that rules do not read them as messages.

        `data`: they hold values only (CSV, XML) and are left out of the text rows. A line that shows a value the tool
        could not get (ERR!, Unknown Error) is not marked.
        """
        readable = {index for index in indexes if not _FAILED.search(self.lines[index])}
        self.used |= readable
        self.listed |= readable
        if data:
            self.data |= readable


def clean(text: str) -> str:
    """The text as one line without control characters and escape sequences, safe to print."""
    return _without_control_characters(_ANSI.sub("", text)).replace("\n", " ")


def worth_reading(piece: str) -> str:
    """The lines of a piece of a log that are worth reading, each at its line number: the others are empty."""
    plain = _without_control_characters(piece)
    selection = select(plain, _SHARE)
    lines: list[str] = []
    last = 1
    for number, line in zip(selection.numbers, selection.lines, strict=True):
        lines.append("\n" * (number - last) + line)
        last = number
    return "".join(lines) + "\n" * (plain.count("\n") + 1 - last)


def _without_control_characters(text: str) -> str:
    """The text without control characters and escape sequences; odd spaces and line ends made plain."""
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n")
    for mark, plain in _SPACES.items():
        if mark in text:
            text = text.replace(mark, plain)
    return _CONTROL.sub("", text)


def _without_markup(line: str) -> str:
    """The line without trailing space, code fence, quote mark or very wide gaps; empty for a fence."""
    line = line.rstrip()
    if not line:
        return line
    if len(line) > _NARROW_CHARACTERS:
        line = _GAP.sub("", line)
    if line[0] in "`~ \t" and _FENCE.match(line):
        return ""
    if line[0] == ">" and not line.startswith(">>> "):
        return _QUOTE.sub("", line, count=1)
    return line


def _without_line_numbers(lines: list[str]) -> list[str]:
    """The lines without the line numbers of an editor in front; unchanged unless most lines have one and these rise."""
    filled = [line for line in lines if line.strip()]
    numbered = [match for line in filled[:200] if (match := _NUMBER.match(line))]
    if len(numbered) < 4 or len(numbered) < 0.7 * min(len(filled), 200):
        return lines
    numbers = [int(match.group(1)) for match in numbered]
    rising = sum(before < after for before, after in pairwise(numbers))
    if rising < 0.9 * (len(numbers) - 1):
        return lines
    return [_without_prefix(_NUMBER, line) for line in lines]


def _without_prefix(prefix: re.Pattern[str], line: str) -> str:
    """The line without what `prefix` matches at its beginning."""
    match = prefix.match(line)
    return line[match.end() :] if match else line


# ---- Words that nothing has printed: searched for, injected, or part of a test ----

_OWN_WORDS = ("grep", "inject-fault", "/dev/kmsg", "dmesg ", "journalctl ", "logger ", "rg ", ".py::")
_SEARCH = re.compile(
    r"(?:^|[`$#%>;&❯➜])\s*(?:sudo\s+(?:-\S+\s+)*)?(?:(?:dmesg|journalctl)\s+[-|_]|(?:[efz]?grep|rg)\s+[-'\"\w]"
    r"|(?:cat|tail|head)\s[^`|]*\|\s*[efz]?grep\s|logger\s+[-'\"]|(?:echo|printf)\s+['\"][^`]*/dev/kmsg\b)[^`]*"
)
"""A command that searches a log, or writes into one, up to the end of its line or its code span."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_INJECTION = re.compile(r"\bgpud\s+inject-fault\b[^`]*")
_TEST = re.compile(r"(\.py::[\w:]+)\[.*?\](?=\s+(?:PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR|RERUN)\b|\s+-\s|\s*$)")
"""``tests/test_log.py::test_xid[Xid 79]``, by its parameters."""


def _without_own_words(lines: list[str]) -> list[str]:
    """The lines, changed in place, without the quoted words that a command in them searches for or logs, the arguments
    of a fault injection, and the parameters in names of pytest's tests.
    """
    for at, line in enumerate(lines):
        if any(word in line for word in _OWN_WORDS):
            happened = _INJECTION.sub("gpud inject-fault", line)
            happened = _SEARCH.sub(lambda command: _QUOTED.sub("''", command.group()), happened)
            lines[at] = _TEST.sub(r"\1", happened)
    return lines


_TEST_HEADING = re.compile(r"_+ \S.* _+\s*$|(?:_ ){8,}_?\s*$")
"""``____ test_xid[Xid 79] ____`` above a test's source, ``_ _ _ _`` above that of a function that it calls."""
_SOURCE_ENDS = re.compile(r"E {3,}\S|\S+\.py:\d+: |-{3,} Captured |={3,} |Traceback \(most recent call last\)")
_ASSERTION = re.compile(r"(?:E {3,}|FAILED \S.* - |\S+\.py:\d+: )(?:AssertionError: )?assert\b")
_GOES_ON = re.compile(r"E?(?:  |\s*$)")
_LONGEST_SOURCE = 400


def _without_test_sources(lines: list[str]) -> list[str]:
    """The lines; names and source of failed tests, and assertions that pytest takes apart, are made empty lines.

    Both hold what a program was expected to print. Other errors that pytest shows, such as a RuntimeError, stay.
    """
    lines = list(lines)
    headings = [at for at, line in enumerate(lines) if line[:1] == "_" and _TEST_HEADING.match(line)]
    ends = [at for at, line in enumerate(lines) if _SOURCE_ENDS.match(line)] if headings else []
    begins = frozenset(headings)
    empty_until = 0
    for at, line in enumerate(lines):
        if at in begins:
            behind = bisect_right(ends, at)
            is_near = behind < len(ends) and ends[behind] - at <= _LONGEST_SOURCE
            empty_until = ends[behind] if is_near else at + 1
        elif at >= empty_until and "assert" in line and _ASSERTION.match(line):
            after_it = range(at + 1, len(lines))
            empty_until = next((after for after in after_it if not _GOES_ON.match(lines[after])), len(lines))
        if at < empty_until:
            lines[at] = ""
    return lines


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
_MANUAL = Pattern(r"(?i)\s*nvidia-smi\(1\)\s.*nvidia-smi\(1\)\s*$")
_LEGEND = Pattern(r"\s*(?:NIC )?Legend:\s*$")
_MEANING = Pattern(r"\s+(?:[A-Z][A-Z0-9#]{0,5}\s+= |NIC\d+: \w)")
_BORDER = Pattern(r"\s*(?:[#=*_~-]{10,}\s*$|\+[-=]{10,}|=+NVSMI LOG=+|<\?xml )")


def documentation(lines: Sequence[str], commands: Sequence[int]) -> Iterator[int]:
    """Indexes of lines that are a tool's help, manual or legend; `commands` are indexes of typed commands, which are
    not among them.
    """
    command_lines = set(commands)
    index = 0
    while index < len(lines):
        end = _documentation_end(lines, index, command_lines)
        yield from range(index + (index in command_lines), end)
        index = max(end, index + 1)


def _documentation_end(lines: Sequence[str], start: int, command_lines: set[int]) -> int:
    """Index after the block of documentation that begins at `start`; `start` where none begins.

    A command that asks for help and its output, a list of query fields, usage or options, a legend, a manual page.
    """
    line = lines[start]
    if start in command_lines:
        return _end_of_output(lines, start + 1, command_lines) if _ASKED.match(line.rstrip()) else start
    if _FIELDS.match(line) or _NAMED.match(line.rstrip()):
        return _end_of_field_list(lines, start + 1, command_lines)
    if _HELP.match(line):
        return _end_of_help(lines, start + 1, command_lines)
    if _USAGE.match(line) or _OPTION.match(line):
        return next(
            (at for at in range(start + 1, len(lines)) if at in command_lines or lines[at][:1].strip()), len(lines)
        )
    if _LEGEND.match(line):
        after = start + 1
        while after < len(lines) and (not lines[after].strip() or _MEANING.match(lines[after])):
            after += 1
        return after
    if _MANUAL.match(line):
        feet = [at for at in range(start + 1, len(lines)) if _MANUAL.match(lines[at])]
        return feet[-1] + 1 if feet else start + 1
    return start


def _end_of_output(lines: Sequence[str], start: int, command_lines: set[int]) -> int:
    """Index of the next command or of the line that frames another output; the number of lines without one."""
    framed = start < len(lines) and _BORDER.match(lines[start])
    first = start + 1 if framed else start
    return next((at for at in range(first, len(lines)) if at in command_lines or _BORDER.match(lines[at])), len(lines))


def _end_of_field_list(lines: Sequence[str], start: int, command_lines: set[int]) -> int:
    """Index where nvidia-smi's list of query fields ends: other paragraph, command or frame, else the text's end."""
    for at in range(start, len(lines)):
        begins = bool(lines[at].strip()) and not lines[at - 1].strip()
        if at in command_lines or _BORDER.match(lines[at]) or (begins and not _FIELD.match(lines[at])):
            return at
    return len(lines)


def _end_of_help(lines: Sequence[str], start: int, command_lines: set[int]) -> int:
    """Index after the closing sentence of ``nvidia-smi -h``; of an earlier command, frame or unindented line after its
    options; else the number of lines.
    """
    options = False
    for at in range(start, len(lines)):
        line = lines[at]
        if _HELP_END.match(line):
            return at + 1
        if at in command_lines or _BORDER.match(line) or (options and line[:1].strip()):
            return at
        options = options or bool(_OPTIONS.match(line))
    return len(lines)


# ---- ``label: value`` lines ----
# As tools, bug forms and people write them, with the label brought to one spelling.

_BULLET = " \t-*•·+#|"
_SPLIT = re.compile(r"(?<!:)[:：](?!:|//|\\)\s*|\s\.{3,}\s|\s={1,2}>?\s|\s->\s")
_FRAME = re.compile(r"[:\d]\s*\|")
_LABEL_WORDS = re.compile(r"(?:[^\w%+]|_)+")
_LONGEST_LABEL = 64


@frozen
class Label:
    """A line that reads ``label: value``; `name` is the label in lower case, words separated by single spaces."""

    index: int
    name: str
    value: str


def label_of(index: int, line: str) -> Label | None:
    """The line's label, normalized, and its value; None without a label, or for one over 64 characters.

    Taken, too: ``- **label**: value``, ``| label | value |``, ``label ... value``, ``label = value``, ``a -> value``.
    """
    text = line.strip(_BULLET)
    if line[:1] == "|" and line.count("|") == 3 and not _FRAME.search(text):
        text = text.replace("|", ":", 1)
    if "**" in text or "`" in text:
        text = text.replace("**", "").replace("`", "")
    separator = _SPLIT.search(text, 0, _LONGEST_LABEL + 8)
    if not separator or not 0 < separator.start() <= _LONGEST_LABEL:
        return None
    name = normalized_label(text[: separator.start()])
    return Label(index, name, text[separator.end() :].strip().strip("\"',;").strip()) if name else None


def normalized_label(label: str) -> str:
    """The label in lower case with words only: ``torch.cuda.is_available()`` is ``torch cuda is available``."""
    return _LABEL_WORDS.sub(" ", label).strip().lower()
