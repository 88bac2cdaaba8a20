"""Numbers with units: what an operator writes (``64 GiB``) in the unit that a fact is in (``MiB``)."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.model.errors import UsageError

_METRIC = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def _family(base: str, *more: str, binary: bool = False) -> dict[str, float]:
    prefixes = {**_METRIC, **(_BINARY if binary else {})}
    return {f"{prefix}{name}": factor for name in (base, *more) for prefix, factor in prefixes.items()}


_FAMILIES: tuple[Mapping[str, float], ...] = (
    _family("B", binary=True),
    _family("B/s", binary=True),
    _family("b/s", "bit/s"),
    _family("Hz"),
    {**_family("W"), "mW": 1e-3},
    _family("FLOP/s", "FLOPS"),
    _family("OP/s"),
    {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    {"degrees C": 1.0, "°C": 1.0, "C": 1.0},
    {"%": 1.0},
    {"GT/s per lane": 1.0, "GT/s": 1.0},
)
_ALIASES = {"bytes": "B"}


def factor(written: str, unit: str) -> float:
    """What a number in `written` is multiplied with to be in `unit`; raises `UsageError` where they do not go together.

    A number without a unit is in the fact's own.
    """
    if not written or written == unit:
        return 1.0
    own = _ALIASES.get(unit, unit)
    for family in _FAMILIES:
        if written in family and own in family:
            return family[written] / family[own]
    if not unit:
        raise UsageError(f"{written} does not go with it, for it is a number without a unit")
    raise UsageError(f"{written} does not go with it, for it is in {unit}")
