"""``--share``: what is printed or written passes through here before a view sees it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import argparse

T = TypeVar("T")


def shared(thing: T, options: argparse.Namespace) -> T:
    """The value as it is, or with ``--share`` without what is personal; then standard error is told what was hidden."""
    if not options.share:
        return thing
    from gpudoctor.hiding import Sharing

    sharing = Sharing()
    result = sharing(thing)
    print(f"gpudoctor: {sharing.told}", file=sys.stderr)
    return result
