"""What a person says came of something: that it works, that it fails, or neither."""

from __future__ import annotations

from gpudoctor.readers._pattern import Pattern

_NEUTRAL = Pattern(
    r"\bno (?:running )?process(?:es)?\b[^,;.]*"
    r"|\b(?:no|without) (?:an? |any )?(?:errors?|problems?|issues?|trouble)\b",
    2,
)
"""Negations that are good news, or none."""
_BAD = Pattern(
    r"\b(?:not|no|never|nothing|none|cannot|neither|nor|without|unable)\b|n[’']t\b"
    r"|\b(?:fail\w*|errors?|broken|breaks?|missing|false|empty|unavailable|lost|gone|hangs?|hung|crash\w*|unknown"
    r"|refused|denied|invisible|absent|mismatch|same)\b",
    2,
)
_GOOD = Pattern(
    r"\b(?:works?|working|worked|fine|ok|okay|good|normal(?:ly)?|success\w*|succeeds?|lists?|listed|shows?|shown"
    r"|prints?|printed|sees?|seen|visible|detect(?:s|ed)|available|true|yes|healthy|runs?|ran|running|pass(?:es|ed)|returns?|reports?"
    r"|back|fix(?:es|ed)|cures?|cured|helps?|helped|solves?|solved|resolves?|resolved|restores?|finds?|found|recogni[sz]ed|recovers?"
    r"|correct(?:ly)?|RTX|GTX|Tesla|GeForce|Quadro|[AHLBVTP]\d{1,3})\b",
    2,
)
"""Words of success; a GPU's name is one, too."""


def outcome(text: str) -> bool | None:
    """True where the words say that it works, False where they say that it does not; None where they say neither."""
    said = _NEUTRAL.compiled.sub(" fine ", text)
    if _BAD.search(said):
        return False
    return True if _GOOD.search(said) else None
