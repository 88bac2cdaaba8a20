"""What a command of pip, uv or conda asks for, read from its words: packages, versions, the build, the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

_TOOLS = {"pip": "pip", "pip3": "pip", "uv": "uv", "conda": "conda", "mamba": "conda", "micromamba": "conda"}
_INDEX = re.compile(r"/whl/(?:nightly/|test/)?(?P<build>cu\d{2,3}|cpu|rocm[\d.]+|xpu)/?$")
_WHEEL = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>\d[^-/]*)(?:-[^-/]+){3,4}\.whl")
_SPEC = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*?)(?:\[[^\]]*\])?\s*(?:(?P<pin>===?|=)\s*(?P<version>[\w.+!*-]+)|[<>~!].*)?"
)
_VALUED = frozenset(
    {"--index-url", "-i", "--extra-index-url", "--torch-backend", "--python", "-p", "-c", "--channel", "-n", "--name"}
    | {"--prefix", "-r", "--requirement", "--constraint", "--find-links", "-f", "--index", "--default-index"}
    | {"--index-strategy", "--link-mode", "--cache-dir", "--build", "--no-binary", "--only-binary"}
    | {"--upgrade-package", "-P"}
)
"""Options whose value is the next word."""
_REMOVES = ("uninstall", "remove")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A package that a command names. `version` is empty where it leaves that open."""

    name: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One package command. `build` is torch's, by the index that it names: ``cu126``; ``auto`` leaves it to uv.

    `python` is the interpreter or the folder of the environment that it changes; empty is the one in use. `alone`: no
    requirement is looked at. `creates` is an environment that it makes.
    """

    tool: Literal["pip", "uv", "conda"]
    removes: bool = False
    wanted: tuple[Wanted, ...] = ()
    build: str = ""
    python: str = ""
    alone: bool = False
    anew: bool = False
    creates: str = ""


def command_of(argv: Sequence[str]) -> Command | None:
    """What the command does to packages; None for one that does nothing to them, or of which that cannot be told."""
    words = bare(argv)
    if len(words) < 2:
        return None
    python, program = "", PurePath(words[0]).name
    if words[1] == "-m" and len(words) > 3:
        python, program, words = words[0], words[2], words[2:]
    if program == "venv":
        return Command("pip", creates=words[-1], python=python)
    tool = _TOOLS.get(program)
    if tool is None or len(words) < 3:
        return None
    verbs = words[1:]
    if tool == "uv":
        if verbs[0] == "venv":
            return Command("uv", creates=verbs[-1], python=_valued(verbs, "--python", "-p"))
        if verbs[0] != "pip":
            return None
        verbs = verbs[1:]
    return _read(tool, verbs, python)  # type: ignore[arg-type]


def bare(argv: Sequence[str]) -> list[str]:
    """The command without what goes before it: ``sudo``, ``env -u LD_LIBRARY_PATH``, ``PYTHONNOUSERSITE=1``."""
    words = list(argv)
    while len(words) > 1 and (words[0] in ("env", "sudo", "-u") or re.match(r"[A-Z_]+=", words[0])):
        words = words[2 if words[0] == "-u" else 1 :]
    return words


def _read(tool: Literal["pip", "uv", "conda"], verbs: Sequence[str], python: str) -> Command | None:
    verb, words = (verbs[0], verbs[1:]) if verbs else ("", [])
    if verb == "create" and tool == "conda":
        name = _valued(words, "-n", "--name", "-p", "--prefix")
        return Command(tool, creates=name, wanted=tuple(_wanted(words)))
    if verb not in ("install", "update", "upgrade", *_REMOVES) or not words:
        return None
    return Command(
        tool,
        removes=verb in _REMOVES,
        wanted=tuple(_wanted(words)),
        build=_build(words),
        python=python or _valued(words, "--python", "-p") or _valued(words, "-n", "--name", "--prefix"),
        alone="--no-deps" in words,
        anew=any(word in words for word in ("--force-reinstall", "--reinstall", "-U", "--upgrade")),
    )


def _wanted(words: Sequence[str]) -> Iterator[Wanted]:
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in _VALUED
            continue
        wheel = _WHEEL.search(word)
        spec = None if wheel else _SPEC.fullmatch(word.partition("@")[0].strip())
        if wheel:
            yield Wanted(normal(wheel["name"]), wheel["version"].replace("%2B", "+"))
        elif spec:
            yield Wanted(normal(spec["name"]), (spec["version"] or "").partition("=")[0].rstrip(".*"))


def normal(name: str) -> str:
    """The name as package lists have it: ``flash-attn`` of ``flash_attn``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _build(words: Sequence[str]) -> str:
    named = _valued(words, "--torch-backend")
    if named:
        return named
    urls = (_INDEX.search(url) for url in _all_valued(words, "--index-url", "-i", "--extra-index-url", "--index"))
    return next((match["build"] for match in urls if match), "")


def _valued(words: Sequence[str], *options: str) -> str:
    return next(_all_valued(words, *options), "")


def _all_valued(words: Sequence[str], *options: str) -> Iterator[str]:
    """The values of these options, written as one word or as two."""
    for place, word in enumerate(words):
        name, sign, value = word.partition("=")
        if word in options and place + 1 < len(words):
            yield words[place + 1]
        elif sign and name in options:
            yield value
