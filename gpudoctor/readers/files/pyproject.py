"""pyproject.toml and pixi.toml: dependencies of the project (PEP 621), of uv, poetry and pixi, and where from.

Sources of their keys: packaging.python.org (pyproject.toml specification, dependency groups), docs.astral.sh/uv
(dependency sources, package indexes), python-poetry.org (dependency specification, package sources), pixi.sh
(manifest); read 2026-11.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers.files import _asked, _conda, _pip_words
from gpudoctor.readers.files._asked import Asked
from gpudoctor.readers.files._manifest import Manifest, UnreadableError, nested

KIND = "pyproject"
FACTS = (fact("manifest.python", "text", "the Pythons that it takes, as written: >=3.10,<3.13"),)

_HEADER = re.compile(r"^\[(?:project|tool\.(?:poetry|uv|pixi)|workspace|dependency-groups)[\].]", re.MULTILINE)
_DEFAULT_GROUPS = ("dev", "main")

Told = Iterator[tuple[Asked, int]]


def named(name: str) -> bool:
    """``pyproject.toml``, ``pixi.toml``."""
    return name in ("pyproject.toml", "pixi.toml")


def told(text: str) -> bool:
    """Whether it has the headers of one."""
    return bool(_HEADER.search(text)) and "=" in text


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row for each dependency, with the index that the tool's own tables give it."""
    tree = parsed(manifest.text)
    places = Places(manifest)
    found = [*_project(tree, places), *_poetry(tree, places), *_pixi(tree, places)]
    yield from _asked.told([(one, manifest.use(line)) for one, line in found])
    python = at(tree, "project", "requires-python") or at(tree, "tool", "poetry", "dependencies", "python")
    if isinstance(python, str):
        line = places.of("requires-python") if at(tree, "project", "requires-python") else places.of("python", python)
        yield "manifest.python", Known(caret(python[:100]), manifest.use(line))
    elif tree:
        manifest.use(1)


def _project(tree: Mapping[str, Any], places: Places) -> Told:
    """``[project]``, its extras, and the dependency groups, with uv's sources for them."""
    groups = [("", items(tree, "project", "dependencies"))]
    groups += [
        (name, items(table(tree, "project", "optional-dependencies"), name))
        for name in table(tree, "project", "optional-dependencies")
    ]
    groups += [
        (name if name not in _DEFAULT_GROUPS else "", items(table(tree, "dependency-groups"), name))
        for name in table(tree, "dependency-groups")
    ]
    uv = bool(table(tree, "tool", "uv")) or "uv_build" in str(at(tree, "build-system", "build-backend"))
    for extra, lines in groups:
        for text in lines:
            if isinstance(text, str) and (one := _asked.asked(text)):
                line = places.of(text)
                one = replace(one, extra=extra, installer="uv" if uv else "pip")
                yield from ((sourced, line) for sourced in _uv(one, tree))


def _extra(group: str) -> str:
    """The group as an extra; empty for one that is installed unless somebody leaves it out."""
    return "" if group in _DEFAULT_GROUPS else group


def _uv(one: Asked, tree: Mapping[str, Any]) -> Iterator[Asked]:
    """The dependency from its sources: one row for each, with the source's marker and extra."""
    uv = table(tree, "tool", "uv")
    indexes = [entry for entry in items(uv, "index") if isinstance(entry, Mapping)]
    default = next((str(entry.get("url", "")) for entry in indexes if entry.get("default") is True), "")
    default = str(at(uv, "index-url") or at(uv, "pip", "index-url") or default)
    more = [str(entry.get("url", "")) for entry in indexes if not entry.get("explicit") and not entry.get("default")]
    more += [
        str(url)
        for url in (*items(uv, "extra-index-url"), *items(uv, "pip", "extra-index-url"), *items(uv, "find-links"))
    ]
    sources = at(uv, "sources", one.name)
    entries = [entry for entry in (sources if isinstance(sources, list) else [sources]) if isinstance(entry, Mapping)]
    plain = _pip_words.Options(default, more)
    for entry in entries:
        yield _from_source(
            one, entry, {str(index.get("name", "")): str(index.get("url", "")) for index in indexes}, plain
        )
    if not entries:
        yield _asked.under(one, plain)
    elif len(entries) == 1 and (elsewhere := _without(str(entries[0].get("marker") or ""))):
        yield _asked.under(replace(one, marker=_both(one.marker, elsewhere)), plain)


def _from_source(one: Asked, entry: Mapping[str, Any], urls: Mapping[str, str], plain: _pip_words.Options) -> Asked:
    if "url" in entry:
        wheel = _asked.of_wheel(str(entry["url"]))
        one = replace(one, url=str(entry["url"]), spec=wheel.spec if wheel else one.spec)
    elif "index" in entry:
        one = replace(one, index=urls.get(str(entry["index"]), str(entry["index"])))
    else:
        one = _asked.under(one, plain)
    marker = _both(one.marker, str(entry.get("marker") or ""))
    return replace(one, marker=marker, extra=one.extra or str(entry.get("extra") or entry.get("group") or ""))


def _both(one: str, other: str) -> str:
    return f"({one}) and ({other})" if one and other else one or other


def _without(marker: str) -> str:
    """The opposite of a simple marker, ``sys_platform == 'linux'``; empty for any other."""
    if " and " in marker or " or " in marker:
        return ""
    return marker.replace("==", "!=", 1) if "==" in marker else marker.replace("!=", "==", 1) if "!=" in marker else ""


def _poetry(tree: Mapping[str, Any], places: Places) -> Told:
    """``[tool.poetry.dependencies]`` and the groups, with poetry's sources."""
    poetry = table(tree, "tool", "poetry")
    sources = [entry for entry in items(poetry, "source") if isinstance(entry, Mapping)]
    urls = {str(entry.get("name")): str(entry.get("url", "")) for entry in sources}
    primary = [
        urls[str(one.get("name"))] for one in sources if one.get("priority", "primary") in ("primary", "default")
    ]
    sections = [("", table(poetry, "dependencies"))]
    sections += [(_extra(name), table(poetry, "group", name, "dependencies")) for name in table(poetry, "group")]
    for extra, section in sections:
        for name, value in section.items():
            for entry in value if isinstance(value, list) else [value]:
                one, source = _of_poetry(str(name), entry if isinstance(entry, Mapping) else {"version": entry})
                index, *more = [urls.get(source, source)] if source else primary or [""]
                one = replace(one, extra=one.extra or extra)
                yield _asked.under(one, _pip_words.Options(index, more)), places.of(f"{name} ", "=")


def _of_poetry(name: str, entry: Mapping[str, Any]) -> tuple[Asked, str]:
    """One dependency, and the name of its source."""
    wheel = _asked.of_wheel(str(entry.get("url") or entry.get("file") or ""))
    one = Asked(
        _asked.normal(name),
        wheel.spec if wheel else caret(str(entry.get("version") or "")),
        marker=str(entry.get("markers") or ""),
        url=wheel.url if wheel else "",
        installer="poetry",
        extra="optional" if entry.get("optional") is True else "",
    )
    return one, str(entry.get("source") or "")


def caret(spec: str) -> str:
    """Poetry's ^2.4 and ~2.4, and a bare 2.4.0, as specifiers that pip knows."""
    spec = spec.strip()
    if spec in ("", "*"):
        return ""
    if spec[0].isdecimal():
        return f"=={spec}"
    if match := re.fullmatch(r"\^\s*(\d+)(?:\.(\d+))?([\w.]*)", spec):
        major, minor, rest = match.groups()
        top = f"{int(major) + 1}" if int(major) or minor is None else f"0.{int(minor) + 1}"
        return f">={major}{f'.{minor}' if minor else ''}{rest},<{top}"
    if match := re.fullmatch(r"~\s*(\d+)\.(\d+)([\w.]*)", spec):
        return f">={match[1]}.{match[2]}{match[3]},<{match[1]}.{int(match[2]) + 1}"
    return spec.replace(" ", "")


def _pixi(tree: Mapping[str, Any], places: Places) -> Told:
    """pixi's conda dependencies and those from PyPI; its other features are not installed by default."""
    pixi = table(tree, "tool", "pixi") or (tree if "workspace" in tree or "channels" in table(tree, "project") else {})
    channels = [str(channel) for channel in items(pixi, "workspace", "channels") or items(pixi, "project", "channels")]
    for name, value in table(pixi, "dependencies").items():
        entry = value if isinstance(value, Mapping) else {"version": value}
        spec = str(entry.get("version") or "")
        one = _conda.package(str(name), "" if spec == "*" else spec, str(entry.get("build") or ""), channels)
        yield one, places.of(f"{name} ", "=")
    for name, value in table(pixi, "pypi-dependencies").items():
        entry = value if isinstance(value, Mapping) else {"version": value}
        version = str(entry.get("version") or "")
        one = Asked(_asked.normal(str(name)), "" if version == "*" else version.replace(" ", ""), installer="uv")
        yield replace(one, index=str(entry.get("index") or "")), places.of(f"{name} ", "=")


# ---- TOML as a tree, and where in the text something of it stands ----

LONGEST = 256 << 10
"""Characters of the largest file that is parsed: a project's own file has a hundredth."""
_DEEPEST = 60
"""Brackets within brackets, and names within names: a parser that calls itself must not be led further."""


def parsed(text: str) -> Mapping[str, Any]:
    """The document; raises `UnreadableError` with line and reason."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if len(text) > LONGEST:
        raise UnreadableError(f"longer than {LONGEST >> 10} KB of TOML")
    for number, line in enumerate(text.split("\n"), 1):
        if nested(line) > _DEEPEST or line.partition("=")[0].count(".") > _DEEPEST * 2:
            raise UnreadableError(f"line {number}: brackets or names within each other without end")
    try:
        tree: Mapping[str, Any] = tomllib.loads(text.replace("\r\n", "\n"))
        return tree
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UnreadableError(f"no TOML: {str(error)[:200]}") from error


def at(tree: object, *path: str) -> Any:
    """What stands there; none where something else, or nothing, does."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def table(tree: object, *path: str) -> Mapping[str, Any]:
    """The table there; an empty one where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, Mapping) else {}


def items(tree: object, *path: str) -> list[Any]:
    """The array there; an empty one where there is none."""
    found = at(tree, *path)
    return found[:2000] if isinstance(found, list) else []


_TRIED = 50
"""Places of a word that are looked at for the words beside it."""


class Places:
    """Where words stand in the text: TOML's parser does not say."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def of(self, word: str, *beside: str) -> int:
        """The line of the word that has those `beside` it, else its first line; 1 where it is not to be found."""
        text = self.manifest.text
        first = place = text.find(word)
        for _ in range(_TRIED):
            end = text.find("\n", place)
            if place < 0 or all(
                other in text[text.rfind("\n", 0, place) + 1 : end if end >= 0 else None] for other in beside
            ):
                break
            place = text.find(word, place + 1)
        return text.count("\n", 0, max(place if place >= 0 else first, 0)) + 1
