"""What a torch's version, build and package list imply: flavor, CUDA, architectures, companions and pins."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.knowledge import builds, wheels
from gpudoctor.knowledge._filling import Facts, Groups, fill, is_open, known
from gpudoctor.knowledge._tables import TableRow
from gpudoctor.model.fact import Absent, Known, Row
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge

_TORCH = ("torch", "pytorch")


def imply_torch(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """In this order: what one implies, the next builds on."""
    if _from_conda(groups):
        fill(snapshot, facts, "python.installer", Known("conda", "conda installed torch"))
    _torch_build(snapshot, facts, groups)
    _torch_archs(snapshot, facts, groups)
    _torch_cudnn(snapshot, facts)
    _companions(snapshot, facts, groups)
    _pins(snapshot, facts, groups)


def _torch_build(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """torch.flavor, torch.cuda and torch.hip: from each other, the version's local part, or the release's default."""
    torch = snapshot.get("torch.version")
    if isinstance(torch, Absent):
        for name in ("torch.flavor", "torch.cuda", "torch.hip", "torch.archs"):
            fill(snapshot, facts, name, torch)
        return
    version = known(snapshot, "torch.version")
    if version:
        said = builds.flavor_of(version)
        source = f"local part of torch {version}"
        if said is None and is_open(snapshot, "torch.flavor") and is_open(snapshot, "torch.cuda"):
            said, source = _default_flavor(snapshot, groups, version)
        if said is not None:
            fill(snapshot, facts, "torch.flavor", Known(said.name, source))
            _fill_toolkit(snapshot, facts, said, source)
    _flavor_from_toolkits(snapshot, facts)
    archs = snapshot.get("torch.archs")
    if isinstance(archs, Known) and "sm_" in str(archs.value):
        fill(snapshot, facts, "torch.flavor", Known("cuda", f"it has GPU code: {archs.source}"))


def _fill_toolkit(snapshot: Snapshot, facts: Facts, said: builds.Flavor, source: str) -> None:
    for name, flavor in (("torch.cuda", "cuda"), ("torch.hip", "rocm")):
        if said.name == flavor:
            fill(snapshot, facts, name, Known(said.toolkit, source))
        else:
            fill(snapshot, facts, name, Absent(f"a {said.name} build: {source}"))


def _flavor_from_toolkits(snapshot: Snapshot, facts: Facts) -> None:
    cuda, hip = snapshot.get("torch.cuda"), snapshot.get("torch.hip")
    if isinstance(cuda, Known):
        fill(snapshot, facts, "torch.flavor", Known("cuda", f"torch.cuda is {cuda.value}"))
    elif isinstance(hip, Known):
        fill(snapshot, facts, "torch.flavor", Known("rocm", f"torch.hip is {hip.value}"))
    elif (
        isinstance(cuda, Absent)
        and isinstance(hip, Absent)
        and known(snapshot, "host.platform") in ("linux", "windows")
    ):
        fill(snapshot, facts, "torch.flavor", Known("cpu", "neither CUDA nor HIP in this build"))


def _default_flavor(snapshot: Snapshot, groups: Groups, version: str) -> tuple[builds.Flavor | None, str]:
    """The build that the package index gives for a version without local part, on the platform that is known."""
    platform = known(snapshot, "host.platform") or _linux_by_processor(snapshot, groups)
    if builds.base(version) is None or not platform or _from_conda(groups) or known(snapshot, "host.jetson"):
        return None, ""
    if platform == "macos":
        return builds.Flavor("mps", ""), f"table torch: the macOS wheel of {version}"
    if platform == "windows":
        return builds.Flavor("cpu", ""), f"table torch: the default Windows wheel of {version}"
    machine = known(snapshot, "host.arch") or "x86_64"
    cuda = builds.default_cuda(version, machine)
    if machine == "aarch64" and not builds.releases()[builds.base(version) or ""]["aarch64"]:
        return None, ""
    source = f"table torch: the default Linux {machine} wheel of {version}"
    return builds.Flavor("cuda", cuda) if cuda else builds.Flavor("cpu", ""), source


def _linux_by_processor(snapshot: Snapshot, groups: Groups) -> str:
    """NVIDIA's GPUs beside an Arm processor run Linux."""
    return "linux" if known(snapshot, "host.arch") == "aarch64" and isinstance(groups.get("gpu"), tuple) else ""


def _from_conda(groups: Groups) -> bool:
    """Whether conda installed torch: its plain versions say nothing about the build."""
    rows = groups.get("package")
    if not isinstance(rows, tuple):
        return False
    for row in rows:
        name, installer = row.get("name"), row.get("installer")
        if isinstance(name, Known) and name.value in _TORCH:
            return isinstance(installer, Known) and installer.value == "conda"
    return False


def _build(snapshot: Snapshot) -> TableRow | None:
    """The row of the torch that is there, by release and CUDA; None where the table does not tell."""
    version, cuda = known(snapshot, "torch.version"), known(snapshot, "torch.cuda")
    try:
        return builds.build(version, cuda) if version and cuda else None
    except CannotJudge:
        return None


def _torch_archs(snapshot: Snapshot, facts: Facts, _: Groups) -> None:
    row = _build(snapshot) if is_open(snapshot, "torch.archs") else None
    platform, machine = known(snapshot, "host.platform") or "linux", known(snapshot, "host.arch") or "x86_64"
    column = {"windows": "windows", "linux": "aarch64" if machine == "aarch64" else "archs"}.get(platform, "")
    if row is None or column not in row:
        return
    system = "Windows" if column == "windows" else f"Linux {machine}"
    source = f"table torch: the {row['build']} {system} wheel of {row['torch']}"
    facts["torch.archs"] = Known(tuple(row[column].split()), source)


def _torch_cudnn(snapshot: Snapshot, facts: Facts) -> None:
    """torch.cudnn_built: the cuDNN that the release's build for that CUDA pins, which it was compiled against."""
    row = _build(snapshot)
    if row and "cudnn" in row:
        source = f"table torch: what the {row['build']} build of {row['torch']} pins"
        fill(snapshot, facts, "torch.cudnn_built", Known(row["cudnn"], source))


def _companions(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """torch.companions_unmet from the packages listed, where one torch is listed and a companion beside it."""
    version, rows = known(snapshot, "torch.version"), groups.get("package")
    if not version or builds.base(version) is None or not isinstance(rows, tuple):
        return
    if any(builds.base(listed) != builds.base(version) for name, listed in _packages(rows) if name in _TORCH):
        return
    companions = [(name, listed) for name, listed in _packages(rows) if name in ("torchvision", "torchaudio")]
    if companions:
        unmet = [misfit for name, listed in companions if (misfit := builds.misfit(name, listed, version))]
        fill(snapshot, facts, "torch.companions_unmet", Known(tuple(unmet), "table torch: the packages listed"))


def _pins(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """torch.pins_unmet and the rows of `pin`, from the packages listed and the wheels that the release pins."""
    version, rows = known(snapshot, "torch.version"), groups.get("package")
    if not version or not isinstance(rows, tuple) or not is_open(snapshot, "torch.pins_unmet"):
        return
    cuda = known(snapshot, "torch.cuda") or _cuda_of_wheels(snapshot, version, rows)
    if not cuda:
        return
    try:
        found = list(wheels.unmet(version, cuda, _packages(rows)))
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
    """The CUDA of the release's default wheel, where nvidia wheels of that major are listed beside a torch."""
    if not is_open(snapshot, "torch.cuda") or builds.flavor_of(version):
        return None
    usual = builds.default_cuda(version, known(snapshot, "host.arch") or "x86_64")
    major = (usual or "").partition(".")[0]
    beside = any(name.startswith("nvidia-") and name.endswith(f"-cu{major}") for name, _ in _packages(rows))
    return usual if beside else None


def _packages(rows: tuple[Row, ...]) -> Iterator[tuple[str, str]]:
    for row in rows:
        name, version = row.get("name"), row.get("version")
        if isinstance(name, Known) and isinstance(version, Known):
            yield str(name.value), str(version.value)
