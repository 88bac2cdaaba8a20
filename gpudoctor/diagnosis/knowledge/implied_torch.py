"""What a torch's version, build and package list imply: flavor, CUDA, architectures, companions and pins."""

from __future__ import annotations

from gpudoctor.core.fact import Absent, Known, Row, known, listed, text_of, value_of
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.diagnosis.knowledge._tables import Facts, Groups, TableRow, fill, is_open
from gpudoctor.diagnosis.knowledge.builds import packages_of

_TORCH = ("torch", "pytorch")


def imply_torch(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills what torch's version, build and package list imply, where nobody looked."""
    if _is_from_conda(groups):
        fill(snapshot, facts, "python.installer", Known("conda", "conda installed torch"))
    _imply_build(snapshot, facts, groups)
    _imply_archs(snapshot, facts, groups)
    _imply_cudnn(snapshot, facts)
    _imply_companions(snapshot, facts, groups)
    _imply_pins(snapshot, facts, groups)


def _imply_build(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills torch.flavor, torch.cuda and torch.hip from each other, the version's local part, or the default build."""
    torch = snapshot.get("torch.version")
    if isinstance(torch, Absent):
        for name in ("torch.flavor", "torch.cuda", "torch.hip", "torch.archs"):
            fill(snapshot, facts, name, torch)
        return
    version = snapshot.text("torch.version")
    if version:
        flavor = builds.flavor_of(version)
        source = f"local part of torch {version}"
        if flavor is None and is_open(snapshot, "torch.flavor") and is_open(snapshot, "torch.cuda"):
            flavor, source = _default_flavor(snapshot, groups, version)
        if flavor is not None:
            fill(snapshot, facts, "torch.flavor", Known(flavor.name, source))
            _imply_toolkit(snapshot, facts, flavor, source)
    _imply_flavor_by_toolkit(snapshot, facts)
    archs = snapshot.known("torch.archs")
    if archs and "sm_" in str(archs.value):
        fill(snapshot, facts, "torch.flavor", Known("cuda", f"it has GPU code: {archs.source}"))


def _imply_toolkit(snapshot: Snapshot, facts: Facts, flavor: builds.Flavor, source: str) -> None:
    """Fills torch.cuda and torch.hip by the flavor; the other one is absent."""
    for name, name_of_flavor in (("torch.cuda", "cuda"), ("torch.hip", "rocm")):
        if flavor.name == name_of_flavor:
            fill(snapshot, facts, name, Known(flavor.toolkit, source))
        else:
            fill(snapshot, facts, name, Absent(f"a {flavor.name} build: {source}"))


def _imply_flavor_by_toolkit(snapshot: Snapshot, facts: Facts) -> None:
    """Fills torch.flavor from torch.cuda and torch.hip."""
    cuda, hip = snapshot.get("torch.cuda"), snapshot.get("torch.hip")
    if known(cuda):
        fill(snapshot, facts, "torch.flavor", Known("cuda", f"torch.cuda is {text_of(cuda)}"))
    elif known(hip):
        fill(snapshot, facts, "torch.flavor", Known("rocm", f"torch.hip is {text_of(hip)}"))
    elif (
        isinstance(cuda, Absent) and isinstance(hip, Absent) and snapshot.text("host.platform") in ("linux", "windows")
    ):
        fill(snapshot, facts, "torch.flavor", Known("cpu", "neither CUDA nor HIP in this build"))


def _default_flavor(snapshot: Snapshot, groups: Groups, version: str) -> tuple[builds.Flavor | None, str]:
    """The build that the index serves for that version on the platform, and the source; None where unknown."""
    platform = snapshot.text("host.platform") or _platform_by_processor(snapshot, groups)
    if builds.base(version) is None or not platform or _is_from_conda(groups) or snapshot.text("host.jetson"):
        return None, ""
    if platform == "macos":
        return builds.Flavor("mps", ""), f"table torch: the macOS wheel of {version}"
    if platform == "windows":
        return builds.Flavor("cpu", ""), f"table torch: the default Windows wheel of {version}"
    machine = snapshot.text("host.arch") or "x86_64"
    cuda = builds.default_cuda(version, machine)
    if machine == "aarch64" and not builds.releases()[builds.base(version) or ""]["aarch64"]:
        return None, ""
    source = f"table torch: the default Linux {machine} wheel of {version}"
    return builds.Flavor("cuda", cuda) if cuda else builds.Flavor("cpu", ""), source


def _platform_by_processor(snapshot: Snapshot, groups: Groups) -> str:
    """``linux`` for an NVIDIA GPU beside an Arm processor; else empty."""
    return "linux" if snapshot.text("host.arch") == "aarch64" and isinstance(groups.get("gpu"), tuple) else ""


def _is_from_conda(groups: Groups) -> bool:
    """Whether conda installed torch: its plain version then says nothing about the build."""
    torch = next((row for row in listed(groups.get("package")) if value_of(row.get("name")) in _TORCH), {})
    return value_of(torch.get("installer")) == "conda"


def _build_row(snapshot: Snapshot) -> TableRow | None:
    """The table row of the installed torch, by release and CUDA; None where the table has none."""
    version, cuda = snapshot.text("torch.version"), snapshot.text("torch.cuda")
    try:
        return builds.build(version, cuda) if version and cuda else None
    except CannotJudge:
        return None


def _imply_archs(snapshot: Snapshot, facts: Facts, _: Groups) -> None:
    """Fills torch.archs with the architectures of the wheel in the table, where nobody looked."""
    row = _build_row(snapshot) if is_open(snapshot, "torch.archs") else None
    platform, machine = snapshot.text("host.platform") or "linux", snapshot.text("host.arch") or "x86_64"
    column = {"windows": "windows", "linux": "aarch64" if machine == "aarch64" else "archs"}.get(platform, "")
    if row is None or column not in row:
        return
    system = "Windows" if column == "windows" else f"Linux {machine}"
    source = f"table torch: the {row['build']} {system} wheel of {row['torch']}"
    facts["torch.archs"] = Known(tuple(row[column].split()), source)


def _imply_cudnn(snapshot: Snapshot, facts: Facts) -> None:
    """Fills torch.cudnn_built: the cuDNN that the build pins, which it was compiled against."""
    row = _build_row(snapshot)
    if row and "cudnn" in row:
        source = f"table torch: what the {row['build']} build of {row['torch']} pins"
        fill(snapshot, facts, "torch.cudnn_built", Known(row["cudnn"], source))


def _imply_companions(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills torch.companions_unmet where one torch is listed, and a companion beside it."""
    version, rows = snapshot.text("torch.version"), groups.get("package")
    if not version or builds.base(version) is None or not isinstance(rows, tuple):
        return
    if any(
        builds.base(listed_version) != builds.base(version)
        for name, listed_version in packages_of(rows)
        if name in _TORCH
    ):
        return
    companions = [
        (name, listed_version) for name, listed_version in packages_of(rows) if name in ("torchvision", "torchaudio")
    ]
    if companions:
        unmet = [
            misfit for name, listed_version in companions if (misfit := builds.misfit(name, listed_version, version))
        ]
        fill(snapshot, facts, "torch.companions_unmet", Known(tuple(unmet), "table torch: the packages listed"))


def _imply_pins(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Fills torch.pins_unmet and the rows of ``pin`` from the packages listed and the wheels that the release pins."""
    version, rows = snapshot.text("torch.version"), groups.get("package")
    if not version or not isinstance(rows, tuple) or not is_open(snapshot, "torch.pins_unmet"):
        return
    cuda = snapshot.text("torch.cuda") or _cuda_of_wheels(snapshot, version, rows)
    if not cuda:
        return
    try:
        found = list(builds.unmet_pins(version, cuda, packages_of(rows)))
    except CannotJudge:
        return
    if found:
        source = f"table torch: what {version} pins; the packages listed"
        facts["torch.pins_unmet"] = Known(
            tuple(f"{name} wants {want}, has {have}" for name, want, have in found), source
        )
        groups["pin"] = tuple(
            {"name": Known(name, source), "wants": Known(want, source), "has": Known(have, source)}
            for name, want, have in found
        )


def _cuda_of_wheels(snapshot: Snapshot, version: str, rows: tuple[Row, ...]) -> str | None:
    """CUDA of the release's default wheel if nvidia wheels of that major are listed; else None."""
    if not is_open(snapshot, "torch.cuda") or builds.flavor_of(version):
        return None
    usual = builds.default_cuda(version, snapshot.text("host.arch") or "x86_64")
    major = (usual or "").partition(".")[0]
    beside = any(name.startswith("nvidia-") and name.endswith(f"-cu{major}") for name, _ in packages_of(rows))
    return usual if beside else None
