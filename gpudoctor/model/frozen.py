"""Classes of fields whose making costs next to nothing: what `dataclass(frozen=True, slots=True)` makes, and lazily.

The standard decorator compiles six functions for each class, and its module loads `inspect` and the tokenizer of
Python; a quick diagnosis meets a hundred classes, and that was a fourth of its time. Here ``__init__`` is compiled for
a class of which an instance is made, and what compares, hashes, prints and refuses to change is the same function for
all. `dataclasses.replace`, `fields`, `asdict` and `is_dataclass` take instances as any other's: what these look at is
made when they do.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import field as field
    from dataclasses import replace as replace

    from typing_extensions import dataclass_transform

T = TypeVar("T")


class _Unset:
    """Stands for a default that is not given."""

    def __repr__(self) -> str:
        return "no default"


_UNSET: Any = _Unset()


class _Field:
    """What `field` says of one."""

    __slots__ = ("default", "factory", "shown")

    def __init__(self, default: Any = _UNSET, factory: Any = _UNSET, shown: bool = True) -> None:
        self.default = default
        self.factory = factory
        self.shown = shown


if not TYPE_CHECKING:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        """What type checkers read."""
        return lambda decorator: decorator

    def field(*, default: Any = _UNSET, default_factory: Any = _UNSET, repr: bool = True) -> Any:  # noqa: A002 - its name there
        """As `dataclasses.field`: a default that is made anew for each instance, or is not to be printed."""
        return _Field(default, default_factory, repr)

    def replace(one: T, /, **changes: Any) -> T:
        """As `dataclasses.replace`, and of its classes, too: a new one with these fields changed."""
        values = {name: getattr(one, name) for name in one.__match_args__}
        return type(one)(**{**values, **changes})


@overload
def frozen(cls: type[T]) -> type[T]: ...
@overload
def frozen(*, slots: bool = True, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, *, slots: bool = True, eq: bool = True) -> Any:
    """Make a frozen class of the fields annotated in its body; every field is an argument of its ``__init__``.

    Without `slots` it can keep what is worked out once (`functools.cached_property`); without `eq` each instance
    equals itself alone.
    """
    shared = {**_SHARED, **(_COMPARED if eq else {}), **_REFUSING}
    return _made(cls, slots, shared) if cls else lambda made: _made(made, slots, shared)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """As `frozen`, but its fields can be set anew; for what is filled step by step."""
    made: type[T] = _made(cls, True, {**_SHARED, **_COMPARED, "__hash__": None})
    return made


def _made(cls: Any, slots: bool, shared: Mapping[str, Any]) -> Any:
    own = {name: _field_of(cls, name) for name, kind in _annotated(cls).items() if not kind.startswith("ClassVar")}
    space = {name: value for name, value in cls.__dict__.items() if name not in own}
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)
    names = tuple(own)
    for name, method in shared.items():
        space.setdefault(name, method)
    if slots:
        space["__slots__"] = tuple(own)
    else:
        space.update((name, one.default) for name, one in own.items() if one.default is not _UNSET)
    space.update(fields_=own, values_=_values_of(names), __match_args__=names)
    space["__dataclass_fields__"] = _AsDataclass()
    made = type(cls)(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    made.__init__ = _first_init(made)
    return made


def _annotated(cls: Any) -> Mapping[str, str]:
    """The annotations of its own body, as texts."""
    return {name: str(kind) for name, kind in getattr(cls, "__annotations__", {}).items()} if _has_own(cls) else {}


def _has_own(cls: Any) -> bool:
    """Whether its body has annotations: of a class without, older Pythons give those of its base."""
    return "__annotations__" in cls.__dict__ or "__annotate_func__" in cls.__dict__


def _field_of(cls: Any, name: str) -> _Field:
    value = cls.__dict__.get(name, _UNSET)
    if isinstance(value, _Field):
        return value
    if isinstance(value, (list, dict, set)) or type(value).__module__ == "dataclasses":
        raise TypeError(f"{cls.__name__}.{name}: its default is to be a gpudoctor.model.frozen.field")
    return _Field(value)


def _values_of(names: tuple[str, ...]) -> staticmethod[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return staticmethod(attrgetter(*names))
    return staticmethod(lambda one: tuple(getattr(one, name) for name in names))


def _first_init(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that stands until it is called: then the one of the class is compiled, and in its place."""

    def first(self: Any, *values: Any, **named: Any) -> None:
        if cls.__init__ is first:
            cls.__init__ = _init(cls)
        cls.__init__(self, *values, **named)

    return first


def _init(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that fills the fields and then calls ``__post_init__``, where there is one."""
    known: dict[str, Any] = {"_unset": _UNSET}
    words, lines = ["self"], []
    for name, one in cls.fields_.items():
        word = value = name
        if one.default is not _UNSET:
            known[f"_default_{name}"] = one.default
            word = f"{name}=_default_{name}"
        elif one.factory is not _UNSET:
            known[f"_make_{name}"] = one.factory
            word, value = f"{name}=_unset", f"_make_{name}() if {name} is _unset else {name}"
        words.append(word)
        slot: Any = getattr(cls, name, None)
        if hasattr(slot, "__set__"):
            known[f"_set_{name}"] = slot.__set__
            lines.append(f" _set_{name}(self, {value})")
        else:
            lines.append(f" self.__dict__[{name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(words)}):\n" + "\n".join(lines or [" pass"]), known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    made: Callable[..., None] = known["__init__"]
    return made


class _AsDataclass:
    """Says to `dataclasses` what it would have said itself, when it is asked to."""

    def __get__(self, one: Any, cls: Any) -> Any:
        import dataclasses

        def told(each: _Field) -> Any:
            given = {"default": each.default, "default_factory": each.factory}
            return dataclasses.field(
                repr=each.shown, **{word: value for word, value in given.items() if value is not _UNSET}
            )

        kinds = _annotated(cls)
        parts = [(name, kinds[name], told(each)) for name, each in cls.fields_.items()]
        twin: Any = dataclasses.make_dataclass(cls.__name__, parts, repr=False, eq=False)
        cls.__dataclass_fields__ = twin.__dataclass_fields__
        return twin.__dataclass_fields__


def _repr(self: Any) -> str:
    told = ", ".join(f"{name}={getattr(self, name)!r}" for name, one in self.fields_.items() if one.shown)
    return f"{type(self).__qualname__}({told})"


def _eq(self: Any, other: Any) -> Any:
    return self.values_(self) == other.values_(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.values_(self))


def _refuse(self: Any, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__name__}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), self.values_(self)


_SHARED = {"__repr__": _repr, "__reduce__": _reduce}
_COMPARED = {"__eq__": _eq, "__hash__": _hash}
_REFUSING = {"__setattr__": _refuse, "__delattr__": _refuse}
