"""The torch stack that fits as lines of a file: what to write in place of what stands there.

The file is a manifest that was read; the machine is the one that it is meant for, as far as it was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpudoctor.language import say
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.rule import Fix, Step
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.stack import EXTRAS, Wishes, read_from
from gpudoctor.setup.candidate import Candidate
from gpudoctor.setup.emit import Order, completed, conda
from gpudoctor.setup.solution import Solution
from gpudoctor.setup.solver import solved
from gpudoctor.setup.stacks import minor

EMITS: Mapping[str, str] = {
    "requirements": "requirements",
    "pyproject": "pyproject",
    "lock": "pyproject",
    "environment": "environment",
    "dockerfile": "dockerfile",
    "compose": "dockerfile",
    "pod": "dockerfile",
}
"""The form of ``gpudoctor setup torch --emit`` for each kind of manifest."""
_SANE = re.compile(r"\w[\w .()+-]{0,60}")
_BESIDE = tuple(name for name in EXTRAS if name != "triton")


def in_file(snapshot: Snapshot, kind: str) -> Fix:
    """What to change in a manifest of that kind (one of `EMITS`), and the command that prints the whole of it."""
    wishes = read_from(snapshot)
    beside = tuple(name for name in _BESIDE if name in _named(snapshot))
    found = solved(replace(wishes, extras=beside)) if wishes.gpus else Solution(wishes)
    command = Step(_command(snapshot, kind), say("Prints the whole; without --emit it also says why."))
    if not found.best:
        return _nothing_yet(found, command)
    best = completed(found.best, wishes.arch)
    build = f"CUDA {best.cuda}" if best.cuda else say("the CPU")
    because = next((reason.because for reason in found.reasons if reason.standing == "chosen"), "")
    by_conda = kind == "environment" and wishes.tool == "conda"
    why = f"{because[:1].upper()}{because[1:].rstrip('.')}"
    text = say("{place}: {lines}. {why}.", place=_where(snapshot), lines=_lines(best, wishes, kind, by_conda), why=why)
    title = say("Change the lines to torch {version} for {build}", version=best.torch, build=build)
    return Fix(title, (Step(text=text), command))


def _nothing_yet(found: Solution, command: Step) -> Fix:
    if not found.smallest:
        return Fix(say("Change the lines: let gpudoctor write those that fit the machine"), (command,))
    return Fix(say("First {change}; then the lines that fit", change=found.smallest[0].text), (command,))


def _lines(best: Candidate, wishes: Wishes, kind: str, by_conda: bool) -> str:
    """What is to stand there, in the words of that kind of file; `by_conda` rather than by pip."""
    order = Order(best, python=minor(wishes.python), system=wishes.os, arch=wishes.arch)
    if by_conda and (specs := conda.specs(order)):
        return f"{', '.join(specs)} of conda-forge"
    pins = ", ".join(order.own)
    option = {"pyproject": "index", "lock": "index", "dockerfile": "--index-url"}.get(kind, "--extra-index-url")
    others = f"; {', '.join(order.others)}" if order.others else ""
    return f"{pins} with {option} {order.index}{others}"


def _where(snapshot: Snapshot) -> str:
    """``In place of requirements.txt, line 3``."""
    torch = snapshot.get("torch.version")
    place = torch.source.partition(" (")[0] if isinstance(torch, Known) else snapshot.target.name.partition(" on ")[0]
    return f"In place of {place}"


def _named(snapshot: Snapshot) -> set[str]:
    rows = snapshot.rows("package")
    names = [row.get("name") for row in listed(rows)]
    return {str(name.value) for name in names if isinstance(name, Known)}


def _command(snapshot: Snapshot, kind: str) -> tuple[str, ...]:
    emit = EMITS.get(kind, "requirements")
    beside = [name for name in _BESIDE if name in _named(snapshot)]
    wanted = ("--want", " ".join(["torch", *beside])) if beside else ()
    return ("gpudoctor", "setup", "torch", "--for", ",".join(_machine(snapshot)), *wanted, "--emit", emit)


def _machine(snapshot: Snapshot) -> Iterator[str]:
    """The machine as ``--for`` takes it; words in capitals where nobody said, or said what is no name."""
    rows = snapshot.rows("gpu")
    names = [row["name"] for row in listed(rows) if "name" in row]
    gpus = dict.fromkeys(_sane(fact) for fact in names)
    yield f"gpu={'+'.join(filter(None, gpus)) or 'NAME'}"
    yield f"driver={_sane(snapshot.get('driver.version')) or 'VERSION'}"
    for word, name in (("python", "python.version"), ("os", "host.platform"), ("arch", "host.arch")):
        if value := _sane(snapshot.get(name)):
            yield f"{word}={value}"


def _sane(fact: object) -> str:
    """A name or version that may become a word of a command; empty for anything else."""
    value = str(fact.value) if isinstance(fact, Known) else ""
    return value if _SANE.fullmatch(value) else ""
