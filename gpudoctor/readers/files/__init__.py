"""Files that say what is to be installed or started, each format in a file of its own: text in, facts out.

A format is a module with ``KIND`` (what it is called), ``named(name)`` and ``told(text)`` (whether a file of that name,
or of that content whatever its name, is one) and ``read(manifest)``, a generator of facts and rows as of every reader.
What is asked for is a row of ``requirement``; what would be installed is for `gpudoctor.knowledge` to say.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath
from types import ModuleType

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.model.secrets import screened
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.readers._merge import take
from gpudoctor.readers.files._manifest import Manifest, UnreadableError

LONGEST = 2 << 20
"""Characters of the largest manifest that is read as one: a lock file of a large project has a tenth."""


_NAMES = re.compile(r"req|constraint|dockerfile|containerfile|\.(?:in|lock|pip|toml|ya?ml)$")
_BEGINS = re.compile(
    r"^[ \t]*(?:FROM|ARG) \S|^(?:services|apiVersion|dependencies):"
    r"|^\[\[?(?:package|project|tool\.|workspace|dependency-groups)"
    r"|^ *(?:-[cefir]|--(?:index-url|extra-index-url|find-links|requirement|hash|no-index))\b",
    re.MULTILINE,
)
"""What any of these files has in its name, or at the beginning of a line: a log costs no more than a look."""


@lru_cache(maxsize=1)
def formats() -> tuple[ModuleType, ...]:
    """Every format, by name."""
    from gpudoctor.discovery import modules_of
    from gpudoctor.readers import files

    return tuple(module for module in modules_of(files) if hasattr(module, "KIND"))


def manifest(text: str, name: str) -> Snapshot | None:
    """The facts of the file, where it is one of these; raises `DocumentError` for one that is broken.

    A file that only looks like one by its content, and is broken, is none.
    """
    path = PurePath(name.replace("\\", "/").lower())
    base = f"requirements-{path.name}" if path.parent.name == "requirements" else path.name
    if not _NAMES.search(base) and not _BEGINS.search(text[:LONGEST]):
        return None
    by_name = [module for module in formats() if module.named(base)]
    if by_name and len(text) > LONGEST:
        raise DocumentError(f"{name}: larger than {LONGEST >> 20} MB, which no {by_name[0].KIND} file is")
    for module in by_name:
        try:
            if found := _read(module, text, name):
                return found
        except UnreadableError as error:
            raise DocumentError(f"{name}: {error}") from error
    for module in formats() if len(text) <= LONGEST else ():
        if module not in by_name and module.told(text):
            try:
                if found := _read(module, text, name):
                    return found
            except UnreadableError:
                continue
    return None


def _read(module: ModuleType, text: str, name: str) -> Snapshot | None:
    """What that format makes of the text; none where it finds nothing of its own in it."""
    manifest = Manifest(text, PurePath(name.replace("\\", "/")).name)
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {"text": ()}
    for key, entry in module.read(manifest):
        take(facts, groups, key, screened(entry))
    if not manifest.used:
        return None
    facts["manifest.kind"] = Known(module.KIND, name)
    facts["report.lines"] = Known(manifest.filled, name)
    facts["report.placed"] = Known(len(manifest.used), name)
    return Snapshot(Target("report", name), facts, groups)
