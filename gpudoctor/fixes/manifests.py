"""What a diagnosis of a manifest says otherwise than that of a machine: its cures are lines to change, not commands.

Cures that change an environment give way to the lines that fit; those of driver, engine and variables stay, for the
machine that the manifest is meant for needs them all the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.core.diagnosis import Diagnosis, Finding, Note
from gpudoctor.core.fact import GRANTED, Fact, Unread, known, listed, text_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.rule import Fix, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.stack import EXTRAS, Wishes, wishes_from_snapshot
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.builds import packages_of
from gpudoctor.diagnosis.knowledge.manifests.pip_takes import between_torches
from gpudoctor.fixes.solver.described_machine import machine_text as machine_words
from gpudoctor.fixes.solver.install_commands import Order, completed, conda_specs
from gpudoctor.fixes.solver.solution import Candidate, Solution
from gpudoctor.fixes.solver.solver import solve
from gpudoctor.fixes.solver.stacks import minor

_INSTALLED = ("torch", "ext", "cuda", "cudnn", "frameworks")
"""Layers whose cures install packages."""


def adapt_to_manifest(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis of a manifest with cures that are lines to change, and notes on what was not judged.
    Unchanged if its snapshot is not of a manifest.
    """
    snapshot = diagnosis.snapshot
    kind = snapshot.text("manifest.kind")
    if not kind:
        return diagnosis
    cure = (
        lines_to_change(snapshot, kind)
        if any(_is_cured_by_packages(finding) for finding in diagnosis.findings)
        else None
    )
    findings = tuple(_with_file_cure(finding, cure) for finding in diagnosis.findings)
    return replace(diagnosis, findings=findings, notes=(*_notes(snapshot), *diagnosis.notes))


def _is_cured_by_packages(finding: Finding) -> bool:
    """True if the finding is of a layer whose cures install packages, and has such a cure."""
    return finding.layer in _INSTALLED and any(_changes_environment(fix) for fix in finding.fixes)


def _changes_environment(fix: Fix) -> bool:
    """True if a step of the fix changes the environment."""
    return any(step.touches == "environment" for step in fix.steps)


def _with_file_cure(finding: Finding, cure: Fix | None) -> Finding:
    """The finding with its package cures replaced by `cure`, and `confirm` emptied; unchanged if `cure` is None or the
    finding's layer is none of `_INSTALLED`.
    """
    if cure is None or finding.layer not in _INSTALLED:
        return finding
    kept = tuple(fix for fix in finding.fixes if not _changes_environment(fix))
    return replace(finding, fixes=(cure, *kept) if _is_cured_by_packages(finding) else kept, confirm="")


# ---- What a manifest leaves open ----
# What was not read, what no table tells, what pip will do by itself.

_ASK = "To judge it for a machine: gpudoctor read {name} --for 'gpu=RTX 5090,driver=570,python=3.12', or --for here."
_ASSUMED = "Taken for granted, for --for names no other: {words}. Name what differs: --for {whole}"
_COMPILED = (
    "Compiled on the machine, for the package index has source only: {names}. That needs nvcc of torch's CUDA, a C++"
    " compiler, and torch installed in a command before it: {command}. Whether it succeeds was not judged."
)
_OWN_WHEELS = "The build of {names} first looks on the project's release page for a wheel of that torch and Python."
_LATER = "Compiled when it is first used, by nvcc: {names}. Whether that succeeds was not judged."
_LOOSE = "Not pinned, and not judged: {names}. The newest that goes with the rest is taken."
_OTHERS = "Not looked at, for no rule is about them: {names}."
_LEFT_OUT = "Left out: {names}. Markers are not for this machine, extras are installed on request only."
_NOT_JUDGED = (("manifest.loose", _LOOSE), ("manifest.left_out", _LEFT_OUT), ("manifest.others", _OTHERS))
_MOST_LINES = 12


def _notes(snapshot: Snapshot) -> Iterator[Note]:
    """Notes about the manifest: what was not read, assumed or judged."""
    if elsewhere := snapshot.texts("manifest.elsewhere"):
        says = "Not read: {names}. Files that belong together are read together: gpudoctor read --together."
        yield Note(("manifest.elsewhere",), say(says, names=", ".join(elsewhere)))
    unsure = [*snapshot.texts("manifest.open")]
    torch, archs = snapshot.text("torch.version"), snapshot.get("torch.archs")
    if torch and isinstance(archs, Unread) and snapshot.known("torch.cuda"):
        unsure.append(f"which GPUs torch {torch} has code for: its wheel is not in the tables")
    unsure += [
        f"what {name} is: no table has a GPU of that name; gpudoctor explain gpus lists them"
        for name in _unknown_gpus(snapshot)
    ]
    if unsure:
        yield Note(("manifest.open",), say("Not told: {what}.", what="; ".join(unsure)))
    yield from _companions_without_row(snapshot)
    yield from _lines_without_rule(snapshot)
    if isinstance(snapshot.rows("gpu"), Unread) and isinstance(snapshot.get("driver.version"), Unread):
        yield Note((), say(_ASK, name=snapshot.target.name))
    elif assumed := _assumed_platform(snapshot):
        whole = shlex.quote(machine_words(wishes_from_snapshot(snapshot)))
        yield Note(tuple(assumed), say(_ASSUMED, words=", ".join(assumed.values()), whole=whole))


def _assumed_platform(snapshot: Snapshot) -> dict[str, str]:
    """Defaults used for what was not stated of the machine, by fact: ``os=linux``, ``arch=x86_64``, ``any python``."""
    assumed = {}
    for key, name in (("os", "host.platform"), ("arch", "host.arch")):
        fact = snapshot.known(name)
        if fact and fact.source.endswith(GRANTED):
            assumed[name] = f"{key}={fact.value}"
    if assumed and not snapshot.known("python.version"):
        assumed["python.version"] = "any python"
    return assumed


def _unknown_gpus(snapshot: Snapshot) -> list[str]:
    """Names of the snapshot's GPUs whose compute capability is not known."""
    unknown = [row for row in listed(snapshot.rows("gpu")) if not known(row.get("compute_capability"))]
    return list(dict.fromkeys(name for row in unknown if (name := text_of(row.get("name")))))


def _companions_without_row(snapshot: Snapshot) -> Iterator[Note]:
    """Notes on packages built for one torch that are not judged, since the tables lack that release of them."""
    torch, clashes = snapshot.text("torch.version"), snapshot.text("torch.companions_unmet")
    for name, version in packages_of(listed(snapshot.rows("package"))):
        bare = version.partition("+")[0]
        if bare in _releases(name) or not _releases(name) or f"{name} {version} stands" in clashes:
            continue
        pins = [f"torch=={torch}"] if torch else []
        yield Note(
            ("package",),
            say(
                "Not told: whether {name} {version} goes with that torch: the tables have no such release of it{near}."
                " The verdict leaves it out. To find out: {command}",
                name=name,
                version=version,
                near=_neighbouring_releases(name, bare),
                command=shlex.join(["pip", "install", "--dry-run", *pins, f"{name}=={version}"]),
            ),
        )


def _neighbouring_releases(name: str, version: str) -> str:
    """Text on the package's releases before and after that version:
    ``; 0.9.2 is for torch 2.7.0, 0.10.2 for torch 2.8.0``; ``""`` if the tables have none.
    """
    near = between_torches(name, version)
    if not near:
        return ""
    first, *others = near
    return "".join(
        [
            say("; {version} is for torch {torch}", version=first.version, torch=first.torch),
            *(say(", {version} for torch {torch}", version=row.version, torch=row.torch) for row in others),
        ]
    )


def _releases(name: str) -> set[str]:
    """Releases in the tables of a package that is built per torch release; empty for other packages."""
    rows = table("companions").get(name.replace("-", "_"))
    return {row["version"] for row in rows if "torch" in row and "version" in row} if isinstance(rows, list) else set()


def _lines_without_rule(snapshot: Snapshot) -> Iterator[Note]:
    """Notes on the manifest's packages that are not judged: compiled ones, not pinned, left out, or with no rule."""
    if compiled := snapshot.texts("manifest.compiled"):
        yield Note(("manifest.compiled",), " ".join(_compile_notes(compiled)))
    for fact, says in _NOT_JUDGED:
        if names := snapshot.texts(fact):
            yield Note((fact,), say(says, names=_listed(names)))


def _compile_notes(compiled: Sequence[str]) -> Iterator[str]:
    """A sentence each on packages compiled at installation, on those of them whose build first looks for a wheel, and
    on packages compiled at first use; none where there are no such packages.

    Entries of `compiled` are a name and its place: ``flash-attn (requirements.txt, line 2)``.
    """
    rows = {row["name"]: row for row in table("companions")["sdists"]}
    named = {entry: entry.partition(" ")[0] for entry in compiled}
    now = [entry for entry, name in named.items() if not rows.get(name, {}).get("on_first_use")]
    own = [named[entry] for entry in now if rows.get(named[entry], {}).get("own_wheels")]
    if now:
        command = shlex.join(["pip", "install", "--no-build-isolation", *(named[entry] for entry in now)])
        yield say(_COMPILED, names=_listed(now), command=command)
    if own:
        yield say(_OWN_WHEELS, names=_listed(own))
    if later := [entry for entry in compiled if entry not in now]:
        yield say(_LATER, names=_listed(later))


def _listed(names: Sequence[str]) -> str:
    """The first 12 names, joined by commas, and how many more there are."""
    more = say(" and {count} more", count=len(names) - _MOST_LINES) if len(names) > _MOST_LINES else ""
    return f"{', '.join(names[:_MOST_LINES])}{more}"


# ---- The torch stack that fits, as lines to write in place of what stands there ----
# The machine is the one that the file is meant for, as far as it was said.

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


def lines_to_change(snapshot: Snapshot, kind: str) -> Fix:
    """Fix that states which lines of the manifest to change, with the command that prints them all; where nothing fits,
    the smallest change of the machine with which something would. `kind` is a key of `EMITS`.
    """
    wishes = wishes_from_snapshot(snapshot)
    there = {text_of(row.get("name")) for row in listed(snapshot.rows("package"))}
    beside = tuple(name for name in _BESIDE if name in there)
    found = solve(replace(wishes, extras=beside)) if wishes.gpus else Solution(wishes)
    wanted = ("--want", " ".join(["torch", *beside])) if beside else ()
    emit = EMITS.get(kind, "requirements")
    argv = ("gpudoctor", "setup", "torch", "--for", ",".join(_machine_keys(snapshot)), *wanted, "--emit", emit)
    command = Step(argv, say("Prints the whole; without --emit it also says why."))
    if not found.best and found.smallest:
        return Fix(say("First {change}; then the lines that fit", change=found.smallest[0].text), (command,))
    if not found.best:
        return Fix(say("Change the lines: let gpudoctor write those that fit the machine"), (command,))
    best = completed(found.best, wishes.arch)
    build = f"CUDA {best.cuda}" if best.cuda else say("the CPU")
    because = next((reason.because for reason in found.reasons if reason.standing == "chosen"), "")
    by_conda = kind == "environment" and wishes.tool == "conda"
    why = f"{because[:1].upper()}{because[1:].rstrip('.')}"
    text = say(
        "{place}: {lines}. {why}.",
        place=_place_phrase(snapshot),
        lines=_stack_lines(best, wishes, kind, by_conda),
        why=why,
    )
    title = say("Change the lines to torch {version} for {build}", version=best.torch, build=build)
    return Fix(title, (Step(text=text), command))


def _stack_lines(best: Candidate, wishes: Wishes, kind: str, by_conda: bool) -> str:
    """The candidate's packages as a phrase for that kind of file: conda specs if `by_conda`, else pip pins with
    index.
    """
    order = Order(best, python=minor(wishes.python), system=wishes.os, arch=wishes.arch)
    if by_conda and (specs := conda_specs(order)):
        return say("{specs} of conda-forge", specs=", ".join(specs))
    pins = ", ".join(order.own)
    option = {"pyproject": "index", "lock": "index", "dockerfile": "--index-url"}.get(kind, "--extra-index-url")
    others = f"; {', '.join(order.others)}" if order.others else ""
    return say("{pins} with {option} {index}", pins=pins, option=option, index=order.index) + others


def _place_phrase(snapshot: Snapshot) -> str:
    """Where new lines go: ``In place of requirements.txt, line 3``, else the manifest's name."""
    torch = snapshot.known("torch.version")
    place = torch.source.partition(" (")[0] if torch else snapshot.target.name.partition(" on ")[0]
    return say("In place of {place}", place=place)


def _machine_keys(snapshot: Snapshot) -> Iterator[str]:
    """``key=value`` parts for ``--for``; ``NAME`` and ``VERSION`` for an unknown GPU or driver, others are left out."""
    rows = snapshot.rows("gpu")
    names = [row["name"] for row in listed(rows) if "name" in row]
    gpus = dict.fromkeys(_safe_word(fact) for fact in names)
    yield f"gpu={'+'.join(filter(None, gpus)) or 'NAME'}"
    yield f"driver={_safe_word(snapshot.get('driver.version')) or 'VERSION'}"
    for word, name in (("python", "python.version"), ("os", "host.platform"), ("arch", "host.arch")):
        if value := _safe_word(snapshot.get(name)):
            yield f"{word}={value}"


def _safe_word(fact: Fact) -> str:
    """Value of a fact if it may stand in a command (a plain name or version); else, or if unknown, ``""``."""
    value = text_of(fact)
    return value if _SANE.fullmatch(value) else ""
