"""Files that say what is to be installed or started, each format in a file of its own: text in, facts out.

A format is a module with ``KIND`` (its name), ``named(name)`` and ``recognizes(text)`` (whether a file of that name,
or of that content whatever its name, is one) and ``read(manifest)``, a generator of facts and rows as of every reader.
What is asked for is a row of ``requirement``; what would be installed is for `gpudoctor.diagnosis.knowledge` to say.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import PurePath
from types import ModuleType

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.language import say
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.core.texts import screened
from gpudoctor.readers._merge import merge_entry
from gpudoctor.readers.files._manifest import Manifest, UnreadableError

LONGEST_MANIFEST = 2 << 20
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
    """The modules of all manifest formats (compose, Dockerfile, lock file, ...), by name; cached."""
    return tuple(module for module in modules_of(sys.modules[__name__]) if hasattr(module, "KIND"))


def manifest(text: str, name: str) -> Snapshot | None:
    """The facts of a manifest; None where the file is none; raises `DocumentError` for one that is broken.

    The format is chosen by the file's name, else by its content. A file that only looks like a manifest by its content,
    and is broken, gives None.
    """
    path = PurePath(name.replace("\\", "/").lower())
    file_name = f"requirements-{path.name}" if path.parent.name == "requirements" else path.name
    if not _NAMES.search(file_name) and not _BEGINS.search(text[:LONGEST_MANIFEST]):
        return None
    by_name = [module for module in formats() if module.named(file_name)]
    if by_name and len(text) > LONGEST_MANIFEST:
        raise DocumentError(
            say(
                "{name}: larger than {size} MB, which no {kind} file is",
                name=name,
                size=LONGEST_MANIFEST >> 20,
                kind=by_name[0].KIND,
            )
        )
    for module in by_name:
        try:
            if snapshot := _read_as(module, text, name):
                return snapshot
        except UnreadableError as error:
            raise DocumentError(f"{name}: {error}") from error
    for module in formats() if len(text) <= LONGEST_MANIFEST else ():
        if module not in by_name and module.recognizes(text):
            try:
                if snapshot := _read_as(module, text, name):
                    return snapshot
            except UnreadableError:
                continue
    return None


def _read_as(module: ModuleType, text: str, name: str) -> Snapshot | None:
    """The snapshot of what the format's module reads; None where it recognises nothing; raises `UnreadableError`."""
    document = Manifest(text, PurePath(name.replace("\\", "/")).name)
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {"text": ()}
    for key, entry in module.read(document):
        merge_entry(facts, groups, key, screened(entry))
    if not document.used:
        return None
    facts["manifest.kind"] = Known(module.KIND, name)
    facts["report.lines"] = Known(document.filled, name)
    facts["report.placed"] = Known(len(document.used), name)
    return Snapshot(Target("report", name), facts, groups)
