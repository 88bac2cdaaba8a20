"""What must hold before a step is run: what it needs is there, and it changes the target's environment and no other."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from gpudoctor.core import system
from gpudoctor.core.plan import Plan, PlanStep, Requirement
from gpudoctor.core.system import program_name
from gpudoctor.fixes.backup.environment import OWN_SETTINGS, Environment, Lock
from gpudoctor.fixes.backup.tree import nearest_existing
from gpudoctor.target import system_paths

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
    """True if the step changes an environment, by what it declares or by its pip, uv or conda command."""
    if not step.argv or step.verify:
        return False
    tool, words = _tool_and_arguments(_without_env(step.argv))
    return step.touches == "environment" or any(word in _CHANGING.get(tool, ()) for word in words[:1])


def refusal(argv: Sequence[str], target: Environment, made: Sequence[str] = ()) -> str:
    """Why the command must not be run; ``""`` if it acts on the target environment alone, or makes a new one. `made`
    are folders of environments made by the same plan, on which it may act as well.
    """
    if diverted := [name for name in _assigned_variables(argv) if name in DIVERTS]:
        return f"it sets {diverted[0]}, which leads it to another environment"
    argv = _without_env(argv)
    if new := created_environment(argv):
        return f"{new} is there already" if os.path.lexists(new) else ""
    tool, words = _tool_and_arguments(argv)
    if not tool:
        return f"{argv[0]} is neither the target's Python nor uv or conda: what it would change is not known"
    if not words or words[0] not in _CHANGING[tool]:
        if tool == "python" and _is_python(argv[0], target, made):
            return ""
        return f"{' '.join((tool, *words[:1]))} is no command that this is known to change packages by"
    if bad := next(_forbidden_options(tool, words), ""):
        return f"{bad} leads it to another place than the environment {target.prefix}"
    if tool == "pip":
        return "" if _is_python(argv[0], target, made) else f"{argv[0]} is not the Python of {target.prefix}"
    named = list(_option_values(words, _TARGETS[tool]))
    if tool == "conda" and not named:
        return "" if target.conda else f"{target.prefix} is no environment of conda's"
    here = {os.path.normcase(folder) for folder in (target.prefix, *made)}
    if named and all(_comparable(name) in here or _is_python(name, target, made) for name in named):
        return ""
    return f"it does not name {target.python} by {_TARGETS[tool][0]}"


def created_environment(argv: Sequence[str]) -> str:
    """Absolute path of the folder that ``uv venv`` or ``python -m venv`` creates; ``""`` for any other command, as
    conda's, and if not exactly one folder is named.
    """
    argv = _without_env(argv)
    head = [program_name(argv[0]), *argv[1:]] if argv else []
    if not (head[:2] == ["uv", "venv"] or (head[1:3] == ["-m", "venv"] and head[0].startswith("python"))):
        return ""
    words = head[2:] if head[0] == "uv" else head[3:]
    pythons = list(_option_values(words, _TARGETS["uv"]))
    plain = [word for word in words if not word.startswith("-") and word not in pythons]
    return os.path.abspath(plain[-1]) if len(plain) == 1 else ""  # noqa: PTH100


def clean(environ: Mapping[str, str], target: Environment | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """(variables without those that divert pip, uv or conda, names of those removed that are worth mention).
    VIRTUAL_ENV or CONDA_PREFIX are set to the target's, and pip is kept from the user's and the system's packages.
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


def _tool_and_arguments(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """(``pip``, ``uv``, ``conda`` or ``python``, words from the subcommand on); ``""`` and empty for other programs."""
    name = program_name(argv[0]) if argv else ""
    if name.startswith("python"):
        return ("pip", argv[3:]) if tuple(argv[1:3]) == ("-m", "pip") else ("python", ())
    if name == "uv":
        return ("uv", argv[2:]) if tuple(argv[1:2]) == ("pip",) else ("", ())
    return ("conda", argv[1:]) if name in _CONDAS else ("", ())


def _is_python(program: str, target: Environment, made: Sequence[str]) -> bool:
    """True if the program is the interpreter of the target or of a folder in `made`, by path, links unfollowed."""
    if not system_paths.is_path(program):
        return False
    environments = [*([target.prefix] if target.own else []), *made]
    known = [target.python, *(path for folder in environments for path in system_paths.interpreters(folder))]
    folders = {os.path.dirname(_comparable(path)) for path in known}  # noqa: PTH120
    place = os.path.dirname(os.path.normcase(os.path.abspath(program)))  # noqa: PTH100, PTH120
    return place in folders and bool(re.fullmatch(r"python[\d.]*", program_name(program)))


def _comparable(path: str) -> str:
    """The path normalized, with case and separators as this system compares them."""
    return os.path.normcase(os.path.normpath(path))


def _forbidden_options(tool: str, arguments: Sequence[str]) -> Iterator[str]:
    """Options, long or short, that make the tool's command act on another place."""
    for word in arguments:
        name = word.partition("=")[0]
        if _is_forbidden_option(tool, name) if name.startswith("--") else _SHORT[tool].match(word):
            yield name if name.startswith("--") else word


def _is_forbidden_option(tool: str, name: str) -> bool:
    """True if the long option makes the tool act on another place; abbreviations count for pip and conda."""
    if name in _FORBIDDEN[tool]:
        return True
    if tool == "uv" or name in ("--", "--pre", "--prefix"):
        return False
    return any(item.startswith(name) for item in (*_FORBIDDEN[tool], "--prefix"))


def _option_values(arguments: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Values of these options (``--name value``, ``--name=value``, ``-pvalue``); ``""`` if the value is missing."""
    for place, word in enumerate(arguments):
        name, sign, value = word.partition("=")
        if name in names:
            yield value if sign else (arguments[place + 1] if place + 1 < len(arguments) else "")
        elif word.startswith("-p") and "-p" in names and not word.startswith("--"):
            yield word[2:]


def _without_env(argv: Sequence[str]) -> Sequence[str]:
    """The command without a leading ``env NAME=VALUE -u NAME``."""
    rest = list(argv)
    if not rest or program_name(rest[0]) != "env":
        return argv
    rest = rest[1:]
    while rest and (rest[0] == "-u" or "=" in rest[0]):
        rest = rest[2 if rest[0] == "-u" else 1 :]
    return rest


def _assigned_variables(argv: Sequence[str]) -> Iterator[str]:
    """Names of the variables that a leading ``env`` sets."""
    if argv and program_name(argv[0]) == "env":
        for before, word in pairwise(argv[: len(argv) - len(_without_env(argv))]):
            if "-u" not in (before, word):
                yield word.partition("=")[0]


# ---- What must hold just before a step, looked at anew ----
# A plan may be hours old.

_VERSION = re.compile(r"\d[\w.+!]*")
_BATCH = re.compile(r"\.(?:bat|cmd)\Z", re.I)
"""What Windows hands to cmd.exe, as conda.bat."""
_CMD = re.compile(r"[%^&|<>\"!()]")
"""What cmd.exe reads as its own in the words of a batch file, also within quotes."""


def unmet(step: PlanStep, environ: Mapping[str, str], root: bool) -> str:
    """Why the step cannot be run now (no root, no such program, an unmet requirement); ``""`` if it can."""
    if "root" in step.needs and not root:
        return "needs root, which this is not"
    if step.argv and (why := _unstartable(step.argv, environ)):
        return why
    return next(filter(None, (_unmet_requirement(item, environ) for item in step.requires)), "")


def _unstartable(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Why the command cannot be started (no such program, a batch file that misreads its words); ``""`` if it can."""
    program = system_paths.locate(argv[0], environ)
    if not program:
        return f"{argv[0]}: no such program"
    spoilt = next((word for word in argv[1:] if _CMD.search(word)), "") if _BATCH.search(program) else ""
    why = f"{program} is a batch file, and cmd.exe would take {spoilt!r} apart: type the command yourself"
    return why if spoilt else ""


def changed_since_plan(plan: Plan, installed: Lock) -> str:
    """Message naming an installed package that the plan changes and whose version no step has before or after it;
    ``""`` if there is none. Packages of which the plan does not know the version to come are passed over.
    """
    known: dict[str, list[str]] = {}
    for change in (change for step in plan.steps for change in step.changes):
        known.setdefault(change.name, []).extend((change.before, change.after))
    for item in installed:
        versions = known.get(item.name, [""])
        if _VERSION.fullmatch(versions[-1]) and item.version not in versions:  # else what it brings is not known
            was = " and ".join(dict.fromkeys(filter(None, versions)))
            return f"{item.name} {item.version} is installed now, and the plan knows of {was}: make a new plan"
    return ""


def _unmet_requirement(item: Requirement, environ: Mapping[str, str]) -> str:
    """Reason why a requirement does not hold; ``""`` if it does."""
    if item.kind == "program":
        return _unstartable((item.subject,), environ)
    if item.kind == "unchanged":  # `changed_since_plan` looks at what the plan knows of it
        return ""
    place = nearest_existing(item.subject)
    if item.kind == "writable":
        return "" if os.access(place, os.W_OK) else f"{item.subject} cannot be written to"
    free = system.disk_space(place)[1] >> 20
    return "" if free >= item.mib else f"{item.subject} has {free} MiB free, and {item.mib:.0f} are needed"
