"""What a command of pip, uv or conda asks for, read from its words: packages, versions, the build, the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudoctor.core.system import program_name
from gpudoctor.core.versions import normal

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
    """A package named by a command; `version` is ``""`` if left open."""

    name: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """One package command. `build` is the torch build its index serves: ``cu126``, ``auto`` (chosen by uv), or ``""``.
    `python` is the interpreter or environment folder to change (``""``: the one in use), `creates` the environment
    made. `alone` means without dependencies, `anew` that installed packages are replaced.
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
    """What a package command of pip, uv or conda, or one that makes an environment, does; None for any other."""
    words = bare(argv)
    if len(words) < 2:
        return None
    python, program = "", program_name(words[0])
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
            return Command("uv", creates=verbs[-1], python=_option_value(verbs, "--python", "-p"))
        if verbs[0] != "pip":
            return None
        verbs = verbs[1:]
    return _parse(tool, verbs, python)  # type: ignore[arg-type]


def bare(argv: Sequence[str]) -> list[str]:
    """The command without leading ``sudo``, ``env -u NAME`` and ``NAME=value``."""
    words = list(argv)
    while len(words) > 1 and (words[0] in ("env", "sudo", "-u") or re.match(r"[A-Z_]+=", words[0])):
        words = words[2 if words[0] == "-u" else 1 :]
    return words


def _parse(tool: Literal["pip", "uv", "conda"], verbs: Sequence[str], python: str) -> Command | None:
    """What a tool does with this verb and arguments; None for a verb that does not change packages."""
    verb, words = (verbs[0], verbs[1:]) if verbs else ("", [])
    if verb == "create" and tool == "conda":
        name = _option_value(words, "-n", "--name", "-p", "--prefix")
        return Command(tool, creates=name, wanted=tuple(_named_packages(words)))
    if verb not in ("install", "update", "upgrade", *_REMOVES) or not words:
        return None
    return Command(
        tool,
        removes=verb in _REMOVES,
        wanted=tuple(_named_packages(words)),
        build=_torch_build(words),
        python=python or _option_value(words, "--python", "-p") or _option_value(words, "-n", "--name", "--prefix"),
        alone="--no-deps" in words,
        anew=any(word in words for word in ("--force-reinstall", "--reinstall", "-U", "--upgrade")),
    )


def _named_packages(arguments: Sequence[str]) -> Iterator[Wanted]:
    """Packages among the arguments: requirements and wheel files; options and their values are skipped."""
    skip = False
    for word in arguments:
        if skip or word.startswith("-"):
            skip = not skip and word in _VALUED
            continue
        wheel = _WHEEL.search(word)
        spec = None if wheel else _SPEC.fullmatch(word.partition("@")[0].strip())
        if wheel:
            yield Wanted(normal(wheel["name"]), wheel["version"].replace("%2B", "+"))
        elif spec:
            yield Wanted(normal(spec["name"]), (spec["version"] or "").partition("=")[0].rstrip(".*"))


def _torch_build(arguments: Sequence[str]) -> str:
    """Torch build from ``--torch-backend`` or an index URL (``cu126``, ``cpu``); ``""`` if none is named."""
    named = _option_value(arguments, "--torch-backend")
    if named:
        return named
    urls = (
        _INDEX.search(url) for url in _option_values(arguments, "--index-url", "-i", "--extra-index-url", "--index")
    )
    return next((match["build"] for match in urls if match), "")


def _option_value(arguments: Sequence[str], *options: str) -> str:
    """Value of the first of these options that is given; ``""`` if none is."""
    return next(_option_values(arguments, *options), "")


def _option_values(arguments: Sequence[str], *options: str) -> Iterator[str]:
    """Values of these options, given as ``--name=value`` or as two words."""
    for place, word in enumerate(arguments):
        name, sign, value = word.partition("=")
        if word in options and place + 1 < len(arguments):
            yield arguments[place + 1]
        elif sign and name in options:
            yield value
