"""pyproject.toml and pixi.toml: dependencies of the project (PEP 621), of uv, poetry and pixi, and where from.

Sources of their keys: packaging.python.org (pyproject.toml specification, dependency groups), docs.astral.sh/uv
(dependency sources, package indexes), python-poetry.org (dependency specification, package sources), pixi.sh
(manifest); read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.core import document
from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.versions import normal
from gpudoctor.readers.files import _requirements
from gpudoctor.readers.files._manifest import Manifest, UnreadableError, nesting_depth
from gpudoctor.readers.files._requirements import RequestedPackage

KIND = "pyproject"
FACTS = (fact("manifest.python", "text", "the Pythons that it takes, as written: >=3.10,<3.13"),)

_HEADER = re.compile(r"^\[(?:project|tool\.(?:poetry|uv|pixi)|workspace|dependency-groups)[\].]", re.MULTILINE)
_DEFAULT_GROUPS = ("dev", "main")

Requirements = Iterator[tuple[RequestedPackage, int]]


def named(name: str) -> bool:
    """Whether a file of that name is ``pyproject.toml`` or ``pixi.toml``."""
    return name in ("pyproject.toml", "pixi.toml")


def recognizes(text: str) -> bool:
    """Whether the text has a table header as in pyproject.toml or pixi.toml, and an assignment."""
    return bool(_HEADER.search(text)) and "=" in text


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row of ``requirement`` for each dependency of GPU software, with its index; manifest.python, its Pythons.

    Names of the other dependencies as manifest.others. Raises `UnreadableError` for broken TOML.
    """
    tree = parse_toml(manifest.text)
    places = Places(manifest)
    requirements = [
        *_project_requirements(tree, places),
        *_poetry_requirements(tree, places),
        *_pixi_requirements(tree, places),
    ]
    yield from _requirements.requirement_rows([(requirement, manifest.use(line)) for requirement, line in requirements])
    python = value_at(tree, "project", "requires-python") or value_at(tree, "tool", "poetry", "dependencies", "python")
    if isinstance(python, str):
        line = (
            places.line_of("requires-python")
            if value_at(tree, "project", "requires-python")
            else places.line_of("python", python)
        )
        yield "manifest.python", Known(pip_specifier(python[:100]), manifest.use(line))
    elif tree:
        manifest.use(1)


def _project_requirements(tree: Mapping[str, Any], places: Places) -> Requirements:
    """Dependencies of ``[project]``, its extras and the dependency groups, with uv's sources; each with its line."""
    groups = [("", array_at(tree, "project", "dependencies"))]
    groups += [
        (name, array_at(table_at(tree, "project", "optional-dependencies"), name))
        for name in table_at(tree, "project", "optional-dependencies")
    ]
    groups += [
        (_extra(name), array_at(table_at(tree, "dependency-groups"), name))
        for name in table_at(tree, "dependency-groups")
    ]
    uv = bool(table_at(tree, "tool", "uv")) or "uv_build" in str(value_at(tree, "build-system", "build-backend"))
    for extra, lines in groups:
        for text in lines:
            if isinstance(text, str) and (requirement := _requirements.parse_requirement(text)):
                line = places.line_of(text)
                requirement = replace(requirement, extra=extra, installer="uv" if uv else "pip")
                yield from ((sourced, line) for sourced in _with_uv_sources(requirement, tree))


def _extra(group: str) -> str:
    """The dependency group's name as the extra of its packages; empty for ``dev`` and ``main``, default groups."""
    return "" if group in _DEFAULT_GROUPS else group


def _with_uv_sources(requirement: RequestedPackage, tree: Mapping[str, Any]) -> Iterator[RequestedPackage]:
    """The dependency once for each of its uv sources, with that source's index, marker and extra.

    Without a source, once with the default indexes; where the only source has a simple marker (see `_negated_marker`),
    once more with the default indexes under the opposite marker.
    """
    uv = table_at(tree, "tool", "uv")
    indexes = [entry for entry in array_at(uv, "index") if isinstance(entry, Mapping)]
    default = next((str(entry.get("url", "")) for entry in indexes if entry.get("default") is True), "")
    default = str(value_at(uv, "index-url") or value_at(uv, "pip", "index-url") or default)
    further_indexes = [
        str(entry.get("url", "")) for entry in indexes if not entry.get("explicit") and not entry.get("default")
    ]
    further_indexes += [
        str(url)
        for url in (
            *array_at(uv, "extra-index-url"),
            *array_at(uv, "pip", "extra-index-url"),
            *array_at(uv, "find-links"),
        )
    ]
    sources = value_at(uv, "sources", requirement.name)
    entries = [entry for entry in (sources if isinstance(sources, list) else [sources]) if isinstance(entry, Mapping)]
    plain = _requirements.Options(default, further_indexes)
    for entry in entries:
        yield _from_source(
            requirement, entry, {str(index.get("name", "")): str(index.get("url", "")) for index in indexes}, plain
        )
    if not entries:
        yield _requirements.with_index_options(requirement, plain)
    elif len(entries) == 1 and (elsewhere := _negated_marker(str(entries[0].get("marker") or ""))):
        yield _requirements.with_index_options(
            replace(requirement, marker=_joined_markers(requirement.marker, elsewhere)), plain
        )


def _from_source(
    requirement: RequestedPackage,
    entry: Mapping[str, Any],
    index_urls: Mapping[str, str],
    default_options: _requirements.Options,
) -> RequestedPackage:
    """The dependency from one entry of uv's sources: a URL, a named index, or else the default options' indexes.

    With the entry's marker joined to its own, and the entry's extra or group unless it has one.
    """
    if "url" in entry:
        wheel = _requirements.parse_wheel_name(str(entry["url"]))
        requirement = replace(requirement, url=str(entry["url"]), spec=wheel.spec if wheel else requirement.spec)
    elif "index" in entry:
        requirement = replace(requirement, index=index_urls.get(str(entry["index"]), str(entry["index"])))
    else:
        requirement = _requirements.with_index_options(requirement, default_options)
    marker = _joined_markers(requirement.marker, str(entry.get("marker") or ""))
    return replace(
        requirement, marker=marker, extra=requirement.extra or str(entry.get("extra") or entry.get("group") or "")
    )


def _joined_markers(first: str, second: str) -> str:
    """Both markers joined with "and"; of one empty, the other."""
    return f"({first}) and ({second})" if first and second else first or second


def _negated_marker(marker: str) -> str:
    """The opposite of a simple marker with ``==`` or ``!=``, such as ``os_name == 'nt'``; empty for all others."""
    if " and " in marker or " or " in marker:
        return ""
    return marker.replace("==", "!=", 1) if "==" in marker else marker.replace("!=", "==", 1) if "!=" in marker else ""


def _poetry_requirements(tree: Mapping[str, Any], places: Places) -> Requirements:
    """Dependencies of ``[tool.poetry]`` and its groups, with poetry's sources; each with its line."""
    poetry = table_at(tree, "tool", "poetry")
    sources = [entry for entry in array_at(poetry, "source") if isinstance(entry, Mapping)]
    urls = {str(entry.get("name")): str(entry.get("url", "")) for entry in sources}
    primary = [
        urls[str(requirement.get("name"))]
        for requirement in sources
        if requirement.get("priority", "primary") in ("primary", "default")
    ]
    sections = [("", table_at(poetry, "dependencies"))]
    sections += [(_extra(name), table_at(poetry, "group", name, "dependencies")) for name in table_at(poetry, "group")]
    for extra, section in sections:
        for name, value in section.items():
            for entry in value if isinstance(value, list) else [value]:
                requirement, source = _poetry_dependency(
                    str(name), entry if isinstance(entry, Mapping) else {"version": entry}
                )
                index, *further_indexes = [urls.get(source, source)] if source else primary or [""]
                requirement = replace(requirement, extra=requirement.extra or extra)
                yield (
                    _requirements.with_index_options(requirement, _requirements.Options(index, further_indexes)),
                    places.line_of(f"{name} ", "="),
                )


def _poetry_dependency(name: str, entry: Mapping[str, Any]) -> tuple[RequestedPackage, str]:
    """One poetry dependency, and the name of its source, empty for the default. An optional dependency has the extra
    ``optional``.
    """
    wheel = _requirements.parse_wheel_name(str(entry.get("url") or entry.get("file") or ""))
    requirement = RequestedPackage(
        normal(name),
        wheel.spec if wheel else pip_specifier(str(entry.get("version") or "")),
        marker=str(entry.get("markers") or ""),
        url=wheel.url if wheel else "",
        installer="poetry",
        extra="optional" if entry.get("optional") is True else "",
    )
    return requirement, str(entry.get("source") or "")


def pip_specifier(spec: str) -> str:
    """Poetry's ^2.4 and ~2.4, and a bare 2.4.0, as pip specifiers; empty for none or ``*``; others without spaces."""
    spec = spec.strip()
    if spec in ("", "*"):
        return ""
    if spec[0].isdecimal():
        return f"=={spec}"
    if match := re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)([\w.]*)", spec):
        numbers = [int(number) for number in match[2].split(".")]
        first = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
        raised = first if match[1] == "^" else min(1, len(numbers) - 1)
        top = [*numbers[:raised], numbers[raised] + 1]
        return f">={match[2]}{match[3]},<{'.'.join(map(str, top))}"
    return spec.replace(" ", "")


def _pixi_requirements(tree: Mapping[str, Any], places: Places) -> Requirements:
    """pixi's conda and PyPI dependencies, each with its line; its optional features are left out."""
    pixi = table_at(tree, "tool", "pixi") or (
        tree if "workspace" in tree or "channels" in table_at(tree, "project") else {}
    )
    channels = [
        str(channel) for channel in array_at(pixi, "workspace", "channels") or array_at(pixi, "project", "channels")
    ]
    for name, value in table_at(pixi, "dependencies").items():
        entry = value if isinstance(value, Mapping) else {"version": value}
        spec = str(entry.get("version") or "")
        requirement = _requirements.conda_package(
            str(name), "" if spec == "*" else spec, str(entry.get("build") or ""), channels
        )
        yield requirement, places.line_of(f"{name} ", "=")
    for name, value in table_at(pixi, "pypi-dependencies").items():
        entry = value if isinstance(value, Mapping) else {"version": value}
        version = str(entry.get("version") or "")
        requirement = RequestedPackage(
            normal(str(name)), "" if version == "*" else version.replace(" ", ""), installer="uv"
        )
        yield replace(requirement, index=str(entry.get("index") or "")), places.line_of(f"{name} ", "=")


# ---- TOML as a tree, and where in the text something of it stands ----

LONGEST_TOML = 256 << 10
"""Characters of the largest file that is parsed: a project's own file has a hundredth."""
_DEEPEST = 60
"""Brackets within brackets, and names within names: a parser that calls itself must not be led further."""


def parse_toml(text: str) -> Mapping[str, Any]:
    """The TOML document; raises `UnreadableError` with line and reason for broken, too long or too deep."""
    if len(text) > LONGEST_TOML:
        raise UnreadableError(f"longer than {LONGEST_TOML >> 10} KB of TOML")
    for number, line in enumerate(text.split("\n"), 1):
        if nesting_depth(line) > _DEEPEST or line.partition("=")[0].count(".") > _DEEPEST * 2:
            raise UnreadableError(f"line {number}: brackets or names within each other without end")
    try:
        return document.parse_toml(text.replace("\r\n", "\n"))
    except (RecursionError, ValueError) as error:
        raise UnreadableError(f"no TOML: {str(error)[:200]}") from error


def value_at(tree: object, *path: str) -> Any:
    """The value under those keys, one level each; None where a key is missing."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def table_at(tree: object, *path: str) -> Mapping[str, Any]:
    """The table under those keys; empty where there is none."""
    value = value_at(tree, *path)
    return value if isinstance(value, Mapping) else {}


def array_at(tree: object, *path: str) -> list[Any]:
    """The array under those keys, at most 2000 entries; empty where there is none."""
    value = value_at(tree, *path)
    return value[:2000] if isinstance(value, list) else []


_MOST_TRIED = 50
"""Places of a word that are looked at for the words beside it."""


class Places:
    """Finds the lines of words in a manifest's text, which TOML's parser does not give."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def line_of(self, word: str, *beside: str) -> int:
        """The first line (from 1) with `word` and all of `beside`, else with `word` alone; 1 where none has it."""
        text = self.manifest.text
        first = offset = text.find(word)
        for _ in range(_MOST_TRIED):
            end = text.find("\n", offset)
            if offset < 0 or all(
                other in text[text.rfind("\n", 0, offset) + 1 : end if end >= 0 else None] for other in beside
            ):
                break
            offset = text.find(word, offset + 1)
        return text.count("\n", 0, max(offset if offset >= 0 else first, 0)) + 1
