"""Every kernel there is, found by looking: to add one is to add a file to the folder of its rung; and their program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpudoctor.core import shipped
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.core.measurement import Kernel, Level, Rung
from gpudoctor.kernels import child
from gpudoctor.kernels.child._kernel import Spec
from gpudoctor.kernels.child._main import modules

FAMILIES: dict[str, Rung] = {
    "driver": "driver",
    "eager": "torch",
    "compiled": "triton",
    "collective": "nccl",
    "training": "training",
    "jax": "jax",
    "tensorflow": "tensorflow",
}
"""The folders of ``child``, in the order in which they are climbed, and the rung that each stands on."""

BELOW: dict[str, Sequence[str]] = {
    "driver": (),
    "eager": ("driver",),
    "compiled": ("driver", "eager"),
    "collective": ("driver", "eager"),
    "training": ("driver", "eager"),
    "jax": ("driver",),
    "tensorflow": ("driver",),
}
"""What must hold before a folder is tried."""

_ALIASES = {"readiness": "training", "torch": "eager", "nccl": "collective", "triton": "compiled"}
"""Other names of a folder, as a user may say them."""


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A kernel's spec and the folder (family) of ``child`` that it lies in."""

    spec: Spec
    family: str

    @property
    def rung(self) -> Rung:
        """The rung of its folder: driver, torch, triton, nccl, ..."""
        return FAMILIES[self.family]

    @property
    def kernel(self) -> Kernel:
        """The kernel as `core.measurement` describes it; any level but ``standard`` counts as ``deep``."""
        spec = self.spec
        level: Level = "standard" if spec.level == "standard" else "deep"
        return Kernel(spec.id, spec.title, spec.unit, spec.size, level, self.rung)


@lru_cache(maxsize=1)
def all_kernels() -> tuple[KernelEntry, ...]:
    """Every kernel, found by importing the folders of `FAMILIES` in their order, the driver's first; cached."""
    return tuple(
        KernelEntry(spec, family)
        for family in FAMILIES
        for module in modules(family, child.__name__)
        for spec in module.KERNELS
    )


def select_kernels(names: Iterable[str]) -> tuple[KernelEntry, ...]:
    """Kernels by id, by start of an id (``matmul``) or by family; without names all but soak's.

    Raises `UsageError` for a name that matches none. Kernels of level ``soak`` run only where they are named.
    """
    wanted = list(names)
    if not wanted:
        return tuple(entry for entry in all_kernels() if entry.spec.level != "soak")
    for name in wanted:
        if not any(_matches(entry, name) for entry in all_kernels()):
            raise UsageError(
                say(
                    "there is no kernel {name}; available: {names}; gpudoctor bench --list names them all",
                    name=repr(name),
                    names=_available_names(),
                )
            )
    return tuple(entry for entry in all_kernels() if any(_matches(entry, name) for name in wanted))


def _matches(entry: KernelEntry, wanted: str) -> bool:
    """True if `wanted` is the kernel's id, a part of it before a dot, or (but for soak) its family or an alias."""
    return (
        entry.spec.id == wanted
        or entry.spec.id.startswith(f"{wanted}.")
        or (entry.family == _ALIASES.get(wanted, wanted) and entry.spec.level != "soak")
    )


def _available_names() -> str:
    """Families, aliases and first parts of ids, joined by commas, for error messages."""
    families = (*FAMILIES, *_ALIASES)
    return ", ".join(dict.fromkeys([*families, *(entry.spec.id.partition(".")[0] for entry in all_kernels())]))


def program() -> str:
    """Path of the child's ``__main__.py``; unpacked to a temporary folder while running from a zip."""
    return str(shipped.folder("kernels/child") / "__main__.py")
