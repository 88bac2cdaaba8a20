"""What an image asks of the driver in NVIDIA_REQUIRE_CUDA.

``cuda>=12.4 brand=tesla,driver>=470,driver<471``: a blank between alternatives, a comma between what must hold
together. Names: cuda, driver, arch, brand (NVIDIA Container Toolkit, Specialized Configurations, read 2026-11).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from packaging.version import Version

from gpudoctor.knowledge._tables import lookup, version
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import NOTHING, CannotJudge, Nothing

_TERM = pattern(r"(cuda|driver|arch|brand)\s*(>=|<=|!=|=|>|<)\s*([\w.]+)")
_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "!=": operator.ne,
}


@lookup
def requirement_met(requirement: object, cuda: object, driver: object) -> bool:
    """Whether a driver that serves `cuda` meets the image's requirement; brand and architecture count as not known."""
    have = {"cuda": version(cuda, "CUDA of the driver"), "driver": version(driver, "driver version")}
    open_terms: list[str] = []
    for alternative in str(requirement).split():
        states: list[bool | None] = []
        for term in filter(None, alternative.split(",")):
            match = _TERM.fullmatch(term)
            if not match:
                raise CannotJudge("requirement", f"{term[:40]!r} is not understood")
            known = have.get(match[1])
            states.append(None if known is None else _COMPARE[match[2]](known, version(match[3], term)))
        if all(states):
            return True
        if False not in states:
            open_terms.append(alternative)
    if open_terms:
        raise CannotJudge("requirement", f"{open_terms[0]} depends on the GPU's brand")
    return False


@lookup
def requirement_cuda(requirement: object) -> str | Nothing:
    """The CUDA that the requirement starts from: ``12.4`` of ``cuda>=12.4 ...``; absent where it names none."""
    match = re.search(r"(?:^|[\s,])cuda\s*>=?\s*(\d+(?:\.\d+)?)", str(requirement))
    return match[1] if match else NOTHING
