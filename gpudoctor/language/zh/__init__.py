"""The program's words in simplified Chinese: the English sentence, and what is said instead. A file for each place."""

from __future__ import annotations

from gpudoctor.language.zh import cures, expected, machines, pages, report, since

_PLACES = (report, cures, pages, machines, since, expected)
WORDS: dict[str, str] = {english: chinese for place in _PLACES for english, chinese in place.WORDS.items()}
