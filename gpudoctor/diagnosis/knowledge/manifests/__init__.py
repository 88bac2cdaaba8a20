"""What the lines of a manifest would install: the facts of the environment that is not there yet.

Works on the rows of ``service`` and ``requirement``. Each fact's source names the line, and the table where the line
leaves a choice; what cannot be told is in ``manifest.open``. `environment` has the packages and torch that would be
installed, `pip_takes` the versions that pip would choose.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, known, known_facts, listed, text_of, value_of
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.knowledge._tables import Facts, Groups, fill, table
from gpudoctor.diagnosis.knowledge.manifests.environment import Environment, Line, applicable_lines
from gpudoctor.diagnosis.knowledge.manifests.pip_takes import BRING, Place, pinned

_IMAGE = "image"
"""The installer of what a base image brings."""
_PYTHONS = tuple(f"3.{minor}" for minor in range(15, 7, -1))
_PLACE = ("python.version", "host.platform", "host.arch", "host.glibc")


def with_images(snapshot: Snapshot) -> Snapshot:
    """The manifest's snapshot with the facts that its containers' images bring added."""
    facts, groups = dict(snapshot.facts), dict(snapshot.groups)
    whole = replace(snapshot, facts=facts, groups=groups)
    imply_images(whole, facts, groups)
    return whole


def imply_images(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Adds what the containers' images bring: ``for_gpus`` to each row of ``service``, and of the main container
    Python, C library, torch (as a row of ``requirement``) and CUDA's requirement. Nothing without rows of ``service``.
    """
    rows = groups.get("service")
    if not isinstance(rows, tuple) or not rows:
        return
    images = [(row, parse_image(text_of(row.get("image")))) for row in rows]
    groups["service"] = tuple(_with_for_gpus(row, image) for row, image in images)
    row, image = _main_container(images)
    reference = known(row.get("image"))
    source = reference.source if reference else ""
    why = f"{source} (table images: {text_of(row.get('image'))})"
    brought = {"host.glibc": image.glibc, "env.NVIDIA_REQUIRE_CUDA": image.requires}
    if image.compat:
        brought["container.compat_cuda"] = ".".join(image.cuda.split(".")[:2])
    if image.own_python or value_of(row.get("system_python")):
        brought["python.version"] = image.python
    for name, value in brought.items():
        if value:
            fill(snapshot, facts, name, Known(value, why))
    asked = listed(groups.get("requirement"))
    if image.torch and not any(text_of(line.get("installer")) == _IMAGE for line in asked):
        torch = known_facts(source, name="torch", asked=f"=={image.torch}", installer=_IMAGE, step=-1)
        groups["requirement"] = (torch, *asked)
        facts["manifest.image_cuda"] = Known(".".join(image.cuda.split(".")[:2]), why)


def _with_for_gpus(row: Row, image: Image) -> Row:
    """The service row with ``for_gpus`` of `image`, its entry in the table; unchanged where the row has one already or
    the entry is empty (an unknown image).
    """
    if image == Image() or "for_gpus" in row:
        return row
    return {**row, "for_gpus": Known(image.for_gpus, f"table images: {text_of(row.get('image'))}")}


def _main_container(images: list[tuple[Row, Image]]) -> tuple[Row, Image]:
    """(row, image) of the first container that asks for GPUs, else whose image is made for them, else of all."""
    asking = [pair for pair in images if value_of(pair[0].get("asks_gpus"))]
    made = [pair for pair in images if pair[1].for_gpus]
    return (asking or made or images)[0]


def imply_manifest(snapshot: Snapshot, facts: Facts, groups: Groups) -> None:
    """Adds torch, its build and companions as the requirement lines would install them, command by command.

    Also what of these lines stays open, is left out or fits no wheel (``manifest.*``). Nothing without requirement
    lines, or where packages were listed.
    """
    rows = groups.get("requirement")
    if not isinstance(rows, tuple) or isinstance(groups.get("package"), tuple):
        return
    place = Place(*(snapshot.text(name) for name in _PLACE))._replace(usual=_assumed_python(snapshot))
    lines, unsure = applicable_lines(rows, place)
    environment = Environment(place)
    if refused := _python_conflict(snapshot, place.python):
        environment.no_wheel.append(refused)
        environment.source = "the manifest"
    for _, step in groupby(sorted(lines, key=attrgetter("step")), key=attrgetter("step")):
        environment.install(list(step))
    _write_environment_facts(snapshot, facts, groups, environment)
    brings = any(line.name == "torch" or line.name in BRING for line in lines)
    for name, fact in framework_facts(lines, brings or snapshot.known("manifest.elsewhere") is not None):
        fill(snapshot, facts, name, fact)
    placed = {text_of(row.get("name")) for row in environment.packages()} | {"torch"}
    facts.update(undecided_lines(rows, lines, placed, unsure))
    if notes := [*unsure, *environment.open]:
        facts["manifest.open"] = Known(tuple(dict.fromkeys(notes)), "the manifest")


def _assumed_python(snapshot: Snapshot) -> str:
    """The Python assumed where none is stated: the usual one if the project allows it, else the newest it allows."""
    spec = _python_spec(snapshot)
    usual = Place().usual
    if spec is None or spec.contains(usual):
        return usual
    return next((python for python in _PYTHONS if spec.contains(python)), usual)


def _python_conflict(snapshot: Snapshot, python: str) -> str:
    """Message where the project does not allow that Python; empty where it does, or either is unknown."""
    spec = _python_spec(snapshot)
    if spec is None or not python or spec.contains(python) or spec.contains(f"{python}.99"):
        return ""
    return f"the project takes Python {spec}, and not {python}"


def _python_spec(snapshot: Snapshot) -> SpecifierSet | None:
    """The project's Python specifier; None where there is none or it is invalid."""
    wanted = snapshot.text("manifest.python")
    try:
        return SpecifierSet(wanted) if wanted else None
    except InvalidSpecifier:
        return None


def _write_environment_facts(snapshot: Snapshot, facts: Facts, groups: Groups, environment: Environment) -> None:
    """Adds torch.*, manifest.no_wheel and the rows of ``package`` of the worked-out environment.

    Facts that a probe or report has stay as they are.
    """
    if environment.no_wheel:
        facts["manifest.no_wheel"] = Known(tuple(environment.no_wheel), environment.source)
    if environment.installer in ("pip", "uv", "conda"):
        fill(snapshot, facts, "python.installer", Known(environment.installer, environment.source))
    if environment.flavor:
        fill(snapshot, facts, "torch.flavor", environment.flavor)
        if environment.cuda:
            fill(snapshot, facts, "torch.cuda", environment.cuda)
        elif environment.flavor.value == "cpu":
            fill(snapshot, facts, "torch.cuda", Absent(f"a CPU build: {environment.flavor.source}"))
    if environment.torch is None:
        return
    fill(snapshot, facts, "torch.version", environment.torch)
    for name in ("torch.flavor", "torch.cuda") if environment.build_unknown else ():
        fill(snapshot, facts, name, Unread(environment.build_unknown))
    if environment.of_image and (cuda := snapshot.known("manifest.image_cuda")):
        fill(snapshot, facts, "torch.flavor", Known("cuda", cuda.source))
        fill(snapshot, facts, "torch.cuda", cuda)
    groups["package"] = tuple(environment.packages())
    if environment.misfits:
        facts["torch.companions_unmet"] = Known(
            tuple(environment.misfits), ", ".join(dict.fromkeys(environment.misfits.values()))
        )
    else:
        fill(snapshot, facts, "torch.companions_unmet", Known((), environment.torch.source))


# What pinned lines say of TensorFlow and JAX; where they are asked for and torch is not, torch is not there.

_TENSORFLOW = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel")


def framework_facts(lines: Sequence[Line], torch: bool) -> Iterator[tuple[str, Fact]]:
    """(name, fact) of TensorFlow and JAX as lines pin them; then torch is absent unless `torch`: some line brings it.

    JAX without TensorFlow makes the latter absent, too.
    """
    by_name = {line.name: line for line in lines}
    found = dict([*_tensorflow(by_name), *_jax(by_name)])
    yield from found.items()
    if found and not torch:
        yield "torch.version", Absent("no line asks for it")
    if "jax.version" in found and "tf.version" not in found:
        yield "tf.version", Absent("no line asks for it")


def _tensorflow(by_name: Mapping[str, Line]) -> Iterator[tuple[str, Fact]]:
    """TensorFlow's version as pinned, and, of a CPU package, that it was built without CUDA; nothing if not pinned."""
    for name in _TENSORFLOW:
        if (line := by_name.get(name)) and (version := pinned(line.spec)):
            yield "tf.version", Known(version, line.source)
            if name in ("tensorflow-cpu", "tensorflow-intel"):
                yield "tf.built_with_cuda", Known(False, line.source)


def _jax(by_name: Mapping[str, Line]) -> Iterator[tuple[str, Fact]]:
    """Versions of JAX, jaxlib and the CUDA plugin where JAX is pinned; the plugin absent where no line asks for it."""
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
    """What a container image brings; empty where its name does not tell.

    `python` is the distribution's own where `own_python` is false.
    """

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


def parse_image(reference: str) -> Image:
    """What the image of that reference brings; an empty `Image` for unknown names and those with a variable."""
    match = _REFERENCE.fullmatch(reference.strip())
    if not match:
        return Image()
    name, tag = match[1], match[2] or ""
    found = _distribution_image(tag, name)._replace(for_gpus=_for_gpus(name, tag))
    if name == "pytorch/pytorch" and (torch := _PYTORCH.match(tag)):
        return found._replace(torch=f"{torch[1]}+cu{torch[2].replace('.', '')}", cuda=torch[2], python="", glibc="")
    if name in ("nvidia/cuda", "nvcr.io/nvidia/cuda") and (cuda := _CUDA.match(tag)):
        return found._replace(cuda=cuda[1], requires=_cuda_requirement(cuda[1]), compat=True)
    if name == "nvcr.io/nvidia/pytorch" and (release := _NGC.match(tag)):
        row = next((row for row in table("images")["ngc"] if row["release"] == release[1]), None)
        if row:
            brought = {"torch": row["torch"], "cuda": row["cuda"], "python": row["python"]}
            return found._replace(**brought, own_python=True, compat=True)
    if name == "python" and (python := re.match(r"3\.\d+", tag)):
        return found._replace(python=python[0], own_python=True)
    return found


def _distribution_image(tag: str, name: str) -> Image:
    """Python and C library of the distribution that image name and tag name by the table; empty `Image` for none."""
    words = tag.split("-")
    for row in table("images")["distribution"]:
        names = row["tags"].split()
        own = name.rpartition("/")[2] == row["image"] and tag == row["release"]
        if own or any(word in names for word in words):
            return Image(python=row["python"], glibc=row["glibc"])
    return Image()


def _for_gpus(name: str, tag: str) -> bool:
    """Whether the table lists the image as made for GPUs."""
    rows = table("images")["made_for_gpus"]
    return any(name.startswith(row["image"]) and row.get("tag", "") in tag for row in rows)


def _cuda_requirement(cuda: str) -> str:
    """NVIDIA_REQUIRE_CUDA as ``cuda>=12.4 brand=tesla,driver>=470``: one bound for older drivers, not NVIDIA's list."""
    older = _LIFTED.get(cuda.partition(".")[0])
    return f"cuda>={cuda}" + (f" brand=tesla,driver>={older}" if older else "")


# ---- Lines of a manifest that decide no fact ----
# What is compiled on the machine, what no line pins, what is left out.

_MOST_REQUIREMENTS = 200


def undecided_lines(
    rows: Sequence[Row], lines: Sequence[Line], placed: Collection[str], unsure: Sequence[str]
) -> Iterator[tuple[str, Fact]]:
    """Facts manifest.compiled, .loose and .left_out: packages built from source, not pinned, and excluded (why).

    Each only if there are some. `placed` are packages of known version, `unsure` says which lines may not apply.
    """
    source = "the manifest"
    compiled = {line.name: f"{line.name} ({line.source})" for line in lines if _is_built_from_source(line)}
    if compiled:
        yield "manifest.compiled", Known(tuple(compiled.values())[:_MOST_REQUIREMENTS], source)
    loose = [line.name for line in lines if line.name not in {*placed, *compiled} and not pinned(line.spec)]
    if loose:
        yield "manifest.loose", Known(tuple(dict.fromkeys(loose))[:_MOST_REQUIREMENTS], source)
    there = {line.name for line in lines}
    asked = (row for row in rows if text_of(row.get("name")) not in there)
    left = {
        name: _exclusion_reason(row) for row in asked if not _is_undecided(name := text_of(row.get("name")), unsure)
    }
    if left:
        yield (
            "manifest.left_out",
            Known(tuple(f"{name} ({why})" for name, why in left.items())[:_MOST_REQUIREMENTS], source),
        )


def _is_built_from_source(line: Line) -> bool:
    """Whether pip must compile it: only an sdist exists, and neither a wheel URL nor conda is used."""
    return (
        not line.url
        and line.installer != "conda"
        and line.name in {row["name"] for row in table("companions")["sdists"]}
    )


def _exclusion_reason(row: Row) -> str:
    """Why the requirement row was left out: ``the extra NAME``, or its environment marker."""
    if extra := text_of(row.get("extra")):
        return f"the extra {extra}"
    return text_of(row.get("marker"))


def _is_undecided(name: str, unsure: Sequence[str]) -> bool:
    """Whether one of the reasons in `unsure` says of that package that it may not apply."""
    return any(reason.startswith(f"whether {name} is") for reason in unsure)
