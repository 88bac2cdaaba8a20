"""A machine that is not here, as ``--for`` describes it: ``gpu=RTX 5090x2+H100,driver=570,python=3.12,os=wsl``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches

from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Fact, Known, Row
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.core.stack import GPU, Wishes
from gpudoctor.core.values import CannotJudge
from gpudoctor.core.versions import parse
from gpudoctor.diagnosis.knowledge import gpus
from gpudoctor.diagnosis.knowledge.setup_facts import is_distribution, repository_releases
from gpudoctor.fixes.solver.machine import device, long_term_branches, near_phrase, newest_of, python_tag

SOURCE = "as given"
_BEFORE = re.compile(r"(\d{1,6}) ?[xX×*] ?(\D.*)")
_AFTER = re.compile(r"(.+?)( ?[×*] ?| x ?|x)(\d{1,6})", re.IGNORECASE)
_MOST_GPUS = 1024
KEYS: Mapping[str, str] = {
    "gpu": "RTX 5090, RTX 5090x2+H100, or sm_120",
    "driver": "570.124.06, or 570 for the newest of that branch",
    "python": "3.12, or 3.13t without the global lock",
    "os": "linux, windows or wsl",
    "arch": "x86_64 or aarch64",
    "glibc": "2.31, or musl",
    "distribution": "ubuntu 24.04",
}
"""What may be said of a machine, each with an example."""
USUAL: Mapping[str, str] = {"python": "3.12", "os": "linux", "arch": "x86_64"}
"""What most machines are, where the wheels depend on it."""


def parse_machine(text: str) -> Wishes:
    """Wishes for a machine described as ``gpu=H100,driver=550``; an unknown key or invalid value raises
    `UsageError`.

    The key may be missing where the value names it, ``H100, driver 550``, but not before a bare number: 570 is a driver
    and a GPU. A distribution may be given as the system, ``os=Ubuntu 24.04`` or ``os=debian12``, and says that it is
    Linux.
    """
    wishes = Wishes()
    keys_given: set[str] = set()
    for item in filter(None, map(str.strip, text.split(","))):
        part = item if "=" in item or not re.search("[A-Za-z]", item) else _as_key_value(item) or item
        key, equals, value = (item.strip() for item in part.partition("="))
        if key.lower() == "os" and is_distribution(value):
            key = "distribution"
        if key.lower() not in KEYS or not equals:
            raise UsageError(_usage_message(part, key, text))
        if key.lower() in keys_given:
            raise UsageError(
                say("--for says {key} twice; several GPUs are joined by a plus: gpu=H100+RTX 4090", key=key.lower())
            )
        keys_given.add(key.lower())
        field, parsed = _PARSERS[key.lower()](value)
        wishes = wishes.with_wish(field, parsed)
    if "distribution" in keys_given and not wishes.os:
        wishes = wishes.with_wish("os", "linux")
    if not keys_given:
        raise UsageError(say("--for is empty; say {value}", value=_examples()))
    return wishes


def refuse_unknown_gpus(wishes: Wishes) -> None:
    """Raises `UsageError` for a GPU that the tables do not know: what serves it would be a guess."""
    if unknown := next((gpu.name[:60] for gpu in wishes.gpus if not device(gpu).capabilities), ""):
        near = near_phrase(unknown)
        raise UsageError(
            say(
                "the tables do not know the GPU {unknown}{near}; give its compute capability: gpu=sm_120",
                unknown=repr(unknown),
                near=near,
            )
        )


def _usage_message(part: str, key: str, text: str) -> str:
    """Error message for a part of ``--for`` that is not understood, with a suggestion if one is near."""
    near = get_close_matches(key.lower(), KEYS, n=1)
    hint = say("; did you mean {names}?", names=near[0]) if near and near[0] != key.lower() else ""
    if meant := _suggestion(text):
        hint = say("; did you mean {names}?", names=f"--for {shlex.quote(meant)}")
    sentence = "--for takes {examples}; {part} is none of these{hint}"
    return say(sentence, examples=_examples(), part=repr(part[:40]), hint=hint)


def _suggestion(text: str) -> str:
    """What may have been meant, ``gpu=H100,driver=550`` for ``H100, driver 550``; ``""`` if a part is not understood or
    given twice.
    """
    found = [_as_key_value(part) for item in text.split(",") if (part := item.strip())]
    keys = [pair.partition("=")[0] for pair in found]
    return ",".join(found) if all(found) and len(set(keys)) == len(keys) else ""


def _as_key_value(part: str) -> str:
    """One part of ``--for`` as ``key=value``, the key guessed if missing; ``""`` if it is no valid one."""
    key, equals, value = (item.strip() for item in part.partition("="))
    if not equals:
        key, _, value = part.partition(" ")
        key = key.rstrip(":")
    if key.lower() not in KEYS or not value.strip():
        other = "distribution" if is_distribution(part) else "gpu"
        key, value = next(((key, part) for key in ("os", "arch") if part.lower() in _SPELLINGS[key]), (other, part))
        if key == "gpu" and not gpus.gpu_known(_name_and_count(part)[0]):
            return ""
    try:
        _PARSERS[key.lower()](value.strip())
    except UsageError:
        return ""
    return f"{key.lower()}={value.strip()}"


def machine_text(wishes: Wishes) -> str:
    """The machine in the form of ``--for``; Python, system and architecture default to `USUAL`."""
    return given_text(replace(with_usual_platform(wishes), python=wishes.python or USUAL["python"]))


def given_text(wishes: Wishes) -> str:
    """The machine in the form of ``--for``, only what the wishes give."""
    names = [f"{gpu.name}x{gpu.count}" if gpu.count > 1 else gpu.name for gpu in wishes.gpus]
    values = {
        "gpu": "+".join(names),
        "driver": wishes.driver,
        "python": wishes.python,
        "os": wishes.os,
        "arch": wishes.arch,
        "glibc": wishes.libc.removeprefix("glibc "),
        "distribution": wishes.distribution.replace(" ", ":"),
    }
    return ",".join(f"{key}={value}" for key, value in values.items() if value)


def with_usual_platform(wishes: Wishes) -> Wishes:
    """The wishes with the usual system and architecture where they give none."""
    return replace(wishes, os=wishes.os or USUAL["os"], arch=wishes.arch or USUAL["arch"])


def assumption_remark(wishes: Wishes) -> str:
    """What `with_usual_platform` adds to the wishes, as a sentence without its stop; ``""`` if nothing."""
    taken = ", ".join(f"{key}={USUAL[key]}" for key in ("os", "arch") if not getattr(wishes, key))
    return say("Not given in --for, so the usual is taken: {keys}", keys=taken) if taken else ""


def completions(wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """(What the wishes do not give, the wishes with an example of it): a release of the distribution, a driver."""
    name, _, release = wishes.distribution.partition(" ")
    for example in () if release else repository_releases(name):
        yield say("the release of {name}", name=name), wishes.with_wish("distribution", f"{name} {example}")
    if not wishes.driver:
        yield say("the driver"), wishes.with_wish("driver", long_term_branches()[0])


def _written(key: str) -> str:
    """How the value of a key is written, with an example."""
    return say(KEYS[key])


def _examples() -> str:
    """All keys with an example each, for messages."""
    return say(", ").join(f"{key}= {say('({marks})', marks=_written(key))}" for key in KEYS)


def gpus_of(text: str) -> tuple[GPU, ...]:
    """GPUs of a text such as ``RTX 5090x2+H100``, with compute capability where the name is unambiguous.
    Raises `UsageError` for empty names or impossible counts.
    """
    found: list[GPU] = []
    for part in text.split("+"):
        name, count = _name_and_count(part.strip())
        if not name:
            raise UsageError(say("gpu={text} names no GPU before or after a plus", text=repr(text[:60])))
        if "=" in name:
            meant = re.sub(r"[ ;]+(?=\w+=)", ",", f"gpu={text}")
            raise UsageError(
                say(
                    "gpu={text} is no GPU; parts go between commas: --for {words}",
                    text=repr(text[:60]),
                    words=shlex.quote(meant),
                )
            )
        if not 0 < count <= _MOST_GPUS:
            raise UsageError(say("gpu={part}: {count} GPUs are no machine", part=repr(part.strip()[:40]), count=count))
        found.append(GPU(name, _compute_capability(name), count))
    return tuple(found)


def _name_and_count(part: str) -> tuple[str, int]:
    """Name and count: (``RTX 5090``, 2) for ``RTX 5090x2`` and ``2x RTX 5090``, but (``MX150``, 1)."""
    if match := _BEFORE.fullmatch(part):
        return match[2], int(match[1])
    match = _AFTER.fullmatch(part)
    if match and (not match[1][-1].isalpha() or match[2].lower() != "x" or gpus.gpu_known(match[1])):
        return match[1].strip(), int(match[3])
    return part, 1


def _compute_capability(name: str) -> str:
    """Compute capability by GPU name, ``9.0``; ``""`` if unknown or ambiguous."""
    try:
        return gpus.gpu_capability(name)
    except CannotJudge:
        several = device(GPU(name)).capabilities
        return "{}.{}".format(*several[0]) if len(several) == 1 else ""


def _parse_driver(value: str) -> tuple[str, object]:
    """(``driver``, the text) of a driver version or branch; raises `UsageError` for anything else."""
    number = parse(value)
    if number is None or not 100 <= number.major < 10_000 or not re.fullmatch(r"[\d.]+", value):
        raise UsageError(
            say("driver={value} is no driver; it is written {form}", value=repr(value[:40]), form=_written("driver"))
        )
    return "driver", value


def _parse_python(value: str) -> tuple[str, object]:
    """(``python``, the text) of a Python version; raises `UsageError` for anything else."""
    if not python_tag(value):
        raise UsageError(
            say(
                "python={value} is no Python version; it is written {form}",
                value=repr(value[:40]),
                form=_written("python"),
            )
        )
    return "python", value


def _choice_parser(field: str, spellings: Mapping[str, str]) -> Callable[[str], tuple[str, object]]:
    """Parser of a field that takes only these spellings; it raises `UsageError` for others."""

    def parse(value: str) -> tuple[str, object]:
        """(field, canonical spelling) of a value, ignoring case; `UsageError` for another."""
        if value.lower() not in spellings:
            choices = ", ".join(dict.fromkeys(spellings.values()))
            refused = say("{field}={value} is none of {names}", field=field, value=repr(value[:40]), names=choices)
            raise UsageError(refused + (say(_DISTRIBUTION_HINT) if field == "os" else ""))
        return field, spellings[value.lower()]

    return parse


def _parse_libc(value: str) -> tuple[str, object]:
    """(``libc``, ``glibc 2.31`` or ``musl``) of a C library; raises `UsageError` for anything else."""
    bare = value.lower().removeprefix("glibc").strip()
    if bare.startswith("musl"):
        return "libc", "musl"
    if not re.fullmatch(r"2\.\d{1,3}(\.\d+)?", bare):
        raise UsageError(
            say(
                "glibc={value} is no version of it; it is written {form}",
                value=repr(value[:40]),
                form=_written("glibc"),
            )
        )
    return "libc", f"glibc {bare}"


def _parse_distribution(value: str) -> tuple[str, object]:
    """(``distribution``, ``ubuntu 24.04``) of a distribution's name and release; raises `UsageError` for no such."""
    match = re.fullmatch(r"([A-Za-z](?:[\w-]*[A-Za-z])?)[ :-]?([\d.]*)", value)
    if not match:
        raise UsageError(
            say(
                "distribution={value} is none; it is written {form}",
                value=repr(value[:40]),
                form=_written("distribution"),
            )
        )
    name = match[1].lower()
    release = re.sub(r"^(\d\d)(\d\d)$", r"\1.\2", match[2]) if name == "ubuntu" else match[2]
    return "distribution", f"{name} {release}".strip()


_DISTRIBUTION_HINT = "; a distribution of Linux goes under distribution=: ubuntu 24.04"
_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "os": {"linux": "linux", "windows": "windows", "win": "windows", "wsl": "wsl", "wsl2": "wsl"},
    "arch": {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"},
}
_PARSERS: Mapping[str, Callable[[str], tuple[str, object]]] = {
    "gpu": lambda value: ("gpus", gpus_of(value)),
    "driver": _parse_driver,
    "python": _parse_python,
    "os": _choice_parser("os", _SPELLINGS["os"]),
    "arch": _choice_parser("arch", _SPELLINGS["arch"]),
    "glibc": _parse_libc,
    "distribution": _parse_distribution,
}


def snapshot_of(wishes: Wishes) -> Snapshot:
    """Snapshot of the machine that the wishes describe, for the rules; what was not stated has no fact."""
    system = {"wsl": "linux"}.get(wishes.os, wishes.os)
    name, _, release = wishes.distribution.partition(" ")
    glibc = wishes.libc.removeprefix("glibc ") if wishes.libc.startswith("glibc") else ""
    values = {
        "host.platform": system,
        "host.arch": wishes.arch,
        "host.glibc": glibc,
        "host.distribution": name,
        "host.distribution_version": release,
        "python.version": wishes.python.removesuffix("t"),
        "driver.version": newest_of(wishes.driver, "windows" if wishes.os in ("windows", "wsl") else "linux"),
    }
    facts: dict[str, Fact] = {fact: Known(value, SOURCE) for fact, value in values.items() if value}
    if wishes.os == "wsl":
        facts["host.wsl"] = Known(2, SOURCE)
    rows = tuple(_gpu_row(gpu) for gpu in wishes.gpus for _ in range(gpu.count))
    return Snapshot(Target("snapshot", "the machine that you described"), facts, {"gpu": rows} if rows else {})


def _gpu_row(gpu: GPU) -> Row:
    """Row of the group ``gpu``: its name, and its compute capability if known."""
    row: dict[str, Fact] = {"name": Known(gpu.name, SOURCE)}
    if gpu.compute_capability:
        row["compute_capability"] = Known(gpu.compute_capability, SOURCE)
    return row
