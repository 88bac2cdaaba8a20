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

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers._software import is_gpu_variable, variable_facts
from gpudoctor.readers.files import _manifest, _requirements
from gpudoctor.readers.files._manifest import Manifest, Service, substituted
from gpudoctor.readers.files._requirements import RequestedPackage

KIND = "dockerfile"
FACTS = _manifest.FACTS
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_FIRST = re.compile(r"\A\s*(?:#[^\n]*\n\s*)*(?:FROM|ARG)\s+\S", re.IGNORECASE)
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\\]|\\.)*)")
_PYTHON = re.compile(r"\bpython(?:[-=@ ]|==| install )?(3\.\d{1,2})\b")
_OTHER = re.compile(r"\b(?:uv|conda|mamba|micromamba|pyenv|miniforge|miniconda|poetry|pixi|deadsnakes)", re.IGNORECASE)
_FLAGS = re.compile(r"^(?:--\S+\s+)+")


@dataclass(slots=True)
class Stage:
    """One build stage: image and its line, arguments, variables, requested packages, and files not read.

    `pythons` are Python versions installed, by line; `other_python` is true where a tool such as conda brings one;
    `lines` are (first, last) of its instructions.
    """

    image: str
    line: int
    arguments: dict[str, str] = field(default_factory=dict)
    variables: dict[str, tuple[str, int]] = field(default_factory=dict)
    asked: list[tuple[_requirements.RequestedPackage, int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    pythons: dict[str, int] = field(default_factory=dict)
    other_python: bool = False
    lines: list[tuple[int, int]] = field(default_factory=list)


def named(name: str) -> bool:
    """Whether a file of that lower-case name is a Dockerfile: ``dockerfile.gpu``, ``train.dockerfile``."""
    return bool(re.fullmatch(r"(?:dockerfile|containerfile)(?:[-._].*)?|.*\.(?:dockerfile|containerfile)", name))


def recognizes(text: str) -> bool:
    """Whether the text is a Dockerfile: begins with FROM or ARG, and holds only instructions, two or more.

    False above 200 000 characters.
    """
    if not _FIRST.match(text) or len(text) > 200_000:
        return False
    lines = Manifest(text, "").lines
    parsed = list(instructions(lines))
    instruction_lines = {line for instruction in parsed for line in range(instruction.first, instruction.last + 1)}
    other_lines = [
        line
        for number, line in enumerate(lines, 1)
        if line.strip() and number not in instruction_lines and line[0] != "#"
    ]
    return not other_lines and any(instruction.keyword == "FROM" for instruction in parsed) and len(parsed) > 1


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of the last build stage, the image that is built: base image, Python, packages and variables.

    Nothing where there is no stage.
    """
    stage = _final_stage(manifest)
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
    yield from _requirements.requirement_rows([(requirement, manifest.at(line)) for requirement, line in stage.asked])
    variables = {
        name: Known(value, manifest.at(line))
        for name, (value, line) in stage.variables.items()
        if is_gpu_variable(name)
    }
    yield from variable_facts(variables)
    if stage.files:
        yield "manifest.elsewhere", Known(tuple(dict.fromkeys(stage.files))[:20], source)


def _final_stage(manifest: Manifest) -> Stage | None:
    """The last stage, with what it inherits from earlier stages; None where there is no FROM."""
    global_arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for step, instruction in enumerate(instructions(manifest.lines), 1):
        if instruction.keyword == "FROM":
            stage = _new_stage(instruction, global_arguments, stages)
            stages[str(len(stages))] = stage
        elif stage is None:
            if instruction.keyword == "ARG":
                global_arguments.update(
                    {
                        name: value
                        for name, value in _assignments(instruction.arguments, global_arguments)
                        if value is not None
                    }
                )
        else:
            _apply_instruction(instruction, stage, global_arguments, step, manifest.lines)
    return stage


def _new_stage(instruction: Instruction, global_arguments: dict[str, str], stages: dict[str, Stage]) -> Stage:
    """The stage that a FROM begins, a copy of the earlier stage that it names, if any; put into `stages` by name."""
    match = _FROM.fullmatch(substituted(instruction.arguments, global_arguments))
    image, name = (match[1], match[2]) if match else (instruction.arguments, None)
    if parent := stages.get(image.lower()):
        stage = replace(
            parent,
            arguments={},
            variables=dict(parent.variables),
            asked=list(parent.asked),
            files=list(parent.files),
            pythons=dict(parent.pythons),
            lines=[*parent.lines, (instruction.first, instruction.last)],
        )
    else:
        stage = Stage(image[:300], instruction.first, lines=[(instruction.first, instruction.last)])
    if name:
        stages[name.lower()] = stage
    return stage


def _apply_instruction(
    instruction: Instruction, stage: Stage, global_arguments: dict[str, str], step: int, lines: Sequence[str]
) -> None:
    """Add to the stage what an ARG, ENV or RUN does (arguments, variables, packages, Pythons), and the lines of
    whatever instruction it is.

    `step` is its number in the file; ARG without a value takes the global one.
    """
    values = {**stage.arguments, **{name: value for name, (value, _) in stage.variables.items()}}
    stage.lines.append((instruction.first, instruction.last))
    if instruction.keyword == "ARG":
        for name, value in _assignments(instruction.arguments, values):
            known = global_arguments.get(name) if value is None else value
            if known is not None:
                stage.arguments[name] = known
    elif instruction.keyword == "ENV":
        for name, value in _assignments(instruction.arguments, values):
            stage.variables[name] = (value or "", instruction.first)
    elif instruction.keyword == "RUN":
        text = substituted(f"{instruction.arguments} {instruction.script}", values)
        stage.pythons.update(dict.fromkeys(_PYTHON.findall(text), instruction.first))
        stage.other_python = stage.other_python or bool(_OTHER.search(text))
        for words in _commands_of_run(instruction, values):
            packages, files = installed_packages(words)
            stage.asked += [
                (replace(package, step=step), _line_of_package(package, instruction, lines)) for package in packages
            ]
            stage.files += files


def _line_of_package(package: _requirements.RequestedPackage, instruction: Instruction, lines: Sequence[str]) -> int:
    """The line of the instruction that names the package, counted from 1; its first where none does."""
    spelled = re.compile(re.escape(package.name).replace(r"\-", "[-_.]"), re.IGNORECASE)
    numbers = range(instruction.first, min(instruction.last, len(lines)) + 1)
    return next((number for number in numbers if spelled.search(lines[number - 1])), instruction.first)


def _commands_of_run(instruction: Instruction, values: dict[str, str]) -> Iterator[Sequence[str]]:
    """The commands of a RUN, each as words: in shell form, exec form (JSON) or heredoc, with `values` for variables."""
    text = _FLAGS.sub("", instruction.arguments)
    if text.startswith("["):
        try:
            words = json.loads(text)
        except (ValueError, RecursionError):
            words = []
        words = [str(word) for word in words] if isinstance(words, list) else []
        if len(words) > 2 and words[0].rpartition("/")[2] in ("sh", "bash") and words[1].startswith("-"):
            yield from commands(substituted(words[2], values))
        elif words:
            yield words
    else:
        yield from commands(substituted(instruction.script or text, values))


def _assignments(text: str, values: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """Names and values of an ENV or ARG instruction, with `values` for variables; None for an ARG without a value."""
    if not re.match(r"[A-Za-z_]\w*=", text):
        name, _, value = text.partition(" ")
        yield name, substituted(value.strip(), values) if value else None
        return
    for name, value in _PAIR.findall(text):
        quoted = value[:1] in "\"'" and len(value) > 1
        bare = value[1:-1] if quoted else re.sub(r"\\(.)", r"\1", value)
        yield name, bare if value[:1] == "'" else substituted(bare, values)


# ---- The commands in a line of shell that install packages ----
# pip, uv, conda and mamba.

_LONGEST_LINE = 20_000
_ENDS = frozenset(("&&", "||", ";", "|", "&", "(", ")", "\n", "then", "do", "else", "fi", "done", "{", "}"))
_CONDA = ("conda", "mamba", "micromamba")
_WORD = re.compile(r"[A-Za-z_]\w*=.*|sudo|exec|time|env|command|-\S+|RUN")
_FILE = re.compile(r"(?:-f|--file)(?:=|$)")
_BACKENDS = re.compile(r"cu\d{2,3}|cpu|rocm[\d.]+|xpu")


def commands(text: str) -> Iterator[list[str]]:
    """Each simple command of a shell text's first 20 000 characters as its words.

    If quotes do not close, the text is split at white space and newlines end no command.
    """
    lexer = shlex.shlex(text[:_LONGEST_LINE].replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        words = text[:_LONGEST_LINE].split()
    command: list[str] = []
    for word in words:
        if word in _ENDS or set(word) <= set(";&|()"):
            if command:
                yield command
            command = []
        else:
            command.append(word)
    if command:
        yield command


def installed_packages(words: Sequence[str]) -> tuple[list[RequestedPackage], list[str]]:
    """Packages that a command installs, and files from which it installs more; both empty for other commands."""
    words = _without_wrappers(words)
    if files := _project_files(words):
        return [], files
    tool, arguments = _installer(words)
    if tool == "conda":
        return _conda_packages(arguments), []
    if not tool:
        return [], []
    options = _requirements.Options()
    wanted_words = list(_requirements.parse_arguments(arguments, options))
    requirements = [requirement for word in wanted_words if (requirement := _requirements.parse_requirement(word))]
    if any(word.split("[")[0] == "." for word in [*wanted_words, *options.projects]):
        options.files.append("pyproject.toml")
    if _BACKENDS.fullmatch(options.backend):
        options.index = f"https://download.pytorch.org/whl/{options.backend}"
    return [
        replace(_requirements.with_index_options(requirement, options), installer=tool) for requirement in requirements
    ], options.files


def _without_wrappers(words: Sequence[str]) -> list[str]:
    """The command without leading variables, sudo and ``conda run``, its program without the folder."""
    remaining = list(words)
    while remaining and _WORD.fullmatch(remaining[0]):
        remaining = remaining[1:]
    if remaining[:2] in (["conda", "run"], ["micromamba", "run"]):
        remaining = remaining[2:]
        while remaining and remaining[0].startswith("-"):
            remaining = remaining[2:] if remaining[0] in ("-n", "-p", "--name", "--prefix") else remaining[1:]
    if remaining:
        remaining[0] = remaining[0].rpartition("/")[2]
    return remaining


def _installer(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """``pip``, ``uv`` or ``conda`` (also for mamba) and the arguments of its install command; of conda all words behind
    the program.

    Both are empty for any other command.
    """
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


def _project_files(words: Sequence[str]) -> list[str]:
    """The project files that a command installs as a whole: ``uv sync``, ``conda env create -f FILE``; or none."""
    head = tuple(words[:3])
    if head[:2] == ("uv", "sync"):
        return ["uv.lock"]
    if head[:2] in (("poetry", "install"), ("pixi", "install")):
        return [f"{head[0]}.lock"]
    if head[:1] and head[0] in _CONDA and "env" in head:
        return [word.partition("=")[2] or after for word, after in pairwise([*words, ""]) if _FILE.match(word)]
    return []


def _conda_packages(words: Sequence[str]) -> list[RequestedPackage]:
    """The packages in the arguments of ``conda install`` or ``conda create``, with the channels given."""
    channels: list[str] = []
    specs: list[str] = []
    remaining = iter(words)
    for word in remaining:
        name, _, value = word.partition("=")
        if name in ("-c", "--channel"):
            channels.append(value or next(remaining, ""))
        elif word in ("-n", "--name", "-p", "--prefix", "-f", "--file", "--solver"):
            next(remaining, "")
        elif not word.startswith("-") and word not in ("install", "create", "env"):
            specs.append(word)
    return [requirement for spec in specs if (requirement := _requirements.conda_requirement(spec, channels))]


# ---- A Dockerfile's instructions, one by one, with their lines: continuations joined, heredocs taken along ----

_INSTRUCTIONS = (
    "FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|ONBUILD|STOPSIGNAL|HEALTHCHECK|SHELL"
    "|MAINTAINER"
)
_INSTRUCTION = re.compile(rf"\s*({_INSTRUCTIONS})\s+(\S.*)", re.IGNORECASE | re.DOTALL)
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_MOST_LINES = 4000
"""Instructions and lines of one instruction that are read."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: keyword in capitals, arguments, first and last line; `script` is a heredoc's text."""

    keyword: str
    arguments: str
    first: int
    last: int
    script: str = ""


def instructions(lines: Sequence[str]) -> Iterator[Instruction]:
    """The Dockerfile's instructions in order, at most 4000; other lines are skipped."""
    escape = _escape_character(lines)
    index = count = 0
    while index < len(lines) and count < _MOST_LINES:
        first = index
        if not lines[index].strip() or lines[index].lstrip().startswith("#"):
            index += 1
            continue
        text, index = _joined_lines(lines, index, escape)
        match = _INSTRUCTION.match(text)
        script = ""
        if match and match[1].upper() in ("RUN", "COPY", "ADD") and (heredoc := _HEREDOC.search(match[2])):
            script, index = _heredoc(lines, index, heredoc[2])
        if match:
            count += 1
            yield Instruction(match[1].upper(), match[2].strip(), first + 1, max(index, first + 1), script)


def _escape_character(lines: Sequence[str]) -> str:
    """The line-continuation character: backslash, or what an ``# escape=`` directive names."""
    for line in lines[:10]:
        if not line.startswith("#"):
            break
        if (match := _ESCAPE.fullmatch(line.strip())) and match[1] in "\\`":
            return match[1]
    return "\\"


def _joined_lines(lines: Sequence[str], index: int, escape: str) -> tuple[str, int]:
    """The text of the instruction at `index`, continuations joined and comments left out; index of the next line."""
    parts: list[str] = []
    while index < len(lines) and len(parts) < _MOST_LINES:
        line = lines[index].rstrip()
        index += 1
        if parts and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if not line.endswith(escape):
            parts.append(line)
            break
        parts.append(line[:-1])
    return " ".join(parts), index


def _heredoc(lines: Sequence[str], index: int, delimiter: str) -> tuple[str, int]:
    """The text of a heredoc up to its delimiter, and the index of the line after it."""
    script: list[str] = []
    while index < len(lines) and len(script) < _MOST_LINES:
        index += 1
        if lines[index - 1].strip() == delimiter:
            break
        script.append(lines[index - 1])
    return "\n".join(script), index
