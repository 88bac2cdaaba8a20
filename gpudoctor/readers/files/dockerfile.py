"""Dockerfile: the image that the last stage starts from, what it installs, and the variables that it sets.

Its format: docs.docker.com, Dockerfile reference (read 2026-11).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._variables import derived, wanted
from gpudoctor.readers.files import _asked, _conda, _pip_words, _services
from gpudoctor.readers.files._asked import Asked
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
            found, files = installed(words)
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
            yield from commands(filled(words[2], values))
        elif words:
            yield words
    else:
        yield from commands(filled(one.script or rest, values))


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


# ---- The commands in a line of shell that install packages ----
# pip, uv, conda and mamba.

_LONGEST = 20_000
_ENDS = frozenset(("&&", "||", ";", "|", "&", "(", ")", "\n", "then", "do", "else", "fi", "done", "{", "}"))
_CONDA = ("conda", "mamba", "micromamba")
_WORD = re.compile(r"[A-Za-z_]\w*=.*|sudo|exec|time|env|command|-\S+|RUN")
_FILE = re.compile(r"(?:-f|--file)(?:=|$)")
_BACKENDS = re.compile(r"cu\d{2,3}|cpu|rocm[\d.]+|xpu")


def commands(text: str) -> Iterator[list[str]]:
    """Each simple command of the text as its words; a text whose quotes do not close is taken apart at blanks."""
    lexer = shlex.shlex(text[:_LONGEST].replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        words = text[:_LONGEST].split()
    found: list[str] = []
    for word in words:
        if word in _ENDS or set(word) <= set(";&|()"):
            if found:
                yield found
            found = []
        else:
            found.append(word)
    if found:
        yield found


def installed(words: Sequence[str]) -> tuple[list[Asked], list[str]]:
    """What one command installs, and the files that it takes more from; nothing for any other command."""
    words = _without_front(words)
    if files := _of_project(words):
        return [], files
    tool, rest = _installer(words)
    if tool == "conda":
        return _by_conda(rest), []
    if not tool:
        return [], []
    options = _pip_words.Options()
    named = list(_pip_words.told(rest, options))
    found = [one for word in named if (one := _asked.asked(word))]
    if any(word.split("[")[0] == "." for word in [*named, *options.projects]):
        options.files.append("pyproject.toml")
    if _BACKENDS.fullmatch(options.backend):
        options.index = f"https://download.pytorch.org/whl/{options.backend}"
    return [replace(_asked.under(one, options), installer=tool) for one in found], options.files


def _without_front(words: Sequence[str]) -> list[str]:
    """Without variables, sudo and conda run in front, and the folder of the program."""
    rest = list(words)
    while rest and _WORD.fullmatch(rest[0]):
        rest = rest[1:]
    if rest[:2] in (["conda", "run"], ["micromamba", "run"]):
        rest = rest[2:]
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("-n", "-p", "--name", "--prefix") else rest[1:]
    if rest:
        rest[0] = rest[0].rpartition("/")[2]
    return rest


def _installer(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The installer and the words behind ``install``; empty for any other command."""
    if len(words) > 2 and re.fullmatch(r"(?:python|pypy)[\d.]*", words[0]) and "-m" in words[:4]:
        words = words[list(words).index("-m") + 1 :]
    head = list(words[:3])
    if head[:1] and re.fullmatch(r"pip[\d.]*", head[0]) and "install" in words[:6]:
        return "pip", words[list(words).index("install") + 1 :]
    if head == ["uv", "pip", "install"]:
        return "uv", words[3:]
    if head[:2] == ["uv", "add"]:
        return "uv", words[2:]
    if head[:1] and head[0] in _CONDA and ("install" in head or "create" in head):
        return "conda", words[1:]
    return "", ()


def _of_project(words: Sequence[str]) -> list[str]:
    """The files of a project that a command installs as a whole: ``uv sync``, ``conda env create -f FILE``."""
    head = tuple(words[:3])
    if head[:2] == ("uv", "sync"):
        return ["uv.lock"]
    if head[:2] in (("poetry", "install"), ("pixi", "install")):
        return [f"{head[0]}.lock"]
    if head[:1] and head[0] in _CONDA and "env" in head:
        return [word.partition("=")[2] or after for word, after in pairwise([*words, ""]) if _FILE.match(word)]
    return []


def _by_conda(words: Sequence[str]) -> list[Asked]:
    channels: list[str] = []
    specs: list[str] = []
    rest = iter(words)
    for word in rest:
        name, _, value = word.partition("=")
        if name in ("-c", "--channel"):
            channels.append(value or next(rest, ""))
        elif word in ("-n", "--name", "-p", "--prefix", "-f", "--file", "--solver"):
            next(rest, "")
        elif not word.startswith("-") and word not in ("install", "create", "env"):
            specs.append(word)
    return [one for spec in specs if (one := _conda.asked(spec, channels))]
