"""What one rank answers of the collectives that it took part in; to JSON and back, for the rank that hears all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar

from gpudoctor.model.fact import Json
from gpudoctor.target.protocol import printable

_MOST = 2000
_TEXT = 600
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Found:
    """One operation at one size, as this rank saw it. Seconds are of one call: ``alone`` after a common start."""

    leg: str
    backend: str
    operation: str
    group: int
    """The lowest rank of its group, by which groups of a leg are told apart."""
    ranks: int
    """Ranks in that group."""
    size: int
    """Bytes, as nccl-tests counts them."""
    seconds: float
    alone: float
    differ: int
    compared: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What was not measured: an operation, or the rest of a leg where `operation` is empty."""

    leg: str
    backend: str
    operation: str
    why: str
    cannot: bool
    """Whether that says nothing against the links."""
    step: str = ""
    steps: int = 0
    """The step at which that was, and how many there had been."""


@dataclass(frozen=True, slots=True)
class Via:
    """How the data of a leg went. By Gloo: interface and address that it listened at, ``eth0 10.0.0.1``; by NCCL, how
    its channels were connected: ``P2P/CUMEM``, ``SHM/direct/direct``, ``NET/IB/GDRDMA``.
    """

    leg: str
    backend: str
    ways: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Across:
    """One rank's answer. `why` is empty where it came to the end of its plan; `step` is the last that it began."""

    rank: int
    host: str
    local_rank: int
    found: tuple[Found, ...] = ()
    ended: tuple[Ended, ...] = ()
    why: str = ""
    cannot: bool = False
    step: str = ""
    steps: int = 0
    seconds: float = 0.0
    torch: str = ""
    nccl: str = ""
    """NCCL's version; empty where only Gloo was used."""
    device: str = ""
    leg: str = ""
    """The leg of its last step, and that one's backend; empty before the first."""
    backend: str = ""
    via: tuple[Via, ...] = ()
    warned: str = ""
    """NCCL's first warning."""
    nccl_at: tuple[str, ...] = ()
    """Interface and address of NCCL's bootstrap: ``eth0 10.0.0.1``."""
    network: str = ""
    """What NCCL says that it uses between hosts: ``IB``, ``Socket``, the name of a plugin."""
    devices: tuple[str, ...] = ()
    """RDMA devices that NCCL says it uses: ``mlx5_0 RoCE``."""

    def to_json(self) -> dict[str, Json]:
        """As it travels between ranks."""
        return asdict(self)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Across:
        """The inverse; whatever is not as it must be is left out, for the rank may run another gpudoctor."""
        known = _fitting(Across, raw)
        return Across(
            **{"rank": -1, "host": "", "local_rank": -1, **known},
            found=several(Found, raw.get("found")),
            ended=several(Ended, raw.get("ended")),
            via=several(Via, raw.get("via")),
        )


_T = TypeVar("_T")


def several(kind: type[_T], raw: object) -> tuple[_T, ...]:
    """Those of a list that are whole."""
    items = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else ()
    found = (_fitting(kind, item) for item in items[:_MOST] if isinstance(item, Mapping))
    return tuple(kind(**item) for item in found if _needed(kind) <= item.keys())


def _needed(kind: type[Any]) -> set[str]:
    return {one.name for one in fields(kind) if one.default is MISSING}


def _fitting(kind: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value of their type."""
    read = {
        one.name: _READ[str(one.type)](raw[one.name])
        for one in fields(kind)
        if str(one.type) in _READ and one.name in raw
    }
    return {name: value for name, value in read.items() if value is not None}


def _text(value: object) -> str | None:
    return printable(" ".join(value.split()), _TEXT) if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 62 else None


def _number(value: object) -> float | None:
    fits = type(value) in {int, float} and abs(value) < _LARGEST  # type: ignore[arg-type]
    return float(value) if fits else None  # type: ignore[arg-type]


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, (list, tuple)):
        return None
    return tuple(printable(item, _TEXT) for item in value[:_MOST] if isinstance(item, str))


_READ: Mapping[str, Callable[[object], Any]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": lambda value: value if isinstance(value, bool) else None,
    "tuple[str, ...]": _texts,
}
"""By the name of a field's type: its value where it is one, else None."""
