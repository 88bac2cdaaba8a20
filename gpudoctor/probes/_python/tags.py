"""What an extension's version or wheel name says it was built for: ``+cu122torch2.3cxx11abiFALSE``, ``+pt24cu121``."""

from __future__ import annotations

import re

from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern

_CUDA = pattern(r"cu(?:da)?-?(\d{2})\.?(\d?)(?!\d)", re.IGNORECASE)
_TORCH = pattern(r"torch-?(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_PT = pattern(r"pt(\d)\.?(\d{1,2})(?!\d)", re.IGNORECASE)
_ABI = pattern(r"cxx11abi(true|false|1|0)", re.IGNORECASE)


@frozen
class Tag:
    """Each part empty where the name does not say it; `cuda` is ``12.2``, or ``12`` where only the major is named."""

    torch: str = ""
    cuda: str = ""
    abi: str = ""


def tag_of(text: str) -> Tag:
    """Read the part after the ``+`` of a version, or of a wheel's file name."""
    local = text.replace("%2B", "+").replace("%2b", "+").partition("+")[2].partition("-cp")[0]
    torch = _TORCH.search(local)
    short = _PT.search(local)
    cuda = _CUDA.search(local)
    abi = _ABI.search(local)
    return Tag(
        torch=torch[1] if torch else f"{short[1]}.{short[2]}" if short else "",
        cuda=".".join(part for part in cuda.groups() if part) if cuda else "",
        abi="" if not abi else "cxx11" if abi[1].lower() in ("true", "1") else "pre-cxx11",
    )
