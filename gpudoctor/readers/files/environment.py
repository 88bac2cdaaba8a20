"""environment.yml: what conda is to install, and pip after it.

Its format: docs.conda.io, Managing environments (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers.files import _asked, _conda, _pip_words
from gpudoctor.readers.files._manifest import Manifest
from gpudoctor.readers.files._yaml import Node, documents

KIND = "environment"

_NAME = re.compile(r"(?:.*[-_.])?(?:environment|conda|env)(?:[-_.].*)?\.ya?ml")
_STARTS = re.compile(r"^dependencies:\s*(?:#.*)?$", re.MULTILINE)
_TOP = re.compile(r"^(?:name|channels|dependencies|prefix|variables|platforms):|^\s*(?:#|-|$)|^\s+\S")
_PYTHON = re.compile(r"==(\d+\.\d+(?:\.\d+)?)(?:\.\*)?")


def named(name: str) -> bool:
    """``environment.yml``, ``environment-gpu.yaml``, ``conda.yaml``."""
    return bool(_NAME.fullmatch(name))


def told(text: str) -> bool:
    """Whether it has the keys of one, and nothing else."""
    return bool(_STARTS.search(text)) and all(_TOP.match(line) for line in text.split("\n")[:1000])


def read(manifest: Manifest) -> Iterator[tuple[str, Fact | Rows]]:
    """A row for each package of conda, then one for each of pip's; the Python that is asked for."""
    tree = next(iter(documents(manifest.text)), Node())
    dependencies = tree.at("dependencies")
    if not dependencies:
        return
    manifest.use(tree.key_line("dependencies"))
    channels = [node.text for node in tree.at("channels").list()]
    if channels:
        manifest.use(tree.key_line("channels"), tree.at("channels").list()[-1].line)
    found: list[tuple[_asked.Asked, str]] = []
    for node in dependencies.list():
        if node.text and (one := _conda.asked(node.text, channels)):
            source = manifest.use(node.line)
            found.append((one, source))
            if one.name == "python" and (version := _PYTHON.fullmatch(one.spec)):
                yield "python.version", Known(version[1], source)
        found += _pip(node.at("pip"), manifest)
    yield from _asked.told(found)
    for name, node in tree.at("variables").items():
        if re.fullmatch(r"[A-Z][A-Z0-9_]{1,60}", name) and node.given:
            yield f"env.{name}", Known(node.text, manifest.use(node.line))


def _pip(section: Node, manifest: Manifest) -> list[tuple[_asked.Asked, str]]:
    """The lines of ``- pip:``, which pip reads as those of a requirements.txt, after conda."""
    options = _pip_words.Options()
    found: list[tuple[_asked.Asked, str]] = []
    for node in section.list():
        source = manifest.use(node.line)
        if node.text.startswith("-"):
            list(_pip_words.told(node.text.split(), options))
        elif one := _asked.asked(re.split(r"\s(?:--?[a-z]|#)", node.text, maxsplit=1)[0]):
            found.append((replace(one, step=1), source))
    return [(_asked.under(one, options), source) for one, source in found]
