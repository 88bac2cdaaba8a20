"""Labels that say where or when, without that part: ``host driver``, ``torch in the container``, ``node GPU``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.readers._labels import Label
from gpudoctor.readers._lists import phrases, words
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers.people._words import COLUMNS, FACTS_OF, SPECIAL, SYSTEMS

_BEFORE = words(
    """
    host node cluster server machine worker instance vm workstation laptop pc desktop compute my our the actual
    current currently installed present
    """
)
"""Words in front of a label that change nothing of what it names."""
_BEHIND = Pattern(
    r" (?:installed|in use|used|now|currently|here|inside|imported"
    r"|(?:on|in|inside|of) (?:the |this |my |our )?(?P<where>[\w.]+(?: [\w.]+)?))$"
)
_ELSEWHERE = words(
    """
    other another old older previous former second working good fresh new clean base first before requirements
    requirement docs readme setup lock index wheel
    """
)
"""Words that say that it is not the thing of this report."""
_CORES = frozenset(
    phrases(
        """driver | nvidia driver | driver version | nvidia driver version | gpu driver | gpu | gpus | gpu model
        | gpu name | graphics card | card | torch | pytorch | torch version | pytorch version | kernel | kernel version
        | torch cuda is available | cuda available | is cuda available | torch cuda device count"""
    )
)
"""What may be told apart from its place: of these a report has one."""


def plain(paste: Paste) -> Iterator[Label]:
    """The labels that no reader has placed; those with a place or time in them last, by the thing alone.

    Where several such labels give one thing different values, none is taken: one may be another machine or what was.
    """
    told: dict[str, list[Label]] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value:
            continue
        core = _core(label.name)
        if core == label.name:
            yield label
        else:
            told.setdefault(core, []).append(label)
    for core, labels in told.items():
        if len({label.value for label in labels}) == 1:
            yield replace(labels[0], name=core)


def _core(name: str) -> str:
    """The label without words of place and time, if what is left is a thing of which a report has one."""
    if any(name in table for table in (_CORES, FACTS_OF, COLUMNS, SPECIAL, SYSTEMS)):
        return name
    core = name
    if behind := _BEHIND.search(core):
        if behind.group("where") and _ELSEWHERE & set(behind.group("where").split()):
            return name
        core = core[: behind.start()]
    while (first := core.partition(" "))[0] in _BEFORE and first[2]:
        core = first[2]
    return core if core in _CORES else name
