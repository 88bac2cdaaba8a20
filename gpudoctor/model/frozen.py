"""Frozen classes whose making costs a third: what `dataclass(frozen=True, slots=True)` makes, but for one function.

The standard decorator compiles six functions for each class; a quick diagnosis meets a hundred classes, and that was a
fifth of its time. Here ``__init__`` alone is compiled; what compares, hashes, prints and refuses to change is the same
function for all. `dataclasses.replace`, `fields` and `asdict` take instances as any other's.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        """What type checkers read."""
        return lambda decorator: decorator


T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots of a class; every field is an argument of its ``__init__``."""
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    names = tuple(one.name for one in fields(made))
    made.values_ = _values_of(names)
    for name, method in _SHARED.items():
        if name not in cls.__dict__:
            setattr(made, name, method)
    made.__init__ = _init(made)
    return made  # type: ignore[no-any-return]


def _values_of(names: tuple[str, ...]) -> staticmethod[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return staticmethod(attrgetter(*names))
    return staticmethod(lambda one: tuple(getattr(one, name) for name in names))


def _init(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that fills the slots and then calls ``__post_init__``, where there is one."""
    known: dict[str, Any] = {"_unset": MISSING}
    words, lines = ["self"], []
    for one in fields(cls):
        name, value = one.name, one.name
        known[f"_set_{name}"] = getattr(cls, name).__set__
        word = name
        if one.default is not MISSING:
            known[f"_default_{name}"] = one.default
            word = f"{name}=_default_{name}"
        elif one.default_factory is not MISSING:
            known[f"_make_{name}"] = one.default_factory
            word, value = f"{name}=_unset", f"_make_{name}() if {name} is _unset else {name}"
        words.append(word)
        lines.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(words)}):\n" + "\n".join(lines or [" pass"]), known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    made: Callable[..., None] = known["__init__"]
    return made


def _repr(self: Any) -> str:
    told = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({told})"


def _eq(self: Any, other: Any) -> Any:
    return self.values_(self) == other.values_(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.values_(self))


def _refuse(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__name__}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), self.values_(self)


_SHARED = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__reduce__": _reduce,
}
