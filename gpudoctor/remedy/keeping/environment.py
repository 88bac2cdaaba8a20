"""What the environment of a Python is: where its packages lie, and whether they may be changed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpudoctor import shipped
from gpudoctor.model.errors import DocumentError, UsageError
from gpudoctor.target.child import run_child

_MARK = "@gpudoctor "
_PATIENCE = 20.0
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


@dataclass(frozen=True, slots=True)
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
        """Whether the whole prefix is this environment's and nobody else's."""
        return self.venv or self.conda

    @property
    def sites(self) -> tuple[str, ...]:
        """The folders whose distributions it has, each once."""
        return tuple(dict.fromkeys(place for place in (self.purelib, self.platlib, self.user_site) if place))

    @property
    def trees(self) -> tuple[str, ...]:
        """The folders that are kept whole: the prefix, or the site-packages where the prefix is not its own."""
        places = (self.prefix, *([self.user_site] if self.user_site else ())) if self.own else self.sites
        real = tuple(dict.fromkeys(os.path.realpath(place) for place in places))
        return tuple(place for place in real if not any(place.startswith(f"{other}/") for other in real))

    def hindrance(self, root: bool) -> str:
        """Why it must not or cannot be changed, empty where it can."""
        if self.managed is not None:
            return (
                f"{self.prefix} belongs to the distribution (EXTERNALLY-MANAGED): "
                "make an environment of its own (python3 -m venv) and name its Python with --python"
            )
        owner = _owner(self.prefix)
        if root and owner:
            return f"{self.prefix} belongs to user id {owner}, and this is root: run it as that user"
        folder = self.prefix if self.own else self.purelib
        if os.access(folder, os.W_OK) or (not self.own and self.user_site):
            return ""
        return f"{folder} cannot be written to{' (mounted read-only)' if _read_only(folder) else ''}"

    @property
    def room(self) -> int:
        """Bytes that are free where it lies."""
        found = os.statvfs(self.prefix)
        return found.f_bavail * found.f_frsize


def _owner(folder: str) -> int:
    try:
        return os.stat(folder).st_uid  # noqa: PTH116
    except OSError:
        return 0


def _read_only(folder: str) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def ask(python: str, environ: Mapping[str, str] = os.environ) -> Environment:
    """The environment of that interpreter, by its own word; raises `UsageError` where it does not say."""
    text = shipped.text("remedy/children/ask_environment.py")
    clean = {name: value for name, value in environ.items() if name not in OWN_SETTINGS}
    try:
        answer = run_child([python, "-I", "-B", "-c", text], _PATIENCE, clean)
    except OSError as error:
        raise UsageError(f"{python} cannot be started: {error.strerror}; name the environment's Python") from error
    said = next((line[len(_MARK) :] for line in answer.out.splitlines() if line.startswith(_MARK)), "")
    try:
        raw: dict[str, Any] = json.loads(said)
        return Environment(python=os.path.abspath(python), **{name: raw[name] for name in _FIELDS})  # noqa: PTH100
    except (ValueError, KeyError, TypeError) as error:
        last = (answer.err.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(f"{python} does not say where its packages lie: {last[:200]}") from error


_FIELDS = (
    "prefix",
    "version",
    "venv",
    "conda",
    "purelib",
    "platlib",
    "scripts",
    "user_site",
    "user_scripts",
    "managed",
)


def diverted(target: Environment, environ: Mapping[str, str]) -> str:
    """The setting by which this environment's pip would install elsewhere (``install.target='/x'``), else empty."""
    answer = run_child([target.python, "-m", "pip", "config", "list"], _PATIENCE, environ)
    return next((line for line in answer.out.splitlines() if _ELSEWHERE.match(line)), "")


def to_json(environment: Environment) -> dict[str, Any]:
    """A document that `from_json` takes back."""
    return asdict(environment)


def from_json(raw: Any) -> Environment:
    """The inverse of `to_json`; raises `DocumentError`."""
    try:
        return Environment(**raw)
    except TypeError as error:
        raise DocumentError(f"no record of an environment: {error}") from error
