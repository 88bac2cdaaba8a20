"""Lists of Python packages: pip list and freeze, conda list, uv, the [pip3] and [conda] lines of collect_env."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Fact, Known, Row, Rows, Unread
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._stack import FOLLOWED, implied

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
    r"\b(flash[-_]attn)\W{1,4}(\d+\.\d+\.\d+(?:\.post\d+)?)\b[^\n]{0,16}?\b(cu\d+torch\d\.\d+cxx11abi(?:TRUE|FALSE))", 2
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


def normal(name: str) -> str:
    """A distribution's name in its one spelling."""
    return name.lower().replace("_", "-").replace(".", "-")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of packages, and the facts of torch, TensorFlow, JAX and their extensions that follow from them."""
    rows = [
        *_listed(paste),
        *_wheel_tags(paste),
        *_labelled(paste),
        *_inlined(paste),
        *_unlabelled(paste),
        *_told(paste),
    ]
    if not rows:
        return
    yield "package", tuple(rows)
    yield from implied(rows)


def _listed(paste: Paste) -> Iterator[Row]:
    table = ""
    for index, line in enumerate(paste.bare) if any(word in paste.lower for word in _LISTS) else ():
        if not line.strip():
            continue
        if "[" in line and (tagged := _TAGGED.match(line)):
            yield from _tagged(tagged.groups(), paste.use(index))
        elif "==" in line and (frozen := _FREEZE.match(line)):
            yield _row(frozen.group(1), frozen.group(2), "pip", "", paste.use(index))
        elif "=" in line and (exported := _EXPORTED.match(line)):
            yield _conda(exported.group(1), exported.group(2), exported.group(3), paste.use(index))
        elif _HEADER.match(line):
            table = "pip"
            paste.use(index)
        elif "packages in environment" in line or line.lstrip("# ").startswith("Name  "):
            table = "conda"
            paste.use(index)
        elif table and (set(line.strip()) <= set("- ─━╌=") or line.startswith("#")):
            paste.use(index)
        elif table == "conda" and (listed := _CONDA.match(line)):
            yield _conda(
                listed.group(1), listed.group(2), f"{listed.group(3)} {listed.group(4) or ''}", paste.use(index)
            )
        elif table == "pip" and (row := _ROW.match(line)):
            yield _row(row.group(1), row.group(2), "pip", "", paste.use(index))
        elif (bare := _CONDA.match(line)) and normal(bare.group(1)) in FOLLOWED:
            yield _conda(bare.group(1), bare.group(2), f"{bare.group(3)} {bare.group(4) or ''}", paste.use(index))
        elif (loose := _ROW.match(line)) and not loose.group(3) and normal(loose.group(1)) in FOLLOWED:
            yield _row(loose.group(1), loose.group(2), "pip", "", paste.use(index))
        else:
            table = ""


def _tagged(groups: tuple[str | None, ...], source: str) -> Iterator[Row]:
    tool, name, rest = (group or "" for group in groups)
    if "not collect" in rest or "relevant packages" in rest:
        return
    if tool == "conda":
        version, _, build = rest.partition(" ")
        yield _conda(name, version, build.strip(), source)
    else:
        yield _row(name, rest.strip(), "pip", "", source)


def _conda(name: str, version: str, build: str, source: str) -> Row:
    """A row of conda list; packages that pip put there carry the channel pypi."""
    parts = build.split()
    pip = "pypi" in parts or parts[:1] == ["pypi_0"]
    return _row(name, version, "pip" if pip else "conda", "" if pip else "".join(parts[:1]), source)


def _row(name: str, version: str, installer: str, build: str, source: str) -> Row:
    row: dict[str, Fact] = {"name": Known(normal(name), source)}
    whole = version.split(" ")[0]
    plain = whole[:1].isdecimal() and len(whole) < 80
    row["version"] = Known(whole, source) if plain else Unread(f"not a version: {version[:60]!r} ({source})")
    row["installer"] = Known(installer, source)
    if build:
        row["build"] = Known(build, source)
    return row


def _wheel_tags(paste: Paste) -> Iterator[Row]:
    """``flash-attn 2.5.6 (wheel cu122torch2.1cxx11abiFALSE)``: the tag says which torch it was built for."""
    for index, line in paste.having("cxx11abi"):
        if ".whl" not in line and (tagged := _TAG.search(line[:2000])):
            yield _row(tagged.group(1), f"{tagged.group(2)}+{tagged.group(3)}", "pip", "", paste.use(index))


def _labelled(paste: Paste) -> Iterator[Row]:
    """``pip torch: 2.1.2``, ``vllm: 0.6.3``, ``Transformers version: 4.36``, ``torch version .... 2.1.0``, pip show."""
    shown = ""
    for label in paste.labels:
        if label.name == "name" and normal(label.value) in FOLLOWED:
            shown = label.value
            continue
        tool, _, of_tool = label.name.partition(" ")
        if tool in ("pip", "conda") and of_tool in ("torch", "pytorch") and label.value[:1].isdecimal():
            version, _, build = label.value.partition(" ")
            yield _row(of_tool, version, tool, build, paste.use(label.index))
            continue
        name = normal(
            label.name.removesuffix(" version").removesuffix(" info").removeprefix("installed ").replace(" ", "-")
        )
        if label.name == "version" and shown:
            name, shown = normal(shown), ""
        if label.index not in paste.used and name in FOLLOWED - _NOT_BY_LABEL and label.value[:1].isdecimal():
            yield _row(name, label.value.rstrip(","), "pip", "", paste.use(label.index))


def _inlined(paste: Paste) -> Iterator[Row]:
    """``pip list: torch 2.8.0, torchvision 0.23.0``, ``packages: torch==2.1.0; numpy==1.26``: a list in one line."""
    for label in paste.labels:
        if label.index in paste.used or not _LIST_LABEL.fullmatch(label.name):
            continue
        items = [_ITEM.match(part.strip(" .")) for part in label.value.replace(";", ",").split(",")]
        for item in items:
            if item and normal(item.group(1)) in FOLLOWED:
                name, version, build = item.groups()
                source = paste.use(label.index)
                if label.name.startswith(("conda", "mamba")) and build:
                    yield _conda(name, version, build, source)
                else:
                    yield _row(name, version, "pip", "", source)


def _unlabelled(paste: Paste) -> Iterator[Row]:
    """``torch 1.13, torchvision 0.6``: a line of nothing but packages, the only one of its kind."""
    found: list[tuple[int, list[tuple[str, str]]]] = []
    for index, line in paste.having("torch"):
        if index in paste.used or len(line) > 300 or not ("," in line or ";" in line or " + " in line):
            continue
        parts = line.strip(" \t-*.").replace(";", ",").replace(" + ", ",").replace(" and ", ",").split(",")
        items = [_ITEM.match(part.strip(" .")) for part in parts]
        pairs = [(item.group(1), item.group(2)) for item in items if item and normal(item.group(1)) in FOLLOWED]
        plain = not any(item and item.group(3) and not _BUILD.match(item.group(3)) for item in items)
        if plain and len(pairs) == len(items) == len({name for name, _ in pairs}) > 1:
            found.append((index, pairs))
    if len(found) == 1:
        index, pairs = found[0]
        yield from (_row(name, version, "pip", "", paste.use(index)) for name, version in pairs)


def _told(paste: Paste) -> Iterator[Row]:
    """What pip says when it installs, and the file names of wheels."""
    for index, line in paste.having("successfully installed"):
        if done := _DONE.search(line[:4000]):
            source = paste.use(index)
            yield from (_row(pair.group(1), pair.group(2), "pip", "", source) for pair in _PAIR.finditer(done.group(1)))
    for index, line in paste.having("requirement already satisfied"):
        if here := _HERE.search(line):
            yield _row(here.group(1), here.group(2), "pip", "", paste.use(index))
    for index, line in paste.having(".whl"):
        if "not a supported wheel" in line.lower():
            continue
        for wheel in _WHEEL.finditer(line[:2000]):
            index_of, name, version = wheel.groups()
            if normal(name) in FOLLOWED and "no matching" not in line.lower():
                tag = f"+{index_of}" if index_of and "+" not in version and name.startswith("torch") else ""
                yield _row(name, version + tag, "pip", "", paste.use(index))
