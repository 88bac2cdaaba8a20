"""The program's words in simplified Chinese: the English sentence, and what is said instead. A file for each place."""

from __future__ import annotations

from gpudoctor.core.language.zh import cures, machines, report

_PLACES = (report, cures, machines)
WORDS: dict[str, str] = {english: chinese for place in _PLACES for english, chinese in place.WORDS.items()}
