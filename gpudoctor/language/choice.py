"""Which language a run speaks: as it was asked to, else as the user's locale has it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.language import ENGLISH, OTHERS

_ASKED = ("GPUDOCTOR_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""Variables in their order: the first that is set decides, as POSIX has it of a locale's."""
_TRADITIONAL = re.compile(r"hant|[-_](?:tw|hk|mo)\b", re.IGNORECASE)
_SAMPLES = {"zh": "中文，。（）"}
"""What a stream must be able to print for a language to be spoken there."""


def chosen(option: str | None, document: bool, environ: Mapping[str, str], encoding: str | None) -> str:
    """One of `LANGUAGES`. `option` is what was typed, `encoding` that of the stream that the report goes to.

    A document for programs is English unless it was typed otherwise: what a script compares must not depend on who runs
    it. Characters that the stream cannot print are not sent there; a document has none, for JSON spells them out.
    """
    if document:
        return option or ENGLISH
    name = option or _of_locale(next((environ[name] for name in _ASKED if environ.get(name)), ""))
    return name if _prints(encoding, _SAMPLES.get(name, "")) else ENGLISH


def _of_locale(locale: str) -> str:
    """The language of ``zh_CN.UTF-8``, ``zh-Hans`` or ``de_DE``.

    Our Chinese is simplified: those who read traditional characters are not given it unasked.
    """
    name = re.split(r"[-_.@]", locale, maxsplit=1)[0].lower()
    return name if name in OTHERS and not _TRADITIONAL.search(locale) else ENGLISH


def _prints(encoding: str | None, sample: str) -> bool:
    try:
        sample.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
