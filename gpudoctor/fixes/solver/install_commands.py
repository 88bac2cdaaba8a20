"""What is written down: a candidate, for which environment, from which index; and the commands that install it.

torch's index of one CUDA build (``.../whl/cu126``) holds torch's own packages and copies of most that these require,
some of them incomplete. So its packages are asked for there by their exact build, and whatever else is wanted comes
from the user's own index in a second step that names torch's build once more: no other torch can slip in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from gpudoctor.core.frozen import field, frozen, replace
from gpudoctor.core.language import say
from gpudoctor.core.pattern import pattern
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.fixes.solver.environment import COMPANIONS, ELSEWHERE, VENV, Environment
from gpudoctor.fixes.solver.solution import Candidate, Package

Argv = tuple[str, ...]
Argvs = tuple[Argv, ...]
OFFICIAL = "https://download.pytorch.org/whl"
BASE = os.environ.get("GPUDOCTOR_TORCH_INDEX", "").rstrip("/") or OFFICIAL
"""PyTorch's own wheels, or a site's mirror of them: a folder for each build."""
_BUILT = ("torch", *COMPANIONS)
"""Packages whose version there names the build."""
_BUILDING = ("ninja", "packaging", "psutil", "setuptools", "wheel")
"""What such a source wants there while it is compiled."""
_CLASHING = pattern(r"nvidia-.+-cu(\d+)")


@frozen
class Order:
    """What is to be installed: a candidate, for which environment, from which index.
    `python` (``3.12``), `system` and `arch` are ``""`` if not known. `pinned`: that release was asked for. `hashes`
    maps package names to (URL, SHA-256) of wheels.
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
        """URL of torch's index for the candidate's build."""
        return f"{self.base.rstrip('/')}/{self.candidate.build}"

    @property
    def own(self) -> tuple[str, ...]:
        """Requirements served by torch's index, torch first: ``torch==2.9.0+cu126``."""
        return tuple(self.pin(package) for package in self.candidate.packages if _is_on_torch_index(package))

    @property
    def others(self) -> tuple[str, ...]:
        """The candidate's requirements served by the user's index, and its wheels by URL.

        Build tools too, if something is compiled; what is compiled itself is left out (see `compiled`).
        """
        packages = self.candidate.packages
        listed = [self.pin(package) for package in packages if not _is_on_torch_index(package) and not package.compiled]
        return (*listed, *(_BUILDING if self.compiled else ()))

    @property
    def strays(self) -> tuple[str, ...]:
        """Requirements from PyPI that uv would search only on torch's index because of their names."""
        return tuple(
            self.pin(item) for item in self.candidate.packages if item.name in _BUILT and item.origin == "pypi"
        )

    @property
    def compiled(self) -> tuple[str, ...]:
        """Requirements of the packages that are compiled against the installed torch; empty if none is."""
        return tuple(self.pin(package) for package in self.candidate.packages if package.compiled)

    @property
    def torch(self) -> str:
        """Exact requirement of torch itself: ``torch==2.9.0+cu126``."""
        return self.pin(self.candidate.packages[0])

    def pin(self, package: Package) -> str:
        """Exact requirement of a package: ``torch==2.9.0+cu126``, with the build if it is torch's own; ``NAME @ URL``
        for a wheel.
        """
        if package.origin == "wheel":
            return f"{package.name} @ {package.url}"
        built = package.origin == "torch" and package.name in _BUILT and "+" not in package.version
        return package.requirement + (f"+{self.candidate.build}" if built else "")

    @property
    def clashing(self) -> tuple[str, ...]:
        """Installed nvidia wheels of another CUDA major, to be removed first: the new ones own the same files."""
        major = self.candidate.cuda.partition(".")[0]
        installed = ((name, _CLASHING.fullmatch(name)) for name in self.environment.installed)
        return tuple(sorted(name for name, match in installed if match and major and match[1] != major))


def _is_on_torch_index(package: Package) -> bool:
    """True if the package comes from torch's index as a wheel."""
    return package.origin == "torch" and not package.compiled


# ---- A candidate with what its packages would bring by themselves, from the index that it has to come from ----
# vllm requires torchvision and torchaudio: taken from the user's index they would be those of another CUDA. torchaudio
# ended with 2.11.0, so for later builds of torch there is none of their own; that of the same CUDA major serves them.


def completed(candidate: Candidate, machine: str = "x86_64") -> Candidate:
    """The candidate with the packages that its vllm brings named, and torchaudio's index settled. `machine` is
    ``x86_64`` or ``aarch64``.
    """
    named = {package.name for package in candidate.packages}
    brought = [package for package in _vllm_dependencies(candidate) if package.name not in named]
    packages = [candidate.packages[0], *brought, *candidate.packages[1:]]
    return replace(candidate, packages=tuple(_with_origin(package, candidate, machine) for package in packages))


def _vllm_dependencies(candidate: Candidate) -> Iterator[Package]:
    """torchvision and torchaudio as the candidate's vllm requires them; nothing without vllm."""
    vllm = next((package.version for package in candidate.packages if package.name == "vllm"), "")
    rows = (row for row in table("companions")["vllm"] if row["version"] == vllm)
    yield from (Package(name, row[name], "torch") for row in rows for name in COMPANIONS if name in row)


def _with_origin(package: Package, candidate: Candidate, machine: str) -> Package:
    """The package; a torchaudio that torch's index lacks comes from PyPI if that has the same CUDA major."""
    if package.name != "torchaudio" or not candidate.cuda or builds.build(package.version, candidate.cuda):
        return package
    usual = builds.default_cuda(package.version, machine) or ""
    same = usual.partition(".")[0] == candidate.cuda.partition(".")[0]
    return replace(package, origin="pypi") if same and builds.base(package.version) else package


# ---- pip ----
# ``--index-url`` takes the place of the user's index for torch's own packages. Naming torch's index as a further one
# would do as well, but then a name that both have is taken from whichever has the higher version.


def pip_commands(order: Order) -> Iterator[Argv]:
    """pip's commands in order: make a new environment if one is needed, else uninstall what clashes; install from the
    order's index; then the others from pip's default index; last those that are compiled against torch.
    """
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


# ---- uv ----
# ``--torch-backend`` sends what belongs to torch to PyTorch's index and all else to the user's, in one command. It
# knows no mirror: with one, torch's index stands in for the user's in a first command, as with pip.


def uv_commands(order: Order) -> Iterator[Argv]:
    """uv's commands in order: make a new environment if one is needed, else uninstall what clashes; install what comes
    from wheels; last what is compiled against torch.
    """
    environment = order.environment
    where = ("--python", environment.target)
    if environment.new:
        yield ("uv", "venv", "--python", environment.interpreter, VENV)
    elif order.clashing:
        yield ("uv", "pip", "uninstall", *where, *order.clashing)
    install = ("uv", "pip", "install", *where)
    if order.base.rstrip("/") != OFFICIAL:
        yield (*install, *order.own, "--default-index", order.index)
        if order.others:
            yield (*install, order.torch, *order.others)
    else:
        routed = (pin for pin in order.others if pin not in order.strays)
        yield (*install, *order.own, *routed, f"--torch-backend={order.candidate.build}")
        if order.strays:
            yield (*install, order.torch, *order.strays)
    if order.compiled:
        yield (*install, "--no-build-isolation", order.torch, *order.compiled)


# ---- conda ----
# mamba and micromamba take its command as well. The channel ``pytorch`` ended with torch 2.5.1; conda-forge builds
# torch itself, once for each CUDA major. A build runs with any CUDA of its major from the one on that it was built
# with, so a lower bound is asked for, no single release.

_CHANNEL = ("--override-channels", "--channel", "conda-forge")
_CONDA_CPU, _CONDA_GPU = "pytorch-cpu", "pytorch-gpu"
_SERVED = ("bitsandbytes", "flash-attn", "jax", "tensorflow", "torchaudio", "torchvision", "transformers", "xformers")
CONDA_NAME = "torch"
"""What a new environment is called."""
_FIRST_CONDA_CUDA = 12
"""The oldest CUDA major that conda-forge still builds torch for."""


def conda_commands(order: Order) -> Argvs:
    """conda command that installs into the environment's folder, or into a new environment if that is not known; empty
    if conda-forge builds no torch for that CUDA (known by the CUDA major, no index is asked).
    """
    found = conda_specs(order)
    prefix = order.environment.prefix
    if not found:
        return ()
    if prefix:
        return (("conda", "install", "--yes", "--prefix", prefix, *_CHANNEL, *found),)
    python = (f"python={order.python}",) if order.python else ()
    return (("conda", "create", "--yes", "--name", CONDA_NAME, *_CHANNEL, *python, *found),)


def conda_specs(order: Order) -> tuple[str, ...]:
    """conda-forge specs: ``pytorch-gpu=2.9``, ``cuda-version>=12.6,<13``; empty if it has no such build.
    The exact release is pinned if further packages come by pip, which would install their own torch otherwise.
    """
    candidate = order.candidate
    if not is_served_by_conda(order):
        return ()
    release = _conda_pin(candidate.torch, order)
    if not candidate.cuda:
        torch = [f"{_CONDA_CPU}{release}"]
    else:
        major = int(candidate.cuda.partition(".")[0])
        torch = [f"{_CONDA_GPU}{release}", f"cuda-version>={candidate.cuda},<{major + 1}"]
    beside = (package for package in candidate.packages[1:] if package.name in _SERVED)
    return (
        *torch,
        *(item.name + (_conda_pin(item.version, order) if item.name in COMPANIONS else "") for item in beside),
    )


def is_served_by_conda(order: Order) -> bool:
    """True if conda-forge builds torch for the candidate's CUDA, or it is a CPU build."""
    major = order.candidate.cuda.partition(".")[0]
    return order.candidate.build == "cpu" or bool(major and int(major) >= _FIRST_CONDA_CUDA)


def not_on_conda(order: Order) -> tuple[str, ...]:
    """Names of the packages that conda-forge lacks."""
    return tuple(package.name for package in order.candidate.packages[1:] if package.name not in _SERVED)


def conda_remarks(order: Order) -> tuple[str, ...]:
    """Sentences on what conda cannot provide (this CUDA, packages that conda-forge lacks) and that its torch comes
    later.
    """
    if not is_served_by_conda(order):
        sentence = "conda-forge no longer builds torch for CUDA {cuda}: use pip or uv"
        return (say(sentence, cuda=order.candidate.cuda),)
    names = ", ".join(not_on_conda(order))
    notes = [say("conda-forge has no {names}: those come by pip afterwards", names=names)] if names else []
    return (*notes, say("conda-forge builds torch itself, and a new release comes there weeks after PyTorch's own"))


def _conda_pin(version: str, order: Order) -> str:
    """``=2.9.1`` where something comes by pip beside it, ``=2.9`` where that torch was asked for; else ``""``."""
    if not_on_conda(order):
        return f"={version}"
    match = re.match(r"\d+\.\d+", version) if order.pinned else None
    return f"={match[0]}" if match else ""


COMMANDS: Mapping[str, Callable[[Order], Argvs]] = {
    "pip": lambda order: tuple(pip_commands(order)),
    "uv": lambda order: tuple(uv_commands(order)),
    "conda": conda_commands,
}
