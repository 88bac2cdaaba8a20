"""What is personal, replaced in what another person is to see: the same name by the same word everywhere.

What was equal stays so, what differed differs, and a diagnosis stays true: `shared` takes any value of the model (a
diagnosis, a snapshot, a fleet, measurements, a plan, a difference, a stack), before any view has seen it. What a view
may show has passed `walk`, which leaves out no text of it.

What is hidden stands in `ledger.NAMES`. What stays: versions, product names, PCI addresses, libraries and packages,
folders below a home, accounts of every system (root, ubuntu, runner), the addresses that every machine has, and the
sites that all the world uses.

Its limits. A name is found where a name must stand (`places`) or where a fact gives it; then it is hidden wherever it
stands, unless it is shorter than four letters or a word of our own pages: such a one is hidden only where it must be a
name. A public address that could be a version (8.9.2.26) is hidden only where something beside it says what it is.
Names are found through terminal colours, invisible and wide letters, ``%2F``, and the escapes of JSON; not through
letters of other scripts that look alike, base64, or a name cut in two. A secret is known by its shape or by what it is
given to; one that looks like a word, and stands alone, is not.
"""

from __future__ import annotations

from typing import TypeVar

from gpudoctor.hiding.hider import Hider
from gpudoctor.hiding.sharing import Sharing

T = TypeVar("T")


def shared(thing: T) -> T:
    """The same without names, addresses, numbers of devices, and secrets."""
    return Sharing()(thing)


__all__ = ["Hider", "Sharing", "shared"]
