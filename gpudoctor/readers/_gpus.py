"""Lists of GPU names as reports give them: ``NVIDIA A10, NVIDIA A10``, ``8x H100``, ``NVIDIA A100 x8``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.fact import Fact, Known, Row, Rows
from gpudoctor.readers._pattern import Pattern

_TIMES_BEFORE = Pattern(r"(\d{1,3})\s*[x×*]\s+(.+)|(\d{1,3})[x×](?=[A-Z])(.+)")
_TIMES_AFTER = Pattern(r"(?![mM]x)(.+?)[\s(]*[x×*]\s*(\d{1,3})\)?$")
_LONGEST = 120
_PARTS = Pattern(r"(?:(?<!\s)\s+)?(?:,|;|\+| and | & )\s*")
_INDEX = Pattern(r"(?:GPU\s*)?\[?(\d{1,2})\]?\s*[:=]\s*(.+)")
_NOTE = Pattern(r"\s*\((?:UUID|compute|sm_|CC|driver|\d+\s*[GM]i?B|laptop, )[^)]*\)?|\s+@\s.*|\s+[-–—]\s+[A-Za-z].*", 2)
_FORMER = Pattern(
    r"(?:replac\w+|instead|was|were|formerly|previous\w*|before|not|no|without|old|swapped|after|worked|like)\b", 2
)
"""How a part of the list begins that names a GPU which is not, or no longer, in the machine."""
_NEGATED = Pattern(r"\s*(?:no|not|without|none|non)\b", 2)
_OTHERS = (
    ("amd", Pattern(r"\b(?:amd|radeon|instinct|firepro|gfx\d+|mi\d{2,3}x?|rx ?\d{3,4}(?: ?(?:xtx?|gre|[ms]))?)\b", 2)),
    ("intel", Pattern(r"\b(?:intel|iris|uhd graphics|hd graphics|arc a\d+|arc b\d+|data center gpu max)\b", 2)),
    (
        "other",
        Pattern(
            r"\b(?:apple|m[1-5] (?:pro|max|ultra)|matrox|aspeed|vmware|virtio|qxl|cirrus|adreno|mali)\b|\bm[1-5]$", 2
        ),
    ),
)
_NVIDIA = Pattern(
    r"nvidia|geforce|quadro|tesla|titan|\b[rg]tx(?:\b|\d)|\bgt \d|\b[abvhpktl]\d{1,3}[a-z]?\b"
    r"|\b[at]\d{4}\b|\bgb?h?\d{2,3}\b|jetson|\bmx\d{3}|\bnvs\b|grid|\bdgx\b|\b(?:30|40|50|20|10)[5-9]0(?:ti)?\b|\d{3}m\b",
    2,
)


def vendor(name: str) -> str | None:
    """Who made the GPU of that name: nvidia, amd, intel, other; None where the name does not tell."""
    theirs = name.lower().startswith(("amd", "intel", "apple", "radeon", "instinct"))
    if _NVIDIA.search(name) and not theirs:
        return "nvidia"
    return next((maker for maker, pattern in _OTHERS if pattern.search(name)), None)


def names(text: str) -> list[str]:
    """Every GPU in the text, one entry each."""
    out: list[str] = []
    for part in _PARTS.compiled.split(text):
        if len(part) > _LONGEST or _NEGATED.match(part):
            continue
        name = _NOTE.compiled.sub("", part).strip(" .'\"[]{}")
        if numbered := _INDEX.fullmatch(name):
            name = numbered.group(2).strip()
        count = 1
        if before := _TIMES_BEFORE.fullmatch(name):
            count, name = int(before.group(1) or before.group(3)), (before.group(2) or before.group(4)).strip()
        elif after := _TIMES_AFTER.fullmatch(name):
            count, name = int(after.group(2)), after.group(1).strip()
        if name and not _FORMER.match(name):
            out.extend([name] * min(count, 256))
    return out


def named(text: str, source: str) -> Iterator[tuple[str, Fact | Rows]]:
    """The GPUs that the text lists, as rows numbered in its order."""
    makers = [(name, maker) for name in names(text) if (maker := vendor(name))]
    if makers:
        yield from sorted_by_vendor(
            [{"index": Known(n, source), "name": Known(name, source)} for n, (name, _) in enumerate(makers)]
        )


def sorted_by_vendor(rows: Sequence[Row]) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of NVIDIA GPUs as ``gpu``; where every GPU listed is another maker's, that none is NVIDIA's."""
    makers = [vendor(str(name.value)) if isinstance(name := row["name"], Known) else None for row in rows]
    ours = tuple(row for row, maker in zip(rows, makers, strict=True) if maker in (None, "nvidia"))
    if ours:
        yield "gpu", ours
    others = tuple(sorted({maker for maker in makers if maker and maker != "nvidia"}))
    if others:
        first = next(iter(rows[0].values()))
        source = first.source if isinstance(first, Known) else ""
        yield "pci.gpu_vendors", Known((("nvidia",) if ours else ()) + others, source)
        if not ours:
            yield "pci.nvidia_count", Known(0, source)
