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


_UNSET: Any = object()
"""The marker for "no default given"."""


class _Field:
    """Options of one field: default, default factory, whether in ``repr`` and whether compared."""

    __slots__ = ("compared", "default", "factory", "shown")

    def __init__(self, default: Any = _UNSET, factory: Any = _UNSET, shown: bool = True, compared: bool = True) -> None:
        self.default = default
        self.factory = factory
        self.shown = shown
        self.compared = compared

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is _UNSET and self.factory is _UNSET


if not TYPE_CHECKING:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        """A decorator that changes nothing, in place of the one of `typing_extensions` that type checkers see."""
        return lambda decorator: decorator

    def field(
        *,
        default: Any = _UNSET,
        default_factory: Any = _UNSET,
        repr: bool = True,  # noqa: A002 - its name there
        compare: bool = True,
    ) -> Any:
        """As `dataclasses.field`: a default made anew for each instance, or what is not to be printed or compared."""
        return _Field(default, default_factory, repr, compare)

    def replace(one: T, /, **changes: Any) -> T:
        """A copy with these fields changed; as `dataclasses.replace`, for its classes and for those made here."""
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
    return _build_class(cls, slots, shared) if cls else lambda made: _build_class(made, slots, shared)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """Make a class of the fields annotated in its body as `frozen` does, but assignable; instances are not hashable."""
    made: type[T] = _build_class(cls, True, {**_SHARED, **_COMPARED, "__hash__": None})
    return made


def _build_class(cls: Any, slots: bool, shared: Mapping[str, Any]) -> Any:
    """The class rebuilt with slots or ``__dict__``, the shared methods, and an ``__init__`` compiled on first use."""
    own = {
        name: _field_of(cls, name) for name, kind in _own_annotations(cls).items() if not kind.startswith("ClassVar")
    }
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
    compared = tuple(name for name, one in own.items() if one.compared)
    values = _values_getter(names)
    space.update(fields_=own, values_=values, __match_args__=names)
    space["compared_"] = values if compared == names else _values_getter(compared)
    space["__dataclass_fields__"] = _AsDataclass()
    cls_ = type(cls)(cls.__name__, cls.__bases__, space)
    cls_.__qualname__ = cls.__qualname__
    cls_.__init__ = _lazy_init(cls_)
    return cls_


def _own_annotations(cls: Any) -> Mapping[str, str]:
    """Names and types (as text) annotated in the class's own body, without those of its bases; empty without any."""
    return (
        {name: str(kind) for name, kind in getattr(cls, "__annotations__", {}).items()}
        if "__annotations__" in cls.__dict__ or "__annotate_func__" in cls.__dict__
        else {}
    )


def _field_of(cls: Any, name: str) -> _Field:
    """The field's options; raises `TypeError` for a mutable default or a `dataclasses.field`."""
    value = cls.__dict__.get(name, _UNSET)
    if isinstance(value, _Field):
        return value
    if isinstance(value, (list, dict, set)) or type(value).__module__ == "dataclasses":
        raise TypeError(f"{cls.__name__}.{name}: its default is to be a gpudoctor.core.frozen.field")
    return _Field(value)


def _values_getter(names: tuple[str, ...]) -> staticmethod[[Any], tuple[Any, ...]]:
    """A static method that returns an instance's values of these fields as a tuple."""
    if len(names) > 1:
        return staticmethod(attrgetter(*names))
    return staticmethod(lambda one: tuple(getattr(one, name) for name in names))


def _lazy_init(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that on its first call compiles the real one, installs it in the class and calls it."""

    def first(self: Any, *values: Any, **named: Any) -> None:
        """Compile and install the real ``__init__``, then call it."""
        if cls.__init__ is first:
            cls.__init__ = _compile_init(cls)
        cls.__init__(self, *values, **named)

    return first


def _compile_init(cls: Any) -> Callable[..., None]:
    """The compiled ``__init__``: sets every field, fills defaults, then calls ``__post_init__`` where there is one."""
    namespace: dict[str, Any] = {"_unset": _UNSET}
    parameters, lines = ["self"], []
    for name, one in cls.fields_.items():
        parameter = value = name
        if one.default is not _UNSET:
            namespace[f"_default_{name}"] = one.default
            parameter = f"{name}=_default_{name}"
        elif one.factory is not _UNSET:
            namespace[f"_make_{name}"] = one.factory
            parameter, value = f"{name}=_unset", f"_make_{name}() if {name} is _unset else {name}"
        parameters.append(parameter)
        slot: Any = getattr(cls, name, None)
        if hasattr(slot, "__set__"):
            namespace[f"_set_{name}"] = slot.__set__
            lines.append(f" _set_{name}(self, {value})")
        else:
            lines.append(f" self.__dict__[{name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), namespace)
    namespace["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    init: Callable[..., None] = namespace["__init__"]
    return init


def _dataclasses() -> Any:
    """The standard module `dataclasses`, imported only now: it loads `inspect` and the tokenizer."""
    import dataclasses

    return dataclasses


class _AsDataclass:
    """Descriptor of ``__dataclass_fields__``: builds the fields when first read, for functions of `dataclasses`."""

    def __get__(self, one: Any, cls: Any) -> Any:
        dataclasses = _dataclasses()

        def field_value(each: _Field) -> Any:
            """The options of one field as a `dataclasses.Field`."""
            given = {"default": each.default, "default_factory": each.factory}
            return dataclasses.field(
                repr=each.shown,
                compare=each.compared,
                **{word: value for word, value in given.items() if value is not _UNSET},
            )

        kinds = _own_annotations(cls)
        parts = [(name, kinds[name], field_value(each)) for name, each in cls.fields_.items()]
        twin: Any = dataclasses.make_dataclass(cls.__name__, parts, repr=False, eq=False)
        cls.__dataclass_fields__ = twin.__dataclass_fields__
        return twin.__dataclass_fields__


def _repr(self: Any) -> str:
    """``Class(field=value, ...)`` of the fields that are shown."""
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name, one in self.fields_.items() if one.shown)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:
    """True where all compared fields are equal; `NotImplemented` for another type."""
    return self.compared_(self) == other.compared_(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    """Hash of the compared fields."""
    return hash(self.compared_(self))


def _refuse_change(self: Any, name: str, *_: object) -> None:
    """Raises `FrozenInstanceError`: ``__setattr__`` and ``__delattr__`` of frozen classes."""
    raise _dataclasses().FrozenInstanceError(f"cannot change field {name!r} of {type(self).__name__}")


def _reduce(self: Any) -> tuple[Any, ...]:
    """Pickles as the class and its field values, so that ``__init__`` runs again when loaded."""
    return type(self), self.values_(self)


_SHARED = {"__repr__": _repr, "__reduce__": _reduce}
_COMPARED = {"__eq__": _eq, "__hash__": _hash}
_REFUSING = {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
