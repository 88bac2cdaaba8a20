"""What kind of value a fact has, in words, and how a value of another kind would be written as one of it."""

from __future__ import annotations

import re

from gpudoctor.model.catalog import FactSpec, in_words
from gpudoctor.model.errors import UsageError
from gpudoctor.model.units import factor

FAMILIES = {"text": "text", "version": "text", "int": "number", "float": "number", "bool": "bool"}
"""Kinds whose values may be compared with each other go by one name; ``list`` and ``map`` by their own."""
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([^\d\s].*?)?\s*\Z")


def described(name: str, spec: FactSpec) -> str:
    """The fact and its kind: ``limits.shm_mib, a whole number in MiB``."""
    return f"{name}, {in_words(spec.kind)}{f' in {spec.unit}' if spec.unit else ''}"


def family_of(value: object) -> str:
    """The family of a value that is written on a page."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "none"


def shown(value: object) -> str:
    """A value of a page, said with its kind: ``the text '64'``."""
    names = {"bool": "", "number": "the number ", "text": "the text "}
    return f"{names.get(family_of(value), '')}{value!r}"


def rewritten(value: object, spec: FactSpec) -> bool | int | float | str | None:
    """The value as the fact would have it: 16384 for ``16 GiB`` of a fact in MiB. None where there is no telling."""
    wanted = FAMILIES.get(spec.kind, spec.kind)
    if wanted == "text" and family_of(value) == "number":
        return str(value)
    if wanted == "bool" and str(value).lower() in _BOOLEANS:
        return _BOOLEANS[str(value).lower()]
    quantity = _QUANTITY.match(value) if isinstance(value, str) and wanted == "number" else None
    if quantity is None:
        return None
    try:
        number = float(quantity[1]) * factor(quantity[2] or "", spec.unit)
    except UsageError:
        return None
    return int(number) if number == int(number) else number if spec.kind == "float" else None


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
