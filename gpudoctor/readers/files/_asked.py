"""What one line asks an installer for, as a row of ``requirement``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Fact, Known, Row, Rows
from gpudoctor.readers._lists import words
from gpudoctor.readers._paste import clean
from gpudoctor.readers._stack import FOLLOWED
from gpudoctor.readers.files._pip_words import Options

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

LONGEST = 300
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
class Asked:
    """One package that is asked for, and from where. `step` is the number of the command, `extra` its group."""

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
        """Whether it is of the software that GPUs need."""
        return self.name in FOLLOWED or self.name in _BESIDE or self.name.startswith(("nvidia-", "jax-cuda"))

    def row(self, source: str) -> Row:
        """It as a row of ``requirement``; what it does not say is left out."""
        row: dict[str, Fact] = {"name": Known(self.name, source), "asked": Known(self.spec, source)}
        plain = {"marker": self.marker, "url": self.url, "build": self.build, "index": self.index, "extra": self.extra}
        row.update({key: Known(clean(value[:LONGEST]), source) for key, value in plain.items() if value})
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


def normal(name: str) -> str:
    """A distribution's name in its one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked(text: str) -> Asked | None:
    """What a requirement as pip writes it (PEP 508) asks for; none for what is no requirement."""
    text = text.strip()
    if wheel := of_wheel(text):
        return wheel
    if not (head := _NAME.match(text)):
        return None
    rest, _, marker = text[head.end() :].partition(";")
    found = Asked(normal(head[1]), marker=marker.strip(), extras=_extras(head[2]))
    if rest.startswith("@"):
        url = rest[1:].split()[0] if rest[1:].split() else ""
        wheel = of_wheel(url)
        return replace(found, url=url, spec=wheel.spec if wheel else "")
    spec = _SPEC.fullmatch(rest)
    return replace(found, spec=re.sub(r"\s+", "", spec[1]).strip(",")) if spec else None


def of_wheel(text: str) -> Asked | None:
    """What a path or URL that ends in a wheel's name brings: torch-2.6.0+cu124-cp312-cp312-linux_x86_64.whl."""
    path = text.partition("#")[0].split(";")[0].strip().replace("%2B", "+").replace("%2b", "+")
    file = path.replace("\\", "/").rpartition("/")[2]
    if not (wheel := _WHEEL.fullmatch(file)):
        return None
    return Asked(normal(wheel[1]), f"=={wheel[2]}", url=text.partition(" ")[0])


def _extras(text: str | None) -> tuple[str, ...]:
    return tuple(normal(word) for part in (text or "").split(",") if (word := part.strip()))[:20]


def under(one: Asked, options: Options) -> Asked:
    """It as the index options of its command or file have it."""
    index = "none" if options.no_index else options.index
    return replace(one, index=one.index or index, more=tuple(dict.fromkeys((*one.more, *options.more)))[:10])


def told(found: Sequence[tuple[Asked, str]]) -> Iterator[tuple[str, Fact | Rows]]:
    """The rows of those that matter, each with its source, and the names of all others."""
    yield "requirement", tuple(one.row(source) for one, source in found if one.followed)
    others = dict.fromkeys(clean(one.name) for one, _ in found if not one.followed)
    if others:
        yield "manifest.others", Known(tuple(others)[:_MOST_OTHERS], "the manifest")
