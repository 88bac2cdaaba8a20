"""The environment that packages go into: what of it the commands depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from gpudoctor.model.distribution import normal
from gpudoctor.model.fact import Fact, Known, Row, listed
from gpudoctor.model.frozen import field, frozen, replace
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot

Tool = Literal["pip", "uv", "conda"]
COMPANIONS = ("torchvision", "torchaudio")
"""What is made for one torch release and comes along to another."""
VENV = ".venv"
"""The new environment, in the folder that the commands are run in."""
_PATH = pattern(r"(?:/|[A-Za-z]:[\\/])[^\x00-\x1f\x7f]{1,1000}")
_NAME = pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION = pattern(r"[0-9][A-Za-z0-9.!+_-]{0,60}")


@frozen
class Environment:
    """Whose packages are changed, and by which tool.

    `python` is its interpreter, `prefix` its folder, both empty where nobody said. `managed`: the distribution keeps
    pip out of it (PEP 668), so that a new one is made beside it. `installed` are its packages with their versions.
    """

    tool: Tool = "pip"
    python: str = ""
    prefix: str = ""
    managed: bool = False
    windows: bool = False
    installed: Mapping[str, str] = field(default_factory=dict)

    @property
    def interpreter(self) -> str:
        """The word that runs it; by its bare name where nobody said where it is."""
        return self.python or "python"

    @property
    def new(self) -> bool:
        """Whether packages go into a new environment."""
        return self.managed and self.tool != "conda"

    @property
    def target(self) -> str:
        """The interpreter whose packages are changed: that of the new environment where one is made."""
        if not self.new:
            return self.interpreter
        return rf"{VENV}\Scripts\python.exe" if self.windows else f"{VENV}/bin/python"

    def elsewhere(self, system: str) -> Environment:
        """That of another machine, changed by the same tool."""
        return Environment(self.tool, windows=system == "windows")

    def by(self, tool: str) -> Environment:
        """The same, changed by that tool; conda changes only what it has made."""
        prefix = "" if tool == "conda" and self.tool != "conda" else self.prefix
        return replace(self, tool=cast(Tool, tool), prefix=prefix)


ELSEWHERE = Environment()
"""That of a machine of which only its wishes are known."""


def of(snapshot: Snapshot) -> Environment:
    """That of a snapshot. What is no sane path, name or version there is left out: it would be a word of a command."""
    tool = _text(snapshot.get("python.installer"))
    return Environment(
        tool=tool if tool in ("uv", "conda") else "pip",  # type: ignore[arg-type]
        python=_path(snapshot.get("python.path")),
        prefix=_path(snapshot.get("python.prefix")),
        managed=_text(snapshot.get("python.externally_managed")) == "True",
        windows=_text(snapshot.get("host.platform")) == "windows",
        installed=dict(_packages(snapshot)),
    )


def _packages(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Of two of one name the first, which is the one that is imported."""
    rows = snapshot.rows("package")
    pairs = [_package(row) for row in listed(rows)]
    return [pair for pair in reversed(pairs) if all(pair)]


def _package(row: Row) -> tuple[str, str]:
    name, version = (_text(row.get(column)) for column in ("name", "version"))
    return (normal(name), version) if sane(name, version) else ("", "")


def sane(name: str, version: str) -> bool:
    """Whether these can be a package's name and version, and so a word of a command: neither an option nor a URL."""
    return bool(_NAME.fullmatch(name) and _VERSION.fullmatch(version))


def _path(fact: Fact) -> str:
    said = _text(fact)
    return said if _PATH.fullmatch(said) else ""


def _text(fact: Fact | None) -> str:
    return str(fact.value) if isinstance(fact, Known) else ""
