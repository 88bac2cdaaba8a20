"""What facts there are: each probe and reader declares its own, by name, type and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword
from typing import Literal

from gpudoctor.model.errors import RuleError
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.frozen import frozen
from gpudoctor.model.snapshot import Snapshot

Kind = Literal["text", "version", "int", "float", "bool", "list", "map"]
_TYPES: Mapping[Kind, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "text"),
    "version": (str, "a version as text"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
    "list": (tuple, "a list"),
    "map": (Mapping, "an object"),
}


@frozen
class FactSpec:
    """One fact's name, type and meaning.

    `name` is dotted (``driver.version``). Where `group` is true the part before the last dot names a list of
    things and the last part a column of it (``gpu.name`` is the name of each GPU). ``env.*`` stands for any name.
    """

    name: str
    kind: Kind
    about: str
    unit: str = ""
    group: bool = False


def fact(name: str, kind: Kind, about: str, unit: str = "") -> FactSpec:
    """Declare a fact of the machine."""
    return FactSpec(name, kind, about, unit)


def column(name: str, kind: Kind, about: str, unit: str = "") -> FactSpec:
    """Declare a fact of one thing among several: ``gpu.name``."""
    return FactSpec(name, kind, about, unit, group=True)


class Catalog:
    """All declared facts, by name."""

    def __init__(self, specs: Iterable[FactSpec]) -> None:
        self.specs: dict[str, FactSpec] = {}
        for spec in specs:
            if any(iskeyword(part) for part in spec.name.split(".")):
                raise RuleError(f"fact {spec.name}: no condition could name it, for a part of it is a Python keyword")
            known = self.specs.setdefault(spec.name, spec)
            if known != spec:
                raise RuleError(f"fact {spec.name} is declared twice, differently")
        self.groups = frozenset(name.rpartition(".")[0] for name, spec in self.specs.items() if spec.group)

    def find(self, name: str) -> FactSpec | None:
        """The declaration of `name`, also through a wildcard such as ``env.*``."""
        return self.specs.get(name) or self.specs.get(name.rpartition(".")[0] + ".*")

    def misfits(self, snapshot: Snapshot) -> Iterator[str]:
        """What is wrong with each fact whose value is not of its declared kind, in words; names nobody knows may be."""
        facts = list(snapshot.facts.items())
        for group, rows in snapshot.groups.items():
            for row in listed(rows):
                facts += [(f"{group}.{column}", state) for column, state in row.items()]
        for name, state in facts:
            spec = self.find(name)
            if spec and isinstance(state, Known) and not fits(state.value, spec.kind):
                yield f"{name} is {str(state.value)[:40]!r}, not {_TYPES[spec.kind][1]}"


def in_words(kind: Kind) -> str:
    """The kind as a person says it: ``a whole number``."""
    return _TYPES[kind][1]


def fits(value: object, kind: Kind) -> bool:
    """Whether the value is of that kind."""
    return isinstance(value, _TYPES[kind][0]) and (kind == "bool" or not isinstance(value, bool))
