"""A torch stack that could be installed: every package pinned, and where each comes from."""

from __future__ import annotations

from typing import Literal

from gpudoctor.model.frozen import frozen

Origin = Literal["torch", "pypi", "wheel"]
"""Where a package comes from: torch's index of that CUDA build, the Python package index, or one wheel by its URL."""


@frozen
class Package:
    """One pinned package: ``torchvision``, ``0.29.1``, from torch's index. `url` is that of a wheel.

    `asked` is the requirement as it was given, for a package that the tables do not follow; its version is then empty.
    `compiled` says that there is no wheel for this stack: it is built with nvcc of the stack's CUDA major.
    """

    name: str
    version: str
    origin: Origin = "pypi"
    url: str = ""
    asked: str = ""
    compiled: bool = False

    @property
    def requirement(self) -> str:
        """As a requirements file has it, without the local part that an index adds: ``torchvision==0.29.1``."""
        return self.asked or f"{self.name}=={self.version}"


@frozen
class Candidate:
    """One build of one torch release, with what goes beside it; torch is the first of `packages`.

    `torch` is ``2.14.1``, `build` ``cu126`` or ``cpu``, `cuda` ``12.6`` or empty. `default` is whether the Python
    package index itself gives this build on that platform. `libraries` are CUDA, cuDNN and NCCL with their versions.
    """

    torch: str
    build: str
    cuda: str
    packages: tuple[Package, ...]
    default: bool = False
    libraries: tuple[tuple[str, str], ...] = ()

    @property
    def compiled(self) -> bool:
        """Whether something beside torch must be compiled, for want of a wheel."""
        return any(package.compiled for package in self.packages)
