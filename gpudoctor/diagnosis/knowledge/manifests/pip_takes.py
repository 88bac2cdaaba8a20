"""Which torch pip takes: the newest release that Python, platform, the lines, their companions and the index allow.

pip looks into all its indexes alike and takes the highest version, a local part (``+cu124``) counting as higher than
none (PEP 440). uv looks into the first index that has the package, and into those asked besides before the main one
(docs.astral.sh/uv, Searching across multiple indexes, read 2026-11). A pinned torchvision, xformers or vllm decides
which torch it is by what it asks for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpudoctor.core.values import CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.diagnosis.knowledge._tables import TableRow, table


class Place(NamedTuple):
    """Where packages would be installed; empty fields are unknown. `usual` is the Python assumed if none is known."""

    python: str = ""
    platform: str = ""
    machine: str = ""
    glibc: str = ""
    usual: str = "3.12"


class ResolvedTorch(NamedTuple):
    """The torch version chosen (with build ``+cu124`` where the index names it), and why.

    `plain`: it is what the line itself names, so that the reason adds nothing.
    """

    version: str
    why: str
    plain: bool = False


class NoWheelError(Exception):
    """No wheel satisfies the lines; the message says why."""


def specifiers(text: str) -> SpecifierSet:
    """The version specifier of a line; raises `CannotJudge` where it is none."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise CannotJudge("requirement", f"{text[:40]!r} is no version specifier") from error


def pinned(text: str) -> str:
    """The one version that a specifier takes (``==2.4.0``), as written; empty where it may take several."""
    match = re.fullmatch(r"===?([\w.+!]+)", text)
    return match[1] if match else ""


def parsed(text: str) -> Version | None:
    """The version (PEP 440); None for what is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def resolve_torch(specs: Sequence[str], urls: Sequence[str], place: Place, first_only: bool = False) -> ResolvedTorch:
    """The torch that pip picks for these specifiers from the indexes at these addresses: the newest that fits.

    `first_only`: from the first index alone, as uv does. Raises `NoWheelError` where none fits, and `CannotJudge` where
    a table or the place does not tell.
    """
    wanted = [specifiers(spec) for spec in specs]
    exact = next((version for spec in specs if (version := pinned(spec))), "")
    place_ = place if place.python or exact else place._replace(python=place.usual)
    kinds = _index_kinds(urls)[: 1 if first_only else None]
    candidates = [
        (Version(version), version, kind)
        for kind in kinds
        for version in _available_versions(kind, exact, place_)
        if all(spec.contains(version, prereleases=True) for spec in wanted)
    ]
    if not candidates:
        raise _no_match_error(specs, exact, kinds, place_)
    _, version, kind = max(candidates, key=lambda choice: choice[0])
    source = "table torch: PyPI" if kind == PYPI else f"table torch: the index of {kind}"
    if exact:
        return ResolvedTorch(version, source, plain=kind == PYPI)
    assumed = "" if place.python else ", for nobody says which Python"
    others = [f"the index of {other} has older ones" for other in kinds if kind == PYPI and other != kind]
    why = f"the newest that these lines and Python {_major_minor(place_.python)} take{assumed}"
    return ResolvedTorch(version, "; ".join([f"{source}: {why}", *others]))


def _index_kinds(urls: Sequence[str]) -> list[str]:
    """What the indexes hold (see `builds_in`), each kind once, those without torch left out.

    Raises `CannotJudge` where one is unknown.
    """
    kinds = list(dict.fromkeys(builds_in(url) for url in urls))
    if UNKNOWN in kinds:
        url = next(url for url in urls if builds_in(url) == UNKNOWN)
        raise CannotJudge("torch build", f"what the index {url[:100]} holds is not known")
    return [kind for kind in kinds if kind != WITHOUT_TORCH]


def _available_versions(kind: str, exact: str, place: Place) -> Iterator[str]:
    """The torch versions with wheels for the place in an index of that kind, with its build (``+cu124``) but on PyPI.

    Of an index that no table lists only the exact version; raises `CannotJudge` without one.
    """
    if kind.startswith(("rocm", "xpu")) or kind == EVERY:
        if not exact:
            raise CannotJudge("torch build", f"the tables do not list what the index of {kind} holds")
        yield _requested_build(kind, exact)
        return
    for version, row in builds.releases().items():
        if has_wheels_for(row, place):
            if kind == PYPI:
                if place.machine != "aarch64" or row["aarch64"]:
                    yield version
            elif kind == "cpu" or _has_build(version, kind, place):
                yield f"{version}+{kind}"


def _requested_build(kind: str, exact: str) -> str:
    """The exact version with the index's build (``+rocm6.2``) unless it names one.

    Raises `CannotJudge` where the index has many builds and none is named.
    """
    if kind == EVERY and "+" not in exact:
        raise CannotJudge("torch build", "that index holds several builds, and the line names none (==2.5.1+cu124)")
    return exact if "+" in exact else f"{exact}+{kind}"


def _has_build(version: str, tag: str, place: Place) -> bool:
    """Whether the release was built with that tag (``cu124``) for the place."""
    return any(
        row["torch"] == version and row["build"] == tag and _for_platform(row, place) for row in table("torch")["build"]
    )


def _for_platform(row: TableRow, place: Place) -> bool:
    """Whether that build (a row) has wheels for the place's platform and machine; True where these are unknown."""
    if place.platform == "windows":
        return bool(row.get("windows_wheel", True))
    if place.machine == "aarch64":
        return "aarch64" in row or builds.releases()[row["torch"]]["aarch64"] == row["build"]
    return True


def has_wheels_for(row: TableRow, place: Place) -> bool:
    """Whether the release (a row) has wheels for the place's Python and glibc; unknown ones count as fitting."""
    python = _python_tag(place.python)
    if python and python not in row["pythons"].split():
        return False
    try:
        return not place.glibc or Version(place.glibc) >= Version(row.get("glibc", "2.17"))
    except InvalidVersion:
        return True


def _python_tag(python: str) -> str:
    """The wheel tag of a Python: ``cp312`` of 3.12.4; empty where it is no version."""
    numbers = re.match(r"(\d+)\.(\d+)", python)
    return f"cp{numbers[1]}{numbers[2]}" if numbers else ""


def _no_match_error(specs: Sequence[str], exact: str, kinds: Sequence[str], place: Place) -> Exception:
    """The error to raise for no fitting torch, returned: `NoWheelError` saying why, or `CannotJudge` for a release no
    table has.
    """
    wanted = f"torch{','.join(filter(None, specs))}"
    release = builds.base(exact) if exact else None
    if exact and release is None:
        return CannotJudge("torch version", f"the table has no torch {exact}")
    where = " and ".join("PyPI" if kind == PYPI else f"the index of {kind}" for kind in kinds) or "no index"
    if release:
        row = builds.releases()[release]
        if not has_wheels_for(row, place._replace(glibc="")):
            pythons = ", ".join(f"{tag[2]}.{tag[3:]}" for tag in row["pythons"].split() if not tag.endswith("t"))
            return NoWheelError(f"{wanted} has wheels for Python {pythons}, not for {_major_minor(place.python)}")
        if not has_wheels_for(row, place):
            return NoWheelError(f"{wanted} wants glibc {row.get('glibc')} or newer, and here is {place.glibc}")
        return NoWheelError(f"{wanted} is not in {where}{_where_available(exact, release, kinds)}")
    return NoWheelError(f"no release of {wanted} is in {where} for Python {_major_minor(place.python)}")


def _where_available(exact: str, release: str, kinds: Sequence[str]) -> str:
    """End of the message that a torch is in no index: where that build is, or which builds there are; may be empty."""
    if "+" in exact and (flavor := builds.flavor_of(exact)) and flavor.name in ("cuda", "cpu"):
        return f", it is in https://download.pytorch.org/whl/{exact.partition('+')[2]}"
    tags = [row["build"] for row in table("torch")["build"] if row["torch"] == release]
    return f": {release} was built for {', '.join(tags)}" if tags and PYPI not in kinds else ""


def _major_minor(python: str) -> str:
    """Major and minor version: 3.12 of 3.12.4."""
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
    """Which torch builds the index at that address has: ``cu124``, ``cpu`` or ``rocm6.2`` of one build's index; `PYPI`
    (also for an empty one), `EVERY`, `WITHOUT_TORCH`, or `UNKNOWN`, as of nightlies, which no table follows.
    """
    if not url:
        return PYPI
    if match := _BUILD.search(url):
        return UNKNOWN if match[1] else match[2].lower()
    if _ROOT.search(url):
        return EVERY
    if _VENDOR.search(url):
        return WITHOUT_TORCH if "jetson" not in url else UNKNOWN
    return PYPI if _PYPI.search(url) else UNKNOWN


BESIDE = ("torchvision", "torchaudio")
OWNED = ("xformers", "vllm")
"""Each release of these is for one release of torch."""
_STRICT = (*BESIDE, *OWNED)
_BRING = """
    accelerate peft lightning pytorch-lightning bitsandbytes timm sentence-transformers torchmetrics ultralytics
    openai-whisper fastai trl torchvision torchaudio xformers vllm
"""
BRING = frozenset(_BRING.split())
"""Packages that depend on torch (their METADATA, 2026-11): it comes with them, whether a line names it or not."""


def required_torch(name: str, spec: str) -> str:
    """The one torch release that the package needs at its pinned version; empty where it leaves a choice.

    Of torchvision, torchaudio, xformers and vllm; empty for others and for what the table does not settle.
    """
    version = pinned(spec).partition("+")[0]
    if name not in _STRICT or not version:
        return ""
    try:
        owner = builds.torch_for(name, version)
    except CannotJudge:
        between = between_torches(name, version)
        return between[0].torch if len(between) == 2 and between[0].torch == between[1].torch else ""
    return "" if isinstance(owner, Nothing) else str(owner)


class Neighbour(NamedTuple):
    """A release in the table, and the torch that it needs."""

    version: str
    torch: str


def between_torches(name: str, version: str) -> tuple[Neighbour, ...]:
    """The releases before and after one that the table lacks, with their torch; only of xformers and vllm.

    Two where it lies between them, one where it is older or newer than all, none otherwise.
    """
    wanted = parsed(version)
    rows = table("companions").get(name, ()) if name in OWNED else ()
    torch_by_version = {row["version"]: str(row["torch"]) for row in rows if "torch" in row}
    if wanted is None or version in {row["version"] for row in rows}:
        return ()
    before = [listed for listed in torch_by_version if Version(listed) < wanted]
    after = [listed for listed in torch_by_version if Version(listed) > wanted]
    nearest = (max(before, key=Version, default=""), min(after, key=Version, default=""))
    return tuple(Neighbour(listed, torch_by_version[listed]) for listed in nearest if listed)


def torch_bounds(name: str, spec: str) -> str:
    """Specifier of the torch that a pinned release between two of the table needs: ``>=2.7.0,<=2.8.0``; else empty."""
    version = pinned(spec).partition("+")[0]
    near = between_torches(name, version) if version else ()
    return f">={near[0].torch},<={near[1].torch}" if len(near) == 2 else ""


def newest_beside(name: str, spec: str, torch: str, place: Place) -> str:
    """The newest release of xformers or vllm that the specifier allows and that needs that torch; else empty."""
    for row in reversed(table("companions")[name]):
        if (
            row.get("torch") == builds.base(torch)
            and specifiers(spec).contains(row["version"])
            and _python_fits(row, place)
        ):
            return str(row["version"])
    return ""


def newest_owner(spec: str, torches_asked: Sequence[str], place: Place) -> Neighbour | None:
    """The newest vllm that its specifier allows, with a torch that meets the others; None where there is none."""
    asked = [specifiers(asked_spec) for asked_spec in torches_asked]
    for row in reversed(table("companions")["vllm"]):
        fits_torch = all(asked_spec.contains(row["torch"]) for asked_spec in asked)
        if fits_torch and specifiers(spec).contains(row["version"]) and _python_fits(row, place):
            return Neighbour(str(row["version"]), str(row["torch"]))
    return None


def _python_fits(row: TableRow, place: Place) -> bool:
    """Whether the row's ``requires_python`` allows the place's Python (the assumed one where unknown)."""
    return specifiers(row.get("requires_python", "")).contains(place.python or place.usual)


def misfits(torch: str, others: Sequence[tuple[str, str]]) -> Iterator[str]:
    """In words, each of `others` (name, specifier) that is pinned and cannot be installed beside that torch."""
    for name, spec in others:
        version = pinned(spec)
        if not version:
            continue
        if name in BESIDE:
            if wrong := builds.misfit(name, version, torch):
                yield wrong
        elif (owner := required_torch(name, spec)) and builds.base(torch) and owner != builds.base(torch):
            yield f"{name} {version} is for torch {owner}"
        elif (
            (span := torch_bounds(name, spec))
            and (release := builds.base(torch))
            and not specifiers(span).contains(release)
        ):
            before, after = between_torches(name, version.partition("+")[0])
            yield (
                f"{name} {version} stands between {before.version} for torch {before.torch}"
                f" and {after.version} for torch {after.torch}"
            )


def companion_version(name: str, spec: str, torch: str, place: Place) -> str:
    """The version pinned, else that of torchvision or torchaudio that pip picks beside that torch; empty if unknown."""
    if version := pinned(spec):
        return version
    local = torch.partition("+")[2]
    row = builds.releases().get(builds.base(torch) or "", {})
    version = row.get(name, "")
    if not version or not specifiers(spec).contains(version) or not has_wheels_for(row, place):
        return ""
    return f"{version}+{local}" if local else version
