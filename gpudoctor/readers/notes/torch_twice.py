"""Another torch is imported than the one that the package list names: two of them are installed."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern

EXACT = 7
_VERSION = r"['\"]?v?(\d+\.\d+(?!\d)(?:\.\d+(?!\d))?)[\w.+]*"
_IMPORTED = Pattern(
    r"(?i)(?:torch\.(?:version\.)?__version__\)?|(?:py)?torch (?:version )?imported|imported (?:py)?torch(?: version)?"
    r"|import torch|PyTorch version|python imports torch)\s*(?:[:=]+|->|is|gives|prints|says|shows)\s*" + _VERSION
)
_LISTED = Pattern(
    r"(?im)(?:(?:uv )?pip3? (?:list|show|freeze)[^:\n]{0,30}[:=]\s*(?:torch(?:==| |: ))?"
    r"|(?:importlib\.)?metadata(?:\.version)?[^:\n]{0,20}torch['\")]*\s*[:=]+\s*"
    r"|conda list[^:\n]{0,20}[:=]\s*pytorch[ =]+"
    r"|\[pip3?\] torch==|\[conda\] pytorch\s+|^torch==|^torch\s{2,})" + _VERSION
)


_INSTEAD = Pattern(
    r"(?i)torch\.(?:version\.)?__version__\)?\s*(?:[:=]+|->|is|gives|prints|says|shows)?\s*"
    + _VERSION
    + r"[,;]? (?:although|though|even though|but|while|despite|instead of|not)"
    r"(?: (?:pip3?|conda|uv|i|we|the|had|have|has|was|is|just|installed|upgraded|updated|to|torch|pytorch|version|list"
    r"|show|shows|says|of|installing|upgrading))* " + _VERSION
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """torch.installs, where the one torch version imported is of another release than all versions listed.

    Nothing where several versions or none are imported.
    """
    if "torch" not in paste.lower:
        return
    imported: dict[str, int] = {}
    listed: dict[str, int] = {}
    for index, line in paste.having("torch"):
        text = paste.bare[index][:400]
        if match := _INSTEAD.search(text):
            imported.setdefault(match.group(1), index)
            listed.setdefault(match.group(2), index)
        elif match := _IMPORTED.search(text):
            imported.setdefault(match.group(1), index)
        elif "__version__" in line and (answer := _version_below(paste, index)):
            imported.setdefault(answer, index)
        elif match := _LISTED.search(text):
            listed.setdefault(match.group(1), index)
    if len(imported) != 1 or not listed:
        return
    version, index = next(iter(imported.items()))
    if all(not _same_release(version, other) for other in listed):
        sources = f"lines {paste.numbers[index]} and {paste.numbers[next(iter(listed.values()))]}"
        installs = (f"imported {version}", *(f"listed {other}" for other in listed))
        yield "torch.installs", Known(installs, sources)


_PLAIN = Pattern(r"['\"]?(\d+\.\d+\.\d+)(?!\d)[\w.+]*['\"]?\s*$")


def _version_below(paste: Paste, index: int) -> str:
    """The version on the line after `index`; empty where there is none."""
    after = paste.lines[index + 1].strip() if index + 1 < len(paste.lines) else ""
    match = _PLAIN.match(after)
    return match.group(1) if match else ""


def _same_release(first: str, second: str) -> bool:
    """Whether two versions agree in as many numbers as the shorter one has."""
    shorter = min(first.count("."), second.count(".")) + 1
    return first.split(".")[:shorter] == second.split(".")[:shorter]
