"""GPUs by the names that tools print, and what their generation asks of a driver.

A name is looked for in the table, then judged by family ("RTX 40 and two digits are compute capability 8.9"). A name
that nvidia-smi cut short (``NVIDIA GeForce RTX 30...``) or a family that covers several generations stands for all its
candidates: what they share may be said, the rest cannot be judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from gpudoctor.knowledge._tables import TableRow, dotted, lookup, table, text, version
from gpudoctor.knowledge.archs import capability
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import NOTHING, CannotJudge

_BRAND = pattern(r"^(?:(?:nvidia|corporation|corp\.?|inc\.?|grid)\s+)+", re.IGNORECASE)
_TAIL = pattern(
    r"(?:\s*(?:MIG \dc?[\dc.]*g\.\d+gb\S*|/PCIe.*|\(UUID:.*|\(rev [0-9a-f]+\)|with Max-Q Design))+$", re.IGNORECASE
)
_SLICE = pattern(r"^(.+?)-(?:\d-)?\d{1,3}[ABCQ](?:ME)?$")
_BRACKETED = pattern(r"\[(?![0-9a-f]{4}(?::[0-9a-f]{4})?\])([^\]]+)\]", re.IGNORECASE)
_SERIES = pattern(r"\b(?:rtx|gtx)[-_ ]?(?=(?:20|30|40|50)[5-9]0(?!\d))", re.IGNORECASE)
"""From the 20 series on GeForce is called RTX, whatever people write."""
_JOINED = pattern(r"\b(rtx|gtx|gt|tesla|quadro|titan)[-_](?=\w)", re.IGNORECASE)
_SHORT = pattern(r"([AKMPT]?\d{3,4})(?: ?(ti|super|ti super))?", re.IGNORECASE)
_CUT = pattern(r"\s?(?:\.\.\.?|…)$")


class Gpu(NamedTuple):
    """What a name says: one of the products it may stand for. None is "the name does not say"."""

    name: str
    compute_capability: str
    kind: str
    nvlink: bool | None
    nvswitch: bool | None
    first: str
    module: str
    virtual: bool
    source: str


def plain(name: str) -> tuple[str, bool]:
    """The product's name without brand, MIG and bus decoration, and whether it is a slice that a hypervisor cut."""
    bare = " ".join(re.sub(r"\((?:R|TM|C)\)|[®™]", " ", name, flags=re.IGNORECASE).split())
    if bracketed := _BRACKETED.search(bare):
        bare = bracketed.group(1)
    bare = _SERIES.sub("RTX ", _JOINED.sub(r"\1 ", _BRAND.sub("", _TAIL.sub("", bare)).strip()))
    if sliced := _SLICE.match(bare):
        return re.sub(r"(?<=RTX)(?=[A\d])", " ", sliced.group(1)), True
    return bare, False


@lru_cache(maxsize=256)
def candidates(name: str) -> tuple[Gpu, ...]:
    """Every product that the name may stand for; none where the tables do not know it."""
    bare, virtual = plain(name)
    if cut := _CUT.search(bare):
        return tuple(_cut_short(bare[: cut.start()]))
    row = _row_of(bare)
    found = [_product(row)] if row else list(_family(bare))
    return tuple(_slice(gpu) if virtual else gpu for gpu in found)


def rows_for(name: str) -> list[tuple[str, TableRow]]:
    """The rows behind `candidates`, each with its section: a product's, all whose names begin so, or a family's."""
    bare, _ = plain(name)
    cut = _CUT.search(bare)
    if cut:
        bare = bare[: cut.start()]
        begun = [row for key, row in _products().items() if key.startswith(bare.casefold()) and not row.get("rare")]
    else:
        row = _row_of(bare)
        begun = [row] if row else []
    families = (row for row in table("gpus")["family"] if re.match(row["match"], bare, re.IGNORECASE))
    return [("gpu", row) for row in begun] or [("family", row) for row in islice(families, 1)]


def _row_of(bare: str) -> TableRow | None:
    """The product of that name, which people shorten: ``RTX 3090``, ``3090``, ``A4000``, ``P4000``."""
    found = _products().get(bare.casefold()) or _products().get(f"geforce {bare.casefold()}")
    if found is None and (short := _SHORT.fullmatch(bare)):
        name = f"{short[1]} {short[2] or ''}".strip().casefold()
        rows = (_products().get(f"{brand} {name}") for brand in ("geforce rtx", "geforce gtx", "rtx", "quadro"))
        return next((row for row in rows if row), None)
    return found


def _slice(gpu: Gpu) -> Gpu:
    """A slice of that product: what the board has, the slice need not have; what the board lacks, it lacks too."""
    return gpu._replace(
        nvlink=None if gpu.nvlink else gpu.nvlink, nvswitch=None if gpu.nvswitch else gpu.nvswitch, virtual=True
    )


def _cut_short(prefix: str) -> Iterator[Gpu]:
    starting = [row for key, row in _products().items() if key.startswith(prefix.casefold())]
    listed = [row for row in starting if not row.get("rare")]
    for row in listed:
        yield _product(row)._replace(source="table gpus: all names that begin so")
    if not listed:
        yield from _family(prefix)


def _product(row: TableRow) -> Gpu:
    return Gpu(
        name=row["name"],
        compute_capability=row["cc"],
        kind=row["kind"],
        nvlink="nvlink" in row,
        nvswitch=row.get("nvswitch", False),
        first=row.get("first", ""),
        module=row.get("module", ""),
        virtual=False,
        source=f"table gpus: {row['name']}",
    )


def _family(bare: str) -> Iterator[Gpu]:
    for row in table("gpus")["family"]:
        if re.match(row["match"], bare, re.IGNORECASE):
            for one in row["cc"].split():
                nvlink = row.get("nvlink")
                nvswitch = row.get("nvswitch", False if nvlink is False or row.get("kind") != "data-center" else None)
                yield Gpu(bare, one, row.get("kind", ""), nvlink, nvswitch, "", "", False, "by name pattern")
            return


@lru_cache(maxsize=1)
def _products() -> Mapping[str, TableRow]:
    return {row["name"].casefold(): row for row in table("gpus")["gpu"]}


@lru_cache(maxsize=1)
def _generations() -> Mapping[tuple[int, int], TableRow]:
    return {capability(row["cc"]): row for row in table("gpus")["generation"]}


def shared(name: object, what: str, pick: Callable[[Gpu], Any]) -> Any:
    """What every product of that name agrees on; raises `CannotJudge` where they differ or none is known."""
    written = text(name, "GPU name")
    found = candidates(written)
    if not found:
        raise CannotJudge(what, f"the table has no GPU {written[:60]!r}")
    values = {pick(gpu) for gpu in found}
    if len(values) > 1 or None in values:
        raise CannotJudge(what, f"the name {written[:60]!r} does not settle it")
    return values.pop()


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
    return str(shared(name, "compute capability", lambda gpu: gpu.compute_capability))


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
    return shared(name, "kernel module", lambda gpu: gpu.module or open_module(gpu.compute_capability))


@lookup
def is_datacenter(name: object) -> bool:
    """Whether the GPU of that name is a data-center product (forward compatibility, ECC and no display)."""
    return bool(shared(name, "kind of GPU", lambda gpu: gpu.kind == "data-center"))


@lookup
def has_nvlink(name: object) -> bool:
    """Whether the GPU of that name has NVLink; a bridge may still be missing."""
    return bool(shared(name, "NVLink", lambda gpu: gpu.nvlink))


@lookup
def needs_fabric_manager(name: object) -> bool:
    """Whether GPUs of that name are sold on NVSwitch boards of eight, which need the fabric manager.

    Boards of four (and GB200 trays) carry the same or like modules without local switches: ask ``driver.nvswitch`` too.
    """
    return bool(shared(name, "fabric manager", lambda gpu: gpu.nvswitch))


@lookup
def gpu_spec(name: object, column: object) -> object:
    """A datasheet value of the GPU of that name: memory_gib, bandwidth, nvlink, watts, pcie; absent where unknown."""
    row = _products().get(plain(text(name, "GPU name"))[0].casefold())
    return NOTHING if row is None else row.get(str(column), NOTHING)


@lru_cache(maxsize=1)
def _by_device() -> Mapping[int, str]:
    return {int(device, 16): row["name"] for row in table("gpus")["gpu"] for device in row.get("pci", "").split()}


def device_name(device_id: str) -> str | None:
    """The product by its PCI vendor and device id, ``10de:2330``, else its chip; None where the table has neither."""
    match = re.fullmatch(r"10de:([0-9a-f]{4})", device_id.strip().lower())
    if not match:
        return None
    number = int(match[1], 16)
    if number in _by_device():
        return _by_device()[number]
    ranges = table("gpus")["device"]
    return next((row["chip"] for row in ranges if int(row["from"], 16) <= number <= int(row["to"], 16)), None)
