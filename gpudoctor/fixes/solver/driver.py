"""A driver as the solver compares it: by version, or by branch where only that was said; future ones, too.

And which branch to name where several would do: one that the distribution ships, else the long-term branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from packaging.version import Version

from gpudoctor.core.frozen import frozen
from gpudoctor.core.language import say
from gpudoctor.core.values import CannotJudge
from gpudoctor.core.versions import parse
from gpudoctor.diagnosis.knowledge import drivers
from gpudoctor.diagnosis.knowledge._tables import TableRow, table
from gpudoctor.fixes.solver.specifiers import version


@frozen
class Driver:
    """A driver by version (``570.124.06``), or by branch (``570``: its newest).
    `branch` is 0 if unknown to the tables; `cuda` is None if they do not tell which CUDA it fully serves. `future`:
    newer than every branch of the tables.
    """

    written: str
    version: Version
    branch: int
    cuda: tuple[int, int] | None
    future: bool

    @property
    def whole_branch(self) -> bool:
        """True if only a branch is given (``570``), which then stands for its newest driver."""
        return len(self.version.release) == 1

    def reaches(self, floor: str) -> bool:
        """True if the driver is at least the version `floor`; a bare branch reaches all drivers of that branch."""
        if self.whole_branch and self.branch and (other := branch(floor)):
            return self.branch >= other
        return self.version >= version(floor)

    def within(self, ceiling: str) -> bool:
        """True if its branch is at most `ceiling`; False for a future driver."""
        return not self.future and (self.branch or self.version.major) <= int(ceiling)

    def serves_fully(self, cuda: tuple[int, int]) -> bool:
        """True if it serves that CUDA without relying on minor-version compatibility."""
        return self.future or (self.cuda is not None and self.cuda >= cuda)


@lru_cache(maxsize=512)
def parsed_driver(written: str) -> Driver | None:
    """Driver of a version text; None if it is no version."""
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
    """Branch number of a driver version, 525 for ``527.41``; 0 if the tables have none."""
    try:
        return int(drivers.driver_branch(written))
    except CannotJudge:
        return 0


def newest_of(written: str, drivers_of: str) -> str:
    """Newest driver named by the tables for a bare branch, ``580.95.05`` for ``580``; otherwise the text unchanged."""
    own = parsed_driver(written)
    if own is None or not own.whole_branch or not own.branch:
        return written
    rows = (*table("drivers")["toolkit"], *table("drivers")["family"])
    named = (row[drivers_of] for row in rows if drivers_of in row)
    return max((release for release in named if branch(release) == own.branch), key=version, default=written)


@lru_cache(maxsize=1)
def branches() -> tuple[int, ...]:
    """All driver branches in the tables, newest first."""
    return tuple(int(row["branch"]) for row in table("drivers")["branch"])


# ---- Which branch to name where several would do ----

_LIKE = {"rocky": "rhel", "almalinux": "rhel", "ol": "rhel", "centos": "rhel", "redhat": "rhel"}


@frozen
class Branch:
    """A driver branch, and the distribution that ships it (``""``: none known)."""

    name: str
    shipped_by: str = ""

    @property
    def words(self) -> str:
        """Reason for choosing it: ``Ubuntu 24.04 ships 580``."""
        if self.shipped_by:
            return say("{system} ships {branch}", system=self.shipped_by, branch=self.name)
        return say("{branch} is the long-term branch", branch=self.name)


def preferred_branch(distribution: str, suits: Callable[[str], bool]) -> Branch | None:
    """First branch for which `suits` is true, of those the distribution ships, else of long-term ones; None if none
    does.
    """
    for row in _shipped_rows(distribution):
        if found := next((branch for branch in row["branches"].split() if suits(branch)), None):
            return Branch(found, row.get("from") or f"{row['distribution'].capitalize()} {row['release']}".strip())
    long_term = (row["branch"] for row in table("drivers")["branch"] if row.get("kind") == "long-term")
    found = next((branch for branch in long_term if suits(branch)), None)
    return Branch(found) if found else None


def ships(distribution: str, name: str) -> bool:
    """True if the distribution ships that branch, or is unknown to the tables."""
    rows = list(_shipped_rows(distribution))
    return not rows or any(name in row["branches"].split() for row in rows)


def _shipped_rows(distribution: str) -> Iterator[TableRow]:
    """Table rows for a distribution such as ``ubuntu 24.04``, derivatives included."""
    name, _, release = distribution.lower().partition(" ")
    for row in table("drivers")["shipped"]:
        if row["distribution"] == _LIKE.get(name, name) and (
            not row["release"] or _is_of_release(row["release"], release)
        ):
            yield row


def _is_of_release(release: str, written: str) -> bool:
    """True if version `written` is of the release: ``9.4`` of ``9``."""
    return written == release or written.startswith(f"{release}.")
