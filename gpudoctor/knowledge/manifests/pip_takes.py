"""Which torch pip takes: the newest release that Python, platform, the lines and the index allow.

pip looks into all its indexes alike and takes the highest version, a local part (``+cu124``) counting as higher than
none (PEP 440). uv looks into the first index that has the package, and into those asked besides before the main one
(docs.astral.sh/uv, Searching across multiple indexes, read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.model.values import CannotJudge


class Place(NamedTuple):
    """Where it would be installed; empty where nobody says. `usual` is the Python that is thought of in that case."""

    python: str = ""
    platform: str = ""
    machine: str = ""
    glibc: str = ""
    usual: str = "3.12"


class Taken(NamedTuple):
    """A torch version, with the build as its local part where the index names it, and why this one.

    `plain`: it is what the line itself names, so that the reason adds nothing to the line.
    """

    version: str
    why: str
    plain: bool = False


class NoWheelError(Exception):
    """No wheel is what the lines ask for; says why."""


def spec_of(text: str) -> SpecifierSet:
    """The versions that a line takes; raises `CannotJudge` for what is no specifier."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise CannotJudge("requirement", f"{text[:40]!r} is no version specifier") from error


def pinned(text: str) -> str:
    """The one version that a specifier takes, as written; empty where it takes several."""
    match = re.fullmatch(r"===?([\w.+!]+)", text)
    return match[1] if match else ""


def parsed(text: str) -> Version | None:
    """The version, or none for what is no version of a Python package."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def torch_taken(specs: Sequence[str], urls: Sequence[str], place: Place, first_only: bool = False) -> Taken:
    """The torch that these specifiers give from these indexes; `first_only` is uv's way.

    Raises `NoWheelError` where none fits, and `CannotJudge` where a table or the place does not tell.
    """
    wanted = [spec_of(spec) for spec in specs]
    exact = next((version for spec in specs if (version := pinned(spec))), "")
    there = place if place.python or exact else place._replace(python=place.usual)
    held = _in_order(urls)[: 1 if first_only else None]
    found = [
        (Version(version), version, kind)
        for kind in held
        for version in _offered(kind, exact, there)
        if all(spec.contains(version, prereleases=True) for spec in wanted)
    ]
    if not found:
        raise _none(specs, exact, held, there)
    _, version, kind = max(found, key=lambda one: one[0])
    source = "table torch: PyPI" if kind == PYPI else f"table torch: the index of {kind}"
    if exact:
        return Taken(version, source, plain=kind == PYPI)
    unsaid = "" if place.python else ", for nobody says which Python"
    others = [f"the index of {other} has older ones" for other in held if kind == PYPI and other != kind]
    why = f"the newest that these lines and Python {_short(there.python)} take{unsaid}"
    return Taken(version, "; ".join([f"{source}: {why}", *others]))


def _in_order(urls: Sequence[str]) -> list[str]:
    """What the indexes hold, each kind once; raises `CannotJudge` where one holds nobody knows what."""
    kinds = list(dict.fromkeys(builds_in(url) for url in urls))
    if UNKNOWN in kinds:
        url = next(url for url in urls if builds_in(url) == UNKNOWN)
        raise CannotJudge("torch build", f"what the index {url[:100]} holds is not known")
    return [kind for kind in kinds if kind != WITHOUT_TORCH]


def _offered(kind: str, exact: str, place: Place) -> Iterator[str]:
    """The versions that an index of that kind has for the place."""
    if kind.startswith(("rocm", "xpu")) or kind == EVERY:
        if not exact:
            raise CannotJudge("torch build", f"the tables do not list what the index of {kind} holds")
        yield _as_asked(kind, exact)
        return
    for version, row in builds.releases().items():
        if fits(row, place):
            if kind == PYPI:
                if place.machine != "aarch64" or row["aarch64"]:
                    yield version
            elif kind == "cpu" or _built(version, kind, place):
                yield f"{version}+{kind}"


def _as_asked(kind: str, exact: str) -> str:
    """From an index of many builds the one that is asked for by its name."""
    if kind == EVERY and "+" not in exact:
        raise CannotJudge("torch build", "that index holds several builds, and the line names none (==2.5.1+cu124)")
    return exact if "+" in exact else f"{exact}+{kind}"


def _built(version: str, tag: str, place: Place) -> bool:
    return any(
        row["torch"] == version and row["build"] == tag and _for_platform(row, place) for row in table("torch")["build"]
    )


def _for_platform(row: TableRow, place: Place) -> bool:
    if place.platform == "windows":
        return bool(row.get("windows_wheel", True))
    if place.machine == "aarch64":
        return "aarch64" in row or builds.releases()[row["torch"]]["aarch64"] == row["build"]
    return True


def fits(row: TableRow, place: Place) -> bool:
    """Whether the release has wheels for that Python and C library; what nobody says hinders nothing."""
    python = _tag(place.python)
    if python and python not in row["pythons"].split():
        return False
    try:
        return not place.glibc or Version(place.glibc) >= Version(row.get("glibc", "2.17"))
    except InvalidVersion:
        return True


def _tag(python: str) -> str:
    numbers = re.match(r"(\d+)\.(\d+)", python)
    return f"cp{numbers[1]}{numbers[2]}" if numbers else ""


def _none(specs: Sequence[str], exact: str, held: Sequence[str], place: Place) -> Exception:
    """Why nothing fits: the release that is asked for has no wheel there, or no release is asked for at all."""
    wanted = f"torch{','.join(filter(None, specs))}"
    release = builds.base(exact) if exact else None
    if exact and release is None:
        return CannotJudge("torch version", f"the table has no torch {exact}")
    where = " and ".join("PyPI" if kind == PYPI else f"the index of {kind}" for kind in held) or "no index"
    if release:
        row = builds.releases()[release]
        if not fits(row, place._replace(glibc="")):
            pythons = ", ".join(_python(tag) for tag in row["pythons"].split() if not tag.endswith("t"))
            return NoWheelError(f"{wanted} has wheels for Python {pythons}, not for {_short(place.python)}")
        if not fits(row, place):
            return NoWheelError(f"{wanted} wants glibc {row.get('glibc')} or newer, and here is {place.glibc}")
        return NoWheelError(f"{wanted} is not in {where}{_elsewhere(exact, release, held)}")
    return NoWheelError(f"no release of {wanted} is in {where} for Python {_short(place.python)}")


def _elsewhere(exact: str, release: str, held: Sequence[str]) -> str:
    """Where the build that is asked for is to be had, or which builds there are."""
    if "+" in exact and (said := builds.flavor_of(exact)) and said.name in ("cuda", "cpu"):
        return f", it is in https://download.pytorch.org/whl/{exact.partition('+')[2]}"
    tags = [row["build"] for row in table("torch")["build"] if row["torch"] == release]
    return f": {release} was built for {', '.join(tags)}" if tags and PYPI not in held else ""


def _python(tag: str) -> str:
    return f"{tag[2]}.{tag[3:]}"


def _short(python: str) -> str:
    return ".".join(python.split(".")[:2])


# ---- Which builds of torch a package index holds, by its address ----
# PyTorch's indexes (download.pytorch.org/whl/cu124) hold one build each, its root and torch_stable.html hold all of
# them, PyPI and its mirrors the release's default.

PYPI = "pypi"
EVERY = "every"
UNKNOWN = "unknown"
WITHOUT_TORCH = "without torch"

_BUILD = re.compile(r"/(?:whl|pytorch-wheels)/(nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]+|xpu)(?:/|$)", re.IGNORECASE)
_ROOT = re.compile(
    r"download\.pytorch\.org/whl(?:/(?:torch_)?stable(?:\.html)?)?/?$|/torch_stable\.html$|/pytorch-wheels/?$"
)
_PYPI = re.compile(r"//(?:[^/]*pypi[^/]*|[^/]+/(?:[^/]+/)*?[^/]*pypi[^/]*(?:/[^/]+)*?)/simple/?$", re.IGNORECASE)
_VENDOR = re.compile(
    r"//(?:pypi\.(?:ngc\.)?nvidia\.com|data\.pyg\.org|storage\.googleapis\.com/(?:jax-releases|libtpu)|wheels\.vllm\.ai"
    r"|flashinfer\.ai|pypi\.anaconda\.org/(?:rapidsai|scipy)|download\.openmmlab\.com|dl\.fbaipublicfiles\.com|data\.dgl\.ai"
    r"|pypi\.jetson-ai-lab)",
    re.IGNORECASE,
)


def builds_in(url: str) -> str:
    """``cu124``, ``cpu`` or ``rocm6.2`` of one build's index; `PYPI`, `EVERY`, `WITHOUT_TORCH`, or `UNKNOWN`.

    A nightly index holds what no table follows.
    """
    if not url:
        return PYPI
    if one := _BUILD.search(url):
        return UNKNOWN if one[1] else one[2].lower()
    if _ROOT.search(url):
        return EVERY
    if _VENDOR.search(url):
        return WITHOUT_TORCH if "jetson" not in url else UNKNOWN
    return PYPI if _PYPI.search(url) else UNKNOWN
