"""A candidate with what its packages would bring by themselves, from the index that it has to come from.

vllm requires torchvision and torchaudio: taken from the user's index they would be those of another CUDA. torchaudio
ended with 2.11.0, so for later builds of torch there is none of their own; that of the same CUDA major serves them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import table
from gpudoctor.model.frozen import replace
from gpudoctor.setup.candidate import Candidate, Package

_BROUGHT = ("torchvision", "torchaudio")


def completed(candidate: Candidate, machine: str = "x86_64") -> Candidate:
    """The candidate with every package of torch's family named; `machine` is ``x86_64`` or ``aarch64``."""
    named = {package.name for package in candidate.packages}
    brought = [package for package in _brought(candidate) if package.name not in named]
    packages = [candidate.packages[0], *brought, *candidate.packages[1:]]
    return replace(candidate, packages=tuple(_placed(package, candidate, machine) for package in packages))


def _brought(candidate: Candidate) -> Iterator[Package]:
    vllm = next((package.version for package in candidate.packages if package.name == "vllm"), "")
    rows = (row for row in table("companions")["vllm"] if row["version"] == vllm)
    yield from (Package(name, row[name], "torch") for row in rows for name in _BROUGHT if name in row)


def _placed(package: Package, candidate: Candidate, machine: str) -> Package:
    """torchaudio from the user's index where torch's has none of that build and the user's is of the same CUDA."""
    if package.name != "torchaudio" or not candidate.cuda or builds.build(package.version, candidate.cuda):
        return package
    usual = builds.default_cuda(package.version, machine) or ""
    same = usual.partition(".")[0] == candidate.cuda.partition(".")[0]
    return replace(package, origin="pypi") if same and builds.base(package.version) else package
