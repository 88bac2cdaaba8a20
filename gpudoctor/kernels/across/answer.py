"""What one rank answers of the collectives that it took part in; to JSON and back, for the rank that hears all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, TypeVar

from gpudoctor.model.fact import Json
from gpudoctor.probes._child import printable

_MOST = 2000
_TEXT = 600


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


@dataclass(frozen=True, slots=True)
class Via:
    """How the data of a leg went. By Gloo: interface and address that it listened at, ``eth0 10.0.0.1``; by NCCL, how
    its channels were connected: ``P2P/CUMEM``, ``SHM/direct/direct``, ``NET/IB/0/GDRDMA``.
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
        known = _fitting(Across, {**raw, "found": None, "ended": None, "via": None})
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
    return tuple(kind(**item) for item in found if len(item) == len(fields(kind)))  # type: ignore[arg-type]


def _fitting(kind: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value of their type."""
    found = {}
    for one in fields(kind):
        value = raw.get(one.name)
        if one.type == "str" and isinstance(value, str):
            found[one.name] = printable(" ".join(value.split()), _TEXT)
        elif one.type == "bool" and isinstance(value, bool):
            found[one.name] = value
        elif one.type == "int" and type(value) is int:
            found[one.name] = value
        elif one.type == "float" and type(value) in {int, float} and isfinite(value):
            found[one.name] = float(value)
        elif one.type == "tuple[str, ...]" and isinstance(value, (list, tuple)):
            found[one.name] = tuple(printable(item, _TEXT) for item in value[:_MOST] if isinstance(item, str))
    return found
