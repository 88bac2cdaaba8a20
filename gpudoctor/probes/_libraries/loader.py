"""What glibc's loader would load, worked out from the files: nothing is loaded.

The order for a name that an object needs: what is loaded already; the DT_RPATH of the object, of whatever loaded it
and of the program, unless the object has a DT_RUNPATH; LD_LIBRARY_PATH; the object's DT_RUNPATH; ld.so.cache; built-in
folders.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.elf import Dynamic, MalformedError, opened
from gpudoctor.probes._libraries.ldcache import Cache, default_folders, read_cache
from gpudoctor.target import Target

_FOLLOWED = pattern(r"lib(torch|c10|caffe2|shm|cu|nv|nccl|magma)")
"""Names worth following: torch's own and NVIDIA's; the C library and its like are the same for everybody."""

_LIMIT = 400
"""Objects after which we stop: torch with all its libraries loads about 40."""


@frozen
class Object:
    """A library that would be loaded: its `path`, `why` that copy, what it asks for, and which object asked for it."""

    path: str
    why: str
    dynamic: Dynamic
    loader: Object | None = None
    by_variable: bool = False
    """Whether LD_LIBRARY_PATH or LD_PRELOAD names it, or its folder."""

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


class Loader:
    """A program being started. `loaded` maps each name (SONAME or file name) to the copy it would get."""

    def __init__(self, target: Target, program: str | None) -> None:
        self.target = target
        self.loaded: dict[str, Object] = {}
        self.missing: dict[str, Object] = {}
        self.cache: Cache = read_cache(target)
        self.defaults = default_folders(target)
        entries = re.split("[:;]", target.environ.get("LD_LIBRARY_PATH", ""))
        self.library_path = [(index, entry.rstrip("/")) for index, entry in enumerate(entries, 1) if entry]
        self.program = self._open(target.link(program), "the program", None) if program else None
        for entry in re.split(r"[:\s]+", target.environ.get("LD_PRELOAD", "")):
            if "/" in entry and (found := self._open(entry, "LD_PRELOAD", None, by_variable=True)):
                self._enter(found)

    def load(self, path: str, why: str) -> None:
        """Load the library at `path` and everything it needs, breadth first, as dlopen does."""
        first = self._open(path, why, None)
        if first is None:
            return
        self._enter(first)
        queue = deque([first])
        while queue and len(self.loaded) < _LIMIT:
            asking = queue.popleft()
            for name in asking.dynamic.needed:
                if name in self.loaded or not _FOLLOWED.match(name):
                    continue
                found = self.resolve(name, asking)
                if found is None:
                    self.missing.setdefault(name, asking)
                else:
                    self._enter(found, name)
                    queue.append(found)

    def resolve(self, name: str, asking: Object | None) -> Object | None:
        """The copy of `name` that `asking` would get if it were not loaded yet."""
        for path, why, by_variable in self._places(name, asking):
            if self.target.exists(path) and (found := self._open(path, why, asking, by_variable=by_variable)):
                return found
        return None

    def _places(self, name: str, asking: Object | None) -> Iterator[tuple[str, str, bool]]:
        for folder, why, by_variable in self._folders(asking):
            yield f"{folder}/{name}", why, by_variable
        if name in self.cache.paths:
            yield self.cache.paths[name], "ld.so.cache", False
        for folder in self.defaults:
            yield f"{folder}/{name}", f"built-in folder {folder}", False

    def _folders(self, asking: Object | None) -> Iterator[tuple[str, str, bool]]:
        runpath = asking.dynamic.runpath if asking else ()
        if not runpath:
            link = asking
            while link:
                yield from self._expand(link, link.dynamic.rpath, "RPATH")
                link = link.loader
            if self.program:
                yield from self._expand(self.program, self.program.dynamic.rpath, "RPATH")
        for index, entry in self.library_path:
            yield entry, f"LD_LIBRARY_PATH entry {index}", True
        if asking:
            yield from self._expand(asking, runpath, "RUNPATH")

    @staticmethod
    def _expand(owner: Object, folders: tuple[str, ...], tag: str) -> Iterator[tuple[str, str, bool]]:
        origin = owner.path.rpartition("/")[0]
        for folder in folders:
            path = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            if path.startswith("/"):
                yield _tidy(path), f"{tag} of {owner.file}", False

    def _open(self, path: str, why: str, asking: Object | None, *, by_variable: bool = False) -> Object | None:
        """None for a file of another word size, or none at all: the loader passes over it."""
        try:
            with opened(self.target.path(path)) as elf:
                return Object(path, why, elf.dynamic(), asking, by_variable)
        except (OSError, MalformedError):
            return None

    def _enter(self, found: Object, name: str = "") -> None:
        for known in (name, found.dynamic.soname, found.file):
            if known:
                self.loaded.setdefault(known, found)
                self.missing.pop(known, None)


def _tidy(path: str) -> str:
    """``/a/b/../c`` as ``/a/c``; no link is followed."""
    out: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del out[-1:]
        elif part not in ("", "."):
            out.append(part)
    return "/" + "/".join(out)
