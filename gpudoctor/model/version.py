"""Versions as the field writes them: ``570.124.06``, ``12.8``, ``2.7.0.dev20250310+cu124``, ``6.8.0-79-generic``."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

from gpudoctor.model.pattern import pattern

_LEADING = pattern(r"v?(\d+(?:\.\d+)*(?:\.?(?:dev|post|rc|a|b)\d+)*(?:\+[A-Za-z0-9.]+)?)")


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """The version at the start of `text`, compared as PEP 440 says, or None where there is none."""
    match = _LEADING.match(text.strip())
    if not match:
        return None
    try:
        return Version(match.group(1))
    except ValueError:  # no version, or a number of more digits than Python reads
        return None
