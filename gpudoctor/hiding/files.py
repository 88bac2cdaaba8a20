"""The names of the files that a report is about: a person may have named them after himself, a firm or a project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from gpudoctor.hiding.ledger import Ledger
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.snapshot import Snapshot

_PLAIN_WORDS = """
    file report log logs out err output stdout stderr text paste issue snapshot diagnosis before after machine node host
    collect env nvidia smi dmesg journal kernel nccl cuda gpu cpu torch pytorch train training job slurm rank error
    requirements require req reqs constraints environment conda pip base dev test prod cu rocm dockerfile containerfile
    docker compose pod pyproject pixi poetry uv pylock lock txt yaml yml toml json in
"""
_PLAIN = frozenset(_PLAIN_WORDS.split())
"""Words of file names that tell of nobody."""
_PARTS = re.compile(r"[^A-Za-z]+")
_DESCRIBED = " on the machine that you described"


class Files:
    """Learns the names of files from reports, and replaces them: ``file1.txt``; a plain one loses its folder only."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._words: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, thing: object) -> None:
        """The files that it is about, where it is of one or more pasted reports."""
        for name in _names(thing):
            base = PurePath(name.replace("\\", "/")).name
            if name in self._words or not base.strip("-."):
                continue
            plain = all(part.lower() in _PLAIN for part in _PARTS.split(base) if part)
            if plain:
                if base != name:
                    self._words[name] = base
                continue
            suffix = PurePath(base).suffix if re.fullmatch(r"\.[a-z]{1,12}", PurePath(base).suffix) else ""
            word = self._ledger.word("file", name, lambda number, end=suffix: f"file{number}{end}")  # type: ignore[misc]
            self._words.update({name: word, base: word})
        longest = sorted(self._words, key=len, reverse=True)
        if longest:
            either = "|".join(map(re.escape, longest))
            self._pattern = re.compile(rf"(?<![\w.-])(?:{either})(?![\w-])")

    def hide(self, text: str) -> str:
        """The text with other words for the names of files."""
        return self._pattern.sub(lambda match: self._words[match[0]], text) if self._pattern else text


def _names(thing: object) -> Iterator[str]:
    if isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _names(one)
    elif isinstance(thing, Diagnosis):
        yield from _names(thing.snapshot)
    elif isinstance(thing, Snapshot) and thing.target.kind == "report":
        whole = thing.target.name.removesuffix(_DESCRIBED)
        yield from (name for part in whole.split(", ") if (name := part.strip()))
