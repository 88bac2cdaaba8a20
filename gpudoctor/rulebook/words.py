"""What each page is about, as words: to find the pages nearest to a text in which no sign was heard."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from pathlib import Path
from typing import Any

from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.rulebook.files import page_files
from gpudoctor.rulebook.furniture import is_furniture
from gpudoctor.rulebook.named import page_of
from gpudoctor.rulebook.page import cases_on, rule_of, texts
from gpudoctor.rulebook.spot import Spot

_WORD = pattern(r"[a-z](?:[a-z0-9_+.-]*[a-z0-9+])?")
_PART = pattern(r"[._-]")
_OF_A_PATTERN = pattern(r"\\[a-zA-Z]|\(\?[^)]*?[:>]|[\\\[\](){}|?*+^$]")
_SHORTEST_PART = 3
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
    a about after all an and any are as at be but by can do does for from had has have here if in into is it its
    line may more most no not of on one only or other out same so some than that the their them then there these
    they this to two up was were what when where which who will with without would you your
    """,
    )
)
_HEADING, _EXPLANATION = 3, 2
_COMMON_TO = 0.5
"""A word that more than this share of the pages has tells nothing, however often it comes."""
_SATURATION, _LENGTH = 1.2, 0.75
"""k1 and b of BM25, the usual values: Robertson and Zaragoza, The Probabilistic Relevance Framework (2009)."""


def words(text: str) -> Iterator[str]:
    """The telling words of a text, in lower case; of a compound such as ``libcudart.so`` its parts as well."""
    for word in _WORD.findall(text.lower()):
        if len(word) == 1 or word in _COMMON:
            continue
        yield word
        parts = _PART.split(word)
        if len(parts) > 1:
            yield from (part for part in parts if len(part) >= _SHORTEST_PART and part not in _COMMON)


@frozen(slots=False)
class Vocabulary:
    """The words of all pages with their weights."""

    of: Mapping[str, Mapping[str, int]]

    @cached_property
    def lengths(self) -> Mapping[str, float]:
        """How long each page is, as a multiple of the average."""
        totals = {page: sum(weights.values()) for page, weights in self.of.items()}
        average = sum(totals.values()) / max(1, len(totals))
        return {page: total / average for page, total in totals.items()}

    def shared(self, asked: AbstractSet[str]) -> dict[str, dict[str, float]]:
        """For each page what each asked word that it has is worth (BM25): more the fewer pages have it."""
        having = {page: weights.keys() & asked for page, weights in self.of.items()}
        pages_with: dict[str, int] = {}
        for found in having.values():
            for word in found:
                pages_with[word] = pages_with.get(word, 0) + 1
        total = len(self.of)
        rarity = {
            word: math.log(1 + (total - n + 0.5) / (n + 0.5))
            for word, n in pages_with.items()
            if n <= _COMMON_TO * total
        }
        worth = {}
        for page in having:
            damping = _SATURATION * (1 - _LENGTH + _LENGTH * self.lengths[page])
            weights = self.of[page]
            worth[page] = {
                word: rarity[word] * weights[word] * (_SATURATION + 1) / (weights[word] + damping)
                for word in having[page] & rarity.keys()
            }
        return worth


def words_of_pages(folder: Path) -> dict[str, dict[str, int]]:
    """For each page under `folder` that names a cause, its words with their weights."""
    found = {}
    for path in page_files(folder):
        raw = page_of(path)
        rule = rule_of(raw, str(path))
        if rule.role == "cause" and not rule.sound and rule.scope == "machine":
            found[rule.id] = dict(_weighed(_passages(raw, path)))
    return found


def _passages(raw: Mapping[str, Any], path: Path) -> Iterator[tuple[str, int]]:
    """The passages of a page that say what it is about, with the weight of a word in each."""
    yield raw["id"].replace(".", " ").replace("-", " "), _HEADING
    yield raw["title"], _HEADING
    yield raw["why"], _EXPLANATION
    yield raw["finding"], 1
    for phrase in texts(raw, "said", Spot(path)):
        yield phrase, 1
    yield raw.get("confirm", ""), 1
    for sign in raw.get("sign", ()):
        yield _OF_A_PATTERN.sub(" ", sign["match"]), 1
        yield sign.get("finding", ""), 1
    for fix in raw.get("fix", ()):
        yield fix["title"], 1
    for case in cases_on(raw, path):
        if case.finds:
            told = (line for line in case.report.splitlines() if not is_furniture(line))
            yield " ".join([case.name, *told]), 1


def _weighed(passages: Iterable[tuple[str, int]]) -> Counter[str]:
    weights: Counter[str] = Counter()
    for text, weight in passages:
        for word in sorted(set(words(text))):
            weights[word] += weight
    return weights
