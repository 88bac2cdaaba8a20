"""The state of an environment from before a run, kept so that it can be put back without the network.

Each tree of the environment has a hidden folder with a store for each run. Where the prefix is not the environment's
own, files that lie outside its site-packages (commands, data of wheels) are kept one by one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpudoctor.model.errors import DoctorError, DocumentError
from gpudoctor.remedy.keeping import distributions, environment, manifest, tree
from gpudoctor.remedy.keeping.distributions import Lock
from gpudoctor.remedy.keeping.environment import Environment
from gpudoctor.remedy.keeping.restore import Restoring, foreign, named
from gpudoctor.remedy.keeping.store import Keeping, Store
from gpudoctor.remedy.keeping.tree import HIDDEN, Entries
from gpudoctor.remedy.records.journal import Journal

_LOOSE = "-loose"
_RUN = re.compile(r"\d{8}-\d{6}(-\d\d)?")
LAST = 3
"""Runs of an environment whose former state is kept; that of older ones is dropped when another begins."""


@dataclass(frozen=True, slots=True)
class Part:
    """A tree that is kept at `store`; `loose` is not all of it but the environment's own files wherever they lie.

    `digest` is that of the list of what is kept there.
    """

    root: str
    store: str
    loose: bool = False
    digest: str = ""

    @property
    def stores(self) -> list[Path]:
        """What is kept of it, for whatever run, the newest last: a run's id begins with its time."""
        ending = _LOOSE if self.loose else ""
        places = (place for place in Path(self.store).parent.iterdir() if place.name.endswith(_LOOSE) == self.loose)
        return sorted(place for place in places if _RUN.fullmatch(place.name.removesuffix(ending)))


@dataclass(frozen=True, slots=True)
class Kept:
    """An environment as it was when the run of that id was about to change it."""

    run: str
    environment: Environment
    lock: Lock
    parts: tuple[Part, ...]
    files: int = 0
    size: int = 0

    def to_json(self) -> dict[str, Any]:
        """A document that `from_json` takes back."""
        return {
            "run": self.run,
            "environment": environment.to_json(self.environment),
            "lock": [asdict(item) for item in self.lock],
            "parts": [asdict(part) for part in self.parts],
            "files": self.files,
            "size": self.size,
        }

    @property
    def there(self) -> bool:
        """Whether all that was kept is still there."""
        return all(Path(part.store, "manifest").is_file() for part in self.parts)


def from_json(raw: Any) -> Kept:
    """The inverse of `Kept.to_json`; raises `DocumentError`."""
    try:
        lock = tuple(distributions.Distribution(**item) for item in raw["lock"])
        parts = tuple(Part(**part) for part in raw["parts"])
        return Kept(raw["run"], environment.from_json(raw["environment"]), lock, parts, raw["files"], raw["size"])
    except (KeyError, TypeError) as error:
        raise DocumentError(f"no record of what was kept: {type(error).__name__} {error}") from error


def keep(run: str, target: Environment) -> Kept:
    """Keep that environment as it is now; raises `OSError` or `DoctorError`, and then nothing is left behind."""
    parts = list(_parts(run, target))
    if there := next((part.store for part in parts if os.path.lexists(part.store)), ""):
        raise DoctorError(f"{there}: a run of another user began in the same second; try again. Nothing was changed")
    files = size = 0
    try:
        for place, part in enumerate(parts):
            entries = Keeping(part.root, Path(part.store)).keep(_now(part, target)).entries
            parts[place] = replace(part, digest=manifest.digest(Path(part.store, "manifest")))
            files += len(entries)
            size += sum(entry.size for entry in entries.values())
    except BaseException:
        for part in parts:
            shutil.rmtree(part.store, ignore_errors=True)
        raise
    return Kept(run, target, distributions.lock(target), tuple(parts), files, size)


def _parts(run: str, target: Environment) -> Iterator[Part]:
    """Those that we may write to: what we may not, no step of ours can change."""
    first = ""
    for root in target.trees:
        with suppress(OSError):
            folder = tree.hidden(root)
            if os.access(folder, os.W_OK):
                first = first or f"{folder}/{run}"
                yield Part(root, f"{folder}/{run}")
    if not target.own and first:
        yield Part("/", f"{first}{_LOOSE}", loose=True)


def _now(part: Part, target: Environment) -> Entries:
    return tree.listed(_loose(target)) if part.loose else tree.walk(part.root)


def _loose(target: Environment) -> Iterator[str]:
    """Files outside the trees that its distributions list, and the commands that its Python runs.

    A RECORD may list whatever its author liked: what lies outside the prefix and the user's own base is not touched.
    """
    inside, homes = tuple(f"{root}/" for root in target.trees), _homes(target)
    for item in distributions.lock(target):
        listed = distributions.record_of(item)
        yield from (path for path in listed if path.startswith(homes) and not path.startswith(inside))
    for folder in filter(None, (target.scripts, target.user_scripts)):
        with suppress(OSError):
            names = os.listdir(folder)  # noqa: PTH208
            yield from (f"{folder}/{name}" for name in names if _runs_python(f"{folder}/{name}", target))


def _homes(target: Environment) -> tuple[str, ...]:
    bases = (target.prefix, os.path.dirname(target.user_scripts))  # noqa: PTH120
    return tuple(f"{base}/" for base in bases if base not in ("", "/"))


def _runs_python(place: str, target: Environment) -> bool:
    """Whether it is a script for that interpreter, by its first line."""
    with suppress(OSError), open(place, "rb") as file:  # noqa: PTH123
        first = file.readline(1024)
        program = os.fsdecode(first[2:].strip()) if first.startswith(b"#!") else ""
        return bool(program) and os.path.dirname(program) in (target.scripts, os.path.dirname(target.python))  # noqa: PTH120
    return False


def note_after(kept: Kept) -> None:
    """Remember how the run left the environment: what differs from that later is others' work. Raises `OSError`."""
    for part in kept.parts:
        manifest.save_entries(Path(part.store, "after"), _now(part, kept.environment))


def check(kept: Kept) -> None:
    """Raise `DocumentError` for a record that leads out of its environment, or kept copies that others could change."""
    target = kept.environment
    scripts = tuple(f"{folder}/" for folder in (target.scripts, target.user_scripts) if folder)
    for part in kept.parts:
        own = part.root == "/" if part.loose else part.root in target.trees
        folder = Path(part.store).parent
        named = Path(part.store).name == f"{kept.run}{_LOOSE if part.loose else ''}"
        if not own or not named or folder not in [Path(root, HIDDEN) for root in target.trees]:
            raise DocumentError(f"the record of run {kept.run} names {part.store}, outside {target.prefix}")
        for place in (part.store, *(f"{part.store}/{name}" for name in ("manifest", "small", "large"))):
            if why := tree.foreign(place):
                raise DocumentError(f"what was kept before run {kept.run} is not put back: {why}")
        for path in manifest.load(Path(part.store, "manifest"), part.digest).entries:
            inside = not part.loose or f"/{path}".startswith((*_homes(target), *scripts))
            if not inside or path.startswith("/") or any(word in ("", ".", "..") for word in path.split("/")):
                raise DocumentError(f"the record of run {kept.run} names {path[:80]!r}, outside {target.prefix}")


def restore(kept: Kept, undo: str, heard: Callable[[], None], say: Callable[[str], None]) -> tuple[str, ...]:
    """Put all of it back; the paths that still differ. `undo` names the run that does it, for what is put aside.

    Raises `OSError`, `DocumentError` where a store is gone, and what `heard` raises; it may be begun again after each.
    """
    check(kept)
    left: list[str] = []
    for part in sorted(kept.parts, key=lambda part: not part.loose):  # the RECORDs in the trees tell of loose files
        with Store(Path(part.store), part.digest) as store:
            back = _restoring(part, store, kept.environment, undo, heard)
            left += [os.path.join(part.root, path) for path in back.restore()]  # noqa: PTH118
        say(f"{part.root}: {back.put_back} put back, {back.removed} removed\n")
        if back.put_aside:
            say(f"Changed or added after the run, so moved to {back.aside}:\n{named(back.put_aside)}\n")
    return tuple(left)


def _restoring(part: Part, store: Store, target: Environment, undo: str, heard: Callable[[], None]) -> Restoring:
    def now() -> Entries:
        return _now(part, target)

    newest = part.stores[-1] / "after"  # without it the last run was killed, and who changed what is not known
    others = foreign(manifest.load(newest).entries, now()) if newest.is_file() else frozenset()
    aside = Path(part.store).with_name(f"aside-{undo}{_LOOSE if part.loose else ''}")
    return Restoring(part.root, store, now, aside, others, heard)


def drop(kept: Kept) -> None:
    """Give the room back; the run can then no longer be taken back."""
    for part in kept.parts:
        shutil.rmtree(part.store, ignore_errors=True)


def needed(journal: Journal) -> bool:
    """Whether a run can still be taken back by what was kept for it."""
    try:
        return journal.has("kept.json") and from_json(journal.document("kept.json")).there
    except DocumentError:
        return False


def prune(target: Environment, last: int = LAST) -> tuple[str, ...]:
    """Drop what is kept for older runs than the `last` ones, and what was left half kept; the runs dropped whole."""
    dropped: set[str] = set()
    for part in _parts("00000000-000000", target):
        whole = [place for place in part.stores if (place / "manifest").is_file()]
        for place in part.stores:
            if place not in whole[-last:]:
                dropped |= {place.name.removesuffix(_LOOSE)} if place in whole else set()
                shutil.rmtree(place, ignore_errors=True)
    return tuple(sorted(dropped))
