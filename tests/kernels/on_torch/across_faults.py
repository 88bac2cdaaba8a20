"""Ranks of a job, one thread each as if it were a host of its own, and children that fail at a step that is named."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.kernels import across
from gpudoctor.kernels.across import Across, Member
from gpudoctor.target.local import Local

_PLANTED = """

_step = MemberRank.step


def _fails(me, what, *rest, **more):
    import signal
    _step(me, what, *rest, **more)
    if me.rank != {rank} or not what.startswith({when!r}):
        return
    if {what!r} == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if {what!r} == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    if {what!r} == "raise":
        raise RuntimeError("bad link")
    if {what!r} == "flip":
        _flip()


def _flip():
    from ._operations import OPERATIONS
    right = OPERATIONS["broadcast"]

    def buffers(group, numbers):
        made = right.buffers(group, numbers)

        def call():
            made.call()
            made.got.view(group.torch.int32)[7] ^= 1

        return made._replace(call=call)

    OPERATIONS["broadcast"] = right._replace(buffers=buffers)


MemberRank.step = _fails
"""


@contextmanager
def planted(folder: Path, rank: int, what: str, when: str) -> Iterator[None]:
    """Have that rank's child ``die``, ``hang``, ``raise`` or ``flip`` a bit of what it gets, when it says that step."""
    child = folder / "child"
    shutil.copytree(Path(across.program()).parent, child)
    with (child / "collective" / "_across.py").open("a") as file:
        file.write(_PLANTED.format(rank=rank, what=what, when=when))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(across, "program", lambda: str(child / "__main__.py"))
        yield


def job(python: str, hosts: Sequence[str], world: int = 0, **options: Any) -> list[Across]:
    """What each rank answers, one for each of `hosts`; `world` is how many it believes that there are."""
    target = Local("standard", python)
    answers: list[Across | None] = [None] * len(hosts)
    known, port = threading.Event(), [0]

    def listening(number: int) -> None:
        port[0] = number
        known.set()

    def one(rank: int) -> None:
        if rank:
            known.wait(120)
        me = Member(rank, world or len(hosts), hosts[:rank].count(hosts[rank]), hosts[rank], ("127.0.0.1", port[0]))
        answers[rank] = across.run(target, me, listening=listening, **options)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer for answer in answers if answer]
