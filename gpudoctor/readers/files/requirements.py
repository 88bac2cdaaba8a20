"""requirements.txt and constraints.txt, as pip and uv read them: one requirement or one line of options at a time.

Their format: pip's documentation, Requirements File Format (pip.pypa.io, read 2026-11).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers.files import _requirements
from gpudoctor.readers.files._manifest import Manifest

KIND = "requirements"
FACTS = (
    fact("manifest.kind", "text", "requirements, pyproject, lock, environment, dockerfile, compose or pod"),
    fact("manifest.elsewhere", "list", "files that this one refers to and that were not read: -r base.txt"),
    fact("manifest.open", "list", "what of it could not be told, and why, such as torch: the index ... is not known"),
    fact(
        "manifest.no_wheel",
        "list",
        "what it asks for and no wheel is, such as torch==2.4.0 has wheels for Python 3.8 to 3.12, not 3.13",
    ),
    fact(
        "manifest.compiled",
        "list",
        "what pip compiles on the machine, with its line, such as flash-attn (requirements.txt, line 2)",
    ),
    fact(
        "manifest.loose", "list", "what no line pins and no table follows: pip takes the newest that goes with the rest"
    ),
    fact(
        "manifest.left_out",
        "list",
        "what is not for this machine, by its marker, or on request only, such as dev (the extra dev)",
    ),
    fact("manifest.image_cuda", "version", "CUDA of the torch that a base image brings"),
    *_requirements.FACTS,
)

_NAME = re.compile(
    r"(?:.*[-_.])?(?:require(?:ments|s)?|reqs?\d*|constraints)(?:[-_.].*)?\.(?:txt|in|pip|lock)|(?:requirements|constraints)"
)
_OPTION = re.compile(
    r"^\s*(?:-r|-c|-e|-i|-f|--(?:index-url|extra-index-url|find-links|requirement|hash|no-index))\b", re.M
)
_PINNED = re.compile(r"[\w.\[\],-]+(?:==| @ )\S+")
"""A line of ``pip freeze``."""
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_MOST_OTHER_SHARE = 0.3
"""Share of the lines that may be no requirement: more, and the file is something else."""


def named(name: str) -> bool:
    """Whether the file name is one of pip's requirements: ``requirements-gpu.txt``, ``reqs.txt``, ``constraint.in``."""
    return bool(_NAME.fullmatch(name))


def recognizes(text: str) -> bool:
    """Whether every line is a pip requirement or option, blank ones and comments aside, and one at least begins with an
    option of `_OPTION` (``-r``, ``--hash``); False beyond 200 000 characters.

    What ``pip freeze`` prints is none: exact versions, and no option but ``-e`` of editable packages.
    """
    if not _OPTION.search(text) or len(text) > 200_000:
        return False
    lines = [line for _, _, line in _logical_lines(Manifest(text, ""))]
    if all(line.startswith("-e ") or _PINNED.fullmatch(line) for line in lines):
        return False
    return all(line.startswith("-") or _requirements.parse_requirement(_without_options(line)) for line in lines)


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``requirement`` for each of GPU software, others' names; the index options of the file apply to all.

    Further requirement files as manifest.elsewhere. Nothing where more than 30 % of the lines are no requirement.
    """
    options = _requirements.Options()
    requirements: list[tuple[_requirements.RequestedPackage, str]] = []
    lines = list(_logical_lines(manifest))
    unparsed = 0
    for first, last, line in lines:
        if line.startswith("-"):
            list(_requirements.parse_arguments(_split_words(line), options))
            manifest.use(first, last)
        elif requirement := _requirements.parse_requirement(_without_options(line)):
            requirements.append((requirement, manifest.use(first, last)))
        else:
            unparsed += 1
    if unparsed > _MOST_OTHER_SHARE * len(lines):
        manifest.used.clear()
        return
    yield from _requirements.requirement_rows(
        [(_requirements.with_index_options(requirement, options), source) for requirement, source in requirements]
    )
    if options.files:
        yield "manifest.elsewhere", Known(tuple(dict.fromkeys(options.files))[:20], manifest.name)


def _logical_lines(manifest: Manifest) -> Iterator[tuple[int, int, str]]:
    """First line, last line (from 1) and text of each entry, comments removed; a backslash continues a line."""
    first, text = 0, ""
    for number, line in enumerate(manifest.lines, 1):
        first = first or number
        if line.endswith("\\") and len(text) < 20_000:
            text += line[:-1] + " "
            continue
        entry = _COMMENT.sub("", text + line).strip()
        if entry:
            yield first, number, entry
        first, text = 0, ""
    if text.strip():
        yield first, len(manifest.lines), text.strip()


def _without_options(line: str) -> str:
    """The requirement without its hashes and other options."""
    return re.split(r"\s--?[a-z]", line, maxsplit=1)[0]


def _split_words(line: str) -> list[str]:
    """The words of the line, split like a shell; at white space where quotes do not close."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
