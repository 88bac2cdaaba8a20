"""What a manifest leaves open, in words: what was not read, what no table tells, what pip will do by itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.manifests.companions import between_torches
from gpudoctor.language import say
from gpudoctor.model.diagnosis import Note
from gpudoctor.model.fact import Fact, Known, Unread, listed
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.stack import GRANTED, read_from

_ASK = "To judge it for a machine: gpudoctor read {name} --for 'gpu=RTX 5090,driver=570,python=3.12', or --for here."
_USUAL = "Taken for granted, for --for names no other: {words}. Name what differs: --for {whole}"
_COMPILED = (
    "Compiled on the machine, for the package index has source only: {names}. That needs nvcc of torch's CUDA, a C++"
    " compiler, and torch installed in a command before it: {command}. Whether it succeeds was not judged."
)
_OWN_WHEELS = "The build of {names} first looks on the project's release page for a wheel of that torch and Python."
_LATER = "Compiled when it is first used, by nvcc: {names}. Whether that succeeds was not judged."
_LOOSE = "Not pinned, and not judged: {names}. pip takes the newest that goes with the rest."
_OTHERS = "Not looked at, for no rule is about them: {names}."
_LEFT_OUT = "Left out: {names}. Markers are not for this machine, extras are installed on request only."
_SILENT = (("manifest.loose", _LOOSE), ("manifest.left_out", _LEFT_OUT), ("manifest.others", _OTHERS))
_MOST = 12


def notes(snapshot: Snapshot) -> Iterator[Note]:
    """What the report says of the file after its findings."""
    elsewhere, unsure = snapshot.get("manifest.elsewhere"), snapshot.get("manifest.open")
    if isinstance(elsewhere, Known) and isinstance(elsewhere.value, tuple):
        names = ", ".join(map(str, elsewhere.value))
        says = "Not read: {names}. Files that belong together are read together: gpudoctor read --together."
        yield Note(("manifest.elsewhere",), say(says, names=names))
    said = list(map(str, unsure.value)) if isinstance(unsure, Known) and isinstance(unsure.value, tuple) else []
    torch, archs = snapshot.get("torch.version"), snapshot.get("torch.archs")
    if isinstance(torch, Known) and isinstance(archs, Unread) and isinstance(snapshot.get("torch.cuda"), Known):
        said.append(f"which GPUs torch {torch.value} has code for: its wheel is not in the tables")
    said += [
        f"what {name} is: no table has a GPU of that name; gpudoctor explain gpus lists them"
        for name in _unheard_of(snapshot)
    ]
    if said:
        yield Note(("manifest.open",), say("Not told: {what}.", what="; ".join(said)))
    yield from _untold(snapshot)
    yield from _silent(snapshot)
    if isinstance(snapshot.rows("gpu"), Unread) and isinstance(snapshot.get("driver.version"), Unread):
        yield Note((), say(_ASK, name=snapshot.target.name))
    elif usual := _usual(snapshot):
        from gpudoctor.setup.described import words  # the solver's room is imported for nothing else

        yield Note(
            tuple(usual), say(_USUAL, words=", ".join(usual.values()), whole=shlex.quote(words(read_from(snapshot))))
        )


def _usual(snapshot: Snapshot) -> dict[str, str]:
    """What nobody said of the machine that the file is meant for, as facts, and as the words that were taken."""
    found = {}
    for key, name in (("os", "host.platform"), ("arch", "host.arch")):
        fact = snapshot.get(name)
        if isinstance(fact, Known) and fact.source.endswith(GRANTED):
            found[name] = f"{key}={fact.value}"
    if found and not isinstance(snapshot.get("python.version"), Known):
        found["python.version"] = "any python"
    return found


def _unheard_of(snapshot: Snapshot) -> list[str]:
    """The names of GPUs from which no table tells the compute capability."""
    rows = snapshot.rows("gpu")
    named = [row for row in listed(rows) if isinstance(row.get("name"), Known)]
    bare = [row["name"] for row in named if not isinstance(row.get("compute_capability"), Known)]
    return list(dict.fromkeys(str(name.value) for name in bare if isinstance(name, Known)))


def _untold(snapshot: Snapshot) -> Iterator[Note]:
    """Packages that are built for one torch and whose release no table has, with what is known of its neighbours."""
    torch = snapshot.get("torch.version")
    clash = snapshot.get("torch.companions_unmet")
    clashes = str(clash.value) if isinstance(clash, Known) else ""
    for name, version in _packages(snapshot):
        bare = version.partition("+")[0]
        if bare in _releases(name) or not _releases(name) or f"{name} {version} stands" in clashes:
            continue
        pins = [f"torch=={torch.value}"] if isinstance(torch, Known) else []
        yield Note(
            ("package",),
            say(
                "Not told: whether {name} {version} goes with that torch: the tables have no such release of it{near}."
                " The verdict leaves it out. To find out: {command}",
                name=name,
                version=version,
                near=_near(name, bare),
                command=shlex.join(["pip", "install", "--dry-run", *pins, f"{name}=={version}"]),
            ),
        )


def _near(name: str, version: str) -> str:
    """``; 0.9.2 is for torch 2.7.0, 0.10.2 for torch 2.8.0``: what the tables have before and after it."""
    near = between_torches(name, version)
    if not near:
        return ""
    first, *others = near
    return "".join(
        [
            say("; {version} is for torch {torch}", version=first.version, torch=first.torch),
            *(say(", {version} for torch {torch}", version=one.version, torch=one.torch) for one in others),
        ]
    )


def _releases(name: str) -> set[str]:
    """The releases that the tables have of a package each release of which is built for some torch."""
    rows = table("companions").get(name.replace("-", "_"))
    return {row["version"] for row in rows if "torch" in row and "version" in row} if isinstance(rows, list) else set()


def _packages(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for row in listed(snapshot.rows("package")):
        name, version = row.get("name"), row.get("version")
        if isinstance(name, Known) and isinstance(version, Known):
            yield str(name.value), str(version.value)


def _silent(snapshot: Snapshot) -> Iterator[Note]:
    """Lines that decide nothing which a rule could judge, so that none vanishes without a word."""
    if compiled := _told(snapshot.get("manifest.compiled")):
        yield Note(("manifest.compiled",), " ".join(_compiling(compiled)))
    for fact, says in _SILENT:
        if names := _told(snapshot.get(fact)):
            yield Note((fact,), say(says, names=_listed(names)))


def _compiling(compiled: Sequence[str]) -> Iterator[str]:
    """What is compiled when it is installed, and what when it is first used; each with the line that asks for it."""
    rows = {row["name"]: row for row in table("companions")["sdists"]}
    named = {one: one.partition(" ")[0] for one in compiled}
    now = [one for one, name in named.items() if not rows.get(name, {}).get("on_first_use")]
    own = [named[one] for one in now if rows.get(named[one], {}).get("own_wheels")]
    if now:
        command = shlex.join(["pip", "install", "--no-build-isolation", *(named[one] for one in now)])
        yield say(_COMPILED, names=_listed(now), command=command)
    if own:
        yield say(_OWN_WHEELS, names=_listed(own))
    if later := [one for one in compiled if one not in now]:
        yield say(_LATER, names=_listed(later))


def _told(fact: Fact | None) -> list[str]:
    return [str(one) for one in fact.value] if isinstance(fact, Known) and isinstance(fact.value, tuple) else []


def _listed(names: Sequence[str]) -> str:
    """The first dozen of them, and how many more there are."""
    more = say(" and {count} more", count=len(names) - _MOST) if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"
