"""Whom a command acts on: a step that changes packages may change those of the target's environment and no others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from gpudoctor.model.plan import PlanStep
from gpudoctor.remedy.keeping.environment import OWN_SETTINGS, Environment

DIVERTS = (
    *OWN_SETTINGS,
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_BREAK_SYSTEM_PACKAGES", "PIP_DRY_RUN"),
    *("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_BREAK_SYSTEM_PACKAGES", "UV_PROJECT_ENVIRONMENT", "UV_PROJECT"),
    *("UV_TARGET", "UV_PREFIX", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
)
"""Variables by which pip, uv or conda would act on another environment, or on one that they must not touch."""
_FORBIDDEN = {
    "pip": ("--target", "--prefix", "--root", "--user", "--break-system-packages", "--python"),
    "uv": ("--target", "--prefix", "--system", "--break-system-packages", "--user", "--directory", "--project"),
    "conda": ("--name",),
}
_SHORT = {"pip": re.compile(r"-[UIvqhV]*t"), "uv": re.compile(r"-[Uvqn]*t"), "conda": re.compile(r"-[yvqdCfk]*n")}
_CONDAS = ("conda", "mamba", "micromamba")
_CHANGING = {
    "pip": ("install", "uninstall"),
    "uv": ("install", "uninstall", "sync"),
    "conda": ("install", "remove", "update"),
}
_TARGETS = {"uv": ("--python", "-p"), "conda": ("--prefix", "-p")}


def changes_packages(step: PlanStep) -> bool:
    """Whether it changes an environment, by its own word or by its command."""
    if not step.argv or step.verify:
        return False
    tool, words = _tool(_without_env(step.argv))
    return step.touches == "environment" or any(word in _CHANGING.get(tool, ()) for word in words[:1])


def fault(argv: Sequence[str], target: Environment, made: Sequence[str] = ()) -> str:
    """Why that command must not run, empty where it acts on the target's environment and no other.

    `made` are folders of environments that the plan itself makes before: those may be changed as well.
    """
    if diverted := [name for name in _assigned(argv) if name in DIVERTS]:
        return f"it sets {diverted[0]}, which leads it to another environment"
    argv = _without_env(argv)
    if new := makes(argv):
        return f"{new} is there already" if os.path.lexists(new) else ""
    tool, words = _tool(argv)
    if not tool:
        return f"{argv[0]} is neither the target's Python nor uv or conda: what it would change is not known"
    if not words or words[0] not in _CHANGING[tool]:
        return "" if tool == "python" and _is_python(argv[0], target, made) else _no_change(tool, words)
    if bad := next(_forbidden(tool, words), ""):
        return f"{bad} leads it to another place than the environment {target.prefix}"
    if tool == "pip":
        return "" if _is_python(argv[0], target, made) else f"{argv[0]} is not the Python of {target.prefix}"
    named = list(_options(words, _TARGETS[tool]))
    if tool == "conda" and not named:
        return "" if target.conda else f"{target.prefix} is no environment of conda's"
    here = (target.prefix, *made)
    if named and all(os.path.normpath(name) in here or _is_python(name, target, made) for name in named):
        return ""
    return f"it does not name {target.python} by {_TARGETS[tool][0]}"


def makes(argv: Sequence[str]) -> str:
    """The folder of the new environment that this command makes, empty where it makes none."""
    argv = _without_env(argv)
    head = [PurePath(argv[0]).name, *argv[1:]] if argv else []
    if not (head[:2] == ["uv", "venv"] or (head[1:3] == ["-m", "venv"] and head[0].startswith("python"))):
        return ""
    plain = [word for word in (head[2:] if head[0] == "uv" else head[3:]) if not word.startswith("-")]
    return os.path.abspath(plain[-1]) if len(plain) == 1 else ""  # noqa: PTH100


def clean(environ: Mapping[str, str], target: Environment | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables without those that divert, and the names of those taken out.

    conda acts on CONDA_PREFIX where it is told no other: that is the target's.
    """
    taken = tuple(name for name in DIVERTS if name in environ)
    kept = {name: value for name, value in environ.items() if name not in taken}
    if target and target.conda:
        kept["CONDA_PREFIX"] = target.prefix
    elif target and target.venv:
        kept["VIRTUAL_ENV"] = target.prefix
    if target and not target.user_site:
        kept["PIP_USER"] = "0"  # a pip.conf may say otherwise
    kept["PIP_BREAK_SYSTEM_PACKAGES"] = "0"
    unsaid = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")  # every shell with an environment has these
    return kept, tuple(name for name in taken if name not in unsaid)


def _tool(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Which of pip, uv, conda or python it is, and its words from the subcommand on; empty where it is none."""
    name = PurePath(argv[0]).name if argv else ""
    if name.startswith("python"):
        return ("pip", argv[3:]) if tuple(argv[1:3]) == ("-m", "pip") else ("python", ())
    if name == "uv":
        return ("uv", argv[2:]) if tuple(argv[1:2]) == ("pip",) else ("", ())
    return ("conda", argv[1:]) if name in _CONDAS else ("", ())


def _no_change(tool: str, words: Sequence[str]) -> str:
    return f"{tool} {' '.join(words[:1])} is no command that this is known to change packages by".replace("  ", " ")


def _is_python(program: str, target: Environment, made: Sequence[str]) -> bool:
    """Whether it is that environment's interpreter: by its place, for a venv's is a link to another's."""
    place = os.path.abspath(program)  # noqa: PTH100
    if "/" not in program:
        return False
    folders = {os.path.dirname(target.python)} | ({f"{target.prefix}/bin"} if target.own else set())  # noqa: PTH120
    folders |= {f"{folder}/bin" for folder in made}
    return os.path.dirname(place) in folders and bool(re.fullmatch(r"python[\d.]*", os.path.basename(place)))  # noqa: PTH119,PTH120


def _forbidden(tool: str, words: Sequence[str]) -> Iterator[str]:
    """Options that lead elsewhere."""
    for word in words:
        name = word.partition("=")[0]
        if _leads_away(tool, name) if name.startswith("--") else _SHORT[tool].match(word):
            yield name if name.startswith("--") else word


def _leads_away(tool: str, name: str) -> bool:
    """Whether that long option does; pip and conda take one by its beginning, too."""
    if name in _FORBIDDEN[tool]:
        return True
    if tool == "uv" or name in ("--", "--pre", "--prefix"):
        return False
    return any(item.startswith(name) for item in (*_FORBIDDEN[tool], "--prefix"))


def _options(words: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """The values of an option, however it is written."""
    for place, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name in names:
            yield value if sign else (words[place + 1] if place + 1 < len(words) else "")
        elif word.startswith("-p") and "-p" in names and not word.startswith("--"):
            yield word[2:]


def _without_env(argv: Sequence[str]) -> Sequence[str]:
    """The command behind ``env NAME=VALUE -u NAME``."""
    rest = list(argv)
    if not rest or PurePath(rest[0]).name != "env":
        return argv
    rest = rest[1:]
    while rest and (rest[0] == "-u" or "=" in rest[0]):
        rest = rest[2 if rest[0] == "-u" else 1 :]
    return rest


def _assigned(argv: Sequence[str]) -> Iterator[str]:
    if argv and PurePath(argv[0]).name == "env":
        for word in argv[1 : len(argv) - len(_without_env(argv))]:
            yield word.partition("=")[0]
