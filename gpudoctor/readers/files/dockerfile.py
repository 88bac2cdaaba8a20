"""Dockerfile: the image that the last stage starts from, what it installs, and the variables that it sets.

Its format: docs.docker.com, Dockerfile reference (read 2026-11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._variables import derived, wanted
from gpudoctor.readers.files import _asked, _services, _shell
from gpudoctor.readers.files._instructions import Instruction, filled, instructions
from gpudoctor.readers.files._manifest import Manifest
from gpudoctor.readers.files._services import Service

KIND = "dockerfile"
FACTS = _services.FACTS
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_FIRST = re.compile(r"\A\s*(?:#[^\n]*\n\s*)*(?:FROM|ARG)\s+\S", re.IGNORECASE)
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\\]|\\.)*)")
_PYTHON = re.compile(r"\bpython(?:[-=@ ]|==| install )?(3\.\d{1,2})\b")
_OTHER = re.compile(r"\b(?:uv|conda|mamba|micromamba|pyenv|miniforge|miniconda|poetry|pixi|deadsnakes)", re.IGNORECASE)
_FLAGS = re.compile(r"^(?:--\S+\s+)+")


@dataclass(slots=True)
class Stage:
    """What one stage has: its image and where that is named, its variables, its packages, and what is not read."""

    image: str
    line: int
    arguments: dict[str, str] = field(default_factory=dict)
    variables: dict[str, tuple[str, int]] = field(default_factory=dict)
    asked: list[tuple[_asked.Asked, int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    pythons: dict[str, int] = field(default_factory=dict)
    other_python: bool = False
    lines: list[tuple[int, int]] = field(default_factory=list)


def named(name: str) -> bool:
    """``Dockerfile``, ``Dockerfile.gpu``, ``train.dockerfile``, ``Containerfile``."""
    return bool(re.fullmatch(r"(?:dockerfile|containerfile)(?:[-._].*)?|.*\.(?:dockerfile|containerfile)", name))


def told(text: str) -> bool:
    """Whether it begins with FROM or ARG, and holds instructions only."""
    if not _FIRST.match(text) or len(text) > 200_000:
        return False
    lines = Manifest(text, "").lines
    found = list(instructions(lines))
    read = {line for one in found for line in range(one.first, one.last + 1)}
    rest = [line for number, line in enumerate(lines, 1) if line.strip() and number not in read and line[0] != "#"]
    return not rest and any(one.word == "FROM" for one in found) and len(found) > 1


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """The facts of the last stage, which is the image that is built."""
    stage = _last_stage(manifest)
    if stage is None:
        return
    for first, last in stage.lines:
        manifest.use(first, last)
    source = manifest.use(stage.line)
    row = Service("the image", stage.image).row(source)
    if len(stage.pythons) == 1:
        ((version, line),) = stage.pythons.items()
        yield "python.version", Known(version, manifest.at(line))
    yield "service", ({**row, "system_python": Known(not stage.pythons and not stage.other_python, source)},)
    yield "host.container", Known("docker", source)
    yield "host.platform", Known("linux", source)
    yield from _asked.told([(one, manifest.at(line)) for one, line in stage.asked])
    variables = {
        name: Known(value, manifest.at(line)) for name, (value, line) in stage.variables.items() if wanted(name)
    }
    yield from ((f"env.{name}", value) for name, value in variables.items())
    yield from derived(variables)
    if stage.files:
        yield "manifest.elsewhere", Known(tuple(dict.fromkeys(stage.files))[:20], source)


def _last_stage(manifest: Manifest) -> Stage | None:
    """The last stage with all that it has from the stages it starts from."""
    common: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for step, one in enumerate(instructions(manifest.lines), 1):
        if one.word == "FROM":
            stage = _started(one, common, stages)
            stages[str(len(stages))] = stage
        elif stage is None:
            if one.word == "ARG":
                common.update({name: value for name, value in _pairs(one.rest, common) if value is not None})
        else:
            _done(one, stage, common, step, manifest.lines)
    return stage


def _started(one: Instruction, common: dict[str, str], stages: dict[str, Stage]) -> Stage:
    """A stage from an image, or from another stage, whose variables and packages it has."""
    match = _FROM.fullmatch(filled(one.rest, common))
    image, name = (match[1], match[2]) if match else (one.rest, None)
    if before := stages.get(image.lower()):
        stage = replace(
            before,
            arguments={},
            variables=dict(before.variables),
            asked=list(before.asked),
            files=list(before.files),
            pythons=dict(before.pythons),
            lines=[*before.lines, (one.first, one.last)],
        )
    else:
        stage = Stage(image[:300], one.first, lines=[(one.first, one.last)])
    if name:
        stages[name.lower()] = stage
    return stage


def _done(one: Instruction, stage: Stage, common: dict[str, str], step: int, lines: Sequence[str]) -> None:
    """Adds to the stage what the instruction does."""
    values = {**stage.arguments, **{name: value for name, (value, _) in stage.variables.items()}}
    stage.lines.append((one.first, one.last))
    if one.word == "ARG":
        for name, value in _pairs(one.rest, values):
            known = common.get(name) if value is None else value
            if known is not None:
                stage.arguments[name] = known
    elif one.word == "ENV":
        for name, value in _pairs(one.rest, values):
            stage.variables[name] = (value or "", one.first)
    elif one.word == "RUN":
        text = filled(f"{one.rest} {one.script}", values)
        stage.pythons.update(dict.fromkeys(_PYTHON.findall(text), one.first))
        stage.other_python = stage.other_python or bool(_OTHER.search(text))
        for words in _commands(one, values):
            found, files = _shell.installed(words)
            stage.asked += [(replace(asked, step=step), _line_of(asked, one, lines)) for asked in found]
            stage.files += files


def _line_of(asked: _asked.Asked, one: Instruction, lines: Sequence[str]) -> int:
    """The line of the instruction that names the package; its first where none does."""
    spelled = re.compile(re.escape(asked.name).replace(r"\-", "[-_.]"), re.IGNORECASE)
    numbers = range(one.first, min(one.last, len(lines)) + 1)
    return next((number for number in numbers if spelled.search(lines[number - 1])), one.first)


def _commands(one: Instruction, values: dict[str, str]) -> Iterator[Sequence[str]]:
    """The commands of a RUN: of its shell form, of its list of words, or of the script behind it."""
    rest = _FLAGS.sub("", one.rest)
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except (ValueError, RecursionError):
            words = []
        words = [str(word) for word in words] if isinstance(words, list) else []
        if len(words) > 2 and words[0].rpartition("/")[2] in ("sh", "bash") and words[1].startswith("-"):
            yield from _shell.commands(filled(words[2], values))
        elif words:
            yield words
    else:
        yield from _shell.commands(filled(one.script or rest, values))


def _pairs(rest: str, values: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """The names and values of ENV and ARG; none for an ARG without a value."""
    if not re.match(r"[A-Za-z_]\w*=", rest):
        name, _, value = rest.partition(" ")
        yield name, filled(value.strip(), values) if value else None
        return
    for name, value in _PAIR.findall(rest):
        quoted = value[:1] in "\"'" and len(value) > 1
        bare = value[1:-1] if quoted else re.sub(r"\\(.)", r"\1", value)
        yield name, bare if value[:1] == "'" else filled(bare, values)
