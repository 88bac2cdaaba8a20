"""An environment as commands fill it: which lines are for the place, what stays, what the next command brings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.version import Version

from gpudoctor.core.fact import Fact, Known, Row, known, text_of, texts_of, value_of
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.manifests import pip_takes
from gpudoctor.diagnosis.knowledge.manifests.pip_takes import (
    BRING,
    NoWheelError,
    Place,
    ResolvedTorch,
    has_wheels_for,
    pinned,
    resolve_torch,
    specifiers,
)

_MARKER_SYSTEMS = {
    "linux": ("Linux", "linux", "posix"),
    "windows": ("Windows", "win32", "nt"),
    "macos": ("Darwin", "darwin", "posix"),
}


class Line(NamedTuple):
    """One requirement that applies, and where it is written. `urls` are its indexes, main one first; empty is PyPI."""

    name: str
    spec: str
    urls: tuple[str, ...]
    installer: str
    source: str
    url: str = ""
    build: str = ""
    step: int = 0
    extras: tuple[str, ...] = ()


def applicable_lines(rows: Sequence[Row], place: Place) -> tuple[list[Line], list[str]]:
    """(requirement rows that apply there as lines, in words those of which that cannot be told).

    Lines of extras and groups apply only if no other line brings torch and exactly one extra names it.
    """
    lines: list[Line] = []
    unsure: list[str] = []
    extra: dict[str, list[Line]] = {}
    for row in rows:
        applies = _applies(text_of(row.get("marker")), place)
        if applies is None:
            unsure.append(f"whether {text_of(row.get('name'))} is for this machine ({text_of(row.get('marker'))})")
        elif applies:
            (extra.setdefault(text_of(row.get("extra")), []) if text_of(row.get("extra")) else lines).append(_line(row))
    with_torch = [name for name, added in extra.items() if any(line.name == "torch" for line in added)]
    if with_torch and not any(line.name == "torch" or line.name in BRING for line in lines):
        if len(with_torch) == 1:
            lines += extra[with_torch[0]]
        else:
            unsure.append(f"which torch: that of the extra {' or '.join(with_torch)}")
    return lines, unsure


def _line(row: Row) -> Line:
    """The row of ``requirement`` as a `Line`."""
    step, name = value_of(row.get("step")), known(row.get("name"))
    return Line(
        text_of(row.get("name")),
        text_of(row.get("asked")),
        (text_of(row.get("index")), *texts_of(row.get("more_indexes"))),
        text_of(row.get("installer")),
        name.source if name else "",
        text_of(row.get("url")),
        text_of(row.get("build")),
        step if isinstance(step, int) else 0,
        texts_of(row.get("extras")),
    )


def _applies(marker: str, place: Place) -> bool | None:
    """Whether the environment marker (may be empty) holds there; None where a variable is unknown or it is invalid."""
    if not marker:
        return True
    values = _marker_variables(place)
    if any(name in marker and not value for name, value in values.items()):
        return None
    try:
        return Marker(marker).evaluate({**values, "extra": ""})
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return None


def _marker_variables(place: Place) -> dict[str, str]:
    """The environment-marker variables (PEP 508) of the place; empty text where unknown."""
    system, sys_platform, os_name = _MARKER_SYSTEMS.get(place.platform, ("", "", ""))
    whole = place.python if place.python.count(".") > 1 or not place.python else f"{place.python}.0"
    return {
        "platform_system": system,
        "sys_platform": sys_platform,
        "os_name": os_name,
        "platform_machine": "AMD64" if (place.platform, place.machine) == ("windows", "x86_64") else place.machine,
        "python_version": ".".join(place.python.split(".")[:2]),
        "python_full_version": whole,
    }


_PINNED = "as pinned"
_CONDA_CHOOSES = "conda chooses it on the machine, and no line names it (pytorch-gpu, cuda-version, cpuonly)"


class Environment:
    """The environment that install commands produce: torch, the packages beside it, clashes and open questions.

    `flavor` and `cuda` are set apart from the version where conda chooses the build.
    `misfits` are clashes, each with where it is written.
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
        """Applies one install command, whose lines must hold together: conda's if they name torch, then pip's."""
        by_conda = [line for line in lines if line.installer == "conda"]
        by_pip = [line for line in lines if line.installer != "conda"]
        if any(line.name == "torch" for line in by_conda):
            self._install_by_conda(by_conda)
        if by_pip:
            self._install_by_pip(by_pip)

    def packages(self) -> Iterator[Row]:
        """Rows of the group ``package``: torch, if settled, then what is beside it, each with its version."""
        found = {"torch": self.torch, **self.beside}
        for name, version in found.items():
            if version:
                row: dict[str, Fact] = {"name": Known(name, version.source), "version": version}
                if self.installer and not self.of_image:
                    row["installer"] = Known(self.installer, version.source)
                yield row

    def _install_by_conda(self, lines: Sequence[Line]) -> None:
        """Applies a conda command that names torch: sets release, flavor and CUDA as far as its lines settle them.

        What they leave open is noted in `open`.
        """
        line = next(line for line in lines if line.name == "torch")
        self.installer, self.source = line.installer, line.source
        channels = line.urls if line.urls[0] else ()
        found = torch_from_conda(line.spec, line.build, channels, {item.name: item.spec for item in lines}, self.place)
        if found.torch:
            self.torch = Known(found.torch, line.source)
        if found.flavor:
            self.flavor = Known(found.flavor, f"{line.source}: {found.why}")
            self.cuda = Known(found.cuda, f"{line.source}: {found.why}") if found.cuda else None
        else:
            self.open.append(f"which build of torch: {_CONDA_CHOOSES}")
        if found.torch:
            self._install_companions(lines, found.torch)
        else:
            self.open.append("which release of torch: conda takes the newest of its channel")

    def _install_by_pip(self, lines: Sequence[Line]) -> None:
        """Applies a pip or uv command; keeps the present torch where it still satisfies every line.

        Does nothing without a line that names torch or a package that depends on it.
        """
        named = [line for line in lines if line.name == "torch"]
        others = [(line.name, line.spec) for line in lines if line.name != "torch"]
        asks = named or [line for line in lines if line.name in pip_takes.BRING]
        if not asks:
            return
        if not (self.torch and self._is_satisfied(named, others)):
            self.installer, self.source = asks[0].installer, asks[0].source
            self._install_torch(named, asks, others)
        if self.torch:
            self._install_companions(lines, str(self.torch.value))

    def _is_satisfied(self, named: Sequence[Line], others: Sequence[tuple[str, str]]) -> bool:
        """Whether the present torch meets these lines and the packages beside it."""
        assert self.torch
        version = str(self.torch.value)
        meets = all(specifiers(line.spec).contains(version, prereleases=True) for line in named)
        return meets and not list(pip_takes.misfits(version, others))

    def _install_torch(self, named: Sequence[Line], asks: Sequence[Line], others: Sequence[tuple[str, str]]) -> None:
        """Sets the torch that the command installs; where the tables do not tell (noted in `open`), the version that a
        line pins.

        Where no wheel fits (noted in `no_wheel`), or the tables do not tell and no line pins one, torch stays as it is.
        """
        try:
            found = self._torch_with_companions(named, asks, others)
        except NoWheelError as none:
            self.no_wheel.append(str(none))
            return
        except CannotJudge as unknown:
            self.open.append(f"torch: {unknown}")
            self.build_unknown = str(unknown)
            version = next((version for line in named if (version := pinned(line.spec))), "")
            if not version:
                return
            found = ResolvedTorch(version, _PINNED, plain=True)
        self.torch = Known(found.version, self.source if found.plain else f"{self.source} ({found.why})")
        self.of_image = self.installer == "image"
        self.flavor = self.cuda = None

    def _torch_with_companions(
        self, named: Sequence[Line], asks: Sequence[Line], others: Sequence[tuple[str, str]]
    ) -> ResolvedTorch:
        """The torch that torch's own lines and the companions beside it allow; by its own lines where these clash.

        `named` are torch's lines, `asks` all that bring torch, `others` (name, specifier) of the rest. Raises
        `NoWheelError` where nothing fits, and `CannotJudge` where the tables do not tell.
        """
        specs = [line.spec for line in named]
        owners = {name: owner for name, spec in others if (owner := pip_takes.required_torch(name, spec))}
        spans = [span for name, spec in others if name not in owners and (span := pip_takes.torch_bounds(name, spec))]
        newest = self._newest_owner(specs, others) if not owners and not spans else None
        if newest:
            spans = [f"=={newest.torch}"]
        try:
            found = self._resolved_torch([*specs, *(f"=={owner}" for owner in owners.values()), *spans], asks[0])
        except NoWheelError:
            if not (owners or spans) or not named:
                raise
            return self._resolved_torch(specs, asks[0])
        if owners and not any(pinned(spec) for spec in specs):
            pins = ", ".join(f"{name} {pinned(dict(others)[name])}" for name in owners)
            return found._replace(why=f"{pins} is for torch {found.version.partition('+')[0]}")
        if newest:
            return found._replace(why=f"vllm {newest.version}, the newest that fits, is for torch {newest.torch}")
        if spans and not any(pinned(spec) for spec in specs):
            return found._replace(why=f"{found.why}; {self._between_releases_text(others)}")
        return found

    def _newest_owner(self, specs: Sequence[str], others: Sequence[tuple[str, str]]) -> pip_takes.Neighbour | None:
        """The newest vllm that fits, with its torch, where vllm is asked for and neither is pinned; else None."""
        open_vllm = [spec for name, spec in others if name == "vllm" and not pinned(spec)]
        if not open_vllm or any(pinned(spec) for spec in specs):
            return None
        return pip_takes.newest_owner(open_vllm[0], [spec for spec in specs if spec], self.place)

    def _between_releases_text(self, others: Sequence[tuple[str, str]]) -> str:
        """In words, which neighbouring releases bound torch, for each companion whose own release is in no table."""
        texts = []
        for name, spec in others:
            near = pip_takes.between_torches(name, pinned(spec).partition("+")[0]) if pinned(spec) else ()
            if len(near) == 2:
                older, newer = near
                texts.append(f"{name} {older.version} is for torch {older.torch}, {newer.version} for {newer.torch}")
        return "; ".join(texts)

    def _resolved_torch(self, specs: Sequence[str], line: Line) -> ResolvedTorch:
        """The version of the line's own wheel or image, else what pip (or uv) picks from the line's indexes.

        Raises `NoWheelError` where nothing fits, and `CannotJudge` where the tables do not tell.
        """
        if wrong := wheel_mismatch(line.url, self.place):
            raise NoWheelError(wrong)
        if (line.url or line.installer == "image") and (version := pinned(line.spec)):
            return ResolvedTorch(version, "the wheel that the line names" if line.url else _PINNED, plain=not line.url)
        uv = line.installer == "uv"
        urls = (*line.urls[1:], line.urls[0]) if uv else line.urls
        return resolve_torch([spec for spec in specs if spec], urls, self.place, first_only=uv)

    def _install_companions(self, lines: Sequence[Line], torch: str) -> None:
        """Sets in `beside` the versions of packages installed with torch, and in `misfits` those that do not fit it.

        What the tables do not tell is noted in `open`.
        """
        for line in lines:
            try:
                if (
                    line.name in pip_takes.BESIDE
                    and (version := pip_takes.companion_version(line.name, line.spec, torch, self.place))
                ) or (line.name != "torch" and (version := pinned(line.spec))):
                    self.beside[line.name] = Known(version, line.source)
                elif line.name in pip_takes.OWNED and (
                    version := pip_takes.newest_beside(line.name, line.spec, torch, self.place)
                ):
                    why = f"{line.source} (table companions: the newest that is for torch {torch.partition('+')[0]})"
                    self.beside[line.name] = Known(version, why)
                for wrong in pip_takes.misfits(torch, [(line.name, line.spec)]):
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


class CondaTorch(NamedTuple):
    """torch's release, flavor (cuda, cpu) and CUDA, each empty where the lines leave it open, and why."""

    torch: str
    flavor: str
    cuda: str
    why: str


def torch_from_conda(
    spec: str, build: str, channels: Sequence[str], beside: Mapping[str, str], place: Place
) -> CondaTorch:
    """torch's release, flavor and CUDA as the conda line for torch and those `beside` it settle them; else empty.

    `spec` and `build` are of that line, `beside` maps the other packages to their specifiers.
    """
    cuda_pins = [(name, cuda) for name in _CUDA_OF if (cuda := _cuda_release(beside.get(name, "")))]
    flavor, cuda, why = "", "", ""
    if "cpu" in build or "cpuonly" in beside:
        flavor, why = "cpu", f"build {build}" if "cpu" in build else "cpuonly"
    elif "cuda" in build or cuda_pins:
        flavor, why = "cuda", f"build {build}" if "cuda" in build else f"{cuda_pins[0][0]} {cuda_pins[0][1]}"
        toolkit = _BUILD.search(build)
        cuda = f"{toolkit[1]}.{toolkit[2]}" if toolkit else cuda_pins[0][1] if cuda_pins else ""
    return CondaTorch(_conda_release(spec, cuda, channels, place), flavor, cuda, why)


def _cuda_release(spec: str) -> str:
    """Major and minor of an exact specifier: 12.4 of ``==12.4.*``; empty for any other."""
    match = re.fullmatch(r"===?(\d+\.\d+)(?:\.[\d*.]+)?", spec)
    return match[1] if match else ""


def _conda_release(spec: str, cuda: str, channels: Sequence[str], place: Place) -> str:
    """torch's release: pinned, or the newest that the channel pytorch has for that CUDA; empty where unsettled."""
    if version := pinned(spec):
        return version
    if not channels or channels[0] not in ("pytorch", "pytorch-lts") or not cuda or not place.python:
        return ""
    tag = f"cu{cuda.replace('.', '')}"
    with_build = {row["torch"] for row in table("torch")["build"] if row["build"] == tag}
    releases = [
        version
        for version, row in builds.releases().items()
        if version in with_build and has_wheels_for(row, place) and specifiers(spec).contains(version)
    ]
    return max(
        (release for release in releases if Version(release) <= Version(_LAST_OF_CHANNEL)), key=Version, default=""
    )


# For which Python and platform a wheel is, by its name (packaging.python.org, binary distribution format).

_TAGS = re.compile(r"[^/\\]*?-(?P<python>cp3\d+)-(?P<abi>\w+)-(?P<platform>[\w.]+)\.whl")
_SYSTEMS = {"linux": ("linux", "manylinux"), "windows": ("win",), "macos": ("macosx",)}
_MACHINES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}


def wheel_mismatch(url: str, place: Place) -> str:
    """Why pip refuses the wheel file of that URL there (Python, platform, machine); empty if it fits or is no wheel."""
    file = re.split(r"[#?]", url, maxsplit=1)[0].replace("\\", "/").rpartition("/")[2]
    match = _TAGS.fullmatch(file)
    if not match:
        return ""
    python = f"3.{match['python'][3:]}"
    python_here = ".".join(place.python.split(".")[:2])
    if python_here and python_here != python and match["abi"] != "abi3":
        return f"the wheel that the line names is for Python {python}, and there is {python_here}"
    platform = match["platform"]
    if place.platform and not platform.startswith(_SYSTEMS.get(place.platform, ("",))):
        return f"the wheel that the line names is for {platform}, and there is {place.platform}"
    if place.machine in _MACHINES and not platform.endswith(_MACHINES[place.machine]):
        return f"the wheel that the line names is for {platform}, and there is {place.machine}"
    return ""
