"""Builds of extensions that a report names by the tag of their wheel alone: ``flash-attn wheel: cu12torch2.3``."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._software import EXTENSIONS

EXACT = 1
"""Less than a list of packages: a file that is named need not be the one installed."""

_TAG = Pattern(r"([\w -]{2,30}?)(?: wheel| build| version)?\s*[:=]\s*\S*?((?:cu\d{2,3})?torch\d+\.\d+\w*)\b", 2)
_TORCH = Pattern(r"(?:torch-?|pt)(\d)\.?(\d+)", 2)
_CUDA = Pattern(r"cu(\d{2})(\d?)(?!\d)", 2)
_NOT_THIS = Pattern(
    r"not a supported wheel|\b(?:works?|worked|fixe[sd]|solve[sd]|tried|trying|404|instead|before|after|earlier|old)\b",
    2,
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``extension`` for each extension of which exactly one wheel tag is named: torch, CUDA and C++ ABI.

    Lines that speak of another time or of a failed trial do not count.
    """
    rows_by_tag: dict[str, dict[str, Row]] = {}
    for index, line in paste.having("torch"):
        if _NOT_THIS.search(line) or not (match := _TAG.match(paste.bare[index])):
            continue
        name, tag = match.group(1).strip().lower().replace("_", "-").replace(" ", "-"), match.group(2)
        if name not in EXTENSIONS:
            continue
        source = paste.use(index)
        row: dict[str, Fact] = {"name": Known(name, source), "version": Known(f"({tag})", source)}
        if torch := _TORCH.search(tag):
            row["torch"] = Known(f"{torch.group(1)}.{torch.group(2)}", source)
        if cuda := _CUDA.search(tag):
            row["cuda"] = Known(".".join(filter(None, cuda.groups())), source)
        if "abi" in tag.lower():
            row["abi"] = Known("cxx11" if "abitrue" in tag.lower() else "pre-cxx11", source)
        rows_by_tag.setdefault(name, {}).setdefault(tag.lower(), row)
    rows = tuple(row for tags in rows_by_tag.values() if len(tags) == 1 for row in tags.values())
    if rows:
        yield "extension", rows
