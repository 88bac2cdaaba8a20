"""Documentation inside a paste: what a tool prints of its own options and fields says nothing of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.readers._pattern import Pattern

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
