"""``pyproject.toml`` for a project of uv: torch's packages from torch's index, and nothing else from there."""

from __future__ import annotations

import json

from gpudoctor.setup.emit.order import Order


def text(order: Order) -> str:
    """A project's dependencies, and where uv takes them from: ``explicit`` keeps all other packages off that index."""
    candidate = order.candidate
    name = f"pytorch-{candidate.build}"
    own = [package for package in candidate.packages if package.origin == "torch"]
    pins = [order.pin(package) for package in candidate.packages]
    lines = ["[project]", 'name = "torch-project"', 'version = "0"']
    if order.python:
        lines.append(f'requires-python = "=={order.python}.*"')
    lines += ["dependencies = [", *(f"  {json.dumps(pin)}," for pin in pins), "]", ""]
    lines += ["[tool.uv.sources]", *(f"{package.name} = {{ index = {json.dumps(name)} }}" for package in own), ""]
    lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(order.index)}", "explicit = true"]
    if order.compiled:
        names = [package.name for package in candidate.packages if order.pin(package) in order.compiled]
        lines += ["", "[tool.uv]", f"no-build-isolation-package = {json.dumps(names)}"]
    return "\n".join([*_environments(order, lines), ""])


def _environments(order: Order, lines: list[str]) -> list[str]:
    """With the one system that those builds are for; a lock is otherwise made for all of them."""
    system = {"windows": "win32", "linux": "linux", "wsl": "linux"}.get(order.system)
    if not system or not order.arch:
        return lines
    machine = "AMD64" if (system, order.arch) == ("win32", "x86_64") else order.arch
    marker = f"sys_platform == '{system}' and platform_machine == '{machine}'"
    table = [] if "[tool.uv]" in lines else ["", "[tool.uv]"]
    return [*lines, *table, f"environments = [{json.dumps(marker)}]"]
