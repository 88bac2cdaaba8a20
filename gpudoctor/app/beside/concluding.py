"""The end of what was watched: by itself, or as a rank among those of its host, judged and told once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Fact, Known, Rows

if sys.platform != "win32":
    from gpudoctor.app.beside import judging
    from gpudoctor.app.beside.ranks import FIRST, End, Ranks, alone
    from gpudoctor.app.beside.watching import Watch
    from gpudoctor.target.beside.command import Ended

assert sys.platform != "win32"  # what follows is POSIX's alone


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a command: `kept` is the end of its output, and from what that was kept; `facts` and `groups`
    are of the last look at its ranks.
    """

    argv: Sequence[str]
    watch: Watch
    kept: bytes
    kept_from: frozenset[str]
    facts: Mapping[str, Fact] = field(default_factory=dict)
    groups: Mapping[str, Rows] = field(default_factory=dict)


def word_of_end(ended: Ended, ranks: Ranks | None) -> End:
    """How this rank ended, of which the others hear at once: some of them end by it."""
    rank = ranks.place.rank if ranks else 0
    own = End(rank, judging.end_text(ended), ended.began + ended.seconds, ended.code != 0, None)
    if ranks:
        ranks.end(own)
    return own


def conclude(
    ended: Ended,
    seen: Seen,
    ranks: Ranks | None,
    own: End,
    write: Callable[[Diagnosis], None],
    rules: Sequence[Path] = (),
) -> Diagnosis:
    """The diagnosis of what has ended; it is given to `write` where no other rank of the host says the same."""
    printed = judging.read_output(seen.kept) if own.failed else None
    echo, asked = bool(printed and printed.text("failure.echo")), judging.was_asked(ended)
    own = replace(own, of_itself=not echo and not asked)
    source = "gpudoctor run"
    kept_from = Known(tuple(sorted(seen.kept_from)), source)
    facts: dict[str, Fact] = {**seen.watch.facts, **seen.facts, "run.output_from": kept_from}
    if own.failed and asked and own.rank == 0 and "SLURM_JOB_ID" in os.environ:
        facts["failure.slurm"] = judging.end_by_slurm(os.environ)
    if ranks:
        ranks.end(own)
        first = ranks.first(own, echo)
        facts.update(ranks.facts(first, own))
    else:
        facts.update(alone())
    judged = judging.judge(
        *(ended, seen.argv, facts, {**seen.watch.groups, **seen.groups}, printed, seen.watch.alarming, rules),
        by_another=bool(ranks) and not own.of_itself,
    )
    if not ranks or ranks.speaks(own, first, echo, judged):
        write(judged)
    if ranks and first == own:
        ranks.claim(FIRST)
    return judged
