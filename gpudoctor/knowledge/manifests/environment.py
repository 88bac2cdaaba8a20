"""An environment as commands fill it: what is installed stays while it meets what the next command asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.version import Version

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.manifests import companions
from gpudoctor.knowledge.manifests.lines import Line
from gpudoctor.knowledge.manifests.pip_takes import NoWheelError, Place, Taken, fits, pinned, spec_of, torch_taken
from gpudoctor.model.fact import Fact, Known, Row
from gpudoctor.model.values import CannotJudge

_PINNED = "as pinned"
_CONDA_CHOOSES = "conda chooses it on the machine, and no line names it (pytorch-gpu, cuda-version, cpuonly)"


class Environment:
    """torch with its source, the packages beside it, and in words what no wheel is, what clashes, what is not told.

    `flavor` and `cuda` are known apart from the version where conda chooses the build. `misfits` are clashes with where
    each stands.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.torch: Known | None = None
        self.of_image = False
        self.flavor: Known | None = None
        self.cuda: Known | None = None
        self.beside: dict[str, Known] = {}
        self.misfits: dict[str, str] = {}
        self.no_wheel: list[str] = []
        self.open: list[str] = []
        self.source = ""
        self.installer = ""
        self.build_unknown = ""

    def install(self, lines: Sequence[Line]) -> None:
        """One command: all its lines hold together."""
        by_conda = [line for line in lines if line.installer == "conda"]
        by_pip = [line for line in lines if line.installer != "conda"]
        if any(line.name == "torch" for line in by_conda):
            self._by_conda(by_conda)
        if by_pip:
            self._by_pip(by_pip)

    def packages(self) -> Iterator[Row]:
        """Rows of ``package``: torch, then what goes beside it."""
        found = {"torch": self.torch, **self.beside}
        for name, version in found.items():
            if version:
                row: dict[str, Fact] = {"name": Known(name, version.source), "version": version}
                if self.installer and not self.of_image:
                    row["installer"] = Known(self.installer, version.source)
                yield row

    def _by_conda(self, lines: Sequence[Line]) -> None:
        line = next(line for line in lines if line.name == "torch")
        self.installer, self.source = line.installer, line.source
        channels = [line.urls[0], *line.urls[1:]] if line.urls[0] else []
        found = conda_torch(line.spec, line.build, channels, {one.name: one.spec for one in lines}, self.place)
        if found.torch:
            self.torch = Known(found.torch, line.source)
        if found.flavor:
            self.flavor = Known(found.flavor, f"{line.source}: {found.why}")
            self.cuda = Known(found.cuda, f"{line.source}: {found.why}") if found.cuda else None
        else:
            self.open.append(f"which build of torch: {_CONDA_CHOOSES}")
        if not found.torch:
            self.open.append("which release of torch: conda takes the newest of its channel")
        if found.torch:
            self._companions(lines, found.torch)

    def _by_pip(self, lines: Sequence[Line]) -> None:
        named = [line for line in lines if line.name == "torch"]
        others = [(line.name, line.spec) for line in lines if line.name != "torch"]
        asks = named or [line for line in lines if line.name in companions.BRING]
        if not asks:
            return
        if not (self.torch and self._holds(named, others)):
            self.installer, self.source = asks[0].installer, asks[0].source
            self._torch(named, asks, others)
        if self.torch:
            self._companions(lines, str(self.torch.value))

    def _holds(self, named: Sequence[Line], others: Sequence[tuple[str, str]]) -> bool:
        """Whether the torch that is there meets what is asked."""
        assert self.torch
        version = str(self.torch.value)
        meets = all(spec_of(line.spec).contains(version, prereleases=True) for line in named)
        return meets and not list(companions.misfits(version, others))

    def _torch(self, named: Sequence[Line], asks: Sequence[Line], others: Sequence[tuple[str, str]]) -> None:
        """torch as this command takes it; what the tables do not tell is as the line pins it."""
        try:
            found = self._with_owners(named, asks, others)
        except NoWheelError as none:
            self.no_wheel.append(str(none))
            return
        except CannotJudge as unknown:
            self.open.append(f"torch: {unknown}")
            self.build_unknown = str(unknown)
            version = next((version for line in named if (version := pinned(line.spec))), "")
            if not version:
                return
            found = Taken(version, _PINNED, plain=True)
        self.torch = Known(found.version, self.source if found.plain else f"{self.source} ({found.why})")
        self.of_image = self.installer == "image"
        self.flavor = self.cuda = None

    def _with_owners(self, named: Sequence[Line], asks: Sequence[Line], others: Sequence[tuple[str, str]]) -> Taken:
        """torch by its own lines and by the companions that are pinned; by its own alone where the two clash."""
        specs = [line.spec for line in named]
        owners = {name: owner for name, spec in others if (owner := companions.torch_of(name, spec))}
        spans = [span for name, spec in others if name not in owners and (span := companions.torches(name, spec))]
        newest = self._newest_owner(specs, others) if not owners and not spans else None
        if newest:
            spans = [f"=={newest.torch}"]
        try:
            found = self._taken([*specs, *(f"=={owner}" for owner in owners.values()), *spans], asks[0])
        except NoWheelError:
            if not (owners or spans) or not named:
                raise
            return self._taken(specs, asks[0])
        if owners and not any(pinned(spec) for spec in specs):
            pins = ", ".join(f"{name} {pinned(dict(others)[name])}" for name in owners)
            return found._replace(why=f"{pins} is for torch {found.version.partition('+')[0]}")
        if newest:
            return found._replace(why=f"vllm {newest.version}, the newest that fits, is for torch {newest.torch}")
        if spans and not any(pinned(spec) for spec in specs):
            return found._replace(why=f"{found.why}; {self._between(others)}")
        return found

    def _newest_owner(self, specs: Sequence[str], others: Sequence[tuple[str, str]]) -> companions.Neighbour | None:
        """The pair that pip takes where neither torch nor vllm is pinned: each vllm asks for one torch."""
        open_vllm = [spec for name, spec in others if name == "vllm" and not pinned(spec)]
        if not open_vllm or any(pinned(spec) for spec in specs):
            return None
        return companions.newest_owner(open_vllm[0], [spec for spec in specs if spec], self.place)

    def _between(self, others: Sequence[tuple[str, str]]) -> str:
        """In words why torch is bounded by a release that no table has."""
        said = []
        for name, spec in others:
            near = companions.between_torches(name, pinned(spec).partition("+")[0]) if pinned(spec) else ()
            if len(near) == 2:
                one, other = near
                said.append(f"{name} {one.version} is for torch {one.torch}, {other.version} for {other.torch}")
        return "; ".join(said)

    def _taken(self, specs: Sequence[str], line: Line) -> Taken:
        """The version that the line's wheel or image has, else the one that pip takes from the line's indexes."""
        if wrong := misplaced(line.url, self.place):
            raise NoWheelError(wrong)
        if (line.url or line.installer == "image") and (version := pinned(line.spec)):
            return Taken(version, "the wheel that the line names" if line.url else _PINNED, plain=not line.url)
        uv = line.installer == "uv"
        urls = (*line.urls[1:], line.urls[0]) if uv else line.urls
        return torch_taken([spec for spec in specs if spec], urls, self.place, first_only=uv)

    def _companions(self, lines: Sequence[Line], torch: str) -> None:
        """Those beside torch, and what of them does not go with it."""
        for line in lines:
            try:
                if (
                    line.name in companions.BESIDE
                    and (version := companions.taken(line.name, line.spec, torch, self.place))
                ) or (line.name != "torch" and (version := pinned(line.spec))):
                    self.beside[line.name] = Known(version, line.source)
                elif line.name in companions.OWNED and (
                    version := companions.newest_beside(line.name, line.spec, torch, self.place)
                ):
                    why = f"{line.source} (table companions: the newest that is for torch {torch.partition('+')[0]})"
                    self.beside[line.name] = Known(version, why)
                for wrong in companions.misfits(torch, [(line.name, line.spec)]):
                    self.misfits.setdefault(wrong, line.source)
            except CannotJudge as unknown:
                self.open.append(f"{line.name}: {unknown}")


# ---- Which build of torch conda takes ----
# As its lines name it, for what they leave open is decided on the machine. conda-forge's torch is a CUDA build where
# the machine that installs has a driver (the virtual package __cuda), and a CPU build elsewhere. The channel pytorch
# had its last release with 2.5.1; pytorch-cuda names its CUDA.

_LAST_OF_CHANNEL = "2.5.1"
_CUDA_OF = ("pytorch-cuda", "cuda-version", "cudatoolkit")
_BUILD = re.compile(r"cuda_?(\d{2})\.?(\d)")


class Conda(NamedTuple):
    """Release, flavor (cuda, cpu) and CUDA; each empty where the lines do not settle it. `why` says what does."""

    torch: str
    flavor: str
    cuda: str
    why: str


def conda_torch(spec: str, build: str, channels: Sequence[str], beside: Mapping[str, str], place: Place) -> Conda:
    """What the line for torch and those `beside` it (name, specifier) settle."""
    named = [(name, cuda) for name in _CUDA_OF if (cuda := _release(beside.get(name, "")))]
    flavor, cuda, why = "", "", ""
    if "cpu" in build or "cpuonly" in beside:
        flavor, why = "cpu", f"build {build}" if "cpu" in build else "cpuonly"
    elif "cuda" in build or named:
        flavor, why = "cuda", f"build {build}" if "cuda" in build else f"{named[0][0]} {named[0][1]}"
        told = _BUILD.search(build)
        cuda = f"{told[1]}.{told[2]}" if told else named[0][1] if named else ""
    return Conda(_torch(spec, cuda, channels, place), flavor, cuda, why)


def _release(spec: str) -> str:
    """12.4 of ``==12.4.*``."""
    match = re.fullmatch(r"===?(\d+\.\d+)(?:\.[\d*.]+)?", spec)
    return match[1] if match else ""


def _torch(spec: str, cuda: str, channels: Sequence[str], place: Place) -> str:
    """The release; where the line leaves a choice, that of the channel pytorch, whose releases are all known."""
    if version := pinned(spec):
        return version
    if not channels or channels[0] not in ("pytorch", "pytorch-lts") or not cuda or not place.python:
        return ""
    tag = f"cu{cuda.replace('.', '')}"
    held = {row["torch"] for row in table("torch")["build"] if row["build"] == tag}
    found = [
        version
        for version, row in builds.releases().items()
        if version in held and fits(row, place) and spec_of(spec).contains(version)
    ]
    return max((one for one in found if Version(one) <= Version(_LAST_OF_CHANNEL)), key=Version, default="")


# For which Python and platform a wheel is, by its name (packaging.python.org, binary distribution format).

_TAGS = re.compile(r"[^/\\]*?-(?P<python>cp3\d+)-(?P<abi>\w+)-(?P<platform>[\w.]+)\.whl")
_SYSTEMS = {"linux": ("linux", "manylinux"), "windows": ("win",), "macos": ("macosx",)}
_MACHINES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}


def misplaced(url: str, place: Place) -> str:
    """Why pip refuses that wheel there; empty where it takes it, or nobody can say."""
    file = re.split(r"[#?]", url, maxsplit=1)[0].replace("\\", "/").rpartition("/")[2]
    match = _TAGS.fullmatch(file)
    if not match:
        return ""
    python = f"3.{match['python'][3:]}"
    there = ".".join(place.python.split(".")[:2])
    if there and there != python and match["abi"] != "abi3":
        return f"the wheel that the line names is for Python {python}, and there is {there}"
    platform = match["platform"]
    if place.platform and not platform.startswith(_SYSTEMS.get(place.platform, ("",))):
        return f"the wheel that the line names is for {platform}, and there is {place.platform}"
    if place.machine in _MACHINES and not platform.endswith(_MACHINES[place.machine]):
        return f"the wheel that the line names is for {platform}, and there is {place.machine}"
    return ""
