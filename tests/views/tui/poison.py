"""What no machine should be called, put wherever a machine, a page or a person has the word."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis, from_json
from gpudoctor.views.tui.work import Work

WORDS = (
    "[/x] [red]not red[/red] [@click=app.quit]q[/] \\[",
    "\x1b[31mred\x1b[2J\x1b]0;title\x07",
    "a\rb\nc\td\x00e\x7f\x9b31m",
    "\u202etxet desrever\u202c \u200fright to left \u2066x\u2069 \ufeff\u200b",
    "w" * 4000,
    "数据中心的显卡驱动程序版本太旧 " * 30,
    "🔥👩‍👩‍👧‍👦🇩🇪 e\u0301 ｗｉｄｅ \U000e0001",
    "\ud800 lone, \ufffe none",
    "   ",
    "",
    "$foreground 60% {title} %s {0} $[x]",
)
_KEPT = {"schema", "id", "layer", "severity", "role", "confidence", "verdict", "kind", "level", "needs", "touches"}
"""Keys of a document whose words are ours, and checked where it is read."""


def poisoned(diagnosis: Diagnosis) -> Diagnosis:
    """The same findings and facts, with words that nobody wants to print."""
    words = itertools.cycle(WORDS)
    document = diagnosis.to_json()
    for part in ("findings", "unjudged", "notes", "facts"):
        document[part] = _worse(document[part], words)
    read = from_json(document)
    name = "".join(WORDS[:4])
    return replace(read, snapshot=replace(read.snapshot, target=replace(read.snapshot.target, name=name)))


def _worse(raw: Any, words: Iterator[str], key: str = "") -> Any:
    if isinstance(raw, Mapping):
        return {name: _worse(item, words, name) for name, item in raw.items()}
    if isinstance(raw, list):
        return [_worse(item, words, key) for item in raw]
    if isinstance(raw, str) and key not in _KEPT:
        return next(words)
    return raw


_FREE = {"target", "title", "short", "words", "switch", "gpu", "unit", "evidence", "do", "reason", "argv", "size"}
_FREE |= {"because", "message", "source", "name", "why", "text", "names", "warnings", "command"}


def poisoned_file(raw: Any, rename: Mapping[str, str] = {}, words: Iterator[str] | None = None, key: str = "") -> Any:
    """A document with every word that is free in it replaced, and these names wherever they stand."""
    words = words or itertools.cycle(WORDS)
    if isinstance(raw, Mapping):
        items = {rename.get(name, name): (name, item) for name, item in raw.items()}
        return {new: poisoned_file(item, rename, words, name) for new, (name, item) in items.items()}
    if isinstance(raw, list):
        return [poisoned_file(item, rename, words, key) for item in raw]
    if isinstance(raw, str) and raw in rename:
        return rename[raw]
    return next(words) if isinstance(raw, str) and key in _FREE else raw


def work_on_one(diagnosis: Diagnosis, title: str = "a file") -> Work:
    """That diagnosis, as if it had been read just now."""
    return work_on(title, lambda _: iter([diagnosis]))
