"""What is written down: a candidate, for which environment, from which index; its packages by where they come from.

torch's index of one CUDA build (``.../whl/cu126``) holds torch's own packages and copies of most that these require,
some of them incomplete. So its packages are asked for there by their exact build, and whatever else is wanted comes
from the user's own index in a second step that names torch's build once more: no other torch can slip in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpudoctor.model.frozen import field, frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.setup.candidate import Candidate, Package
from gpudoctor.setup.environment import ELSEWHERE, Environment

Argv = tuple[str, ...]
Argvs = tuple[Argv, ...]
OFFICIAL = "https://download.pytorch.org/whl"
BASE = os.environ.get("GPUDOCTOR_TORCH_INDEX", "").rstrip("/") or OFFICIAL
"""PyTorch's own wheels, or a site's mirror of them: a folder for each build."""
_BUILT = ("torch", "torchvision", "torchaudio")
"""Packages whose version there names the build."""
_BUILDING = ("ninja", "packaging", "psutil", "setuptools", "wheel")
"""What such a source wants there while it is compiled."""
_CLASHING = pattern(r"nvidia-.+-cu(\d+)")


@frozen
class Order:
    """What is written down.

    `base` is that of torch's index, `python` (``3.12``), `system` and `arch` those of the machine, as far as known.
    `pinned`: that very release was asked for, rather than the newest that fits. `hashes` are wheels by the name of
    their package: URL and SHA-256, as an index told them.
    """

    candidate: Candidate
    environment: Environment = ELSEWHERE
    base: str = BASE
    python: str = ""
    system: str = ""
    arch: str = ""
    pinned: bool = False
    hashes: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def index(self) -> str:
        """torch's index of the candidate's build."""
        return f"{self.base.rstrip('/')}/{self.candidate.build}"

    @property
    def mirrored(self) -> bool:
        """Whether torch's index is another than PyTorch's own."""
        return self.base.rstrip("/") != OFFICIAL

    @property
    def own(self) -> tuple[str, ...]:
        """Requirements that torch's index serves: ``torch==2.9.0+cu126``, torch first."""
        return tuple(self.pin(package) for package in self.candidate.packages if _of_torch(package))

    @property
    def others(self) -> tuple[str, ...]:
        """Requirements that the user's index serves, and single wheels by their URL."""
        packages = self.candidate.packages
        listed = [self.pin(package) for package in packages if not _of_torch(package) and not package.compiled]
        return (*listed, *(_BUILDING if self.compiled else ()))

    @property
    def strays(self) -> tuple[str, ...]:
        """Those of `others` that uv would look for on torch's index alone, by their name."""
        return tuple(
            self.pin(item) for item in self.candidate.packages if item.name in _BUILT and item.origin == "pypi"
        )

    @property
    def routed(self) -> tuple[str, ...]:
        """The rest of `others`, which uv finds by itself in one command with torch."""
        return tuple(pin for pin in self.others if pin not in self.strays)

    @property
    def compiled(self) -> tuple[str, ...]:
        """Requirements that are compiled against the torch installed before them."""
        return tuple(self.pin(package) for package in self.candidate.packages if package.compiled)

    @property
    def torch(self) -> str:
        """torch's own requirement."""
        return self.pin(self.candidate.packages[0])

    def pin(self, package: Package) -> str:
        """``torch==2.9.0+cu126``: the build is named, or 2.9.0+cpu would do where it is installed."""
        if package.origin == "wheel":
            return f"{package.name} @ {package.url}"
        built = package.origin == "torch" and package.name in _BUILT and "+" not in package.version
        return package.requirement + (f"+{self.candidate.build}" if built else "")

    @property
    def clashing(self) -> tuple[str, ...]:
        """Installed nvidia wheels of another CUDA major.

        They write the same files as this build's, cuDNN's and NCCL's at least: removed later they would take those
        along, so they are removed before.
        """
        major = self.candidate.cuda.partition(".")[0]
        installed = ((name, _CLASHING.fullmatch(name)) for name in self.environment.installed)
        return tuple(sorted(name for name, match in installed if match and major and match[1] != major))


def _of_torch(package: Package) -> bool:
    return package.origin == "torch" and not package.compiled
