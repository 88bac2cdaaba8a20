"""Which driver to name where several branches would do: one that the distribution ships, else the long-term branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.language import say
from gpudoctor.model.frozen import frozen

_LIKE = {"rocky": "rhel", "almalinux": "rhel", "ol": "rhel", "centos": "rhel", "redhat": "rhel"}


@frozen
class Branch:
    """A branch and who has packages of it: ``580``, ``Ubuntu 24.04``."""

    name: str
    shipped_by: str = ""

    @property
    def words(self) -> str:
        """Why this one: ``Ubuntu 24.04 ships 580``."""
        if self.shipped_by:
            return say("{system} ships {branch}", system=self.shipped_by, branch=self.name)
        return say("{branch} is the long-term branch", branch=self.name)


def preferred(distribution: str, does: Callable[[str], bool]) -> Branch | None:
    """The first branch that does: of those that ``ubuntu 24.04`` ships, else of the long-term branches still served."""
    for row in _rows(distribution):
        if found := next((branch for branch in row["branches"].split() if does(branch)), None):
            return Branch(found, row.get("from") or f"{row['distribution'].capitalize()} {row['release']}".strip())
    long_term = (row["branch"] for row in table("drivers")["branch"] if row.get("kind") == "long-term")
    found = next((branch for branch in long_term if does(branch)), None)
    return Branch(found) if found else None


def ships(distribution: str, branch: str) -> bool:
    """Whether that distribution has packages of the branch; an unknown one is taken to."""
    rows = list(_rows(distribution))
    return not rows or any(branch in row["branches"].split() for row in rows)


def _rows(distribution: str) -> Iterator[TableRow]:
    name, _, release = distribution.lower().partition(" ")
    for row in table("drivers")["shipped"]:
        if row["distribution"] == _LIKE.get(name, name) and (not row["release"] or _same(row["release"], release)):
            yield row


def _same(release: str, written: str) -> bool:
    """Whether ``9.4`` is of release 9, and ``24.04`` of 24.04."""
    return written == release or written.startswith(f"{release}.")
