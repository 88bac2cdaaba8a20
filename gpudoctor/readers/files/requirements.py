"""requirements.txt and constraints.txt, as pip and uv read them: one requirement or one line of options at a time.

Their format: pip's documentation, Requirements File Format (pip.pypa.io, read 2026-11).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers.files import _asked, _pip_words
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
    *_asked.FACTS,
)

_NAME = re.compile(
    r"(?:.*[-_.])?(?:require(?:ments|s)?|reqs?\d*|constraints)(?:[-_.].*)?\.(?:txt|in|pip|lock)|(?:requirements|constraints)"
)
_OPTION = re.compile(
    r"^\s*(?:-r|-c|-e|-i|-f|--(?:index-url|extra-index-url|find-links|requirement|hash|no-index))\b", re.M
)
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_MOST_STRANGE = 0.3
"""Share of the lines that may be no requirement: more, and the file is something else."""


def named(name: str) -> bool:
    """``requirements.txt``, ``requirements-gpu.txt``, ``dev-requirements.in``, ``reqs.txt``, ``constraints.txt``."""
    return bool(_NAME.fullmatch(name))


def told(text: str) -> bool:
    """Whether every line is a requirement or an option, and there are options: ``pip freeze`` prints none."""
    if not _OPTION.search(text) or len(text) > 200_000:
        return False
    manifest = Manifest(text, "")
    lines = list(_logical(manifest))
    return bool(lines) and all(line.startswith("-") or _asked.asked(_bare(line)) for _, _, line in lines)


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row for each requirement; the index options of the file hold for all of them, wherever they stand."""
    options = _pip_words.Options()
    found: list[tuple[_asked.Asked, str]] = []
    lines = list(_logical(manifest))
    strange = 0
    for first, last, line in lines:
        if line.startswith("-"):
            list(_pip_words.told(_words(line), options))
            manifest.use(first, last)
        elif one := _asked.asked(_bare(line)):
            found.append((one, manifest.use(first, last)))
        else:
            strange += 1
    if strange > _MOST_STRANGE * len(lines):
        manifest.used.clear()
        return
    yield from _asked.told([(_asked.under(one, options), source) for one, source in found])
    if options.files:
        yield "manifest.elsewhere", Known(tuple(dict.fromkeys(options.files))[:20], manifest.name)


def _logical(manifest: Manifest) -> Iterator[tuple[int, int, str]]:
    """First line, last line and text of each entry: a backslash at the end goes on with the next line."""
    first, whole = 0, ""
    for number, line in enumerate(manifest.lines, 1):
        first = first or number
        if line.endswith("\\") and len(whole) < 20_000:
            whole += line[:-1] + " "
            continue
        entry = _COMMENT.sub("", whole + line).strip()
        if entry:
            yield first, number, entry
        first, whole = 0, ""
    if whole.strip():
        yield first, len(manifest.lines), whole.strip()


def _bare(line: str) -> str:
    """The requirement without its hashes and other options."""
    return re.split(r"\s--?[a-z]", line, maxsplit=1)[0]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
