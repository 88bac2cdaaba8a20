"""A Dockerfile's instructions, one by one, with their lines: continuations joined, heredocs taken along."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_WORDS = (
    "FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|ONBUILD|STOPSIGNAL|HEALTHCHECK|SHELL"
    "|MAINTAINER"
)
INSTRUCTION = re.compile(rf"\s*({_WORDS})\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_VARIABLE = re.compile(r"\\\$|\$(?:\{([A-Za-z_]\w*)(?:(:?[-+])([^{}]*))?\}|([A-Za-z_]\w*))")
MOST = 4000
"""Instructions and lines of one instruction that are read."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """``RUN pip install torch``: its word in capitals, what stands behind it, its lines; `script` is a heredoc's."""

    word: str
    rest: str
    first: int
    last: int
    script: str = ""


def instructions(lines: Sequence[str]) -> Iterator[Instruction]:
    """Each instruction in turn; what is none is left out."""
    escape = _escape(lines)
    at = count = 0
    while at < len(lines) and count < MOST:
        first = at
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        whole, at = _joined(lines, at, escape)
        match = INSTRUCTION.match(whole)
        script = ""
        if match and match[1].upper() in ("RUN", "COPY", "ADD") and (heredoc := _HEREDOC.search(match[2])):
            script, at = _until(lines, at, heredoc[2])
        if match:
            count += 1
            yield Instruction(match[1].upper(), match[2].strip(), first + 1, max(at, first + 1), script)


def _escape(lines: Sequence[str]) -> str:
    for line in lines[:10]:
        if not line.startswith("#"):
            break
        if (match := _ESCAPE.fullmatch(line.strip())) and match[1] in "\\`":
            return match[1]
    return "\\"


def _joined(lines: Sequence[str], at: int, escape: str) -> tuple[str, int]:
    """The instruction that begins there, its lines joined, and where the next begins; comments between are left out."""
    parts: list[str] = []
    while at < len(lines) and len(parts) < MOST:
        line = lines[at].rstrip()
        at += 1
        if parts and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if not line.endswith(escape):
            parts.append(line)
            break
        parts.append(line[:-1])
    return " ".join(parts), at


def _until(lines: Sequence[str], at: int, end: str) -> tuple[str, int]:
    """The lines of a heredoc, and where what follows it begins."""
    script: list[str] = []
    while at < len(lines) and len(script) < MOST:
        at += 1
        if lines[at - 1].strip() == end:
            break
        script.append(lines[at - 1])
    return "\n".join(script), at


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with ``$NAME``, ``${NAME}`` and ``${NAME:-default}`` replaced; a name that nobody set stays as it is."""

    def one(match: re.Match[str]) -> str:
        name, sign, other = match[1] or match[4], match[2], match[3] or ""
        if not name:
            return "$"
        if sign and sign.endswith("+"):
            return other if values.get(name) else ""
        if name in values and (values[name] or not (sign or "").startswith(":")):
            return values[name]
        return other if sign else match[0]

    return _VARIABLE.sub(one, text)[:8000]
