"""This machine, watched while it answers: whatever a probe asked is kept, so that a record of it can be made.

Nothing here knows what probes ask. A file is kept as the parts of it that were read, with its size: of a library of a
gigabyte those are a few hundred kilobytes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.target import Answer, Watch
from gpudoctor.target._watched import MISSING, Parts, Watched, ring
from gpudoctor.target.local import Local

_MOST_LINKS = 40
_RING = "/dev/kmsg"
_CONFIG = 4096


@dataclass(slots=True)
class Seen:
    """All that was asked. Paths are real ones: none lies below a link."""

    files: dict[str, Parts] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    devices: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    space: dict[str, tuple[int, int]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)


class Recording(Local):
    """Answers as `Local` does, and keeps in `seen` what was asked and answered."""

    def __init__(
        self,
        level: str = "standard",
        python: str | None = None,
        root: str = "/",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.seen = Seen()
        super().__init__(level, python, root, environ)
        if python is not None:
            self._asked = os.path.abspath(python)  # noqa: PTH100 - a link, such as bin/python, stays one

    @property
    def environ(self) -> Mapping[str, str]:
        return _Environ(self._environ, self.seen.variables)

    def path(self, path: str) -> Path:
        place = super().path(path)
        with self._refusals(path) as spot:
            parts = self._kind(spot)
            if spot == _RING and place.exists():
                log = ring(place)  # may be refused, and then there is nothing to keep
                parts = self.seen.files[spot] = Parts(0)
                self.seen.devices.pop(spot, None)
                parts.note(0, log)
            elif parts and spot.startswith("/sys/") and spot.endswith("/config"):
                parts.note(0, place.read_bytes()[:_CONFIG])
        watched = Watched(place)
        watched.note = parts.note if parts else None
        watched.refused = lambda: self.seen.denied.add(spot)
        return watched

    def listing(self, path: str) -> list[str]:
        with self._refusals(path) as spot:
            names = super().listing(path)
        if names or self._at(spot).is_dir():
            self.seen.folders.add(spot)
        for name in names:
            self._kind(f"{spot.rstrip('/')}/{name}")
        return names

    def exists(self, path: str) -> bool:
        with self._refusals(path) as spot:
            there = super().exists(path)
        if there:
            self._kind(spot)
        return there

    def link(self, path: str) -> str:
        self._kind(self._spot(path))
        return super().link(path)

    def space(self, path: str) -> tuple[int, int]:
        self.seen.space[path] = super().space(path)
        return self.seen.space[path]

    def modified(self, path: str) -> float:
        found = super().modified(path)
        self.seen.times[path] = int(found)
        return found

    def which(self, program: str) -> str | None:
        self.seen.variables.add("PATH")
        found = super().which(program)
        if found:
            self._kind(self._spot(found))
        return found

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        answer = super().run(argv, timeout, env, stdin, limit, silence, watch)
        self.seen.answers.append(answer)
        return answer

    @contextmanager
    def _refusals(self, path: str) -> Iterator[str]:
        """Keep that the machine refused an answer: a record must not make of that that nothing is there."""
        spot = self._spot(path)
        try:
            yield spot
        except OSError as error:
            if error.errno not in MISSING:
                self.seen.denied.add(spot)
            raise

    def _spot(self, path: str) -> str:
        """The real path of `path`; the links on the way are kept."""
        done: list[str] = []
        rest = [part for part in reversed(os.path.abspath(path).split("/")) if part]  # noqa: PTH100 - keeps links
        for _ in range(_MOST_LINKS + len(path)):
            if not rest:
                break
            part = rest.pop()
            if part == "..":
                done[-1:] = []
                continue
            here = "/".join(("", *done, part))
            if part == "." or not (goal := self._goal(here)):
                done += [part] if part != "." else []
                continue
            done = [] if goal.startswith("/") else done
            rest.extend(piece for piece in reversed(goal.split("/")) if piece)
        return "/" + "/".join(done)

    def _goal(self, here: str) -> str:
        if here not in self.seen.links:
            try:
                self.seen.links[here] = os.readlink(self._at(here))  # noqa: PTH115 - text, not a path of ours
            except OSError:
                return ""
        return self.seen.links[here]

    def _kind(self, spot: str) -> Parts | None:
        """Keep what is at a path; its parts where it is a plain file."""
        try:
            found = self._at(spot).lstat()
        except (OSError, ValueError):
            return None
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            self._goal(spot)
        elif stat.S_ISDIR(mode):
            self.seen.folders.add(spot)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (spot.startswith("/dev/") and not found.st_size):
            numbers = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
            if spot != _RING or spot not in self.seen.files:  # whose words are kept is no device any more
                self.seen.devices.setdefault(spot, f"{numbers} {mode & 0o777:04o}")
        else:
            kernel = spot.startswith(("/proc/", "/sys/"))  # whose sizes mean nothing
            return self.seen.files.setdefault(spot, Parts(0 if kernel else found.st_size))
        return None

    def _at(self, spot: str) -> Path:
        return self._root / spot[1:]


class _Environ(Mapping[str, str]):
    """The variables, and which of them were asked for by name. To walk over all is not to ask for each."""

    def __init__(self, variables: Mapping[str, str], asked: set[str]) -> None:
        self._variables, self._asked = variables, asked

    def __getitem__(self, name: str) -> str:
        self._asked.add(name)
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def items(self) -> ItemsView[str, str]:
        return self._variables.items()
