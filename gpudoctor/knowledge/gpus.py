"""What is known of a GPU by its name, and what its generation asks of a driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gpudoctor.knowledge._tables import TableRow, dotted, lookup, table, text, version
from gpudoctor.knowledge.archs import capability
from gpudoctor.knowledge.gpu_names import Gpu, candidates, plain, products
from gpudoctor.model.values import NOTHING, CannotJudge


@lru_cache(maxsize=1)
def _generations() -> Mapping[tuple[int, int], TableRow]:
    return {capability(row["cc"]): row for row in table("gpus")["generation"]}


def _shared(name: object, what: str, pick: Callable[[Gpu], Any]) -> Any:
    """What every product of that name agrees on; raises `CannotJudge` where they differ or none is known."""
    written = text(name, "GPU name")
    found = candidates(written)
    if not found:
        raise CannotJudge(what, f"the table has no GPU {written[:60]!r}")
    values = {pick(gpu) for gpu in found}
    if len(values) > 1 or None in values:
        raise CannotJudge(what, f"the name {written[:60]!r} does not settle it")
    return values.pop()


def on_chip(compute_capability: object) -> bool:
    """Whether that generation is of systems on chip, which have drivers and wheels of their own."""
    row = _generations().get(capability(compute_capability))
    return bool(row and row.get("soc"))


def _generation(compute_capability: object, column: str) -> object:
    numbers = capability(compute_capability)
    row = _generations().get(numbers)
    if row is None or row.get("soc"):
        why = "a system on chip has drivers of its own" if row else f"the table has no generation {dotted(numbers)}"
        raise CannotJudge(f"driver for compute capability {dotted(numbers)}", why)
    return row.get(column, NOTHING)


@lookup
def gpu_known(name: object) -> bool:
    """Whether the tables know the GPU of that name, by row or by family."""
    return bool(candidates(text(name, "GPU name")))


@lookup
def gpu_capability(name: object) -> str:
    """The compute capability of the GPU of that name: ``8.9`` for NVIDIA GeForce RTX 4090."""
    return str(_shared(name, "compute capability", lambda gpu: gpu.compute_capability))


@lookup
def gpu_generation(compute_capability: object) -> str:
    """The generation's name: Ampere for 8.6."""
    numbers = capability(compute_capability)
    if numbers not in _generations():
        raise CannotJudge("generation", f"the table has no {dotted(numbers)}")
    return str(_generations()[numbers]["arch"])


@lookup
def gpu_floor(compute_capability: object) -> object:
    """The first driver branch that knows that generation: ``570`` for 12.0."""
    return _generation(compute_capability, "floor")


@lookup
def gpu_ceiling(compute_capability: object) -> object:
    """The last driver branch that serves that generation: ``470`` for 3.5; absent where it is still served."""
    return _generation(compute_capability, "ceiling")


@lookup
def gpu_ceiling_of(name: object) -> object:
    """As `gpu_ceiling`, by a name that several generations share: the last branch that serves any of them."""
    ceilings = [gpu_ceiling(gpu.compute_capability) for gpu in candidates(text(name, "GPU name"))]
    if not ceilings:
        raise CannotJudge("driver for the GPU", f"the table has no GPU {str(name)[:60]!r}")
    served = next((ceiling for ceiling in ceilings if not isinstance(ceiling, str)), None)
    return served if served is not None else max(map(str, ceilings), key=lambda branch: version(branch, "driver"))


@lookup
def gpu_floor_of(name: object) -> object:
    """The first driver that lists the GPU of that name, else the first branch of its generation."""
    floors = {str(gpu.first or gpu_floor(gpu.compute_capability)) for gpu in candidates(text(name, "GPU name"))}
    if not floors:
        raise CannotJudge("driver for the GPU", f"the table has no GPU {str(name)[:60]!r}")
    return min(floors, key=lambda floor: version(floor, "driver"))


@lookup
def open_module(compute_capability: object) -> object:
    """Whether the open kernel modules are ``required``, ``unsupported`` or ``either`` kind drives that generation."""
    return _generation(compute_capability, "module")


@lookup
def open_module_of(name: object) -> object:
    """As `open_module`, by name: Grace Hopper needs the open modules though other 9.0 GPUs do not."""
    return _shared(name, "kernel module", lambda gpu: gpu.module or open_module(gpu.compute_capability))


@lookup
def is_datacenter(name: object) -> bool:
    """Whether the GPU of that name is a data-center product (forward compatibility, ECC and no display)."""
    return bool(_shared(name, "kind of GPU", lambda gpu: gpu.kind == "data-center"))


@lookup
def has_nvlink(name: object) -> bool:
    """Whether the GPU of that name has NVLink; a bridge may still be missing."""
    return bool(_shared(name, "NVLink", lambda gpu: gpu.nvlink))


@lookup
def needs_fabric_manager(name: object) -> bool:
    """Whether GPUs of that name are sold on NVSwitch boards of eight, which need the fabric manager.

    Boards of four (and GB200 trays) carry the same or like modules without local switches: ask ``driver.nvswitch`` too.
    """
    return bool(_shared(name, "fabric manager", lambda gpu: gpu.nvswitch))


@lookup
def gpu_spec(name: object, column: object) -> object:
    """A datasheet value of the GPU of that name: memory_gib, bandwidth, nvlink, watts, pcie; absent where unknown."""
    row = products().get(plain(text(name, "GPU name"))[0].casefold())
    return NOTHING if row is None else row.get(str(column), NOTHING)
