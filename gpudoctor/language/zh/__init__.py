"""The program's words in simplified Chinese: the English sentence, and what is said instead. A file for each place."""

from __future__ import annotations

from gpudoctor.language.zh import cures, machines, pages, report, since

WORDS: dict[str, str] = {**report.WORDS, **cures.WORDS, **pages.WORDS, **machines.WORDS, **since.WORDS}
