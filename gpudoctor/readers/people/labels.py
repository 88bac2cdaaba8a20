"""Loosely written ``label: value`` lines of people and bug forms: a table of labels, the fact each is, and its form.

A label is matched in one spelling (lower case, words parted by single spaces, see `_labels.spelled`). ``not set`` and
its like become an absent fact, ``N/A`` and its like an unread one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gpudoctor.model.fact import Fact, Known, Rows, Unread, Value
from gpudoctor.readers._forms import FORMS, env_name
from gpudoctor.readers._gpus import names, sorted_by_vendor, vendor
from gpudoctor.readers._labels import Label
from gpudoctor.readers._lists import phrases, words
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import missing
from gpudoctor.readers._variables import derived, wanted
from gpudoctor.readers.people._special import ANSWERS, named_system
from gpudoctor.readers.people._words import COLUMNS, FACTS_OF, SPECIAL, SYSTEMS, VARIABLES, plainer

EXACT = 2

Answers = Iterator[tuple[str, "Fact | Rows"]]
_MASK = "CUDA_VISIBLE_DEVICES"
"""The variable that hides every GPU where it is set and empty."""
_QUOTES = Pattern(r"(?:''|\"\")\W*$")
_EMPTY = Pattern(r"\W*(?:(?:set|present|there)\b[^\n]{0,10}\b)?(?:an? )?empty(?: string)?\W*$", 2)
_GPU_NUMBERS = Pattern(r"gpu(?: \d{1,2})+")
_DRIVER = Pattern(
    r"(?:nvidia )?(?:gpu )?driver(?: version)?\s+v?(\d{3}\.\d+(?:\.\d+)?)\s*$"
    r"|(?:nvidia )(?:gpu )?driver(?: version)?[\s-]v?(\d{3}(?:\.\d+){0,2})[\s,(-]*(?:server-?)?"
    r"(?:(?:open|proprietary)[\w ]{0,30}\)?)?\s*$|nvidia-driver-(\d{3})(?:-server)?(?:-open)?\s*$",
    2,
)
_CHANGED = Pattern(
    r"\W*(?:\w+ )?(?:nvidia )?drivers?\b[^:\n]{0,30}:[^\n]*?\d{3}(?:\.\d+)*\s*(?:->|→|=>"
    r"|to)\s*v?(\d{3}(?:\.\d+){0,2})\b",
    2,
)


def read(paste: Paste) -> Answers:
    """Every label that the tables know, in the order of the text."""
    gpu: dict[str, Fact] = {}
    variables: dict[str, Fact] = {}
    for label in paste.labels:
        if label.index in paste.used or label.value:
            continue
        if (variable := env_name(label.name)) == _MASK and _QUOTES.search(paste.bare[label.index]):
            variables.setdefault(variable, Known("", paste.use(label.index)))
    for written in plain(paste):
        label = replace(written, name=plainer(written.name))
        source = f"line {paste.numbers[label.index]}"
        if entry := FACTS_OF.get(label.name):
            yield from _fact(entry, label, source)
        elif label.name in COLUMNS:
            name, form = COLUMNS[label.name]
            if (answer := _answer(form, label.value, source)) is not None:
                gpu.setdefault(name, answer)
        elif label.name in SPECIAL:
            yield from ANSWERS[SPECIAL[label.name]](label, source)
        elif label.name in SYSTEMS:
            yield from named_system(label, source)
        elif _GPU_NUMBERS.fullmatch(label.name):
            yield from _numbered(label, source)
        elif variable := _variable(label, paste):
            gone = None if variable == _MASK and _EMPTY.match(label.value) else missing(label.value, source)
            variables.setdefault(variable, gone or Known(_setting(variable, label), source))
        else:
            continue
        paste.use(label.index)
    known = {name: fact for name, fact in gpu.items() if not isinstance(fact, Unread)}
    if known:
        yield "gpu", (known,)
    for name, value in variables.items():
        yield f"env.{name}", value
    yield from derived(variables)
    yield from _bare(paste)


def _fact(entry: tuple[tuple[str, str], ...], label: Label, source: str) -> Answers:
    for name, form in entry:
        if (answer := _answer(form, label.value, source)) is not None:
            yield name, answer


def _answer(form: str, text: str, source: str) -> Fact | None:
    """The value as a fact, None where it cannot be made out."""
    parse: Callable[[str], Value] = FORMS[form]
    if form == "bool":
        answer = parse(text)
        if answer is not None:
            return Known(answer, source)
    gone = missing(text, source)
    if gone:
        return gone
    value = parse(text)
    return None if value is None else Known(value, source)


def _variable(label: Label, paste: Paste) -> str:
    """The environment variable that the label spells, in capitals or as one of the best known; else nothing."""
    name = env_name(label.name)
    capitals = paste.bare[label.index].partition(":")[0].strip("-* ").isupper() and len(label.value.split()) < 2
    prose = any(word in name.split("_") for word in ("SMI", "WARN", "INFO", "ERROR", "SETUP", "VERSION"))
    return name if name in VARIABLES or (capitals and wanted(name) and not prose) else ""


def _setting(variable: str, label: Label) -> str:
    """The value without a remark behind it: ``29500 (default)``; ``empty string`` is one."""
    if variable == _MASK and _EMPTY.match(label.value):
        return ""
    return label.value.split(" (")[0] if variable.endswith("_PORT") else label.value


def _bare(paste: Paste) -> Answers:
    """``NVIDIA driver 512.78`` and ``nvidia-driver-535-open``, without a colon; ``driver upgraded: 580 -> 590``."""
    for index, line in paste.having("driver"):
        if match := _DRIVER.match(line.strip()) or _CHANGED.match(line):
            yield "driver.version", Known(next(filter(None, match.groups())), paste.use(index))
            low = line.lower().replace("opensuse", "")
            if kind := next((word for word in ("proprietary", "open") if word in low), ""):
                yield "driver.module_kind", Known(kind, paste.use(index))


def _numbered(label: Label, source: str) -> Answers:
    """``GPU 0,1: NVIDIA GeForce RTX 3090``"""
    found = names(label.value)
    if len(found) == 1 and vendor(found[0]):
        numbers = [int(number) for number in label.name.split()[1:]]
        yield from sorted_by_vendor(
            [{"index": Known(number, source), "name": Known(found[0], source)} for number in numbers]
        )


# ---- Labels that say where or when, without that part ----
# ``host driver``, ``torch in the container``, ``node GPU``.

_BEFORE = words(
    """
    host node cluster server machine worker instance vm workstation laptop pc desktop compute my our the actual
    current currently installed present
    """
)
"""Words in front of a label that change nothing of what it names."""
_BEHIND = Pattern(
    r" (?:installed|in use|used|now|currently|here|inside|imported"
    r"|(?:on|in|inside|of) (?:the |this |my |our )?(?P<where>[\w.]+(?: [\w.]+)?))$"
)
_ELSEWHERE = words(
    """
    other another old older previous former second working good fresh new clean base first before requirements
    requirement docs readme setup lock index wheel
    """
)
"""Words that say that it is not the thing of this report."""
_CORES = frozenset(
    phrases(
        """driver | nvidia driver | driver version | nvidia driver version | gpu driver | gpu | gpus | gpu model
        | gpu name | graphics card | card | torch | pytorch | torch version | pytorch version | kernel | kernel version
        | torch cuda is available | cuda available | is cuda available | torch cuda device count"""
    )
)
"""What may be told apart from its place: of these a report has one."""


def plain(paste: Paste) -> Iterator[Label]:
    """The labels that no reader has placed; those with a place or time in them last, by the thing alone.

    Where several such labels give one thing different values, none is taken: one may be another machine or what was.
    """
    told: dict[str, list[Label]] = {}
    for label in paste.labels:
        if label.index in paste.used or not label.value:
            continue
        core = _core(label.name)
        if core == label.name:
            yield label
        else:
            told.setdefault(core, []).append(label)
    for core, labels in told.items():
        if len({label.value for label in labels}) == 1:
            yield replace(labels[0], name=core)


def _core(name: str) -> str:
    """The label without words of place and time, if what is left is a thing of which a report has one."""
    if any(name in table for table in (_CORES, FACTS_OF, COLUMNS, SPECIAL, SYSTEMS)):
        return name
    core = name
    if behind := _BEHIND.search(core):
        if behind.group("where") and _ELSEWHERE & set(behind.group("where").split()):
            return name
        core = core[: behind.start()]
    while (first := core.partition(" "))[0] in _BEFORE and first[2]:
        core = first[2]
    return core if core in _CORES else name
