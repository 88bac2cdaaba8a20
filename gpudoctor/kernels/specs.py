"""Every kernel there is, found by looking: to add one is to add a file to the folder of its rung."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpudoctor.kernels import child
from gpudoctor.kernels.child._kernel import Spec
from gpudoctor.kernels.child._main import modules
from gpudoctor.model.errors import UsageError
from gpudoctor.model.measurement import Kernel, Level, Rung

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

SAID = {"readiness": "training", "torch": "eager", "nccl": "collective", "triton": "compiled"}
"""Other names of a folder, as a user may say them."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel and the folder that it lies in."""

    spec: Spec
    family: str

    @property
    def rung(self) -> Rung:
        """What it stands on."""
        return FAMILIES[self.family]

    @property
    def kernel(self) -> Kernel:
        """As the model has it."""
        spec = self.spec
        level: Level = "standard" if spec.level == "standard" else "deep"
        return Kernel(spec.id, spec.title, spec.unit, spec.size, level, self.rung)


@lru_cache(maxsize=1)
def every() -> tuple[Placed, ...]:
    """All of them, the lowest rung first."""
    return tuple(
        Placed(spec, family)
        for family in FAMILIES
        for module in modules(family, child.__name__)
        for spec in module.KERNELS
    )


def chosen(names: Iterable[str], level: str = "deep") -> tuple[Placed, ...]:
    """Those of these ids, whose ids begin so (``matmul``), or of these families; all of that level where none is named.

    Raises `UsageError` for a name that is none.
    """
    wanted = list(names)
    if not wanted:
        return tuple(one for one in every() if level == "deep" or one.spec.level == level)
    for name in wanted:
        if not any(_is(one, name) for one in every()):
            raise UsageError(
                f"there is no kernel {name!r}; there are: {_names()}; gpudoctor bench --list names them all"
            )
    return tuple(one for one in every() if any(_is(one, name) for name in wanted))


def _is(one: Placed, wanted: str) -> bool:
    return one.spec.id == wanted or one.spec.id.startswith(f"{wanted}.") or one.family == SAID.get(wanted, wanted)


def _names() -> str:
    families = (*FAMILIES, *SAID)
    return ", ".join(dict.fromkeys([*families, *(one.spec.id.partition(".")[0] for one in every())]))
