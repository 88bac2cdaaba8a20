"""A machine in a few words, from its facts: ``node17 · 8 × H100 80GB HBM3 · driver 535.183.06``."""

from __future__ import annotations

from collections import Counter

from gpudoctor.model.fact import Known, listed
from gpudoctor.model.snapshot import Snapshot

_BRANDS = ("NVIDIA ", "GeForce ", "Tesla ", "Graphics Device ")


def words(snapshot: Snapshot) -> list[str]:
    """Name, GPUs and driver, as far as they are known."""
    said = [name] if (name := snapshot.target.name) else []
    if gpus := gpu_names(snapshot):
        said.append(", ".join(f"{count} × {name}" if count > 1 else name for name, count in gpus.items()))
    driver = snapshot.get("driver.version")
    if isinstance(driver, Known):
        said.append(f"driver {driver.value}")
    return said


def gpu_names(snapshot: Snapshot) -> Counter[str]:
    """How many there are of each model, by its name without the maker's."""
    rows = snapshot.rows("gpu")
    names: Counter[str] = Counter()
    for row in listed(rows):
        state = row.get("name")
        if isinstance(state, Known):
            names[short(str(state.value))] += 1
    return names


def short(name: str) -> str:
    """A GPU's name without what every one of its maker bears."""
    for brand in _BRANDS:
        name = name.removeprefix(brand)
    return name
