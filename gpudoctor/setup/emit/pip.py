"""pip's commands.

``--index-url`` takes the place of the user's index for torch's own packages. Naming torch's index as a further one
would do as well, but then a name that both have is taken from whichever has the higher version.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.setup.emit.order import Argv, Argvs, Order
from gpudoctor.setup.environment import VENV


def commands(order: Order) -> Argvs:
    """One command an index; before them a new environment where the distribution keeps pip out of its own."""
    return tuple(_commands(order))


def _commands(order: Order) -> Iterator[Argv]:
    environment = order.environment
    pip = (environment.target, "-m", "pip")
    if environment.new:
        yield (environment.interpreter, "-m", "venv", VENV)
    elif order.clashing:
        yield (*pip, "uninstall", "--yes", *order.clashing)
    yield (*pip, "install", *order.own, "--index-url", order.index)
    if order.others:
        yield (*pip, "install", order.torch, *order.others)
    if order.compiled:
        yield (*pip, "install", "--no-build-isolation", order.torch, *order.compiled)
