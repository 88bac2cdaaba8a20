"""``replay``: what a profile and pages would have drained, over documents, snapshots, logs and runs that were kept."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.app import pipeline, reading
from gpudoctor.app.commands.reports import shared
from gpudoctor.app.output import BROKEN, SOUND, UNKNOWN, exit_code
from gpudoctor.core.diagnosis import Replay, Replayed
from gpudoctor.core.errors import DocumentError, UsageError
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.history import run_at
from gpudoctor.readers import read_file
from gpudoctor.views import history as view
from gpudoctor.views._terminal import style_of

if TYPE_CHECKING:
    import argparse

    from gpudoctor.core.snapshot import Snapshot
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.diagnosis.rulebook import Rulebook

_MOST_FILES = 100_000


def replay(options: argparse.Namespace) -> int:
    """``gpudoctor replay``: judge all files again; 1 if one would have drained its machine, 3 if none could be read."""
    book, profile = rulebook.load(options.rules), pipeline.expected(options.expect)
    files = _files(options.paths)
    found = Replay(
        profile.name if profile else "", tuple(_replayed(*file, book, profile, options.strict) for file in files)
    )
    found = shared(found, options)
    print(view.replay_document(found) if options.json else view.replay(found, style_of(sys.stdout)))
    if found.drained:
        return BROKEN
    return SOUND if any(not one.trouble for one in found.files) else UNKNOWN


def _files(paths: list[Path]) -> list[tuple[Path, str]]:
    """Each file with the name of its folder below the one that was given, else empty; raises `UsageError`."""
    found: list[tuple[Path, str]] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        places = sorted(place for place in path.rglob("*") if place.is_file()) if path.is_dir() else [path]
        found += [(place, place.parent.name if place.parent != path and place != path else "") for place in places]
        if len(found) > _MOST_FILES:
            raise UsageError(f"{path}: more than {_MOST_FILES} files; give a folder in it")
    if not found:
        raise UsageError("there is no file in it")
    return found


def _replayed(place: Path, folder: str, book: Rulebook, profile: Profile | None, strict: bool) -> Replayed:
    """What would have come of one file: of its machine, at the time when it was kept or written."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(place.stat().st_mtime))
    try:
        snapshot, kept = _snapshot(place)
    except DocumentError as error:
        return Replayed(str(place), folder or place.stem, at, False, (), str(error))
    diagnosis = pipeline.diagnose(snapshot, book, profile=profile)
    drained = exit_code(diagnosis, strict) == BROKEN
    grave = ("error", "warning") if strict else ("error",)
    causes = tuple((one.id, one.title) for one in diagnosis.findings if one.severity in grave) if drained else ()
    own = snapshot.target.name if snapshot.target.kind in ("local", "snapshot", "node") else ""
    machine = own if own and own != str(place) else folder or place.stem
    return Replayed(str(place), machine, kept or at, drained, causes)


def _snapshot(place: Path) -> tuple[Snapshot, str]:
    """The facts in the file, and when a kept run was made; raises `DocumentError`."""
    if run := run_at(place):
        return run.snapshot(), run.time
    return reading.snapshot_of(read_file(str(place)), str(place)), ""
