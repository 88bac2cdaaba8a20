"""What the environment of a Python is: where its packages lie, whether they may be changed, and what is installed."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor.core import shipped, system
from gpudoctor.core.errors import UsageError
from gpudoctor.core.frozen import frozen
from gpudoctor.core.versions import normal
from gpudoctor.target import system_paths
from gpudoctor.target.child import run_child

_MARK = "@gpudoctor "
_QUERY_SECONDS = 20.0
_ELSEWHERE = re.compile(r"(global|install|uninstall)\.(target|prefix|root)=")
OWN_SETTINGS = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONEXECUTABLE",
    "__PYVENV_LAUNCHER__",
)
"""Variables that make a Python be another one, or import from elsewhere."""


@frozen
class Environment:
    """The environment that `python` belongs to. Paths are absolute; `user_site` is empty where it imports from none.

    `managed` is what the distribution says to whoever installs into it (PEP 668), None where nobody forbids it.
    """

    python: str
    prefix: str
    version: str
    venv: bool
    conda: bool
    purelib: str
    platlib: str
    scripts: str
    user_site: str = ""
    user_scripts: str = ""
    managed: str | None = None

    @property
    def own(self) -> bool:
        """True if the prefix belongs to this environment alone (venv or conda), so that all below it does."""
        return self.venv or self.conda

    @property
    def sites(self) -> tuple[str, ...]:
        """Folders with the environment's distributions (purelib, platlib, user's site-packages), each once."""
        return tuple(dict.fromkeys(place for place in (self.purelib, self.platlib, self.user_site) if place))

    @property
    def trees(self) -> tuple[str, ...]:
        """Real paths of folders kept as a whole: the prefix, or only site-packages if that is shared; and the
        user's.
        """
        places = (self.prefix, *([self.user_site] if self.user_site else ())) if self.own else self.sites
        real = tuple(dict.fromkeys(os.path.realpath(place) for place in places))
        return tuple(place for place in real if not any(place.startswith(f"{other}{os.sep}") for other in real))

    def hindrance(self, root: bool) -> str:
        """Why the environment's packages must not or cannot be changed; ``""`` if they can. `root`: this process is
        root.
        """
        if self.managed is not None:
            return (
                f"{self.prefix} belongs to the distribution (EXTERNALLY-MANAGED): "
                f"make an environment of its own ({system_paths.PYTHONS[0]} -m venv) and name its Python with --python"
            )
        owner = _owner(self.prefix)
        if root and owner:
            return f"{self.prefix} belongs to user id {owner}, and this is root: run it as that user"
        folder = self.prefix if self.own else self.purelib
        if os.access(folder, os.W_OK) or (not self.own and self.user_site):
            return ""
        return f"{folder} cannot be written to{' (mounted read-only)' if _read_only(folder) else ''}"


def _owner(folder: str) -> int:
    """User id that owns the folder; 0 if it cannot be read."""
    try:
        return os.stat(folder).st_uid  # noqa: PTH116
    except OSError:
        return 0


def _read_only(folder: str) -> bool:
    """True if the folder's file system is mounted read-only; False also if that cannot be read."""
    try:
        return system.is_read_only(folder)
    except OSError:
        return False


def query_environment(python: str, environ: Mapping[str, str] = os.environ) -> Environment:
    """Environment of an interpreter, as it reports itself; `UsageError` if it cannot be started or does not answer."""
    text = shipped.text("fixes/children/ask_environment.py")
    clean = {name: value for name, value in environ.items() if name not in OWN_SETTINGS}
    try:
        answer = run_child([python, "-I", "-B", "-c", text], _QUERY_SECONDS, clean)
    except OSError as error:
        raise UsageError(f"{python} cannot be started: {error.strerror}; name the environment's Python") from error
    report = next((line[len(_MARK) :] for line in answer.out.splitlines() if line.startswith(_MARK)), "")
    try:
        raw: dict[str, Any] = json.loads(report)
        return Environment(python=os.path.abspath(python), **{name: raw[name] for name in _FIELDS})  # noqa: PTH100
    except (ValueError, KeyError, TypeError) as error:
        last = answer.complaint or ("it printed nothing" if answer.status == 0 else answer.how)
        raise UsageError(f"{python} does not say where its packages lie: {last[:200]}") from error


_FIELDS = tuple(name for name in Environment.__match_args__ if name != "python")


def diverting_pip_setting(target: Environment, environ: Mapping[str, str]) -> str:
    """Setting that makes the environment's pip install elsewhere (``install.target='/x'``), else ``""``. Runs pip."""
    answer = run_child([target.python, "-m", "pip", "config", "list"], _QUERY_SECONDS, environ)
    return next((line for line in answer.out.splitlines() if _ELSEWHERE.match(line)), "")


# ---- What is installed in it: every distribution, read from the disk, with pip or without ----

_COMPILED = (".dll", ".pyd", ".exe")
_MOST_ANSWER_BYTES = 1 << 20
_MOST_RECORD_BYTES = 64 << 20


@frozen
class Distribution:
    """An installed distribution. `record` is the SHA-256 of its RECORD, `origin` its direct_url.json (PEP 610)."""

    name: str
    version: str
    place: str
    record: str = ""
    origin: str = ""


Lock = tuple[Distribution, ...]
"""What is installed, in the order of their places."""


def installed(environment: Environment) -> Lock:
    """All distributions installed in the environment, read from disk and sorted by path; of conda also its packages."""
    found = [item for site in environment.sites for item in _distributions_in(site)]
    meta = Path(environment.prefix, "conda-meta")
    if environment.conda:
        found += [_conda_package(place) for place in meta.glob("*.json")]
    return tuple(sorted(found, key=lambda item: item.place))


def changes(before: Lock, after: Lock) -> tuple[str, ...]:
    """Differences as text, by package: ``torch 2.9.0+cu130 → 2.9.0+cu128``."""
    then, now = _versions(before), _versions(after)
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    return tuple(f"{name} {then.get(name, 'not installed')} → {now.get(name, 'removed')}" for name in names)


def _versions(distributions: Iterable[Distribution]) -> dict[str, str]:
    """Versions by package name; several are joined by commas."""
    found: dict[str, list[str]] = {}
    for item in distributions:
        found.setdefault(item.name, []).append(item.version)
    return {name: ", ".join(sorted(set(versions))) for name, versions in found.items()}


def record_of(distribution: Distribution) -> Iterator[str]:
    """Absolute paths in the distribution's RECORD; none without a RECORD."""
    base = os.path.dirname(distribution.place)  # noqa: PTH120 - may be no sane path
    text = _read_text(f"{distribution.place}/RECORD", _MOST_RECORD_BYTES)
    for row in csv.reader(text.splitlines()):
        if row and "\0" not in row[0]:
            yield os.path.normpath(os.path.join(base, row[0]))  # noqa: PTH118


def held_file(lock: Lock, names: Iterable[str]) -> str:
    """Path of a compiled file of these packages that a program has loaded, so that it cannot be replaced (Windows);
    ``""`` if there is none, and on other systems.
    """
    wanted = set(names)
    paths = (path for item in lock if item.name in wanted for path in record_of(item))
    return next((path for path in paths if path.lower().endswith(_COMPILED) and system.is_held(path)), "")


def _distributions_in(site: str) -> Iterator[Distribution]:
    """Distributions in a site-packages folder; empty if it cannot be read."""
    try:
        names = sorted(os.listdir(site))  # noqa: PTH208 - names, not paths
    except OSError:
        return
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            yield _distribution(f"{site}/{name}")


def _distribution(place: str) -> Distribution:
    """Distribution from its .dist-info or .egg-info path; name and version by the path if its metadata lacks them."""
    metadata = _read_text(f"{place}/METADATA") or _read_text(f"{place}/PKG-INFO") or _read_text(place)
    head = dict(line.partition(": ")[::2] for line in metadata.partition("\n\n")[0].splitlines())
    stem = os.path.basename(place).rpartition(".")[0]  # noqa: PTH119
    name = normal(head.get("Name", stem.partition("-")[0]).strip())
    record = _read_text(f"{place}/RECORD", _MOST_RECORD_BYTES)
    return Distribution(
        name,
        head.get("Version", stem.partition("-")[2]).strip(),
        place,
        hashlib.sha256(record.encode()).hexdigest() if record else "",
        _read_text(f"{place}/direct_url.json").strip(),
    )


def _conda_package(place: Path) -> Distribution:
    """A conda package from the path of its file in conda-meta: ``NAME (conda)``, ``VERSION BUILD``."""
    name, version, build = [*place.stem.rsplit("-", 2), "", ""][:3]
    return Distribution(f"{name} (conda)", f"{version} {build}", str(place))


def _read_text(place: str, most: int = _MOST_ANSWER_BYTES) -> str:
    """Text of a file, up to `most` bytes; ``""`` if it cannot be read."""
    try:
        with open(place, "rb") as file:  # noqa: PTH123
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
