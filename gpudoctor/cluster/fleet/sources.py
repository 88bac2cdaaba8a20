"""Ways to hear of many hosts, each by an engine that exists: files, ssh through ClusterShell, Slurm's srun."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

from gpudoctor.cluster.fleet import remote
from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.fleet.remote import OnReply, Question
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say

_INTERIM_SECONDS = 1.0
"""Seconds between two diagnoses on the way."""


@dataclass(frozen=True, slots=True)
class ReplySource:
    """A source of replies: `ask` blocks and calls its argument once per reply; `hosts` are expected to reply."""

    ask: Callable[[OnReply], None]
    hosts: Sequence[str] = ()
    """Whose replies are expected; none where only the files know."""
    whole: FleetContext = field(default_factory=FleetContext)


def files(names: Sequence[str]) -> ReplySource:
    """Source of documents saved in files, folders or ``-`` (standard input); a missing path raises `UsageError` now."""
    verify(names)

    def ask(on_reply: OnReply) -> None:
        """Pass the reply in each saved document to `on_reply`."""
        for reply in replies(names):
            on_reply(reply)

    return ReplySource(ask, whole=FleetContext(scheduler="slurm" if shutil.which("scontrol") else "none"))


def ssh(nodes: str, question: Question, options: str = "") -> ReplySource:
    """Source that asks a ClusterShell node set over ssh, with more ssh `options`; an invalid set raises
    `UsageError`.
    """
    names = remote.ssh_hosts(nodes)
    whole = FleetContext(scheduler="slurm" if shutil.which("scontrol") else "none")
    return ReplySource(lambda on_reply: remote.ask_by_ssh(names, question, on_reply, options), names, whole)


def slurm(partition: str, question: Question) -> ReplySource:
    """Source that asks the nodes of a Slurm partition by srun, or of the current job if `partition` is ``""``. Raises
    `UsageError` for an unknown partition, outside of a job if none is named, or without Slurm's commands.
    """
    nodes = remote.slurm_nodes(partition)
    whole = FleetContext(scheduler="slurm", switches=remote.slurm_switches())
    return ReplySource(
        lambda on_reply: remote.ask_by_slurm(nodes, question, on_reply), [*nodes.names, *nodes.out], whole
    )


@dataclass(slots=True)
class FleetQuery:
    """A running query of a fleet: `run` collects replies, `diagnosis` judges those so far, `replies` counts them."""

    way: ReplySource
    folding: FleetFold
    whole: FleetContext
    replies: int = 0
    _started: float = field(default_factory=time.monotonic)
    _names: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Ask all hosts until each has replied or the budget is spent; a host without a reply gets one that says so."""
        self._started = time.monotonic()
        try:
            self.way.ask(self._add_reply)
        finally:
            for name in self.way.hosts:
                if name not in self._names:
                    self._add_reply(
                        Reply("", host=name, because=say("was not asked to the end: gpudoctor was ended before"))
                    )

    def diagnosis(self, cut: str = "") -> Diagnosis:
        """Diagnosis of the replies received so far; a non-empty `cut` states why they are incomplete."""
        return self.folding.diagnosis(replace(self.whole, cut=cut, seconds=time.monotonic() - self._started))

    def watch(self) -> Iterator[Diagnosis]:
        """Run the query in a thread: yields an interim diagnosis when replies came, at most one a second, then the
        final one; raises the query's errors.
        """
        errors: list[BaseException] = []

        def run() -> None:
            """Run the query; keep an exception it raises, for the caller's thread."""
            try:
                self.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="fleet", daemon=True)
        thread.start()
        shown, wait = 0, _INTERIM_SECONDS
        while thread.is_alive():
            thread.join(wait)
            if thread.is_alive() and self.replies > shown:
                shown, began = self.replies, time.monotonic()
                yield self.diagnosis(
                    say("{count} replies so far: the others are still being asked.", count=self.replies)
                )
                wait = max(_INTERIM_SECONDS, 5 * (time.monotonic() - began))
        if errors:
            raise errors[0]
        yield self.diagnosis()

    def _add_reply(self, reply: Reply) -> None:
        """Add a host's reply to the diagnosis, and count it."""
        self.folding.add(reply)
        self._names.add(reply.host)
        self.replies += 1


# ---- Documents that something else gathered ----
# Files, folders of them, standard input; one document a file or a line.

MOST_DOCUMENT_BYTES = 32 << 20
"""Bytes of one document, and of what a file holds beside its documents; more is not kept."""
_GZIP = b"\x1f\x8b"


def verify(names: Sequence[str]) -> None:
    """Raise `UsageError` for a path that does not exist, or for ``-`` given twice."""
    if names.count("-") > 1:
        raise UsageError(say("-: standard input can be read only once"))
    for name in names:
        if name != "-" and not os.path.exists(name):  # noqa: PTH110 - a name too long is no file either
            raise UsageError(
                say("{name}: no such file or folder; give what gpudoctor check --json wrote on each host", name=name)
            )


def replies(names: Sequence[str]) -> Iterator[Reply]:
    """Replies read from files, folders (recursively) and ``-`` (standard input): one per document, and one for each
    file without any, to say so.
    """
    for name in names:
        if name == "-":
            yield from _replies_in_stream(sys.stdin.buffer, say("standard input"))
        else:
            for path in _files_under(Path(name)):
                yield from _replies_in_file(path)


def _files_under(path: Path) -> Iterator[Path]:
    """A file, or a folder that cannot be listed, itself; else the files below it, sorted, without hidden ones."""
    try:
        below = sorted(path.iterdir()) if path.is_dir() else None
    except OSError:
        below = None
    if below is None:
        yield path
        return
    for inside in below:
        if not inside.name.startswith("."):
            yield from _files_under(inside)


def _replies_in_file(path: Path) -> Iterator[Reply]:
    """Replies in one file, gzip or plain; a file that cannot be read gives one Reply whose `because` is the error."""
    name = path.name.removesuffix(".gz").partition(".json")[0].partition(".out")[0] or path.name
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == _GZIP
            yield from _replies_in_stream(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file, name)
    except (OSError, EOFError, zlib.error) as error:
        yield Reply("", name=name, because=f"{path}: {getattr(error, 'strerror', None) or error}")


def _replies_in_stream(file: BinaryIO, name: str) -> Iterator[Reply]:
    """One Reply for each line that is a JSON document; then one for the other lines, if they may hold a document.
    Without any document there is still one Reply, of the whole text. At most `MOST_DOCUMENT_BYTES` of it are kept.
    """
    left, size, found = [], 0, False
    while line := file.readline(MOST_DOCUMENT_BYTES):
        if line.startswith(b"{") and b'"schema"' in line[:200] and line.rstrip().endswith(b"}"):
            found = True
            yield Reply(_decoded(line), name=name)
        elif size < MOST_DOCUMENT_BYTES:
            left.append(line)
            size += len(line)
    if left and (not found or any(line.startswith(b"{") for line in left)):
        yield Reply(_decoded(b"".join(left)), name=name)
    elif not found:
        yield Reply("", name=name)


def _decoded(raw: bytes) -> str:
    """Bytes as text: UTF-16 if a byte order mark says so, else UTF-8; invalid bytes are replaced."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")
