"""Which driver serves which CUDA: minor-version compatibility, what each branch reports, what an image requires.

An image writes NVIDIA_REQUIRE_CUDA so: ``cuda>=12.4 brand=tesla,driver>=470,driver<471``, a blank between alternatives,
a comma between what must hold together. Names: cuda, driver, arch, brand (NVIDIA Container Toolkit, Specialized
Configurations, read 2026-11).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache

from packaging.version import Version

from gpudoctor.core.pattern import pattern
from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge._tables import TableRow, dotted, lookup, release, table, version

BRANCH_SPAN = 12
"""A driver further than this above the nearest branch of the table belongs to a branch we do not know."""
NEWEST_SPAN = 4
"""As `BRANCH_SPAN`, of the newest branch, for the next one begins 5 above it; Windows drivers count up to 4 on."""


@lookup
def driver_floor(cuda: object, platform: object = "linux") -> str:
    """The oldest driver that runs programs built with that CUDA: ``525.60.13`` for 12.8.

    From CUDA 11 on that is the floor of the whole major release (minor-version compatibility); older ones need the
    driver they came with. PTX of a newer minor release is another matter: see `driver_jits`. Raises `CannotJudge` for a
    CUDA that the table lacks.
    """
    column = "windows" if platform == "windows" else "linux"
    wanted = release(cuda, "CUDA version")
    shipped = shipped_drivers().get(wanted)
    for family in table("drivers")["family"]:
        if family["major"] == wanted[0]:
            floor: str = family[column]
            own = str(shipped.get(column, floor)) if shipped else floor
            return own if version(own, "driver") < version(floor, "driver") else floor
    if not shipped or column not in shipped:
        raise CannotJudge("driver for CUDA", f"the table has no CUDA {dotted(wanted)}")
    return str(shipped[column])


@lookup
def driver_serves(driver: object, cuda: object, platform: object = "linux") -> bool:
    """Whether that driver runs programs built with that CUDA, by minor-version compatibility; see `driver_floor`."""
    return version(driver, "driver version") >= version(driver_floor(cuda, platform), "driver floor")


@lookup
def driver_cuda(driver: object) -> str:
    """The newest CUDA that the driver serves in full, as nvidia-smi prints it: ``12.8`` for 570.124.06.

    Raises `CannotJudge` for a branch that the table does not have, or whose CUDA it gives as unsure.
    """
    branch = branch_of(driver)
    if "unsure" in branch:
        raise CannotJudge("CUDA of the driver", str(branch["unsure"]))
    return str(branch["cuda"])


@lookup
def driver_jits(driver: object, cuda: object) -> bool:
    """Whether the driver compiles PTX of that CUDA: minor-version compatibility does not cover PTX (error 222)."""
    return release(driver_cuda(driver), "CUDA of the driver") >= release(cuda, "CUDA version")


@lookup
def driver_branch(driver: object) -> str:
    """The branch that the driver belongs to: ``570`` for 572.16; raises `CannotJudge` where the table lacks it."""
    return str(branch_of(driver)["branch"])


@lookup
def driver_for(cuda: object) -> str:
    """The driver branch that came with that CUDA and serves it in full: ``570`` for 12.8; else raises `CannotJudge`."""
    wanted = dotted(release(cuda, "CUDA version"))
    for branch in reversed(table("drivers")["branch"]):
        if branch.get("cuda") == wanted:
            return str(branch["branch"])
    raise CannotJudge("driver for CUDA", f"the table has no CUDA {wanted}")


def branch_of(driver: object) -> TableRow:
    """The row of the driver's branch: that of the nearest lower number, up to 12 below (4 for the newest branch).

    Raises `CannotJudge` for a driver beyond that.
    """
    major = version(driver, "driver version").major
    branches = table("drivers")["branch"]
    nearest: TableRow | None = next((row for row in branches if int(row["branch"]) <= major), None)
    span = NEWEST_SPAN if nearest is branches[0] else BRANCH_SPAN
    if nearest and major - int(nearest["branch"]) <= span:
        return nearest
    raise CannotJudge("driver branch", f"the table has no driver {major}")


@lru_cache(maxsize=1)
def shipped_drivers() -> dict[tuple[int, int], TableRow]:
    """By CUDA (major, minor), the table row with the driver that shipped with its first release; cached."""
    first: dict[tuple[int, int], TableRow] = {}
    for row in table("drivers")["toolkit"]:
        first[release(row["cuda"], "CUDA version")] = row
    return first


# ---- What an image asks of the driver ----

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
    """Whether that driver, serving `cuda`, meets one alternative of an image's NVIDIA_REQUIRE_CUDA in all its terms.

    Raises `CannotJudge` where brand or architecture of the GPU decides, or the requirement is malformed.
    """
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
        raise CannotJudge("requirement", f"{open_terms[0]} depends on the GPU's brand or architecture")
    return False


@lookup
def requirement_cuda(requirement: object) -> str | Nothing:
    """The CUDA that the requirement starts from: ``12.4`` of ``cuda>=12.4 ...``; absent where it names none."""
    match = re.search(r"(?:^|[\s,])cuda\s*>=?\s*(\d+(?:\.\d+)?)", str(requirement))
    return match[1] if match else NOTHING
