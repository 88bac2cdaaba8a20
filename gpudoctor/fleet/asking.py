"""Ways to hear of many hosts, each by an engine that exists: files, ssh through ClusterShell, Slurm's srun."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

from gpudoctor.fleet import by_slurm, by_ssh
from gpudoctor.fleet.fold import Folding, Whole
from gpudoctor.fleet.reading import Reply
from gpudoctor.fleet.remote import Hear, Question
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import UsageError

_NOW_AND_THEN = 1.0
"""Seconds between two diagnoses on the way."""


@dataclass(frozen=True, slots=True)
class Way:
    """Whom to hear of, and how; `ask` tells each reply as it comes."""

    ask: Callable[[Hear], None]
    hosts: Sequence[str] = ()
    """Whose replies are expected; none where only the files know."""
    whole: Whole = field(default_factory=Whole)


def files(names: Sequence[str]) -> Way:
    """What something else gathered; raises `UsageError` for a name that is none."""
    verify(names)

    def ask(hear: Hear) -> None:
        for reply in replies(names):
            hear(reply)

    return Way(ask, whole=Whole(scheduler="slurm" if shutil.which("scontrol") else "none"))


def ssh(nodes: str, question: Question, options: str = "") -> Way:
    """The hosts of a node set; raises `UsageError` for what is none."""
    names = by_ssh.hosts(nodes)
    whole = Whole(scheduler="slurm" if shutil.which("scontrol") else "none")
    return Way(lambda hear: by_ssh.ask(names, question, hear, options), names, whole)


def slurm(partition: str, question: Question) -> Way:
    """The nodes of a partition, else of the job that we are in; raises `UsageError` where there is neither."""
    nodes = by_slurm.nodes(partition)
    whole = Whole(scheduler="slurm", switches=by_slurm.switches())
    return Way(lambda hear: by_slurm.ask(nodes, question, hear), [*nodes.names, *nodes.out], whole)


@dataclass(slots=True)
class Asking:
    """A fleet being heard. `heard` counts replies; `diagnosis` judges those there are, whenever it is called."""

    way: Way
    folding: Folding
    whole: Whole
    heard: int = 0
    _started: float = field(default_factory=time.monotonic)
    _names: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Ask until all have answered or the budget is used up. What ends it early leaves the others as not asked."""
        self._started = time.monotonic()
        try:
            self.way.ask(self._hear)
        finally:
            for name in self.way.hosts:
                if name not in self._names:
                    self._hear(Reply("", host=name, because="was not asked to the end: gpudoctor was ended before"))

    def diagnosis(self, cut: str = "") -> Diagnosis:
        """Of what was heard; `cut` says why that is not all."""
        return self.folding.diagnosis(replace(self.whole, cut=cut, seconds=time.monotonic() - self._started))

    def watch(self) -> Iterator[Diagnosis]:
        """A diagnosis of those heard so far now and then, while they are asked in a thread; the last is of all."""
        died: list[BaseException] = []

        def run() -> None:
            try:
                self.run()
            except BaseException as error:
                died.append(error)

        asked = threading.Thread(target=run, name="fleet", daemon=True)
        asked.start()
        told, wait = 0, _NOW_AND_THEN
        while asked.is_alive():
            asked.join(wait)
            if asked.is_alive() and self.heard > told:
                told, began = self.heard, time.monotonic()
                yield self.diagnosis(f"{self.heard} replies so far: the others are still being asked.")
                wait = max(_NOW_AND_THEN, 5 * (time.monotonic() - began))
        if died:
            raise died[0]
        yield self.diagnosis()

    def _hear(self, reply: Reply) -> None:
        self.folding.hear(reply)
        self._names.add(reply.host)
        self.heard += 1


# ---- Documents that something else gathered ----
# Files, folders of them, standard input; one document a file or a line.

LIMIT = 32 << 20
"""Bytes of one document, and of what a file holds beside its documents; more is not kept."""
_GZIP = b"\x1f\x8b"


def verify(names: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is none."""
    if names.count("-") > 1:
        raise UsageError("-: standard input can be read only once")
    for name in names:
        if name != "-" and not os.path.exists(name):  # noqa: PTH110 - a name too long is no file either
            raise UsageError(f"{name}: no such file or folder; give what gpudoctor check --json wrote on each host")


def replies(names: Sequence[str]) -> Iterator[Reply]:
    """What stands in them, a document at a time."""
    for name in names:
        if name == "-":
            yield from _pieces(sys.stdin.buffer, "standard input")
        else:
            for path in _files(Path(name)):
                yield from _file(path)


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the files of the folder and of those in it, in the order of their names."""
    if not path.is_dir():
        yield path
        return
    for inside in sorted(path.iterdir()):
        if not inside.name.startswith("."):
            yield from _files(inside)


def _file(path: Path) -> Iterator[Reply]:
    name = path.name.removesuffix(".gz").partition(".json")[0].partition(".out")[0] or path.name
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == _GZIP
            yield from _pieces(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file, name)
    except (OSError, EOFError) as error:
        yield Reply("", name=name, because=f"{path}: {getattr(error, 'strerror', None) or error}")


def _pieces(file: BinaryIO, name: str) -> Iterator[Reply]:
    """Each line that is a document by itself; then all that is left, if a document may be in it or none was found."""
    left, size, found = [], 0, False
    while line := file.readline(LIMIT):
        if line.startswith(b"{") and b'"schema"' in line[:200] and line.rstrip().endswith(b"}"):
            found = True
            yield Reply(_text(line), name=name)
        elif size < LIMIT:
            left.append(line)
            size += len(line)
    if left and (not found or any(line.startswith(b"{") for line in left)):
        yield Reply(_text(b"".join(left)), name=name)
    elif not found:
        yield Reply("", name=name)


def _text(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")
