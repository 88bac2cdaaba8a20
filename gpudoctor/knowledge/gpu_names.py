"""GPUs by the names that tools print: which product a name, or a PCI id, may stand for.

A name is looked for in the table, then judged by family ("RTX 40 and two digits are compute capability 8.9"). A name
that nvidia-smi cut short (``NVIDIA GeForce RTX 30...``) or a family that covers several generations stands for all its
candidates: what they share may be said, the rest cannot be judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.model.pattern import pattern

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
    bare = _GLUED.sub(" ", bare)
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
        begun = [row for key, row in products().items() if key.startswith(bare.casefold()) and not row.get("rare")]
    else:
        row = _row_of(bare)
        begun = [row] if row else []
    families = (row for row in table("gpus")["family"] if re.match(row["match"], bare, re.IGNORECASE))
    return [("gpu", row) for row in begun] or [("family", row) for row in islice(families, 1)]


def _row_of(bare: str) -> TableRow | None:
    """The product of that name, which people shorten: ``RTX 3090``, ``3090``, ``A4000``, ``P4000``."""
    found = products().get(bare.casefold()) or products().get(f"geforce {bare.casefold()}")
    if found is None and (short := _SHORT.fullmatch(bare)):
        name = f"{short[1]} {short[2] or ''}".strip().casefold()
        rows = (products().get(f"{brand} {name}") for brand in ("geforce rtx", "geforce gtx", "rtx", "quadro"))
        return next((row for row in rows if row), None)
    return found


def _slice(gpu: Gpu) -> Gpu:
    """A slice of that product: what the board has, the slice need not have; what the board lacks, it lacks too."""
    return gpu._replace(
        nvlink=None if gpu.nvlink else gpu.nvlink, nvswitch=None if gpu.nvswitch else gpu.nvswitch, virtual=True
    )


def _cut_short(prefix: str) -> Iterator[Gpu]:
    starting = [row for key, row in products().items() if key.startswith(prefix.casefold())]
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
def products() -> Mapping[str, TableRow]:
    """The rows of products, by their names in small letters."""
    return {row["name"].casefold(): row for row in table("gpus")["gpu"]}


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
