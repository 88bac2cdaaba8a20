"""Facts judged by the rules: the last steps of the path."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import rulebook
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.snapshot import Snapshot

if TYPE_CHECKING:
    from gpudoctor.expect import Profile


def diagnose(snapshot: Snapshot, book: rulebook.Rulebook, today: str = "", profile: Profile | None = None) -> Diagnosis:
    """Judge the facts there are, and those that follow from them by the tables; then what a profile expects of them.

    `today` (2026-11-21; by default the clock's) tells how old the tables are.
    """
    from gpudoctor.history.since import dated
    from gpudoctor.judge import judge
    from gpudoctor.judge.manifests import for_file
    from gpudoctor.judge.notes import noted
    from gpudoctor.knowledge import complete

    day = today or time.strftime("%Y-%m-%d", time.gmtime())
    diagnosis = dated(noted(for_file(judge(complete(snapshot), book)), book, day))
    if profile is None:
        return diagnosis
    from gpudoctor.expect import held_to

    return held_to(diagnosis, profile, book)


def judging(rules: Sequence[Path] = ()) -> Callable[[Snapshot], Diagnosis]:
    """What every rule says of a snapshot that is complete: whoever plans a cure asks it what would come of that."""
    from gpudoctor.judge import judge

    book = rulebook.load(rules)
    return lambda snapshot: judge(snapshot, book)
