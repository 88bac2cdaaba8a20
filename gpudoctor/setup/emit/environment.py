"""``environment.yml``, which conda, mamba and micromamba read."""

from __future__ import annotations

from gpudoctor.setup.emit import conda
from gpudoctor.setup.emit.order import Order


def text(order: Order) -> str:
    """A new environment with conda-forge's builds; what that has not comes by pip. Empty where it has no such torch."""
    specs = conda.specs(order)
    if not specs:
        return ""
    others = [order.pin(package) for package in order.candidate.packages if package.name in conda.left_out(order)]
    python = [f"python={order.python}"] if order.python else ["python"]
    lines = [
        "# conda env create --file environment.yml",
        f"name: {conda.NAME}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
    ]
    lines += ["dependencies:", *(f'  - "{spec}"' for spec in [*python, *specs])]
    if others:
        lines += ["  - pip", "  - pip:", *(f'      - "{other}"' for other in others)]
    return "\n".join([*lines, ""])
