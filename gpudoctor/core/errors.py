"""What can go wrong for the user, as one small tree, and what a misspelt word was probably meant to be.

DoctorError           one line, says what to do; exit code 2
|-- DocumentError     a file that is not what it should be
|-- RuleError         a broken rule page or table
`-- UsageError        an option or argument that cannot be met
    `-- ExtraError    one that needs a package which is not there
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable

from gpudoctor.core.secrets import without_secrets


class DoctorError(Exception):
    """Base of errors for the user: one line that says what to do; secrets in it are hidden."""

    def __str__(self) -> str:
        return without_secrets(super().__str__())


class DocumentError(DoctorError):
    """A snapshot, report or document that cannot be read."""


class RuleError(DoctorError):
    """A rule page or table that is broken."""


class UsageError(DoctorError):
    """An option or argument that is invalid or cannot be satisfied."""


class ExtraError(UsageError):
    """A use that needs a package of an extra in gpudoctor's own environment."""

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(f"{message}: {shlex.quote(sys.executable)} -m pip install 'gpudoctor[{extra}]'")


# ---- What a misspelt word was probably meant to be ----


_LIKENESS_MARGIN = 0.15
"""How much less like the misspelt word, of 1, a candidate may be than the best one."""


def near_words(word: str, known: Iterable[str]) -> list[str]:
    """Up to three known words: those that begin with `word`, the shortest first, then those spelt most like it."""
    from difflib import SequenceMatcher, get_close_matches  # where a word is misspelt

    asked, words = word[:200].lower(), list(known)
    begun = sorted((candidate for candidate in words if len(asked) > 1 and candidate.startswith(asked)), key=len)
    alike = get_close_matches(asked, words, 3, 0.6)
    likeness = [SequenceMatcher(None, candidate, asked).ratio() for candidate in alike]
    nearest = [
        candidate for candidate, ratio in zip(alike, likeness, strict=True) if ratio > likeness[0] - _LIKENESS_MARGIN
    ]
    return list(dict.fromkeys([*begun, *nearest]))[:3]
