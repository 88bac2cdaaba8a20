"""What pip, uv and conda are asked for: one line or command as rows of ``requirement``, and the options beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.core.versions import normal
from gpudoctor.readers._paste import clean
from gpudoctor.readers._pattern import words
from gpudoctor.readers._software import FOLLOWED

FACTS = (
    fact("manifest.others", "list", "packages that it asks for and that are no GPU software: none is judged"),
    column("requirement.name", "text", "a package that a manifest asks for, normalised; only packages of GPU software"),
    column("requirement.asked", "text", "the versions that it takes, as written: ==2.5.1, >=2.4,<3; empty for any"),
    column("requirement.marker", "text", "the condition behind it, such as platform_system == 'Linux'"),
    column("requirement.extras", "list", "its extras, such as cuda12 of jax[cuda12]"),
    column("requirement.url", "text", "the one wheel that it names"),
    column("requirement.build", "text", "conda's build string that it takes: *cuda*"),
    column("requirement.index", "text", "the package index that is asked instead of PyPI; of conda its first channel"),
    column("requirement.more_indexes", "list", "indexes, folders and channels that are asked besides"),
    column("requirement.installer", "text", "pip, uv, poetry or conda; image where a base image brings it"),
    column("requirement.step", "int", "number of the command that asks, where one follows the other: of a Dockerfile"),
    column("requirement.extra", "text", "the extra or group of dependencies that it belongs to, installed on request"),
)

LONGEST_REQUIREMENT = 300
_MOST_OTHERS = 500
_BESIDE = words(
    """
    python timm sentence-transformers torchmetrics ultralytics openai-whisper fastai pytorch-gpu pytorch-cpu
    cuda-version libtorch pytorch-lightning flash-attn causal-conv1d mamba-ssm deepspeed natten torch-scatter
    torch-sparse torch-cluster transformer-engine-torch llama-cpp-python
    """
)
_NAME = re.compile(r"([A-Za-z0-9][\w.-]{0,80})\s*(?:\[([^\]]{0,200})\])?\s*")
_WHEEL = re.compile(
    r"([A-Za-z0-9][\w.]{0,80})-(\d[\w.!]{0,40}(?:(?:\+|%2B)[\w.]{1,40})?)-[\w.]+-[\w.]+-[\w.]+\.whl", re.I
)
_SPEC = re.compile(r"[\s(]*((?:(?:===|==|~=|!=|<=|>=|<|>)\s*[\w.*+!]+\s*,?\s*){0,12})\)?\s*")


@dataclass(frozen=True, slots=True)
class RequestedPackage:
    """A requested package: name, version specifier, marker, extras, and the index it comes from.

    `step` is the number of the command that asks for it, `extra` the optional group that it belongs to.
    """

    name: str
    spec: str = ""
    marker: str = ""
    extras: tuple[str, ...] = ()
    url: str = ""
    build: str = ""
    index: str = ""
    more: tuple[str, ...] = ()
    installer: str = "pip"
    step: int = 0
    extra: str = ""

    @property
    def followed(self) -> bool:
        """Whether the package is one of GPU software, whose version rules judge, or one that matters to these."""
        return self.name in FOLLOWED or self.name in _BESIDE or self.name.startswith(("nvidia-", "jax-cuda"))

    def row(self, source: str) -> Row:
        """The package as a row of ``requirement``; columns without a value are left out, but for ``asked`` (empty) and
        ``step`` (0).
        """
        row: dict[str, Fact] = {"name": Known(self.name, source), "asked": Known(self.spec, source)}
        plain = {"marker": self.marker, "url": self.url, "build": self.build, "index": self.index, "extra": self.extra}
        row.update({key: Known(clean(value[:LONGEST_REQUIREMENT]), source) for key, value in plain.items() if value})
        row.update(
            {
                key: Known(value, source)
                for key, value in (("extras", self.extras), ("more_indexes", self.more))
                if value
            }
        )
        row["installer"] = Known(self.installer, source)
        row["step"] = Known(self.step, source)
        return row


def parse_requirement(text: str) -> RequestedPackage | None:
    """The package that a pip requirement (PEP 508) or a wheel's path asks for; None for anything else."""
    text = text.strip()
    if wheel := parse_wheel_name(text):
        return wheel
    if not (head := _NAME.match(text)):
        return None
    after_name, _, marker = text[head.end() :].partition(";")
    requirement = RequestedPackage(normal(head[1]), marker=marker.strip(), extras=_extras(head[2]))
    if after_name.startswith("@"):
        url = after_name[1:].split()[0] if after_name[1:].split() else ""
        wheel = parse_wheel_name(url)
        return replace(requirement, url=url, spec=wheel.spec if wheel else "")
    spec = _SPEC.fullmatch(after_name)
    return replace(requirement, spec=re.sub(r"\s+", "", spec[1]).strip(",")) if spec else None


def parse_wheel_name(text: str) -> RequestedPackage | None:
    """Name and pinned version of a path or URL that ends in a wheel's file name; None for anything else.

    torch-2.6.0+cu124-cp312-cp312-linux_x86_64.whl gives torch ==2.6.0+cu124.
    """
    path = text.partition("#")[0].split(";")[0].strip().replace("%2B", "+").replace("%2b", "+")
    file = path.replace("\\", "/").rpartition("/")[2]
    if not (wheel := _WHEEL.fullmatch(file)):
        return None
    return RequestedPackage(normal(wheel[1]), f"=={wheel[2]}", url=text.partition(" ")[0])


def _extras(text: str | None) -> tuple[str, ...]:
    """Normalised names of a comma-separated list of extras, at most 20; empty for None."""
    return tuple(normal(word) for part in (text or "").split(",") if (word := part.strip()))[:20]


def with_index_options(requirement: RequestedPackage, options: Options) -> RequestedPackage:
    """The package with the options' index (``none`` for --no-index) unless it has its own, and with their further
    indexes behind its own, ten at most.
    """
    index = "none" if options.no_index else options.index
    return replace(
        requirement,
        index=requirement.index or index,
        more=tuple(dict.fromkeys((*requirement.more, *options.more)))[:10],
    )


def requirement_rows(packages: Sequence[tuple[RequestedPackage, str]]) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``requirement`` for GPU software, each with its source; names of the rest as ``manifest.others``."""
    yield (
        "requirement",
        tuple(requirement.row(source) for requirement, source in packages if requirement.followed),
    )
    others = dict.fromkeys(clean(requirement.name) for requirement, _ in packages if not requirement.followed)
    if others:
        yield "manifest.others", Known(tuple(others)[:_MOST_OTHERS], "the manifest")


# ---- The words behind ``pip install`` and on the option lines of requirements.txt, which are the same ----

_INDEX = ("-i", "--index-url", "--pypi-url", "--default-index")
_MORE = ("--extra-index-url", "-f", "--find-links", "--index")
_FILES = ("-r", "--requirement", "-c", "--constraint")
_ALONE = ("-e", "--editable")
_VALUED = words(
    """
    --hash --trusted-host --no-binary --only-binary --target -t --prefix --root --python -p --src --platform
    --python-version --implementation --abi --global-option --config-settings -C --progress-bar --timeout --retries
    --proxy --cache-dir --upgrade-strategy --torch-backend --index-strategy --log --cert --report --use-feature --group
    --extra --prerelease --keyring-provider --link-mode --resolution --exclude-newer --no-build-isolation-package --name
    -n
    """
)


@dataclass(slots=True)
class Options:
    """pip's options: the index, further indexes, requirement files, local projects, and uv's torch backend."""

    index: str = ""
    more: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    projects: list[str] = field(default_factory=list)
    backend: str = ""
    no_index: bool = False


def parse_arguments(arguments: Sequence[str], options: Options) -> Iterator[str]:
    """Yields the arguments that are requirements, in order; puts the options among them into `options`."""
    remaining = iter(arguments)
    for word in remaining:
        if not word.startswith("-"):
            yield word
            continue
        name, _, value = word.partition("=")
        if name[:2] in ("-i", "-f", "-r", "-c", "-e") and len(name) > 2 and not name.startswith("--"):
            name, value = word[:2], word[2:]
        if not value and (name in _VALUED or name in (*_INDEX, *_MORE, *_FILES, *_ALONE)):
            value = next(remaining, "")
        _apply_option(name, value, options)


def _apply_option(name: str, value: str, options: Options) -> None:
    """Put an option about indexes, requirement files, local projects or the backend into `options`; ignore others."""
    if name in _INDEX:
        options.index = value
    elif name in _MORE:
        options.more.append(value)
    elif name in _FILES:
        options.files.append(value)
    elif name in _ALONE:
        options.projects.append(value)
    elif name == "--torch-backend":
        options.backend = value
    elif name == "--no-index":
        options.no_index = True


# ---- What conda is asked for ----
# ``pytorch=2.5.1``, ``conda-forge::pytorch=*=*cuda*``, ``pytorch >=2.4,<3``.
# Conda's match specifications: docs.conda.io, Package match specifications (read 2026-11).

_CONDA_SPEC = re.compile(
    r"(?:([\w./:-]{1,100})::)?([A-Za-z_][\w.-]{0,80})\s*(?:\[[^\]]{0,200}\])?\s*([<>=!~ ].{0,100}|)$"
)
_PYTORCH = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch", "libtorch": "libtorch"}


def conda_requirement(text: str, channels: Sequence[str]) -> RequestedPackage | None:
    """The package of a conda match specification, such as ``pytorch=2.5.1``; None for anything else.

    `channels` are those of the file or command; a channel in the specification goes before them.
    """
    match = _CONDA_SPEC.fullmatch(text.strip().strip("\"'"))
    if not match:
        return None
    channel, name, version = match.groups()
    version = version.strip()
    build = ""
    if parts := re.fullmatch(r"=?\s*([^=<>!~,\s]+)\s*[= ]\s*([^=<>!~,\s]+)", version):
        version, build = (f"={parts[1]}" if parts[1] else ""), parts[2]
    return conda_package(name, version, build, [channel, *channels] if channel else channels)


def conda_package(name: str, version: str, build: str, channels: Sequence[str]) -> RequestedPackage:
    """A conda package under its pip name, with the version as a pip specifier: =2.5 becomes ==2.5.*.

    pytorch-gpu and pytorch-cpu become torch with a build pattern; the first channel is the index.
    """
    wanted_build = build or {"pytorch-gpu": "*cuda*", "pytorch-cpu": "*cpu*"}.get(name, "")
    first, *more = [*channels, ""]
    pip_name = _PYTORCH.get(name, normal(name))
    return RequestedPackage(
        pip_name,
        _pip_specifier(version),
        build=wanted_build,
        index=first,
        more=tuple(filter(None, more)),
        installer="conda",
    )


def _pip_specifier(version: str) -> str:
    """A conda version as a pip specifier; empty for none and for ``*``, which take any version."""
    version = version.replace(" ", "")
    if version in ("", "*", "=*"):
        return ""
    if re.fullmatch(r"={0,2}\d[\w.]*\*?", version):
        number = version.lstrip("=").rstrip("*").rstrip(".")
        return (
            f"=={number}"
            if version.startswith("==") or (number.count(".") > 1 and "*" not in version)
            else f"=={number}.*"
        )
    return version
