"""uv's commands.

``--torch-backend`` sends what belongs to torch to PyTorch's index and all else to the user's, in one command. It knows
no mirror: with one, torch's index stands in for the user's in a first command, as with pip.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.setup.emit.order import Argv, Argvs, Order
from gpudoctor.setup.environment import VENV


def commands(order: Order) -> Argvs:
    """One command; before it a new environment where the distribution keeps installers out of its own."""
    return tuple(_commands(order))


def _commands(order: Order) -> Iterator[Argv]:
    environment = order.environment
    where = ("--python", environment.target)
    if environment.new:
        yield ("uv", "venv", "--python", environment.interpreter, VENV)
    elif order.clashing:
        yield ("uv", "pip", "uninstall", *where, *order.clashing)
    install = ("uv", "pip", "install", *where)
    if order.mirrored:
        yield (*install, *order.own, "--default-index", order.index)
        if order.others:
            yield (*install, order.torch, *order.others)
    else:
        yield (*install, *order.own, *order.routed, f"--torch-backend={order.candidate.build}")
        if order.strays:
            yield (*install, order.torch, *order.strays)
    if order.compiled:
        yield (*install, "--no-build-isolation", order.torch, *order.compiled)
