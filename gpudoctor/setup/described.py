"""A machine that is not here, as ``--for`` describes it: ``gpu=RTX 5090x2+H100,driver=570,python=3.12,os=wsl``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from gpudoctor.knowledge import gpus
from gpudoctor.model.errors import UsageError
from gpudoctor.model.fact import Fact, Known, Row
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.model.stack import GPU, Wishes
from gpudoctor.model.values import CannotJudge
from gpudoctor.model.version import parse
from gpudoctor.setup.driver import newest_of
from gpudoctor.setup.machine import device, python_tag

SOURCE = "as you said"
_BEFORE = re.compile(r"(\d{1,6}) ?[xX×*] ?(\D.*)")
_AFTER = re.compile(r"(.+?)( ?[×*] ?| x ?|x)(\d{1,6})", re.IGNORECASE)
_MOST = 1024
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


def described(text: str, read: Wishes | None = None) -> Wishes:
    """The wishes for that machine, on top of `read`; raises `UsageError` that names the key or value it cannot take."""
    wishes = read or Wishes()
    said: set[str] = set()
    for part in filter(None, (item.strip() for item in text.split(","))):
        key, equals, value = (item.strip() for item in part.partition("="))
        if key.lower() not in KEYS or not equals:
            raise UsageError(_unknown(part, key, text))
        if key.lower() in said:
            raise UsageError(f"--for says {key.lower()} twice; several GPUs are joined by a plus: gpu=H100+RTX 4090")
        said.add(key.lower())
        field, parsed = _PARSERS[key.lower()](value)
        wishes = wishes.saying(field, parsed)
    if not said:
        raise UsageError(f"--for is empty; say {_examples()}")
    return wishes


def _unknown(part: str, key: str, text: str) -> str:
    near = get_close_matches(key.lower(), KEYS, n=1)
    hint = f"; did you mean {near[0]}?" if near and near[0] != key.lower() else ""
    if meant := _meant(text):
        hint = f"; did you mean --for {shlex.quote(meant)}?"
    return f"--for takes {_examples()}; {part[:40]!r} is none of these{hint}"


def _meant(text: str) -> str:
    """The same with keys, where each part tells its own: ``gpu=H100,driver=550`` of ``H100, driver 550``."""
    found = [_keyed(part) for item in text.split(",") if (part := item.strip())]
    keys = [one.partition("=")[0] for one in found]
    return ",".join(found) if all(found) and len(set(keys)) == len(keys) else ""


def _keyed(part: str) -> str:
    key, equals, value = (item.strip() for item in part.partition("="))
    if not equals:
        key, _, value = part.partition(" ")
        key = key.rstrip(":")
    if key.lower() not in KEYS or not value.strip():
        key, value = next(((key, part) for key in ("os", "arch") if part.lower() in _SPELLINGS[key]), ("gpu", part))
        if key == "gpu" and not gpus.gpu_known(_counted(part)[0]):
            return ""
    try:
        _PARSERS[key.lower()](value.strip())
    except UsageError:
        return ""
    return f"{key.lower()}={value.strip()}"


def words(wishes: Wishes) -> str:
    """The machine as ``--for`` takes it, with the usual for Python, system and architecture where nobody said."""
    names = [f"{gpu.name}x{gpu.count}" if gpu.count > 1 else gpu.name for gpu in wishes.gpus]
    said = {
        "gpu": "+".join(names),
        "driver": wishes.driver,
        "python": wishes.python or USUAL["python"],
        "os": wishes.os or USUAL["os"],
        "arch": wishes.arch or USUAL["arch"],
        "glibc": wishes.libc.removeprefix("glibc "),
        "distribution": wishes.distribution,
    }
    return ",".join(f"{key}={value}" for key, value in said.items() if value)


def _examples() -> str:
    return ", ".join(f"{key}= ({example})" for key, example in KEYS.items())


def gpus_of(text: str) -> tuple[GPU, ...]:
    """``RTX 5090x2+H100`` as GPUs, with the compute capability where the name alone settles it."""
    found: list[GPU] = []
    for part in text.split("+"):
        name, count = _counted(part.strip())
        if not name:
            raise UsageError(f"gpu={text[:60]!r} names no GPU before or after a plus")
        if "=" in name:
            meant = re.sub(r"[ ;]+(?=\w+=)", ",", f"gpu={text}")
            raise UsageError(f"gpu={text[:60]!r} is no GPU; parts go between commas: --for {shlex.quote(meant)}")
        if not 0 < count <= _MOST:
            raise UsageError(f"gpu={part.strip()[:40]!r}: {count} GPUs are no machine")
        found.append(GPU(name, _capability(name), count))
    return tuple(found)


def _counted(part: str) -> tuple[str, int]:
    """Name and number: (``RTX 5090``, 2) of ``RTX 5090x2`` and ``2x RTX 5090``, but (``MX150``, 1)."""
    if match := _BEFORE.fullmatch(part):
        return match[2], int(match[1])
    match = _AFTER.fullmatch(part)
    if match and (not match[1][-1].isalpha() or match[2].lower() != "x" or gpus.gpu_known(match[1])):
        return match[1].strip(), int(match[3])
    return part, 1


def _capability(name: str) -> str:
    try:
        return gpus.gpu_capability(name)
    except CannotJudge:
        several = device(GPU(name)).capabilities
        return "{}.{}".format(*several[0]) if len(several) == 1 else ""


def _gpus(value: str) -> tuple[str, object]:
    return "gpus", gpus_of(value)


def _driver(value: str) -> tuple[str, object]:
    number = parse(value)
    if number is None or not 100 <= number.major < 10_000 or not re.fullmatch(r"[\d.]+", value):
        raise UsageError(f"driver={value[:40]!r} is no driver; it is written {KEYS['driver']}")
    return "driver", value


def _python(value: str) -> tuple[str, object]:
    if not python_tag(value):
        raise UsageError(f"python={value[:40]!r} is no Python version; it is written {KEYS['python']}")
    return "python", value


def _one_of(field: str, spellings: Mapping[str, str]) -> Callable[[str], tuple[str, object]]:
    def parser(value: str) -> tuple[str, object]:
        if value.lower() not in spellings:
            raise UsageError(f"{field}={value[:40]!r} is none of {', '.join(dict.fromkeys(spellings.values()))}")
        return field, spellings[value.lower()]

    return parser


def _libc(value: str) -> tuple[str, object]:
    bare = value.lower().removeprefix("glibc").strip()
    if bare.startswith("musl"):
        return "libc", "musl"
    if not re.fullmatch(r"2\.\d{1,3}(\.\d+)?", bare):
        raise UsageError(f"glibc={value[:40]!r} is no version of it; it is written {KEYS['glibc']}")
    return "libc", f"glibc {bare}"


def _distribution(value: str) -> tuple[str, object]:
    match = re.fullmatch(r"([A-Za-z][\w-]*)[ :-]?([\d.]*)", value)
    if not match:
        raise UsageError(f"distribution={value[:40]!r} is none; it is written {KEYS['distribution']}")
    return "distribution", f"{match[1].lower()} {match[2]}".strip()


_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "os": {"linux": "linux", "windows": "windows", "win": "windows", "wsl": "wsl", "wsl2": "wsl"},
    "arch": {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"},
}
_PARSERS: Mapping[str, Callable[[str], tuple[str, object]]] = {
    "gpu": _gpus,
    "driver": _driver,
    "python": _python,
    "os": _one_of("os", _SPELLINGS["os"]),
    "arch": _one_of("arch", _SPELLINGS["arch"]),
    "glibc": _libc,
    "distribution": _distribution,
}


def snapshot_of(wishes: Wishes) -> Snapshot:
    """The machine of these wishes as facts, so that rules judge it; what was not said is not asked."""

    def known(value: object) -> Fact:
        return Known(str(value), SOURCE)

    system = {"wsl": "linux"}.get(wishes.os, wishes.os)
    name, _, release = wishes.distribution.partition(" ")
    glibc = wishes.libc.removeprefix("glibc ") if wishes.libc.startswith("glibc") else ""
    said = {
        "host.platform": system,
        "host.arch": wishes.arch,
        "host.glibc": glibc,
        "host.distribution": name,
        "host.distribution_version": release,
        "python.version": wishes.python.removesuffix("t"),
        "driver.version": newest_of(wishes.driver, "windows" if wishes.os in ("windows", "wsl") else "linux"),
    }
    facts = {fact: known(value) for fact, value in said.items() if value}
    if wishes.os == "wsl":
        facts["host.wsl"] = Known(2, SOURCE)
    rows = tuple(_row(gpu) for gpu in wishes.gpus for _ in range(gpu.count))
    return Snapshot(Target("snapshot", "the machine that you described"), facts, {"gpu": rows} if rows else {})


def _row(gpu: GPU) -> Row:
    row: dict[str, Fact] = {"name": Known(gpu.name, SOURCE)}
    if gpu.compute_capability:
        row["compute_capability"] = Known(gpu.compute_capability, SOURCE)
    return row
