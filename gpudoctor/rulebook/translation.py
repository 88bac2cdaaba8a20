"""A page's words in another language: ``rules/zh/driver/driver.missing.toml`` for ``rules/driver/driver.missing.toml``.

A translation has the words alone, in the order of the page: ``title``, ``finding``, ``why``, ``misses``, ``confirm``,
``signs`` (their sentences, each once) and a ``[[fix]]`` for each, with ``title``, ``steps`` (the texts of those that
have one) and ``undo``; of a shared cure the texts under ``[step]`` as well. A ``confirm`` or ``undo`` that is a command
alone may be left out. ``of`` is the digest of the words that were translated: where these have changed since, the page
is English until somebody has looked at it again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpudoctor import pages
from gpudoctor.language import ENGLISH, OTHERS
from gpudoctor.model.errors import RuleError
from gpudoctor.model.pattern import pattern
from gpudoctor.rulebook import named
from gpudoctor.rulebook.page import only, texts
from gpudoctor.rulebook.reading import Names, names_in
from gpudoctor.rulebook.spot import Spot

Raw = Mapping[str, Any]
"""A page or a translation as TOML gave it."""
Slot = tuple[str | int, ...]
"""Where a sentence stands in a translation: ``("fix", 0, "steps", 2)``."""
_SENTENCES = ("title", "finding", "why", "misses", "confirm")
_WORDED = frozenset((*_SENTENCES, "text", "undo"))
"""Keys of a page under which words stand, wherever on it."""
_OPTIONAL = ("confirm", "undo")
_HOLE = pattern(r"\{([^{}]+)\}")


def digest(page: Raw) -> str:
    """Eight hexadecimal digits for the words of an English page."""
    said = "\0".join(english for _, english in _slots(page))
    return f"{zlib.crc32(said.encode()):08x}"


def reworded(page: Raw, translation: Raw | None) -> Raw:
    """The page in the words of its translation; as it is where there is none, or one of other words than these."""
    if translation is None or translation["of"] != digest(page):
        return page
    said: Mapping[str, str] = translation["said"]

    def of(part: Any, key: str = "") -> Any:
        if isinstance(part, str):
            return said.get(part, part) if key in _WORDED else part
        if isinstance(part, Mapping):
            return {name: of(value, name) for name, value in part.items()}
        return [of(value) for value in part] if isinstance(part, list) else part

    new: Raw = of(page)
    return new


def translations(folder: Path | None, language: str) -> Mapping[str, Raw]:
    """What is translated under `folder`, of our pages for None, by the origin of the page: ``driver/x.toml``."""
    if language == ENGLISH or (folder and not (folder / language).is_dir()):
        return {}
    found: Mapping[str, Raw] = pages.compiled(folder, language, partial(checked, language=language))
    return found


def checked(folder: Path, language: str) -> dict[str, Raw]:
    """The translations under `folder`, each checked against its page: its sentences by the English ones."""
    return {origin: {"of": raw["of"], "said": said} for origin, _, raw, said in _read(folder, language) if said}


def stale(folder: Path) -> list[str]:
    """Of the translations under `folder` those whose pages have changed since, each with what is to be done."""
    return [
        f"{language}/{origin}: its page has changed, and is shown in English until this says the same again,"
        f' with of = "{digest(page)}"'
        for language in OTHERS
        for origin, page, _, said in _read(folder, language)
        if not said
    ]


def _read(folder: Path, language: str) -> Iterator[tuple[str, Raw, Raw, dict[str, str]]]:
    """Origin, page, translation and its sentences, none where it is stale; raises `RuleError`."""
    there = folder / language
    for path in sorted(there.rglob("*.toml")):
        origin = path.relative_to(there).as_posix()
        original = folder / origin
        if not original.is_file():
            raise RuleError(f"{path}: there is no page {original} that it could translate")
        page, raw = named.page_of(original), pages.toml(path)
        raw = named.Names(page, Spot(original)).spelled_out(raw)
        if not isinstance(raw.get("of"), str):
            raise RuleError(f'{path}: of = "{digest(page)}" is missing: the digest of the words that it translates')
        yield origin, page, raw, _matched(page, raw, path) if raw["of"] == digest(page) else {}


def _slots(page: Raw) -> Iterator[tuple[Slot, str]]:
    """Every sentence of a page, and where a translation has it."""
    yield from (((key,), page[key]) for key in _SENTENCES if page.get(key))
    heard = dict.fromkeys(sign["finding"] for sign in page.get("sign", ()) if sign.get("finding"))
    yield from ((("signs", at), sentence) for at, sentence in enumerate(heard))
    yield from ((("step", name), step["text"]) for name, step in page.get("step", {}).items() if step.get("text"))
    for at, fix in enumerate(page.get("fix", ())):
        yield ("fix", at, "title"), fix["title"]
        own = (step["text"] for step in fix.get("steps", ()) if not isinstance(step, str) and step.get("text"))
        yield from ((("fix", at, "steps", number), text) for number, text in enumerate(own))
        if fix.get("undo"):
            yield ("fix", at, "undo"), fix["undo"]


def _sentences(raw: Raw, path: Path) -> Iterator[tuple[Slot, str]]:
    """What a translation says, by the same places."""
    page = Spot(path)
    only(raw, f"of signs step fix {' '.join(_SENTENCES)}", page)
    yield from (((key,), raw[key]) for key in _SENTENCES if key in raw)
    yield from ((("signs", at), text) for at, text in enumerate(texts(raw, "signs", page)))
    yield from ((("step", name), text) for name, text in raw.get("step", {}).items())
    for at, fix in enumerate(raw.get("fix", ())):
        only(fix, "title steps undo", page.entry("fix", at))
        yield from ((("fix", at, key), fix[key]) for key in ("title", "undo") if key in fix)
        yield from ((("fix", at, "steps", number), text) for number, text in enumerate(texts(fix, "steps", page)))


def _matched(page: Raw, raw: Raw, path: Path) -> dict[str, str]:
    """What is said for each sentence of the page; raises `RuleError` where one is missing, or is of other facts."""
    translated = dict(_sentences(raw, path))
    said = {}
    for slot, english in _slots(page):
        where = f"{path}: {' '.join(map(str, slot))}"
        words = translated.pop(slot, english if slot[-1] in _OPTIONAL else "")
        if not words:
            raise RuleError(f"{where} is missing: {english}")
        if words != english:  # a command that is left as it is may have braces of its own
            _check_names(english, words, page.get("each", ""), where)
        said[english] = words
    if translated:
        raise RuleError(f"{path}: the page has no {' '.join(map(str, next(iter(translated))))} to translate")
    return said


def _check_names(english: str, words: str, each: str, where: str) -> None:
    """A translation tells the facts of its original, and works them out by nothing else."""
    theirs, ours = _names(english, each), _names(words, each)
    if missing := sorted(theirs.facts - ours.facts):
        raise RuleError(f"{where} does not say {missing[0]}, as its original does: {english}")
    if odd := sorted(ours.facts - theirs.facts) or sorted(ours.others - theirs.others):
        raise RuleError(f"{where} has {odd[0]}, which its original has not: {english}")


def _names(template: str, each: str) -> Names:
    """Those in its holes; what a pattern has captured, which is a hole by itself, is as good as a fact."""
    holes = [hole.partition("|")[0].strip() for hole in _HOLE.findall(template)]
    parts = [names_in(hole, each) for hole in holes]
    captured = frozenset(hole for hole in holes if hole.isidentifier())
    others: frozenset[str] = frozenset()
    return Names(captured.union(*(one.facts for one in parts)), others.union(*(one.others for one in parts)) - captured)
