"""What the lines of a manifest would install: the facts of the environment that is not there yet.

Works on the rows of ``service`` and ``requirement``. Each fact's source names the line, and the table where the line
leaves a choice; what nobody can tell is said in ``manifest.open``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpudoctor.knowledge._filling import Facts, Groups, fill, given, known, text
from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.manifests.companions import BRING
from gpudoctor.knowledge.manifests.environment import Environment
from gpudoctor.knowledge.manifests.lines import Line, applying
from gpudoctor.knowledge.manifests.pip_takes import Place, pinned
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


# What pinned lines say of TensorFlow and JAX; where they are asked for and torch is not, torch is not there.

_TENSORFLOW = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel")


def frameworks(lines: Sequence[Line], torch: bool) -> Iterator[tuple[str, Fact]]:
    """Their facts; `torch` is whether any line brings it."""
    by_name = {line.name: line for line in lines}
    found = dict([*_tensorflow(by_name), *_jax(by_name)])
    yield from found.items()
    if found and not torch:
        yield "torch.version", Absent("no line asks for it")
    if "jax.version" in found and "tf.version" not in found:
        yield "tf.version", Absent("no line asks for it")


def _tensorflow(by_name: Mapping[str, Line]) -> Iterator[tuple[str, Fact]]:
    for name in _TENSORFLOW:
        if (line := by_name.get(name)) and (version := pinned(line.spec)):
            yield "tf.version", Known(version, line.source)
            if name in ("tensorflow-cpu", "tensorflow-intel"):
                yield "tf.built_with_cuda", Known(False, line.source)


def _jax(by_name: Mapping[str, Line]) -> Iterator[tuple[str, Fact]]:
    line = by_name.get("jax")
    if not line or not (version := pinned(line.spec)):
        return
    yield "jax.version", Known(version, line.source)
    yield "jax.jaxlib", Known(version, line.source)
    plugin = next((name for name in by_name if name.startswith("jax-cuda") and "plugin" in name), "")
    extra = next((extra for extra in line.extras if extra.startswith("cuda")), "")
    if plugin and (own := pinned(by_name[plugin].spec)):
        yield "jax.plugin", Known(own, by_name[plugin].source)
    elif extra:
        yield "jax.plugin", Known(version, line.source)
        if extra[4:6].isdecimal():
            yield "jax.plugin_cuda", Known(int(extra[4:6]), line.source)
    elif not plugin:
        yield "jax.plugin", Absent(f"{line.source} asks for jax without its extra cuda12 or cuda13")


# ---- What a container image brings, by its name ----
# torch, CUDA, Python and the C library.

_REFERENCE = re.compile(r"(?:docker\.io/)?(?:library/)?([a-z0-9][\w./:-]*?)(?::([\w][\w.+-]*))?(?:@sha256:[0-9a-f]+)?")
_PYTORCH = re.compile(r"(\d+\.\d+(?:\.\d+)?)-cuda(\d+\.\d+)")
_CUDA = re.compile(r"(\d+\.\d+)(?:\.\d+)?-(?:cudnn\d*-)?(base|runtime|devel)?")
_NGC = re.compile(r"(\d\d\.\d\d)-py3")


_LIFTED = {"12": "470", "13": "535"}
"""The oldest driver branch that the compatibility libraries of each CUDA lift, on data-center GPUs."""


class Image(NamedTuple):
    """Empty where the name does not tell. `python` is the distribution's own where `own_python` is false."""

    torch: str = ""
    cuda: str = ""
    python: str = ""
    own_python: bool = False
    glibc: str = ""
    for_gpus: bool = False
    requires: str = ""
    """What NVIDIA_REQUIRE_CUDA is in it."""
    compat: bool = False
    """Whether it brings the compatibility libraries of its CUDA."""


def image_of(reference: str) -> Image:
    """What the image of that name brings; nothing for a name that says nothing, or holds a variable."""
    match = _REFERENCE.fullmatch(reference.strip())
    if not match:
        return Image()
    name, tag = match[1], match[2] or ""
    found = _of_distribution(tag, name)._replace(for_gpus=_for_gpus(name, tag))
    if name == "pytorch/pytorch" and (torch := _PYTORCH.match(tag)):
        return found._replace(torch=f"{torch[1]}+cu{torch[2].replace('.', '')}", cuda=torch[2], python="", glibc="")
    if name in ("nvidia/cuda", "nvcr.io/nvidia/cuda") and (cuda := _CUDA.match(tag)):
        return found._replace(cuda=cuda[1], requires=_requires(cuda[1]), compat=True)
    if name == "nvcr.io/nvidia/pytorch" and (release := _NGC.match(tag)):
        row = next((row for row in table("images")["ngc"] if row["release"] == release[1]), None)
        if row:
            brought = {"torch": row["torch"], "cuda": row["cuda"], "python": row["python"]}
            return found._replace(**brought, own_python=True, compat=True)
    if name == "python" and (python := re.match(r"3\.\d+", tag)):
        return found._replace(python=python[0], own_python=True)
    return found


def _of_distribution(tag: str, name: str) -> Image:
    """The Python and the C library of the distribution that name or tag end in."""
    words = tag.split("-")
    for row in table("images")["distribution"]:
        names = row["tags"].split()
        own = name.rpartition("/")[2] == row["image"] and tag == row["release"]
        if own or any(word in names for word in words):
            return Image(python=row["python"], glibc=row["glibc"])
    return Image()


def _for_gpus(name: str, tag: str) -> bool:
    rows = table("images")["made_for_gpus"]
    return any(name.startswith(row["image"]) and row.get("tag", "") in tag for row in rows)


def _requires(cuda: str) -> str:
    """What NVIDIA's images ask for: their CUDA, or an older driver of a data-center GPU (forward compatibility)."""
    older = _LIFTED.get(cuda.partition(".")[0])
    return f"cuda>={cuda}" + (f" brand=tesla,driver>={older}" if older else "")


# ---- Lines of a manifest that decide no fact ----
# What is compiled on the machine, what no line pins, what is left out.

_MOST = 200


def silent(
    rows: Sequence[Row], lines: Sequence[Line], placed: Collection[str], unsure: Sequence[str]
) -> Iterator[tuple[str, Fact]]:
    """What is to be said of lines that have told nothing.

    `placed` are the packages whose version is told, `unsure` says of some whether they are for the machine.
    """
    source = "the manifest"
    compiled = {line.name: f"{line.name} ({line.source})" for line in lines if _compiled(line)}
    if compiled:
        yield "manifest.compiled", Known(tuple(compiled.values())[:_MOST], source)
    loose = [line.name for line in lines if line.name not in {*placed, *compiled} and not pinned(line.spec)]
    if loose:
        yield "manifest.loose", Known(tuple(dict.fromkeys(loose))[:_MOST], source)
    there = {line.name for line in lines}
    asked = (row for row in rows if text(row, "name") not in there)
    left = {name: _why(row) for row in asked if not _open(name := text(row, "name"), unsure)}
    if left:
        yield "manifest.left_out", Known(tuple(f"{name} ({why})" for name, why in left.items())[:_MOST], source)


def _compiled(line: Line) -> bool:
    """Whether pip gets its source; a wheel that the line names, and conda, bring it compiled."""
    return (
        not line.url
        and line.installer != "conda"
        and line.name in {row["name"] for row in table("companions")["sdists"]}
    )


def _why(row: Row) -> str:
    if extra := text(row, "extra"):
        return f"the extra {extra}"
    return text(row, "marker")


def _open(name: str, unsure: Sequence[str]) -> bool:
    return any(one.startswith(f"whether {name} is") for one in unsure)
