"""GPUs by the names that tools print: which product a name or a PCI id may stand for, and what is known of it.

A name is looked for in the table, then judged by family ("RTX 40 and two digits are compute capability 8.9"). A name
that nvidia-smi cut short (``NVIDIA GeForce RTX 30...``) or a family that covers several generations stands for all its
candidates: what they share holds, the rest is not judged. A generation asks for a driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from gpudoctor.core.pattern import pattern
from gpudoctor.core.values import NOTHING, CannotJudge
from gpudoctor.diagnosis.knowledge._tables import TableRow, dotted, lookup, table, text, version
from gpudoctor.diagnosis.knowledge.archs import capability

_BRAND = pattern(r"^(?:(?:nvidia|corporation|corp\.?|inc\.?|grid)\s+)+", re.IGNORECASE)
_TAIL = pattern(
    r"(?:\s*(?:MIG \dc?[\dc.]*g\.\d+gb\S*|/PCIe.*|\(UUID:.*|\(rev [0-9a-f]+\)|with Max-Q Design))+$", re.IGNORECASE
)
_SLICE = pattern(r"^(.+?)-(?:\d-)?\d{1,3}[ABCQ](?:ME)?$")
_BRACKETED = pattern(r"\[(?![0-9a-f]{4}(?::[0-9a-f]{4})?\])([^\]]+)\]", re.IGNORECASE)
_SERIES = pattern(r"\b(?:rtx|gtx)[-_ ]?(?=(?:20|30|40|50)[5-9]0(?!\d))", re.IGNORECASE)
"""From the 20 series on GeForce is called RTX, whatever people write."""
_JOINED = pattern(r"\b(rtx|gtx|gt|tesla|quadro|titan)(?:[-_](?=\w)|(?=\d{3})|(?<=titan)(?=(?:xp?|v)\b))", re.IGNORECASE)
_GLUED = pattern(r"(?<=\d)(?=(?:ti|super)\b)", re.IGNORECASE)
_SHORT = pattern(r"([AKMPT]?\d{3,4})(?: ?(ti|super|ti super))?", re.IGNORECASE)
_CUT = pattern(r"\s?(?:\.\.\.?|…)$")


class Gpu(NamedTuple):
    """One product that a name may stand for, with what the tables know of it; None: the name does not tell."""

    name: str
    compute_capability: str
    kind: str
    nvlink: bool | None
    nvswitch: bool | None
    first: str
    module: str
    virtual: bool
    source: str


def plain_name(name: str) -> tuple[str, bool]:
    """(the product's name without brand, MIG and bus suffixes, whether it is a hypervisor's virtual slice of that)."""
    bare = " ".join(re.sub(r"\((?:R|TM|C)\)|[®™]", " ", name, flags=re.IGNORECASE).split())
    if bracketed := _BRACKETED.search(bare):
        bare = bracketed.group(1)
    bare = _SERIES.sub("RTX ", _JOINED.sub(r"\1 ", _BRAND.sub("", _TAIL.sub("", bare)).strip()))
    bare = _GLUED.sub(" ", bare)
    if sliced := _SLICE.match(bare):
        return re.sub(r"(?<=RTX)(?=[A\d])", " ", sliced.group(1)), True
    return bare, False


@lru_cache(maxsize=256)
def candidate_gpus(name: str) -> tuple[Gpu, ...]:
    """GPUs the name may stand for: the product, all that begin so if cut, else by family pattern; empty if none."""
    bare, virtual = plain_name(name)
    if cut := _CUT.search(bare):
        return tuple(_gpus_with_prefix(bare[: cut.start()]))
    row = _product_row(bare)
    gpus = [_gpu_of_row(row)] if row else list(_family_gpus(bare))
    return tuple(_as_virtual_slice(gpu) if virtual else gpu for gpu in gpus)


def rows_for(name: str) -> list[tuple[str, TableRow]]:
    """(section, row) of the tables behind `candidate_gpus`: ``gpu`` for products, else the first matching ``family``.

    Empty where the tables do not know the name.
    """
    bare, _ = plain_name(name)
    cut = _CUT.search(bare)
    if cut:
        bare = bare[: cut.start()]
        matching = [row for key, row in products().items() if key.startswith(bare.casefold()) and not row.get("rare")]
    else:
        row = _product_row(bare)
        matching = [row] if row else []
    families = (row for row in table("gpus")["family"] if re.match(row["match"], bare, re.IGNORECASE))
    return [("gpu", row) for row in matching] or [("family", row) for row in islice(families, 1)]


def _product_row(bare: str) -> TableRow | None:
    """The row of the product of that plain name, also by a short one (``3090``, ``A4000``); None without one."""
    found = products().get(bare.casefold()) or products().get(f"geforce {bare.casefold()}")
    if found is None and (short := _SHORT.fullmatch(bare)):
        name = f"{short[1]} {short[2] or ''}".strip().casefold()
        rows = (products().get(f"{brand} {name}") for brand in ("geforce rtx", "geforce gtx", "rtx", "quadro"))
        return next((row for row in rows if row), None)
    return found


def _as_virtual_slice(gpu: Gpu) -> Gpu:
    """The product as a virtual slice: NVLink and NVSwitch become None (unknown) where the board has them."""
    return gpu._replace(
        nvlink=None if gpu.nvlink else gpu.nvlink, nvswitch=None if gpu.nvswitch else gpu.nvswitch, virtual=True
    )


def _gpus_with_prefix(prefix: str) -> Iterator[Gpu]:
    """The products whose names begin so, any case, rare ones left out; without one, those of a matching family."""
    starting = [row for key, row in products().items() if key.startswith(prefix.casefold())]
    listed = [row for row in starting if not row.get("rare")]
    for row in listed:
        yield _gpu_of_row(row)._replace(source="table gpus: all names that begin so")
    if not listed:
        yield from _family_gpus(prefix)


def _gpu_of_row(row: TableRow) -> Gpu:
    """The row of the table's section ``gpu`` as a `Gpu`, not virtual."""
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


def _family_gpus(bare: str) -> Iterator[Gpu]:
    """One candidate per compute capability of the first family pattern that matches; empty where none does."""
    for row in table("gpus")["family"]:
        if re.match(row["match"], bare, re.IGNORECASE):
            for capability in row["cc"].split():
                nvlink = row.get("nvlink")
                nvswitch = row.get("nvswitch", False if nvlink is False or row.get("kind") != "data-center" else None)
                yield Gpu(bare, capability, row.get("kind", ""), nvlink, nvswitch, "", "", False, "by name pattern")
            return


@lru_cache(maxsize=1)
def products() -> Mapping[str, TableRow]:
    """Rows of the section ``gpu`` by name in lower case."""
    return {row["name"].casefold(): row for row in table("gpus")["gpu"]}


@lru_cache(maxsize=1)
def _names_by_device() -> Mapping[int, str]:
    """Product names by PCI device id."""
    return {int(device, 16): row["name"] for row in table("gpus")["gpu"] for device in row.get("pci", "").split()}


def device_name(device_id: str) -> str | None:
    """The product of a PCI vendor and device id (``10de:2330``), else its chip's name; None if not in the table."""
    match = re.fullmatch(r"10de:([0-9a-f]{4})", device_id.strip().lower())
    if not match:
        return None
    number = int(match[1], 16)
    if number in _names_by_device():
        return _names_by_device()[number]
    ranges = table("gpus")["device"]
    return next((row["chip"] for row in ranges if int(row["from"], 16) <= number <= int(row["to"], 16)), None)


@lru_cache(maxsize=1)
def _generations() -> Mapping[tuple[int, int], TableRow]:
    """Rows of the section ``generation`` by compute capability."""
    return {capability(row["cc"]): row for row in table("gpus")["generation"]}


def _agreed_value(name: object, what: str, pick: Callable[[Gpu], Any]) -> Any:
    """The value that `pick` gives for every candidate for that name.

    Raises `CannotJudge`, in which `what` names the value, where they differ or one is None, or for an unknown name.
    """
    name_text = text(name, "GPU name")
    gpus = candidate_gpus(name_text)
    if not gpus:
        raise CannotJudge(what, f"the table has no GPU {name_text[:60]!r}")
    values = {pick(gpu) for gpu in gpus}
    if len(values) > 1 or None in values:
        raise CannotJudge(what, f"the name {name_text[:60]!r} does not settle it")
    return values.pop()


def is_system_on_chip(compute_capability: object) -> bool:
    """Whether that generation is of systems on chip (Jetson), with drivers of their own; False if the table lacks it.

    Raises `CannotJudge` for what is no capability.
    """
    row = _generations().get(capability(compute_capability))
    return bool(row and row.get("soc"))


def _generation_value(compute_capability: object, column: str) -> object:
    """A column of the generation's row, `NOTHING` where the row lacks it.

    Raises `CannotJudge` for a generation that the table lacks, and for systems on chip.
    """
    numbers = capability(compute_capability)
    row = _generations().get(numbers)
    if row is None or row.get("soc"):
        why = "a system on chip has drivers of its own" if row else f"the table has no generation {dotted(numbers)}"
        raise CannotJudge(f"driver for compute capability {dotted(numbers)}", why)
    return row.get(column, NOTHING)


@lookup
def gpu_known(name: object) -> bool:
    """Whether the tables know the GPU of that name, by row or by family; raises `CannotJudge` for what is no text."""
    return bool(candidate_gpus(text(name, "GPU name")))


@lookup
def gpu_capability(name: object) -> str:
    """The compute capability of the GPU of that name: ``8.9`` for NVIDIA GeForce RTX 4090.

    Raises `CannotJudge` where the name is unknown or does not settle it.
    """
    return str(_agreed_value(name, "compute capability", lambda gpu: gpu.compute_capability))


@lookup
def gpu_generation(compute_capability: object) -> str:
    """The generation's name: Ampere for 8.6; raises `CannotJudge` where the table lacks it."""
    numbers = capability(compute_capability)
    if numbers not in _generations():
        raise CannotJudge("generation", f"the table has no {dotted(numbers)}")
    return str(_generations()[numbers]["arch"])


@lookup
def gpu_floor(compute_capability: object) -> object:
    """The first driver branch that knows that generation: ``570`` for 12.0.

    Raises `CannotJudge` for a generation that the table lacks, and for systems on chip.
    """
    return _generation_value(compute_capability, "floor")


@lookup
def gpu_ceiling(compute_capability: object) -> object:
    """The last driver branch that serves that generation: ``470`` for 3.5; absent (`NOTHING`) where it is still served.

    Raises `CannotJudge` for a generation that the table lacks, and for systems on chip.
    """
    return _generation_value(compute_capability, "ceiling")


@lookup
def gpu_ceiling_of(name: object) -> object:
    """As `gpu_ceiling`, by name: the last branch that serves any generation it may be of; absent if one still is.

    Raises `CannotJudge` for an unknown name.
    """
    ceilings = [gpu_ceiling(gpu.compute_capability) for gpu in candidate_gpus(text(name, "GPU name"))]
    if not ceilings:
        raise CannotJudge("driver for the GPU", f"the table has no GPU {str(name)[:60]!r}")
    served = next((ceiling for ceiling in ceilings if not isinstance(ceiling, str)), None)
    return served if served is not None else max(map(str, ceilings), key=lambda branch: version(branch, "driver"))


@lookup
def gpu_floor_of(name: object) -> object:
    """The first driver that lists the GPU of that name, else the first branch of its generation; the lowest of several.

    Raises `CannotJudge` for an unknown name.
    """
    floors = {str(gpu.first or gpu_floor(gpu.compute_capability)) for gpu in candidate_gpus(text(name, "GPU name"))}
    if not floors:
        raise CannotJudge("driver for the GPU", f"the table has no GPU {str(name)[:60]!r}")
    return min(floors, key=lambda floor: version(floor, "driver"))


@lookup
def open_module(compute_capability: object) -> object:
    """``required``, ``unsupported`` or ``either``: whether the open kernel modules drive that generation.

    Raises `CannotJudge` for a generation that the table lacks, and for systems on chip.
    """
    return _generation_value(compute_capability, "module")


@lookup
def open_module_of(name: object) -> object:
    """As `open_module`, by name: Grace Hopper needs the open modules though other 9.0 GPUs do not.

    Raises `CannotJudge` where the name is unknown or does not settle it.
    """
    return _agreed_value(name, "kernel module", lambda gpu: gpu.module or open_module(gpu.compute_capability))


@lookup
def is_datacenter(name: object) -> bool:
    """Whether the GPU of that name is a data-center product (forward compatibility, ECC and no display).

    Raises `CannotJudge` where the name is unknown or does not settle it.
    """
    return bool(_agreed_value(name, "kind of GPU", lambda gpu: gpu.kind == "data-center"))


@lookup
def has_nvlink(name: object) -> bool:
    """Whether the GPU of that name has NVLink; a bridge may still be missing.

    Raises `CannotJudge` where the name is unknown or does not settle it.
    """
    return bool(_agreed_value(name, "NVLink", lambda gpu: gpu.nvlink))


@lookup
def needs_fabric_manager(name: object) -> bool:
    """Whether GPUs of that name are sold on NVSwitch boards of eight, which need the fabric manager.

    Boards of four (and GB200 trays) carry the same or like modules without local switches: ask ``driver.nvswitch`` too.
    Raises `CannotJudge` where the name is unknown or does not settle it.
    """
    return bool(_agreed_value(name, "fabric manager", lambda gpu: gpu.nvswitch))


@lookup
def gpu_spec(name: object, column: object) -> object:
    """A datasheet value of the GPU of that name: memory_gib, bandwidth, nvlink, watts, pcie; absent if unknown."""
    row = products().get(plain_name(text(name, "GPU name"))[0].casefold())
    return NOTHING if row is None else row.get(str(column), NOTHING)
