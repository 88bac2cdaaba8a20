"""``pixi.toml``: conda-forge's builds in a project of pixi."""

from __future__ import annotations

import json
import re

from gpudoctor.setup.emit import conda
from gpudoctor.setup.emit.order import Order

_PLATFORMS = {("linux", "aarch64"): "linux-aarch64", ("windows", ""): "win-64", ("windows", "x86_64"): "win-64"}


def text(order: Order) -> str:
    """A project; empty where conda-forge has no such torch. The lock is solved for a machine with that CUDA."""
    specs = conda.specs(order)
    if not specs:
        return ""
    platform = _PLATFORMS.get((order.system, order.arch), "linux-64")
    python = f"{order.python}.*" if order.python else "*"
    lines = [
        "# pixi install",
        "[workspace]",
        'name = "torch"',
        'channels = ["conda-forge"]',
        f'platforms = ["{platform}"]',
    ]
    if order.candidate.cuda:  # a machine without a GPU, such as a login node, can make the lock as well
        lines += ["", "[system-requirements]", f'cuda = "{order.candidate.cuda.partition(".")[0]}"']
    lines += ["", "[dependencies]", f"python = {json.dumps(python)}", *map(_dependency, specs)]
    return "\n".join([*lines, *_pypi(order), ""])


def _dependency(spec: str) -> str:
    name, version = re.fullmatch(r"([a-z0-9-]+)(.*)", spec).groups()  # type: ignore[union-attr]
    exact = f"{version[1:]}.*" if version.startswith("=") else version or "*"
    return f"{name} = {json.dumps(exact)}"


def _pypi(order: Order) -> list[str]:
    others = [package for package in order.candidate.packages if package.name in conda.left_out(order)]
    if not others:
        return []
    lines = [
        f"{item.name} = {{ url = {json.dumps(item.url)} }}"
        if item.origin == "wheel"
        else f"{item.name} = {json.dumps('==' + item.version)}"
        for item in others
    ]
    return ["", "[pypi-dependencies]", *lines]
