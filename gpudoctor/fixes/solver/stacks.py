"""The solver's answer as a stack to show: with the commands and files that set it up, and what an index says to it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.stack import Reason, Remedy, Stack, Wishes
from gpudoctor.fixes.solver.described_machine import (
    assumption_remark,
    given_text,
    machine_text,
    with_usual_platform,
)
from gpudoctor.fixes.solver.environment import ELSEWHERE, Environment
from gpudoctor.fixes.solver.index import Indexes
from gpudoctor.fixes.solver.install_commands import (
    BASE,
    COMMANDS,
    CONDA_NAME,
    Order,
    completed,
    conda_remarks,
    conda_specs,
    not_on_conda,
    pip_commands,
)
from gpudoctor.fixes.solver.machine import device, parsed_driver, version
from gpudoctor.fixes.solver.solution import Candidate, Solution, facts_once_installed
from gpudoctor.fixes.solver.solver import solve

_MOST_ASKED = 4
"""Candidates that an index is asked for before its answer is taken to be that it has none of them."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The chosen candidate (None if the indexes have none), with reasons, remarks and wheel hashes by package."""

    candidate: Candidate | None
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()
    hashes: Mapping[str, tuple[str, str]] | None = None


def stack(wishes: Wishes, environment: Environment = ELSEWHERE, shelves: Indexes | None = None) -> Stack:
    """Stack that fits the wishes, with the commands and files to install it; without `torch` if nothing fits.
    With `shelves` these indexes are asked whether they have its packages. An invalid requirement raises `UsageError`.
    """
    found = solve(wishes)
    best = completed(found.best, wishes.arch) if found.best else None
    choice = _verified_choice(found, wishes, shelves) if shelves and best else _Choice(best)
    base = shelves.base if shelves else BASE
    empty = Stack(
        wishes,
        torch="",
        heading=found.heading,
        reasons=(*choice.reasons, *found.reasons),
        remarks=(*choice.remarks, *found.remarks),
        smallest=tuple(_with_what_to_type(remedy, wishes, environment, base) for remedy in found.smallest),
        sources=found.sources,
        offers=found.offers,
    )
    if choice.candidate is None:
        return empty
    order = Order(
        choice.candidate,
        environment,
        base=base,
        python=minor(wishes.python),
        system=wishes.os,
        arch=wishes.arch,
        pinned=bool(wishes.torch),
        hashes=choice.hashes or {},
    )
    return _with_commands(replace(empty, needs=found.needs), order)


def _with_commands(stack: Stack, order: Order) -> Stack:
    """The stack with the order's packages, commands for each tool, files of each form, remarks and effects."""
    best = order.candidate
    return replace(
        stack,
        torch=f"{best.torch}+{best.build}",
        packages=tuple(
            (item.name, order.pin(item).partition("==")[2] or item.version or item.requirement)
            for item in best.packages
        ),
        libraries=best.libraries,
        commands={
            tool: write(replace(order, environment=order.environment.by(tool))) for tool, write in COMMANDS.items()
        },
        files={form: text for form, write in FILES.items() if (text := write(order))},
        remarks=(*stack.remarks, *(conda_remarks(order) if order.environment.tool == "conda" else ())),
        makes=dict(facts_once_installed(best, order.environment, stack.wishes)),
    )


def _verified_choice(solution: Solution, wishes: Wishes, shelves: Indexes) -> _Choice:
    """The first of up to four candidates that the indexes do not lack, with why others were rejected; a choice without
    candidate if they lack all. Where they do not answer, the best one, noted as not verified.

    A described machine that does not give its system or architecture is taken to have the usual one; a remark says so.
    """
    rejected: list[Reason] = []
    assumed = assumption_remark(wishes) if wishes.elsewhere and wishes.python else ""
    place = with_usual_platform(wishes) if assumed else wishes
    for candidate in (completed(candidate_fit, place.arch) for candidate_fit in solution.ranked[:_MOST_ASKED]):
        verdict = shelves.verdict(Order(candidate, base=shelves.base), minor(place.python), place.os, place.arch)
        if not verdict.lacks:
            hints = (say("{sentence}.", sentence=assumed),) if assumed else _verify_hint(wishes, shelves)
            return _Choice(candidate, tuple(rejected), (verdict.summary, *hints), verdict.hashes)
        name = f"torch {candidate.torch} {candidate.build}"
        rejected.append(Reason(name, "rejected", f"{verdict.summary}: {', '.join(verdict.lacks)}"))
    none = say("The index has none of the builds that fit; --offline leaves it unasked.")
    return _Choice(None, tuple(rejected), (none,))


def _verify_hint(wishes: Wishes, shelves: Indexes) -> tuple[str, ...]:
    """Sentence with the command that verifies a described machine's stack. Empty for this machine, if the indexes are
    not to be asked, or if Python, system and architecture are all given.
    """
    if not shelves.ask or not wishes.elsewhere or (wishes.python and wishes.os and wishes.arch):
        return ()
    wanted = ("--want", " ".join(wishes.wants)) if wishes.wants else ()
    command = shlex.join(["gpudoctor", "setup", "torch", "--for", machine_text(wishes), *wanted])
    return (say("To have it verified, say which; for the usual ones: {command}", command=command),)


def _with_what_to_type(remedy: Remedy, wishes: Wishes, environment: Environment, base: str) -> Remedy:
    """The remedy with the command that plans its driver, the one for torch on it, and what the latter would give, from
    the index `base`, for the machine described or this one. Other remedies than a driver stay as they are.

    The driver's command names the CUDA that it must serve where the GPUs alone would take an older one.
    """
    if remedy.field != "driver":
        return remedy
    changed, own = wishes.remedied(remedy), parsed_driver(wishes.driver)
    best = solve(changed).best
    floors = [version(floor) for gpu in wishes.gpus for floor in device(gpu).floors]
    newer = own is not None and not own.reaches(remedy.least)
    too_old = newer and max(floors, default=version("0")) < version(remedy.least)
    serves = ("--cuda", best.cuda) if best and too_old else ()
    wanted = (f"torch=={wishes.torch}.*", *wishes.extras) if wishes.torch else wishes.extras
    wants = " ".join((*wanted, *wishes.wants)) if wishes.elsewhere else " ".join(wishes.wants)
    commands = []
    for what, machine, more in (("driver", wishes, serves), ("torch", changed, ("--want", wants) if wants else ())):
        described = ("--for", given_text(machine)) if wishes.elsewhere else ()
        commands.append(("gpudoctor", "setup", what, *described, *more))
    then = (
        Order(completed(best, changed.arch), environment.by("pip"), base, pinned=bool(wishes.torch)) if best else None
    )
    return replace(remedy, commands=tuple(commands), installs=tuple(pip_commands(then)) if then else ())


def minor(python: str) -> str:
    """Minor version of a Python version: ``3.12`` for ``3.12.3``, ``3.13t`` for itself; ``""`` if it is no version."""
    match = re.match(r"\d+\.\d+t?", python)
    return match[0] if match else ""


# ---- requirements.txt, which pip and uv read ----
# A hash after a requirement would make pip ask for the hash of every package that is installed with it; one in the URL
# of a wheel is checked by itself. So where an index told the hashes, the wheels stand there by their URLs.


def requirements(order: Order) -> str:
    """Text of a requirements.txt with everything pinned, torch's packages by exact build."""
    return "\n".join([*_requirement_lines(order), ""])


def _requirement_lines(order: Order) -> Iterator[str]:
    """Lines of a requirements.txt: all pinned, by URL with SHA-256 where known; what must be compiled as a comment."""
    candidate = order.candidate
    what = f"torch {candidate.torch}, " + (f"CUDA {candidate.cuda}" if candidate.cuda else "CPU only")
    yield f"# {what}: python -m pip install -r FILE"
    if order.hashes:
        yield f"# Wheels for Python {order.python} on {order.system} {order.arch}, each with its SHA-256."
    yield f"--extra-index-url {order.index}"
    for package in candidate.packages:
        pin = order.pin(package)
        if pin not in order.compiled:
            url, digest = order.hashes.get(package.name, ("", ""))
            yield f"{package.name} @ {url}#sha256={digest}" if digest else pin
    if order.compiled:
        yield "# Then, as it is compiled against that torch and wants nvcc:"
        yield f"# python -m pip install --no-build-isolation {' '.join(order.compiled)}"


# ---- pyproject.toml for a project of uv ----
# torch's packages from torch's index, and nothing else from there.


def pyproject(order: Order) -> str:
    """Text of a pyproject.toml for uv; only torch's own packages come from torch's index."""
    candidate = order.candidate
    name = f"pytorch-{candidate.build}"
    own = [package for package in candidate.packages if package.origin == "torch"]
    pins = [order.pin(package) for package in candidate.packages]
    lines = ["[project]", 'name = "torch-project"', 'version = "0"']
    if order.python:
        lines.append(f'requires-python = "=={order.python}.*"')
    lines += ["dependencies = [", *(f"  {json.dumps(pin)}," for pin in pins), "]", ""]
    lines += ["[tool.uv.sources]", *(f"{package.name} = {{ index = {json.dumps(name)} }}" for package in own), ""]
    lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(order.index)}", "explicit = true"]
    if order.compiled:
        names = [package.name for package in candidate.packages if order.pin(package) in order.compiled]
        lines += ["", "[tool.uv]", f"no-build-isolation-package = {json.dumps(names)}"]
    return "\n".join([*_with_environments(order, lines), ""])


def _with_environments(order: Order, lines: list[str]) -> list[str]:
    """The lines with uv's ``environments`` limited to the order's system and architecture, if both are known."""
    system = {"windows": "win32", "linux": "linux", "wsl": "linux"}.get(order.system)
    if not system or not order.arch:
        return lines
    machine = "AMD64" if (system, order.arch) == ("win32", "x86_64") else order.arch
    marker = f"sys_platform == '{system}' and platform_machine == '{machine}'"
    table = [] if "[tool.uv]" in lines else ["", "[tool.uv]"]
    return [*lines, *table, f"environments = [{json.dumps(marker)}]"]


# ---- environment.yml, which conda, mamba and micromamba read ----


def environment_yml(order: Order) -> str:
    """Text of a conda environment.yml; packages that conda-forge lacks come by pip. ``""`` if it has no such torch."""
    specs = conda_specs(order)
    if not specs:
        return ""
    others = [order.pin(package) for package in order.candidate.packages if package.name in not_on_conda(order)]
    python = [f"python={order.python}"] if order.python else ["python"]
    lines = [
        "# conda env create --file environment.yml",
        f"name: {CONDA_NAME}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
    ]
    lines += ["dependencies:", *(f'  - "{spec}"' for spec in [*python, *specs])]
    if others:
        lines += ["  - pip", "  - pip:", *(f'      - "{other}"' for other in others)]
    return "\n".join([*lines, ""])


# ---- pixi.toml: conda-forge's builds in a project of pixi ----


def pixi(order: Order) -> str:
    """Text of a pixi.toml; ``""`` if conda-forge has no such torch."""
    specs = conda_specs(order)
    if not specs:
        return ""
    platform = "win-64" if order.system == "windows" else "linux-aarch64" if order.arch == "aarch64" else "linux-64"
    python = f"{order.python}.*" if order.python else "*"
    lines = [
        "# pixi install",
        "[workspace]",
        'name = "torch"',
        'channels = ["conda-forge"]',
        f'platforms = ["{platform}"]',
    ]
    if order.candidate.cuda:  # a machine without a GPU, such as a login node, can make the lock as well
        lines += ["", "[system-requirements]", f'cuda = "{order.candidate.cuda.partition(".")[0]}"']
    lines += ["", "[dependencies]", f"python = {json.dumps(python)}", *map(_pixi_dependency, specs)]
    return "\n".join([*lines, *_pixi_pypi_lines(order), ""])


def _pixi_dependency(spec: str) -> str:
    """TOML line of a conda spec: ``name = "2.9.*"``; ``"*"`` for any version."""
    name, version = re.fullmatch(r"([a-z0-9-]+)(.*)", spec).groups()  # type: ignore[union-attr]
    exact = f"{version[1:]}.*" if version.startswith("=") else version or "*"
    return f"{name} = {json.dumps(exact)}"


def _pixi_pypi_lines(order: Order) -> list[str]:
    """Lines of pixi.toml for packages that conda-forge lacks; empty if there are none."""
    others = [package for package in order.candidate.packages if package.name in not_on_conda(order)]
    if not others:
        return []
    lines = [
        f"{item.name} = {{ url = {json.dumps(item.url)} }}"
        if item.origin == "wheel"
        else f"{item.name} = {json.dumps('==' + item.version)}"
        for item in others
    ]
    return ["", "[pypi-dependencies]", *lines]


# ---- A Dockerfile ----
# The wheels bring CUDA along, so a plain Python image does; one with nvcc only where it compiles.

_PYTHON = "3.12"
"""Of an image where nobody named one: of the wheels of every torch since 2.2."""
_TOOLKITS = {"11.8": "11.8.0", "12.1": "12.1.1", "12.4": "12.4.1", "12.6": "12.6.3", "12.8": "12.8.1", "12.9": "12.9.1"}
_TOOLKITS.update({"13.0": "13.0.2", "13.2": "13.2.0"})
"""The patch release of NVIDIA's image of each CUDA release."""
_UBUNTU = {"11": "ubuntu22.04", "12": "ubuntu22.04", "13": "ubuntu24.04"}


def dockerfile(order: Order) -> str:
    """Text of a Dockerfile, with the commands to build and run it as a comment."""
    run = "docker run --gpus all --shm-size=8g" if order.candidate.cuda else "docker run"
    return "\n".join([f"# docker build -t torch . && {run} --rm -it torch", *_dockerfile_lines(order), ""])


def _dockerfile_lines(order: Order) -> Iterator[str]:
    """Instructions of the Dockerfile; an image with nvcc if something is compiled."""
    python = order.python or _PYTHON
    if order.compiled:
        release = order.candidate.cuda
        ubuntu = _UBUNTU[release.partition(".")[0]]
        yield f"FROM nvidia/cuda:{_TOOLKITS.get(release, release + '.0')}-devel-{ubuntu}"
        yield "COPY --from=ghcr.io/astral-sh/uv:0.9 /uv /usr/local/bin/uv"
        yield f"RUN uv venv --python {python} --seed /opt/venv"
        yield "ENV PATH=/opt/venv/bin:$PATH"
    else:
        yield f"FROM python:{python}-slim"
    inside = replace(order, environment=Environment(python="python"))
    for argv in pip_commands(inside):
        yield "RUN " + shlex.join([*argv[:4], "--no-cache-dir", *argv[4:]])


FILES = {
    "requirements": requirements,
    "pyproject": pyproject,
    "dockerfile": dockerfile,
    "environment": environment_yml,
    "pixi": pixi,
}
