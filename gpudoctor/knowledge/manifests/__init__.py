"""What the lines of a manifest would install: the facts of the environment that is not there yet.

Works on the rows of ``service`` and ``requirement``. Each fact's source names the line, and the table where the line
leaves a choice; what nobody can tell is said in ``manifest.open``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpudoctor.knowledge._filling import Facts, Groups, fill, given, known, text
from gpudoctor.knowledge.manifests.companions import BRING
from gpudoctor.knowledge.manifests.environment import Environment
from gpudoctor.knowledge.manifests.frameworks import frameworks
from gpudoctor.knowledge.manifests.images import Image, image_of
from gpudoctor.knowledge.manifests.lines import applying
from gpudoctor.knowledge.manifests.pip_takes import Place
from gpudoctor.knowledge.manifests.silent import silent
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread, listed
from gpudoctor.model.snapshot import Snapshot

_IMAGE = "image"
"""The installer of what a base image brings."""
_PYTHONS = tuple(f"3.{minor}" for minor in range(15, 7, -1))
_PLACE = ("python.version", "host.platform", "host.arch", "host.glibc")


def with_images(snapshot: Snapshot) -> Snapshot:
    """The snapshot of a manifest with what its images bring, which counts before what the machine under them has."""
    facts, groups = dict(snapshot.facts), dict(snapshot.groups)
    whole = replace(snapshot, facts=facts, groups=groups)
    imply_images(whole, facts, groups)
    return whole


def imply_images(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """What the images of the file's containers bring; Python, libraries and torch of the one that counts."""
    rows = groups.get("service")
    if not isinstance(rows, tuple) or not rows:
        return
    told = [(row, image_of(text(row, "image"))) for row in rows]
    groups["service"] = tuple(_judged(row, image) for row, image in told)
    row, image = _that_counts(told)
    reference = row.get("image")
    source = reference.source if isinstance(reference, Known) else ""
    why = f"{source} (table images: {text(row, 'image')})"
    brought = {"host.glibc": image.glibc, "env.NVIDIA_REQUIRE_CUDA": image.requires}
    if image.compat:
        brought["container.compat_cuda"] = ".".join(image.cuda.split(".")[:2])
    if image.own_python or given(row, "system_python"):
        brought["python.version"] = image.python
    for name, value in brought.items():
        if value:
            fill(snapshot, facts, name, Known(value, why))
    if image.torch and not _has_torch_of_image(groups):
        asked = groups.get("requirement")
        groups["requirement"] = (_torch_of(image, source), *listed(asked))
        facts["manifest.image_cuda"] = Known(".".join(image.cuda.split(".")[:2]), why)


def _judged(row: Row, image: Image) -> Row:
    """The row with whether its image is made for GPUs, where the image is one that is known."""
    if image == Image() or "for_gpus" in row:
        return row
    return {**row, "for_gpus": Known(image.for_gpus, f"table images: {text(row, 'image')}")}


def _that_counts(told: list[tuple[Row, Image]]) -> tuple[Row, Image]:
    """The container that asks for GPUs, else one whose image is made for them, else the first."""
    asking = [one for one in told if given(one[0], "asks_gpus")]
    made = [one for one in told if one[1].for_gpus]
    return (asking or made or told)[0]


def _has_torch_of_image(groups: Groups) -> bool:
    rows = groups.get("requirement")
    return isinstance(rows, tuple) and any(text(row, "installer") == _IMAGE for row in rows)


def _torch_of(image: Image, source: str) -> Row:
    """The torch of a base image, there before any command."""
    said: dict[str, Fact] = {
        "name": Known("torch", source),
        "asked": Known(f"=={image.torch}", source),
        "installer": Known(_IMAGE, source),
        "step": Known(-1, source),
    }
    return said


def imply_manifest(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """torch, its build and its companions as these lines would install them, one command after the other."""
    rows = groups.get("requirement")
    if not isinstance(rows, tuple) or isinstance(groups.get("package"), tuple):
        return
    place = Place(*(known(snapshot, name) or "" for name in _PLACE))._replace(usual=_usual_python(snapshot))
    lines, unsure = applying(rows, place)
    found = Environment(place)
    if refused := _refused(snapshot, place.python):
        found.no_wheel.append(refused)
        found.source = "the manifest"
    for _, step in groupby(sorted(lines, key=attrgetter("step")), key=attrgetter("step")):
        found.install(list(step))
    _tell(snapshot, facts, groups, found)
    brings = any(line.name == "torch" or line.name in BRING for line in lines)
    for name, fact in frameworks(lines, brings or isinstance(snapshot.get("manifest.elsewhere"), Known)):
        fill(snapshot, facts, name, fact)
    placed = {text(row, "name") for row in found.packages()} | {"torch"}
    facts.update(silent(rows, lines, placed, unsure))
    if notes := [*unsure, *found.open]:
        facts["manifest.open"] = Known(tuple(dict.fromkeys(notes)), "the manifest")


def _usual_python(snapshot: Snapshot) -> str:
    """The Python that is thought of where nobody says: the usual one, or the newest that the project takes."""
    spec = _python_spec(snapshot)
    usual = Place().usual
    if spec is None or spec.contains(usual):
        return usual
    return next((python for python in _PYTHONS if spec.contains(python)), usual)


def _refused(snapshot: Snapshot, python: str) -> str:
    """What is wrong where the project does not take the Python that is there."""
    spec = _python_spec(snapshot)
    if spec is None or not python or spec.contains(python) or spec.contains(f"{python}.99"):
        return ""
    return f"the project takes Python {spec}, and not {python}"


def _python_spec(snapshot: Snapshot) -> SpecifierSet | None:
    wanted = known(snapshot, "manifest.python")
    try:
        return SpecifierSet(wanted) if wanted else None
    except InvalidSpecifier:
        return None


def _tell(snapshot: Snapshot, facts: Facts, groups: Groups, found: Environment) -> None:
    """What was worked out, as facts; what somebody knows already stays."""
    if found.no_wheel:
        facts["manifest.no_wheel"] = Known(tuple(found.no_wheel), found.source)
    if found.installer in ("pip", "uv", "conda"):
        fill(snapshot, facts, "python.installer", Known(found.installer, found.source))
    if found.flavor:
        fill(snapshot, facts, "torch.flavor", found.flavor)
        if found.cuda:
            fill(snapshot, facts, "torch.cuda", found.cuda)
        elif found.flavor.value == "cpu":
            fill(snapshot, facts, "torch.cuda", Absent(f"a CPU build: {found.flavor.source}"))
    if found.torch is None:
        return
    fill(snapshot, facts, "torch.version", found.torch)
    for name in ("torch.flavor", "torch.cuda") if found.build_unknown else ():
        fill(snapshot, facts, name, Unread(found.build_unknown))
    cuda = snapshot.get("manifest.image_cuda")
    if found.of_image and isinstance(cuda, Known):
        fill(snapshot, facts, "torch.flavor", Known("cuda", cuda.source))
        fill(snapshot, facts, "torch.cuda", cuda)
    groups["package"] = tuple(found.packages())
    if found.misfits:
        facts["torch.companions_unmet"] = Known(tuple(found.misfits), ", ".join(dict.fromkeys(found.misfits.values())))
    else:
        fill(snapshot, facts, "torch.companions_unmet", Known((), found.torch.source))
