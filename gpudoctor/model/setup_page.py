"""A page of ``rules/setup``: how one thing is set up on every system, in cures that rule pages share."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.model.frozen import frozen
from gpudoctor.model.rule import Fix


@frozen
class SetupPage:
    """What is set up (`id`: ``driver``), by which fixes, and the documents that the steps are from."""

    id: str
    title: str
    fixes: tuple[Fix, ...]
    sources: tuple[str, ...]
    origin: str = ""


@frozen
class SetupCase:
    """A page's own proof: on these facts the first fix offered is that one (empty: none), and so its first command.

    `has` are commands that the fix runs after it, in that order.
    """

    page: str
    name: str
    facts: Mapping[str, object]
    offers: str
    argv: tuple[str, ...] = ()
    has: tuple[tuple[str, ...], ...] = ()
