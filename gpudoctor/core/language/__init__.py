"""The output language of this process. English texts are in the code; translations are looked up by them.

A process speaks one language, as it has one locale: `app.cli` chooses it, and everything that is worded afterwards
is worded in it. Words of the program are in ``gpudoctor/core/language/<name>.toml``, those of files that it writes
for people in ``<name>.files.toml``, those of facts' sources in ``<name>.notes.toml``, those of a rule's page in
``rules/<name>/``. Ids, keys, facts, commands and quoted messages have no language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from gpudoctor.core import shipped
from gpudoctor.core.document import parse_toml
from gpudoctor.core.errors import near_words

ENGLISH = "en"
OTHERS = ("zh",)
LANGUAGES = (ENGLISH, *OTHERS)

_current = ENGLISH


def current() -> str:
    """The language in use, one of `LANGUAGES`."""
    return _current


def use(name: str) -> None:
    """Set the language of this process; raises `ValueError` for one that is not in `LANGUAGES`."""
    global _current  # noqa: PLW0603 - as a locale: one for the process
    if name not in LANGUAGES:
        raise ValueError(f"no language {name!r}; available: {', '.join(LANGUAGES)}")
    _current = name


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Context manager: that language within it, the previous one after."""
    before = current()
    use(name)
    try:
        yield
    finally:
        use(before)


def say(english: str, **values: object) -> str:
    """The sentence in the language in use, its ``{holes}`` filled; English where it has no translation."""
    template = english if _current == ENGLISH else words(_current).get(english, english)
    return template.format(**values) if values else template


_HOLES = {
    "number": r"[\d, to-]+",
    "fact": r"[a-z]\w*(?:\.\w+)*",
    "numbers": r"\d[\d, -]*",
    "path": r"/\S+",
    "argument": r"[^\s:]+",
    "who": r"\w+ (?:\d[\d, -]*(?: and \d+ more)?|\S+)",
    "subject": r"\S+(?: on \S+)?",
    "verb": "sends and receives|sends|receives",
    "ends": "(?:by|from|between) .+",
}
_NESTED = ("rest", "source", "who", "subject", "verb", "ends")
"""Holes that hold a phrase."""


RANK_PHRASES = (
    "rank {numbers}",
    "ranks {numbers}",
    "ranks {numbers} and {count} more",
    "process {numbers}",
    "processes {numbers}",
    "processes {numbers} and {count} more",
    "pid {pid} on {host}, GPU {gpu}",
    "pid {pid} on {host}",
    "on {host}",
    "{command} on {host}, GPU {gpu}",
    "{command} on {host}",
)
"""How facts name the ranks of a job and their processes."""
VALUE_PHRASES = (
    "{path} (or another GPU's)",
    "{path} instead of {other}",
    "{file} wants {symbol}, which {path} does not define",
    "{rest} ({number} pair)",
    "{rest} ({number} pairs)",
    "{subject} {verb} at {rate} Gbit/s, {share} % of the usual {usual}",
    "{subject} {verb} at {rate} Gbit/s",
    "{subject} {verb} {rate} of the usual {usual} GB/s",
    "{subject} {verb} {rate} GB/s",
    "{subject} {verb} no packets of more than {number} bytes",
    "{subject} {verb} with {share} % of the segments lost",
    "{subject} answers after {time} ms, usual are {usual} ms",
    "{subject} answers after {time} ms",
    "{subject} reaches the other hosts' {network}, and none of their {rail}",
    "{subject} reaches none of the hosts that others reach",
    "{subject} is reached by none of the hosts that reach others",
    "{subject} neither reaches nor is reached by hosts that reach each other",
    "{ends} no connection comes about, and {rail} of {host} reaches {network} of {other}",
    "{ends} no connection comes about",
    "{ends} packets of more than {number} bytes vanish",
    "{ends} {share} % of the segments are lost",
    "{ends} a round trip takes {time} ms, usual are {usual} ms",
    "{ends} a round trip takes {time} ms",
    "{ends} at most {rate} Gbit/s pass, {share} % of the usual {usual}",
    "{ends} at most {rate} Gbit/s pass",
    "{ends} {rate} of the usual {usual} GB/s pass",
    "{ends} {rate} GB/s pass",
    "by {rail} {ends}",
    "between any two of {number} hosts",
    "between {host} and other switches",
    "between {host} and {other}",
    "from {host} to other switches",
    "from other switches to {host}",
    "from {host} to {other}",
    *RANK_PHRASES,
)
"""How facts of `_WORDED` say what they hold, where it is no single word."""
_WORDED = {
    *("container.lacks", "libs.clashes", "libs.shadowing", "space.uses", "suspect.words"),
    *("cuda_driver.state", "driver.fabric_manager", "fabric.subnet_manager", "nvml.state"),
    *("gpu.fabric_state", "imex.domain", "imex.state", "job.waiting", "rank.state"),
    *("rank_group.name", "rank_group.state", "rank_group.waits_in", "rank_group.who", "rank_group.worker_waits_in"),
}
"""Facts whose value is words of this program, not of the machine."""
JOBS = ("job of process {numbers}", "job on {hosts}", "Slurm job {job}")
"""How jobs are named."""


def phrase(english: str, templates: tuple[str, ...] | None = None) -> str:
    """The text, made from one of the templates, in the language in use; unchanged if it fits none of them.

    By default the templates are those of a fact's source and of the reason why it was not read.
    """
    if _current == ENGLISH:
        return english
    table = words(_current) if templates is not None else words(f"{_current}.notes")
    if whole := table.get(english) or words(_current).get(english):
        return whole
    for template, pattern in _phrase_patterns(tuple(table) if templates is None else templates).items():
        if match := pattern.fullmatch(english):
            parts = match.groupdict().items()
            filled = {name: phrase(part, templates) if name in _NESTED else part for name, part in parts}
            return table.get(template, template).format(**filled)
    return english


def worded(fact: str, value: Any) -> Any:
    """The value of that fact, or each of a list of them, in the language in use where it is words of this program."""
    if _current == ENGLISH or fact not in _WORDED:
        return value
    if isinstance(value, str):
        return phrase(re.sub(r"^(Rank|Process)", lambda word: word[0].lower(), value), VALUE_PHRASES)
    return tuple(worded(fact, item) for item in value) if isinstance(value, list | tuple) else value


@lru_cache(maxsize=8)
def _phrase_patterns(templates: tuple[str, ...]) -> Mapping[str, re.Pattern[str]]:
    """For each template the pattern that matches the texts made from it."""
    return {
        template: re.compile(
            re.sub(r"\\\{(\w+)\\\}", lambda hole: f"(?P<{hole[1]}>{_HOLES.get(hole[1], '.+')})", re.escape(template))
        )
        for template in templates
    }


def and_list(items: Iterable[str]) -> str:
    """The items, of which there is one at least, as a list in the language in use: ``a, b and c``."""
    *most, last = items
    if not most:
        return last
    first, *others = most
    return "".join((first, *(say(", {item}", item=item) for item in others), say(" and {item}", item=last)))


def meant(word: str, known: Iterable[str]) -> str:
    """End of an error message with up to three near words: ``; did you mean a, b or c?``; empty where none is near."""
    *most, last = near_words(word, known) or [""]
    either = say(" or ").join(filter(None, (say(", ").join(most), last)))
    return say("; did you mean {names}?", names=either) if last else ""


@lru_cache(maxsize=3 * len(OTHERS))
def words(name: str) -> Mapping[str, str]:
    """Translations of that language by English sentence; raises `FileNotFoundError` for English.

    With ``.files`` behind the name: those of files that ship; with ``.notes``: of the notes that facts carry. From its
    TOML file, or from the packed JSON that a wheel has instead.
    """
    packed = shipped.data(f"core/language/{name}.json.z")
    if packed is None:
        return parse_toml(shipped.text(f"core/language/{name}.toml"))
    import json  # heavy for those who speak English
    import zlib

    return dict(json.loads(zlib.decompress(packed)))


# ---- Which language a run speaks ----
# As it was asked to, else as the user's locale has it.

_ASKED = ("GPUDOCTOR_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""Variables in their order: the first that is set decides, as POSIX has it of a locale's."""
_TRADITIONAL = re.compile(r"hant|[-_](?:tw|hk|mo)\b", re.IGNORECASE)
_SAMPLES = {"zh": "中文，。（）"}
"""What a stream must be able to print for a language to be spoken there."""


def choose_language(option: str | None, document: bool, environ: Mapping[str, str], encoding: str | None) -> str:
    """One of `LANGUAGES`: the option, else by ``GPUDOCTOR_LANG`` or the locale's variables in `environ`.

    English where the output stream's `encoding` cannot print the language. A machine-readable `document` is English
    unless `option` is given.
    """
    if document:
        return option or ENGLISH
    name = option or _language_of_locale(next((environ[name] for name in _ASKED if environ.get(name)), ""))
    return name if _can_encode(encoding, _SAMPLES.get(name, "")) else ENGLISH


def _language_of_locale(locale: str) -> str:
    """``zh`` for a locale of simplified Chinese (``zh_CN.UTF-8``, ``zh-Hans``), else ``en``.

    Traditional Chinese (``zh_TW``, ``zh-Hant``) is ``en``, too: the translation is in simplified characters.
    """
    name = re.split(r"[-_.@]", locale, maxsplit=1)[0].lower()
    return name if name in OTHERS and not _TRADITIONAL.search(locale) else ENGLISH


def _can_encode(encoding: str | None, sample: str) -> bool:
    """Whether the encoding (UTF-8 for None) can represent the sample; False for an unknown encoding."""
    try:
        sample.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
