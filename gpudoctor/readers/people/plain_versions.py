"""Versions and GPUs that people write without a colon: ``nvcc 10.1``, ``torch 2.3.0, driver 535``, ``RTX 4090``.

Only where nothing else stands between the commas: a sentence that names a version in passing may speak of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoctor.model.fact import Fact, Known, Rows
from gpudoctor.readers._forms import FORMS
from gpudoctor.readers._labels import Label, spelled
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._system import system
from gpudoctor.readers.people._special import ANSWERS
from gpudoctor.readers.people._words import FACTS_OF

EXACT = 1
"""Less than any label."""

_LONGEST = 160
_PART = Pattern(r"\s*(?:[,;|]|(?<=\s)[/+](?=\s)| and | with | on )\s*", 2)
_NAMED = Pattern(
    r"(?:using |my |installed |local |system |host )?([A-Za-z+][\w+ .-]{0,30}?)(?: version| release| ver\.?| is|==?)?"
    r"[ =]+[vVrR]?(\d[\w.+-]*)(?:\s*\([^)]*\)| from \S+| build| nightly)?",
    2,
)
_GPU = Pattern(
    r"(?:GPU(?: is)?:? )?((?:\d{1,2}\s?[x×] ?)?(?:NVIDIA )?(?:GeForce |Tesla |Quadro |TITAN |Jetson )?"
    r"(?:(?:RTX|GTX|GT|MX)[ -]?(?:PRO )?[A-Z]?\d{3,4}\w*"
    r"(?: ?(?:Ti|SUPER|Ada|D|Max-Q|Mobile|Laptop(?: GPU)?|Blackwell|\d{1,3} ?GB))*"
    r"|(?:Tesla |Quadro )[A-Z]{1,2}\d{1,4}\w*(?:[ -](?:SXM\d?|PCIe|\d{1,3} ?GB))*|TITAN(?: \w+)?|AGX \w+"
    r"|(?:[ABHLVPKM]\d{2,3}[sS]?|[TLP]4)(?:[ -](?:SXM\d?|PCIe|NVL|\d{2,3} ?GB))*|GB\d{2,3}))s?"
    r"(?:\s*\([^)]*\))?",
    2,
)
_SYSTEM = Pattern(
    r"((?:Ubuntu|Debian|CentOS|Fedora|Rocky|Alma\w*|RHEL|Red Hat[\w ]*|Arch Linux|openSUSE[\w ]*|SLES"
    r"|Linux Mint|Pop!_OS|Windows|Win(?=\s?1[01]\b)|macOS)"
    r"(?: Linux)?(?: Server| Stream| Enterprise)?\s?\d{0,2}(?:\.\d+){0,2}[\w ]{0,12})",
    2,
)
_BUILD = Pattern(
    r"(?:py)?torch (?:is |built |wheel |build |for |of |with |against )*(?:cu(\d{2,3})|CUDA (\d+\.\d+))", 2
)
"""torch by its CUDA alone: ``torch cu124``, ``torch built for CUDA 12.4``."""
_BARE = Pattern(r"[Vv]\d+(?:\.\d+)+")
"""A version once more: ``release 11.5, V11.5.119``."""
_VERSIONS = ("version", "release", "driver")
_ONLY = frozenset(
    (
        "nvcc", "cuda", "cuda toolkit", "gcc", "g++", "python", "tensorflow", "tf",
        "tensorflow gpu", "jax", "jaxlib", "jax cuda12 plugin", "triton", "glibc", "torch cuda", "torch version cuda",
        "ptxas",
    )
)  # fmt: skip
"""Labels of `_words` that are plain enough to stand without a colon."""
_FORMS: Mapping[str, tuple[tuple[str, str], ...]] = {
    label: entries
    for label, entries in FACTS_OF.items()
    if label in _ONLY and all(form in _VERSIONS for _, form in entries)
} | dict.fromkeys(("driver", "nvidia driver"), (("driver.version", "driver"),))


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """What the lines without a label say, and what follows a comma in the value of one."""
    labelled = {label.index: label.value for label in paste.labels}
    for index, line in enumerate(paste.bare):
        if index in paste.commands or not line.strip() or len(line) > _LONGEST:
            continue
        if index in paste.used and index not in labelled:
            continue
        parts = [part.strip() for part in _PART.compiled.split((labelled.get(index) or line).strip(" \t-*•·.'\"`"))]
        if index in labelled:
            parts = parts[1:]
        elif not all(_plain(part) for part in parts):
            continue
        stated = list(_stated(parts, Label(index, "gpu", ", ".join(filter(None, map(_gpu, parts)))), paste))
        if stated and index not in labelled:
            paste.use(index)
        yield from stated


def _stated(parts: list[str], gpus: Label, paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    source = f"line {paste.numbers[gpus.index]}"
    if gpus.value:
        yield from ANSWERS["gpus"](gpus, source)
    driver = any(part.lower().startswith(("driver", "nvidia driver", "nvidia-smi")) for part in parts)
    for part in parts:
        if _gpu(part):
            continue
        if _SYSTEM.fullmatch(part):
            yield from system(part, source)
        elif build := _BUILD.fullmatch(part):
            tag = build.group(1)
            yield "torch.cuda", Known(f"{tag[:-1]}.{tag[-1]}" if tag else build.group(2), source)
        elif found := _NAMED.fullmatch(part):
            name = spelled(found.group(1))
            if name in ("torch", "pytorch"):
                yield from ANSWERS["torch"](Label(gpus.index, "torch", found.group(2)), source)
            of_driver = driver and "cuda version" in part.lower()
            for fact, form in _FORMS.get(name, ()):
                if (value := FORMS[form](found.group(2))) is not None:
                    yield "driver.cuda_version" if of_driver else fact, Known(value, source)


def _gpu(part: str) -> str:
    """The GPU that the whole of the part names."""
    found = _GPU.fullmatch(part)
    return found.group(1) if found else ""


def _plain(part: str) -> bool:
    """Whether the whole of the part is a GPU, a system or a thing and its version or build."""
    return any(form.fullmatch(part) for form in (_GPU, _SYSTEM, _BUILD, _NAMED, _BARE))
