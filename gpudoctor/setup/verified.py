"""Whether the indexes have what was worked out: torch's own for torch's packages, the user's for all else."""

from __future__ import annotations

import os
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudoctor.setup import index
from gpudoctor.setup.emit import BASE, Order
from gpudoctor.setup.wheel_files import Platform, fitting

PYPI = "https://pypi.org/simple"
_SETTINGS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the indexes said: requirements that they lack, and it in words; wheels by package as URL and SHA-256."""

    said: str
    lacks: tuple[str, ...] = ()
    hashes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shelves:
    """Where packages are looked up: `base` is that of torch's index, `others` the user's index."""

    base: str = BASE
    others: str = PYPI
    seconds: float = index.SECONDS
    ask: bool = True
    """Whether they are asked at all."""

    def verdict(self, order: Order, python: str, system: str, arch: str) -> Verdict:
        """Ask for every package of the order; for a Python or a platform that is not known nothing is looked up."""
        if not self.ask:
            return Verdict("Not verified: no index was asked. It is what the tables say.")
        if missing := [word for word, value in (("python", python), ("os", system), ("arch", arch)) if not value]:
            return Verdict(f"Not verified: the wheels depend on {', '.join(missing)}, and nobody said which.")
        listed = [package for package in order.candidate.packages if package.version and package.origin != "wheel"]
        places = {item: order.index if item.origin == "torch" else self.others for item in listed if not item.compiled}
        try:
            pages = index.wheels([(place, item.name) for item, place in places.items()], self.seconds)
        except index.UnreachableError as why:
            return Verdict(f"Not verified: {why}. It is what the tables say.")
        fits = Platform(python.rstrip("t"), system, arch, threads=python.endswith("t")).tags()
        lacks: list[str] = []
        hashes: dict[str, tuple[str, str]] = {}
        for item, place in places.items():
            pin = order.pin(item)
            wheel = fitting(pages[place, item.name], pin.partition("==")[2], fits)
            if wheel is None:
                lacks.append(pin)
            elif wheel.sha256:
                hashes[item.name] = (wheel.url, wheel.sha256)
        where = f"for Python {python} on {system} {arch}"
        if lacks:
            return Verdict(f"{order.index} has no wheel {where}", tuple(lacks))
        moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        return Verdict(f"Verified against {order.index} {where}, {moment}.", hashes=hashes)


def of_the_user(base: str = BASE) -> Shelves:
    """With the index that the user's settings for pip and uv name."""
    named = next((os.environ[name] for name in _SETTINGS if os.environ.get(name)), PYPI)
    others = _without_user(named) if named.startswith(("https://", "http://")) else PYPI
    return Shelves(index.checked_base(base), others)


def _without_user(url: str) -> str:
    """An index that asks for a name and a password is not looked at: these are for pip and uv alone."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
