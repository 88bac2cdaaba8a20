"""A driver as the solver compares it: by version, or by branch where only that was said; future ones, too."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

from gpudoctor.knowledge import drivers
from gpudoctor.knowledge._tables import table
from gpudoctor.model.frozen import frozen
from gpudoctor.model.values import CannotJudge
from gpudoctor.model.version import parse
from gpudoctor.setup.specifiers import version


@frozen
class Driver:
    """One driver. `written` is ``570.124.06``, or ``570`` for the newest of that branch.

    `branch` is 0 where the tables have none that it could belong to; `cuda` is None where they do not say which CUDA it
    serves in full. `future`: newer than every branch of the tables.
    """

    written: str
    version: Version
    branch: int
    cuda: tuple[int, int] | None
    future: bool

    @property
    def whole_branch(self) -> bool:
        """Whether only the branch was said, of which the newest driver is then meant."""
        return len(self.version.release) == 1

    def reaches(self, floor: str) -> bool:
        """Whether it is that driver or a newer one; ``570`` reaches every driver of its branch."""
        if self.whole_branch and self.branch and (other := branch(floor)):
            return self.branch >= other
        return self.version >= version(floor)

    def within(self, ceiling: str) -> bool:
        """Whether its branch is that one or an older one."""
        return not self.future and (self.branch or self.version.major) <= int(ceiling)

    def serves_fully(self, cuda: tuple[int, int]) -> bool:
        """Whether that CUDA is no newer than the driver's own, and nothing rests on minor-version compatibility."""
        return self.future or (self.cuda is not None and self.cuda >= cuda)


@lru_cache(maxsize=512)
def driver(written: str) -> Driver | None:
    """That driver; None where the text is no version."""
    number = parse(written)
    if number is None:
        return None
    own = branch(str(number))
    newest = max(branches())
    try:
        major, _, minor = drivers.driver_cuda(written).partition(".")
        cuda = int(major), int(minor)
    except CannotJudge:
        cuda = None
    return Driver(written, number, own, cuda, not own and number.major > newest)


@lru_cache(maxsize=512)
def branch(written: str) -> int:
    """The branch of that driver: 525 of ``527.41``; 0 where the tables have none."""
    try:
        return int(drivers.driver_branch(written))
    except CannotJudge:
        return 0


def newest_of(written: str, drivers_of: str) -> str:
    """The newest driver of a branch that the tables name, ``580.95.05`` of ``580``; a whole version stays as it is."""
    own = driver(written)
    if own is None or not own.whole_branch or not own.branch:
        return written
    rows = (*table("drivers")["toolkit"], *table("drivers")["family"])
    named = (row[drivers_of] for row in rows if drivers_of in row)
    return max((one for one in named if branch(one) == own.branch), key=version, default=written)


@lru_cache(maxsize=1)
def branches() -> tuple[int, ...]:
    """Every branch of the tables, the newest first."""
    return tuple(int(row["branch"]) for row in table("drivers")["branch"])
