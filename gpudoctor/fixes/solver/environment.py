"""The environment that packages go into: what of it the commands depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from gpudoctor.core.fact import listed, text_of
from gpudoctor.core.frozen import field, frozen, replace
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.versions import normal

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
    """The environment whose packages are changed, and the tool used.
    `python` is its interpreter, `prefix` its folder, both ``""`` if not known. `managed`: the distribution forbids
    changes (PEP 668), so a new environment is made. `installed` are package versions by name.
    """

    tool: Tool = "pip"
    python: str = ""
    prefix: str = ""
    managed: bool = False
    windows: bool = False
    installed: Mapping[str, str] = field(default_factory=dict)

    @property
    def interpreter(self) -> str:
        """Command word of the interpreter; ``python`` if its path is not known."""
        return self.python or "python"

    @property
    def new(self) -> bool:
        """True if packages go into a new environment, since the distribution manages this one; never for conda."""
        return self.managed and self.tool != "conda"

    @property
    def target(self) -> str:
        """Command word of the interpreter whose environment is changed: the new one's if one is made."""
        if not self.new:
            return self.interpreter
        return rf"{VENV}\Scripts\python.exe" if self.windows else f"{VENV}/bin/python"

    def elsewhere(self, system: str) -> Environment:
        """An otherwise unknown environment on another machine with that system, changed by the same tool."""
        return Environment(self.tool, windows=system == "windows")

    def by(self, tool: str) -> Environment:
        """The same environment changed by another tool. For conda the prefix is emptied, so that a new environment is
        made, unless conda made this one.
        """
        prefix = "" if tool == "conda" and self.tool != "conda" else self.prefix
        return replace(self, tool=cast(Tool, tool), prefix=prefix)


ELSEWHERE = Environment()
"""That of a machine of which only its wishes are known."""


def environment_of_snapshot(snapshot: Snapshot) -> Environment:
    """Environment that a snapshot describes; malformed paths, names and versions are left out of it."""
    tool = snapshot.text("python.installer")
    return Environment(
        tool=tool if tool in ("uv", "conda") else "pip",  # type: ignore[arg-type]
        python=_valid_path(snapshot.text("python.path")),
        prefix=_valid_path(snapshot.text("python.prefix")),
        managed=snapshot.text("python.externally_managed") == "True",
        windows=snapshot.text("host.platform") == "windows",
        installed=dict(_installed_packages(snapshot)),
    )


def _installed_packages(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(normalised name, version) of the snapshot's packages; of duplicates the one that is imported comes last."""
    pairs = [(text_of(row.get("name")), text_of(row.get("version"))) for row in listed(snapshot.rows("package"))]
    return [(normal(name), version) for name, version in reversed(pairs) if sane(name, version)]


def sane(name: str, version: str) -> bool:
    """True if name and version are well formed, so that they are safe in a command."""
    return bool(_NAME.fullmatch(name) and _VERSION.fullmatch(version))


def _valid_path(text: str) -> str:
    """The text if it is a plausible absolute path, else ``""``."""
    return text if _PATH.fullmatch(text) else ""
