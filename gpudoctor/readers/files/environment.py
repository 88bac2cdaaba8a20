"""environment.yml: what conda is to install, and pip after it.

Its format: docs.conda.io, Managing environments (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.readers.files import _requirements
from gpudoctor.readers.files._manifest import Manifest, Node, documents

KIND = "environment"

_NAME = re.compile(r"(?:.*[-_.])?(?:environment|conda|env)(?:[-_.].*)?\.ya?ml")
_STARTS = re.compile(r"^dependencies:\s*(?:#.*)?$", re.MULTILINE)
_TOP = re.compile(r"^(?:name|channels|dependencies|prefix|variables|platforms):|^\s*(?:#|-|$)|^\s+\S")
_PYTHON = re.compile(r"==(\d+\.\d+(?:\.\d+)?)(?:\.\*)?")


def named(name: str) -> bool:
    """Whether the file name is a conda environment's: ``environment.yml``, ``environment-gpu.yaml``, ``conda.yaml``."""
    return bool(_NAME.fullmatch(name))


def recognizes(text: str) -> bool:
    """Whether the text is a conda environment: has ``dependencies:`` and only keys of that format."""
    return bool(_STARTS.search(text)) and all(_TOP.match(line) for line in text.split("\n")[:1000])


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``requirement`` for conda's packages, then pip's; the Python version and variables.

    Nothing without ``dependencies``; raises `UnreadableError` for broken YAML.
    """
    tree = next(iter(documents(manifest.text)), Node())
    dependencies = tree.at("dependencies")
    if not dependencies:
        return
    manifest.use(tree.key_line("dependencies"))
    channels = [node.text for node in tree.at("channels").list()]
    if channels:
        manifest.use(tree.key_line("channels"), tree.at("channels").list()[-1].line)
    requirements: list[tuple[_requirements.RequestedPackage, str]] = []
    for node in dependencies.list():
        if node.text and (requirement := _requirements.conda_requirement(node.text, channels)):
            source = manifest.use(node.line)
            requirements.append((requirement, source))
            if requirement.name == "python" and (version := _PYTHON.fullmatch(requirement.spec)):
                yield "python.version", Known(version[1], source)
        requirements += _pip_requirements(node.at("pip"), manifest)
    yield from _requirements.requirement_rows(requirements)
    for name, node in tree.at("variables").items():
        if re.fullmatch(r"[A-Z][A-Z0-9_]{1,60}", name) and node.given:
            yield f"env.{name}", Known(node.text, manifest.use(node.line))


def _pip_requirements(section: Node, manifest: Manifest) -> list[tuple[_requirements.RequestedPackage, str]]:
    """The packages under ``- pip:`` with their sources; pip's options there apply to all. Marks the lines."""
    options = _requirements.Options()
    requirements: list[tuple[_requirements.RequestedPackage, str]] = []
    for node in section.list():
        source = manifest.use(node.line)
        if node.text.startswith("-"):
            list(_requirements.parse_arguments(node.text.split(), options))
        elif requirement := _requirements.parse_requirement(re.split(r"\s(?:--?[a-z]|#)", node.text, maxsplit=1)[0]):
            requirements.append((replace(requirement, step=1), source))
    return [(_requirements.with_index_options(requirement, options), source) for requirement, source in requirements]
