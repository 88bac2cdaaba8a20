"""Settings that steer NCCL, Gloo and what is below them, and where each comes from.

NCCL reads the environment, then ``~/.nccl.conf`` (in its place the file that NCCL_CONF_FILE names, since 2.23), then
/etc/nccl.conf; what is set already stays (src/misc/param.cc, read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Absent, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._python.site import once
from gpudoctor.probes._reading import text
from gpudoctor.target import Target

_FAMILIES = pattern(r"(?:NCCL|TORCH_NCCL|GLOO|TORCH_GLOO|UCX|FI|OFI_NCCL)_\w+|TORCH_DISTRIBUTED_DEBUG")

_LONGEST = 1023
"""Characters of a value that NCCL keeps."""


@frozen
class Setting:
    """One variable in force. `origin` is ``environment`` or the file's path."""

    name: str
    value: str
    origin: str


@frozen
class Settings:
    """All of them, by name; `blind` says which file could not be read, and is empty where all were."""

    by_name: Mapping[str, Setting]
    blind: str

    def __getitem__(self, name: str) -> str | None:
        found = self.by_name.get(name)
        return found.value if found else None

    @property
    def values(self) -> Mapping[str, str]:
        return {name: setting.value for name, setting in self.by_name.items()}


def settings_of(target: Target) -> Settings:
    """What is in force in the session; the same answer for every probe of this target."""
    return once(target, "nccl settings", lambda: _read(target))


def _read(target: Target) -> Settings:
    environ = target.environ
    found = {name: Setting(name, value, "environment") for name, value in environ.items() if _FAMILIES.fullmatch(name)}
    blind: list[str] = []
    for path in _files(environ):
        content = text(target, path)
        if isinstance(content, Unread):
            blind.append(content.why)
        for setting in _lines(content, path) if not isinstance(content, (Absent, Unread)) else ():
            if setting.name not in environ:
                found.setdefault(setting.name, setting)
    return Settings(found, "; ".join(blind))


def _files(environ: Mapping[str, str]) -> Iterator[str]:
    named, home = environ.get("NCCL_CONF_FILE"), environ.get("HOME")
    if named:
        yield named
    elif home:
        yield f"{home.rstrip('/')}/.nccl.conf"
    yield "/etc/nccl.conf"


def _lines(content: str, path: str) -> Iterator[Setting]:
    """``NAME=value`` as NCCL reads it: no quotes, no white space taken away, ``#`` only at a line's start."""
    for line in content.splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#") and re.fullmatch(r"\w+", name):
            yield Setting(name, value[:_LONGEST], path)
