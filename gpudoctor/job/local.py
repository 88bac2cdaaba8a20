"""What a rank brings with it: its machine's own check, and where it can be reached."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor import rulebook
from gpudoctor.job import collectives, own, rank_tasks
from gpudoctor.job.diagnosis import diagnosed
from gpudoctor.job.found import Found, LinkSeen, RankSeen
from gpudoctor.job.member import Member, NotMetError, Task
from gpudoctor.job.place import Place
from gpudoctor.job.wire import Message
from gpudoctor.version import __version__

if TYPE_CHECKING:
    from gpudoctor.job.wanted import Wanted
    from gpudoctor.model.diagnosis import Diagnosis
    from gpudoctor.model.fleet import Fleet


class Own:
    """This rank. The first of each machine speaks for it: it listens for others, and runs the machine's check."""

    def __init__(self, wanted: Wanted, place: Place, environ: Mapping[str, str]) -> None:
        self._wanted = wanted
        self._place = place
        self._leads = place.local_rank == 0
        self._listeners = rank_tasks.Listeners(place.key, _name(place), environ) if self._leads else None

    def hello(self) -> Message:
        """What it says of itself when it comes."""
        place = self._place
        return {
            "world": place.world,
            "local_rank": place.local_rank,
            "leads": self._leads,
            "switch": place.switch,
            "pid": os.getpid(),
            "machine": _machine(),
            "version": __version__,
            "ears": self._listeners.announced if self._listeners else [],
        }

    def begin(self, rank: Member) -> None:
        """Start the machine's own check, which tells its document when it is done."""
        if self._leads:
            threading.Thread(target=self._check, args=(rank,), name="check", daemon=True).start()

    def tasks(self, rank: Member) -> Mapping[str, Task]:
        """What it can be asked."""
        place = self._place
        part = collectives.part(place.rank, place.world, place.local_rank, place.host, self._wanted.python)
        return {
            "reach": rank_tasks.reach,
            "flow": partial(rank_tasks.flow, key=place.key, host=_name(place)),
            "collective": partial(part, does=rank.does, tell=rank.tell),
        }

    def close(self) -> None:
        """Listen no more."""
        if self._listeners:
            self._listeners.close()

    def _check(self, rank: Member) -> None:
        rank.does(f"check of this machine, level {self._wanted.level}")
        wanted = self._wanted
        try:
            document = own.document(wanted.level, wanted.python, wanted.rules, wanted.limits.whole, wanted.expect)
        except own.CheckFailedError as error:
            rank.tell(failed=f"its own check failed: {error}")
            return
        rank.tell(document=_facts_alone(document) if self._wanted.network else document, nccl=_nccl(document))
        rank.does("waiting for the others")


def checked(level: str, python: str | None, rules: Sequence[Path], expect: str | None = None) -> Diagnosis:
    """This machine's own check, held to a profile where one is named."""
    from gpudoctor import doctor

    return doctor.check(level, python, rules, expect=expect)


def as_fleet(diagnosis: Diagnosis, place: Place, seconds: float) -> Fleet | None:
    """The one machine of a job of one rank, as a fleet: whoever reads the document of a job can read this one, too."""
    from gpudoctor.fleet.fold import Folding, Whole
    from gpudoctor.fleet.reading import Reply
    from gpudoctor.views import document

    folding = Folding(rulebook.load())
    folding.hear(Reply(document.render(diagnosis), place.host))
    whole = Whole(name=place.host, scheduler="slurm" if place.node else "none", seconds=seconds)
    return folding.diagnosis(whole).fleet


def without_the_others(wanted: Wanted, place: Place, error: NotMetError) -> Diagnosis:
    """What this rank can say by itself, where it did not come to the meeting or lost it."""
    found = Found(place, checked=False, asked=False, cut=str(error))
    found.ranks = [RankSeen(place.rank, "here", place.host, place.local_rank, world=place.world)]
    ways = [(port, way) for port in place.ports if (way := error.ways.get(port))]
    found.links = [
        LinkSeen(place.host, place.master, "rendezvous", way.outcome, way.words, "rendezvous", place.master, port)
        for port, way in ways
        if way.outcome != "connected"
    ]
    if (
        ways
        and all(way.outcome == "refused" for _, way in ways)
        and (not place.hosts or place.hosts[0] == place.master)
    ):
        because = f"of {place.master} does not listen there: it never came, or a firewall turns all away"
        found.ranks.insert(0, RankSeen(0, "missing", place.master, because=because))
    return diagnosed(found, rulebook.load(wanted.rules))


def _name(place: Place) -> str:
    """What its ears call themselves: machines may share a name, ranks do not share a number."""
    return f"{place.host}/{place.rank}"


def _machine() -> str:
    """The same for all ranks that share a running kernel and its network, whatever the machine is called."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    return ""


def end_children() -> None:
    """Kill whatever was started."""
    from gpudoctor.target import child

    child.end_all()


def _facts_alone(document: Mapping[str, Any]) -> Message:
    """Of a machine whose own check does not count: its facts are compared, its findings are not told."""
    nothing: Message = {"findings": [], "unjudged": [], "passed": [], "notes": [], "verdict": "unknown"}
    return {**document, **nothing, "counts": {"found": 0, "unjudged": 0, "passed": 0}}


def _nccl(document: Mapping[str, Any]) -> str:
    """The NCCL version that torch loaded, else that of the wheel beside it."""
    facts = document.get("facts", {})
    for name in ("live.nccl", "torch.nccl"):
        entry = facts.get(name, {})
        if isinstance(entry, dict) and entry.get("value"):
            return str(entry["value"])
    return ""
