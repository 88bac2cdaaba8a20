"""Lists of Python packages: pip list and freeze, conda list, uv, the [pip3] and [conda] lines of collect_env."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.fact import Fact, Known, Row, Rows, Unread
from gpudoctor.core.versions import normal
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._software import FOLLOWED, package_facts

EXACT = 6

_NAME = r"([A-Za-z0-9][\w.-]{0,80})"
_TAGGED = Pattern(r"\s*(?:[-*] )?\[(pip3?|conda|uv)\] " + _NAME + r"(?:\s*==\s*|\s+\(?)(\S.*?)\)?$")
_FREEZE = Pattern(r"\s*(?:[-*] )?" + _NAME + r"==([\w.+!-]+)(?:\s*[;#\\].*)?$")
_EXPORTED = Pattern(r"\s*- (?:[\w.-]+::)?" + _NAME + r"=(\d[\w.+!]*)=(\S+)\s*$")
_HEADER = Pattern(r"\s*Package\s+Version(?:\s+.*)?$")
_ROW = Pattern(r"\s*" + _NAME + r"\s+v?(\d[\w.+!-]*)(?:\s+(\S.*))?$")
_CONDA = Pattern(r"\s*" + _NAME + r"\s+(\d[\w.+!*-]*)\s+(\S+_\S+|\d+|cpu|cuda)(?:\s+(\S+))?\s*$")
_DONE = Pattern(r"Successfully installed (.+)$")
_PAIR = Pattern(r"(?<![\w.-])([A-Za-z][\w.-]{0,80}?)-(\d[\w.+!]{0,80})(?:\s|$)")
_HERE = Pattern(r"Requirement already satisfied: " + _NAME + r"\S{0,80} in \S{1,300} .{0,300}?\((\d[\w.+!]{0,80})\)$")
_WHEEL = Pattern(
    r"(?:/whl/(?:nightly/)?(cu\d{2,3}|cpu|rocm[\d.]+)/)?\b([a-z][a-z0-9_]+)-(\d+\.\d[\w.]*(?:\+[\w.]+)?)-(?:cp|py)\d\S{0,120}?\.whl"
)
_TAG = Pattern(
    r"(?i)\b(flash[-_]attn)\W{1,4}(\d+\.\d+\.\d+(?:\.post\d+)?)\b[^\n]{0,16}?\b(cu\d+torch\d\.\d+cxx11abi(?:TRUE|FALSE))"
)
_LISTS = ("==", "[conda]", "[pip", "version", "packages in environment", "dependencies:", "pip ", "conda ", "torch  ")
_LIST_LABEL = Pattern(
    r"(?:(?:uv )?pip3?|conda|mamba)(?: list| freeze| show)?(?: grep .*)?(?: packages)?"
    r"|(?:installed |relevant |python )?(?:packages|versions|libraries|libs)(?: installed)?|installed|stack"
    r"|(?:conda |python )?(?:env|environment|venv)(?: packages)?"
)
_ITEM = Pattern(_NAME + r"(?:==| ?= ?| v?|: )(\d+\.[\w.+!]*)(?:[\s=]+(\S+))?$")
_BUILD = Pattern(r"(?:py|cuda|cu|cpu|rocm)\w*\d|cpu")
_NOT_BY_LABEL = frozenset(
    ("torch", "pytorch", "cudnn", "nccl", "cudatoolkit", "cuda-toolkit", "tensorflow", "jax", "jaxlib", "triton")
)
"""Packages whose name as a label may mean a library of the system, or that other readers know better."""


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``package``, and facts of torch, TensorFlow, JAX and extensions that follow from them; else nothing."""
    rows = [
        *_package_lists(paste),
        *_wheel_tags(paste),
        *_labelled_packages(paste),
        *_inline_lists(paste),
        *_lone_package_line(paste),
        *_pip_output(paste),
    ]
    if not rows:
        return
    yield "package", tuple(rows)
    yield from package_facts(rows)


def _package_lists(paste: Paste) -> Iterator[Row]:
    """Rows of ``package`` in pip list and freeze, conda list and export, and collect_env's ``[pip3]`` lines.

    Lines with ``==`` or ``[pip3]`` and those of conda export count anywhere; others, outside of a table, only for
    packages of GPU software.
    """
    table = ""
    for index, line in enumerate(paste.bare) if any(word in paste.lower for word in _LISTS) else ():
        if not line.strip():
            continue
        if "[" in line and (tagged := _TAGGED.match(line)):
            yield from _tagged_package(tagged.groups(), paste.use(index))
        elif "==" in line and (frozen := _FREEZE.match(line)):
            yield _package_row(frozen.group(1), frozen.group(2), "pip", "", paste.use(index))
        elif "=" in line and (exported := _EXPORTED.match(line)):
            yield _conda_row(exported.group(1), exported.group(2), exported.group(3), paste.use(index))
        elif _HEADER.match(line):
            table = "pip"
            paste.use(index)
        elif "packages in environment" in line or line.lstrip("# ").startswith("Name  "):
            table = "conda"
            paste.use(index)
        elif table and (set(line.strip()) <= set("- ─━╌=") or line.startswith("#")):
            paste.use(index)
        elif table == "conda" and (listed := _CONDA.match(line)):
            yield _conda_row(
                listed.group(1), listed.group(2), f"{listed.group(3)} {listed.group(4) or ''}", paste.use(index)
            )
        elif table == "pip" and (row := _ROW.match(line)):
            yield _package_row(row.group(1), row.group(2), "pip", "", paste.use(index))
        elif (bare := _CONDA.match(line)) and normal(bare.group(1)) in FOLLOWED:
            yield _conda_row(bare.group(1), bare.group(2), f"{bare.group(3)} {bare.group(4) or ''}", paste.use(index))
        elif (loose := _ROW.match(line)) and not loose.group(3) and normal(loose.group(1)) in FOLLOWED:
            yield _package_row(loose.group(1), loose.group(2), "pip", "", paste.use(index))
        else:
            table = ""


def _tagged_package(groups: tuple[str | None, ...], source: str) -> Iterator[Row]:
    """The row of ``package`` of a ``[pip3] torch==2.5.1`` or ``[conda] ...`` line; none for "Could not collect"."""
    tool, name, rest = (group or "" for group in groups)
    if "not collect" in rest or "relevant packages" in rest:
        return
    if tool == "conda":
        version, _, build = rest.partition(" ")
        yield _conda_row(name, version, build.strip(), source)
    else:
        yield _package_row(name, rest.strip(), "pip", "", source)


def _conda_row(name: str, version: str, build: str, source: str) -> Row:
    """A row of ``package`` from conda list; its installer is pip where the channel is pypi."""
    build_words = build.split()
    from_pip = "pypi" in build_words or build_words[:1] == ["pypi_0"]
    return _package_row(
        name, version, "pip" if from_pip else "conda", "" if from_pip else "".join(build_words[:1]), source
    )


def _package_row(name: str, version: str, installer: str, build: str, source: str) -> Row:
    """A row of ``package``: normalised name, version (unread where it is none), installer and build."""
    row: dict[str, Fact] = {"name": Known(normal(name), source)}
    first_word = version.split(" ")[0]
    is_version = first_word[:1].isdecimal() and len(first_word) < 80
    row["version"] = Known(first_word, source) if is_version else Unread(f"not a version: {version[:60]!r} ({source})")
    row["installer"] = Known(installer, source)
    if build:
        row["build"] = Known(build, source)
    return row


def _wheel_tags(paste: Paste) -> Iterator[Row]:
    """Rows of ``package`` for flash-attn with its wheel's tag: ``2.5.6 (wheel cu122torch2.1cxx11abiFALSE)``."""
    for index, line in paste.having("cxx11abi"):
        if ".whl" not in line and (tagged := _TAG.search(line[:2000])):
            yield _package_row(tagged.group(1), f"{tagged.group(2)}+{tagged.group(3)}", "pip", "", paste.use(index))


def _labelled_packages(paste: Paste) -> Iterator[Row]:
    """Rows of ``package`` from labels: ``pip torch: 2.1.2``, ``vllm: 0.6.3``, ``vLLM version: 0.6``, and pip show."""
    pip_show_name = ""
    for label in paste.labels:
        if label.name == "name" and normal(label.value) in FOLLOWED:
            pip_show_name = label.value
            continue
        tool, _, package = label.name.partition(" ")
        if tool in ("pip", "conda") and package in ("torch", "pytorch") and label.value[:1].isdecimal():
            version, _, build = label.value.partition(" ")
            yield _package_row(package, version, tool, build, paste.use(label.index))
            continue
        name = normal(
            label.name.removesuffix(" version").removesuffix(" info").removeprefix("installed ").replace(" ", "-")
        )
        if label.name == "version" and pip_show_name:
            name, pip_show_name = normal(pip_show_name), ""
        if label.index not in paste.used and name in FOLLOWED - _NOT_BY_LABEL and label.value[:1].isdecimal():
            yield _package_row(name, label.value.partition(",")[0], "pip", "", paste.use(label.index))


def _inline_lists(paste: Paste) -> Iterator[Row]:
    """Rows of ``package`` from a list behind a label: ``pip list: torch 2.8.0, torchvision 0.23.0``."""
    for label in paste.labels:
        if label.index in paste.used or not _LIST_LABEL.fullmatch(label.name):
            continue
        items = [_ITEM.match(part.strip(" .")) for part in label.value.replace(";", ",").split(",")]
        for item in items:
            if item and normal(item.group(1)) in FOLLOWED:
                name, version, build = item.groups()
                source = paste.use(label.index)
                if label.name.startswith(("conda", "mamba")) and build:
                    yield _conda_row(name, version, build, source)
                else:
                    yield _package_row(name, version, "pip", "", source)


def _lone_package_line(paste: Paste) -> Iterator[Row]:
    """Rows of ``package`` from a line with nothing else, ``torch 1.13, torchvision 0.6``, if it is the only one."""
    candidates: list[tuple[int, list[tuple[str, str]]]] = []
    for index, line in paste.having("torch"):
        if index in paste.used or len(line) > 300 or not ("," in line or ";" in line or " + " in line):
            continue
        parts = line.strip(" \t-*.").replace(";", ",").replace(" + ", ",").replace(" and ", ",").split(",")
        items = [_ITEM.match(part.strip(" .")) for part in parts]
        pairs = [(item.group(1), item.group(2)) for item in items if item and normal(item.group(1)) in FOLLOWED]
        no_other_text = not any(item and item.group(3) and not _BUILD.match(item.group(3)) for item in items)
        if no_other_text and len(pairs) == len(items) == len({name for name, _ in pairs}) > 1:
            candidates.append((index, pairs))
    if len(candidates) == 1:
        index, pairs = candidates[0]
        yield from (_package_row(name, version, "pip", "", paste.use(index)) for name, version in pairs)


def _pip_output(paste: Paste) -> Iterator[Row]:
    """Rows of ``package`` that pip says it installed or found, and those in the names of wheel files."""
    for installed, source in paste.matches(_DONE.search, "successfully installed"):
        for pair in _PAIR.finditer(installed.group(1)):
            yield _package_row(pair.group(1), pair.group(2), "pip", "", source)
    for satisfied, source in paste.matches(_HERE.search, "requirement already satisfied"):
        yield _package_row(satisfied.group(1), satisfied.group(2), "pip", "", source)
    for index, line in paste.having(".whl"):
        if "not a supported wheel" in line.lower():
            continue
        for wheel in _WHEEL.finditer(line[:2000]):
            index_tag, name, version = wheel.groups()
            if normal(name) in FOLLOWED and "no matching" not in line.lower():
                tag = f"+{index_tag}" if index_tag and "+" not in version and name.startswith("torch") else ""
                yield _package_row(name, version + tag, "pip", "", paste.use(index))
