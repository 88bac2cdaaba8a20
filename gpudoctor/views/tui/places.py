"""Which screens there are, in the order of their keys. Each is imported and built when it is first opened."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudoctor.views.tui.screens.place import Place


@dataclass(frozen=True, slots=True)
class Door:
    """A screen by its name, before it is imported: ``gpus`` is `GPUs` in ``screens/gpus.py``."""

    name: str
    title: str
    short: str
    """The title where 80 columns are all there is."""
    screen: str

    def open(self) -> Place:
        """The screen, new."""
        module = importlib.import_module(f"gpudoctor.views.tui.screens.{self.name}")
        place: Place = getattr(module, self.screen)()
        return place


DOORS = (
    Door("diagnosis", "Diagnosis", "Diag", "DiagnosisScreen"),
    Door("gpus", "GPUs", "GPU", "GPUsScreen"),
    Door("facts", "Facts", "Facts", "FactsScreen"),
    Door("kernels", "Kernels", "Kern", "KernelsScreen"),
    Door("cluster", "Cluster", "Clus", "ClusterScreen"),
    Door("setup", "Setup", "Setup", "SetupScreen"),
)
FIX = Door("fix", "Fix", "Fix", "FixScreen")
"""The one screen without a tab: `f` opens it from all the others."""
