"""From a file, or the name of a shipped profile, to a `Profile`; what does not belong is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpudoctor.core import files
from gpudoctor.core.catalog import FactSpec
from gpudoctor.core.document import parse_toml
from gpudoctor.core.errors import RuleError, UsageError
from gpudoctor.core.language import meant, say
from gpudoctor.core.rule import SEVERITIES, Fix, Step
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expect import profile as short
from gpudoctor.diagnosis.expect.bounds import checked_condition
from gpudoctor.diagnosis.expect.profile import (
    DEEP,
    Annotations,
    ConditionLine,
    FactLine,
    Line,
    Profile,
    Wanted,
    level_of,
    level_of_condition,
    wanted,
)
from gpudoctor.diagnosis.rulebook.conditions import check_expression
from gpudoctor.kernels.specs import all_kernels

# ---- One entry as a line ----

_TOLD = ("severity", "why", "do", "needs")
_FORMS = ("is", "not", "matches", "has", "lacks", "present")
_FACT_KEYS = (*_FORMS, "where", "at_least", *_TOLD)
_CONDITION_KEYS = ("when", "each", "says", *_TOLD)
_NEEDS = ("root", "reboot", "network", "downtime")
_LINE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


def line_name(key: str) -> str:
    """What the line of that fact or kernel is called: ``gpu-count`` of ``gpu.count``."""
    return re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")


def is_key(name: str, table: str) -> bool:
    """Whether that dotted name is a fact's or, in the table ``measure``, a kernel's: then its table is one entry."""
    if table == "measure":
        return name in {kernel.spec.id for kernel in all_kernels()}
    return catalog().find(name) is not None


def fact_line(key: str, entry: Any, origin: str) -> FactLine:
    """A line for ``gpu.count = 8``, or for a table of forms (``is``, ``has``, ...), `where`, `at_least`, severity, fix.

    `origin`, the profile's file, is kept for findings. Raises `UsageError`.
    """
    spec = _spec(key)
    raw = entry if isinstance(entry, Mapping) else {"is": entry}
    _refuse_unknown_keys(raw, _FACT_KEYS)
    group = spec.name.rpartition(".")[0] if spec.group else ""
    where, at_least = raw.get("where", ""), raw.get("at_least", 0)
    if (where or at_least) and not group:
        raise UsageError(
            say("where and at_least choose among the rows of a group; {key} is a fact of the machine", key=key)
        )
    if not isinstance(at_least, int) or isinstance(at_least, bool) or not 0 <= at_least <= 100_000:
        raise UsageError(say("at_least is a whole number"))
    if where:
        _check_condition(where, group)
    return FactLine(
        name=line_name(key),
        fact=key,
        group=group,
        wanted=_wanted(spec, raw),
        where=where,
        at_least=at_least,
        level=level_of(key),
        unit=spec.unit,
        annotations=_annotations(raw, origin),
    )


def kernel_line(key: str, entry: Any, origin: str) -> FactLine:
    """A line for ``matmul.bf16 = ">= 600 TFLOP/s"``, what a kernel must reach on every GPU.

    Raises `UsageError`, also for an unknown kernel or one without a rate.
    """
    kernels = {each.spec.id: each.kernel for each in all_kernels()}
    if key not in kernels:
        raise UsageError(
            say(
                "no kernel {key}{near}; gpudoctor bench --list names them", key=repr(key[:60]), near=meant(key, kernels)
            )
        )
    kernel = kernels[key]
    raw = entry if isinstance(entry, Mapping) else {"is": entry}
    _refuse_unknown_keys(raw, ("is", *_TOLD))
    if not kernel.unit:
        raise UsageError(say("it measures no rate; what it found wrong is a finding without being expected"))
    spec = FactSpec(
        "measured.value", "float", f"{kernel.title}, as gpudoctor bench measures it", kernel.unit, group=True
    )
    level = DEEP if kernel.level == "deep" else "standard"
    return FactLine(
        name=line_name(key),
        fact=spec.name,
        group="measured",
        wanted=_wanted(spec, raw),
        kernel=key,
        level=level,
        unit=spec.unit,
        annotations=_annotations(raw, origin),
    )


def condition_line(key: str, entry: Any, origin: str) -> Line:
    """A profile's line from ``[line.NAME]``: conditions, or, with ``fact``, a fact's line under this name.

    `origin`, the profile's file, is kept for findings. Raises `UsageError`.
    """
    if not _LINE.match(key) or len(key) > 60:
        raise UsageError(say("a line's name has lower-case letters, digits and dashes: [line.all-rails]"))
    if not isinstance(entry, Mapping):
        raise UsageError(say('it is a table with when = [...], or with fact = "..."'))
    if "fact" in entry:
        own = {name: value for name, value in entry.items() if name != "fact"}
        return replace(fact_line(str(entry["fact"]), own, origin), name=key)
    _refuse_unknown_keys(entry, _CONDITION_KEYS)
    each, says, when = entry.get("each", ""), entry.get("says", ""), entry.get("when")
    when = [when] if isinstance(when, str) else when
    if not isinstance(when, list) or not when:
        raise UsageError(say('when is missing: the conditions that must hold, as in when = ["gpu.count in (4, 8)"]'))
    if not isinstance(each, str) or (each and each not in catalog().groups):
        raise UsageError(
            say("each = {each} is no group{near}", each=repr(str(each)[:60]), near=meant(str(each), catalog().groups))
        )
    for condition in when:
        _check_condition(condition, each)
    if not isinstance(says, str):
        raise UsageError(say("says is the sentence where it does not hold"))
    for hole in re.findall(r"\{([^{}]+)\}", says):
        _check_condition(hole.partition("|")[0].strip(), each)
    level = max((level_of_condition(condition, each) for condition in when), key=("quick", "standard", DEEP).index)
    return ConditionLine(key, tuple(when), each, says, level, _annotations(entry, origin))


def _spec(key: str) -> FactSpec:
    """The declaration of that fact; raises `UsageError` naming near ones where there is none."""
    known = catalog()
    spec = known.find(key)
    if spec is None or "." not in key:
        names = [name for name in known.specs if not name.endswith("*")]
        raise UsageError(
            say(
                "no fact {key}{near}; gpudoctor explain FACT tells what one means",
                key=repr(key[:80]),
                near=meant(key, names),
            )
        )
    return spec


def _wanted(spec: FactSpec, raw: Mapping[str, Any]) -> Wanted:
    """All forms of the entry (is, not, matches, has, ...) combined; raises `UsageError` for one that does not fit."""
    if "present" in raw:
        if not isinstance(raw["present"], bool) or set(raw) & set(_FORMS) != {"present"}:
            raise UsageError(say("present = false: it must not be there; present = true: it must, whatever its value"))
        return short.THERE if raw["present"] else short.NOT_THERE
    parts = [wanted(spec, raw["is"])] if "is" in raw else []
    if "not" in raw:
        parts.append(short.anything_but(wanted(spec, raw["not"])))
    if "matches" in raw:
        if spec.kind not in {"text", "version"}:
            raise UsageError(say("matches is for text; {name} is {kind}", name=spec.name, kind=spec.kind))
        parts.append(short.matching(raw["matches"]))
    if (more := {"has", "lacks"} & set(raw)) and spec.kind != "list":
        raise UsageError(say("{key} is for lists; {name} is {kind}", key=more.pop(), name=spec.name, kind=spec.kind))
    if "has" in raw:
        parts.append(short.with_items(raw["has"]))
    if "lacks" in raw:
        parts.append(short.without_items(raw["lacks"]))
    if not parts:
        raise UsageError(say("it says nothing of what it must be: one of {names}", names=", ".join(_FORMS)))
    return short.all_of(parts)


def _check_condition(condition: object, group: str) -> None:
    """Raises `UsageError` where the condition is invalid, too costly, or names a fact that is not declared."""
    tree = checked_condition(condition)
    try:
        check_expression(tree, catalog(), group)
    except RuleError as error:
        raise UsageError(say("in {condition}: {error}", condition=repr(str(condition)[:80]), error=error)) from error


def _annotations(raw: Mapping[str, Any], origin: str) -> Annotations:
    """Severity (``error`` if none), reason and fixes of an entry, and its file; raises `UsageError` for a wrong one."""
    severity, why = raw.get("severity", "error"), raw.get("why", "")
    if severity not in SEVERITIES:
        raise UsageError(
            say(
                "severity is one of {names}, not {severity}",
                names=", ".join(SEVERITIES),
                severity=repr(str(severity)[:40]),
            )
        )
    if not isinstance(why, str):
        raise UsageError(say("why is text"))
    return Annotations(severity, why, _fixes(raw), origin)


def _fixes(raw: Mapping[str, Any]) -> tuple[Fix, ...]:
    """The one fix of ``do`` (a sentence, or a command as list) and ``needs``, if any; raises `UsageError`."""
    do, needs = raw.get("do"), raw.get("needs", [])
    if not isinstance(needs, list) or not set(map(str, needs)) <= set(_NEEDS):
        raise UsageError(say("needs is a list of {names}", names=", ".join(_NEEDS)))
    if do is None:
        if needs:
            raise UsageError(say("needs goes with do"))
        return ()
    if isinstance(do, str) and do.strip():
        return (Fix(do, (Step(text=do, needs=tuple(needs), touches="system"),)),)
    if isinstance(do, list) and do and all(isinstance(word, str) for word in do):
        return (Fix("run what the profile names", (Step(tuple(do), needs=tuple(needs), touches="system"),)),)
    raise UsageError(say('do is a sentence, or a command as a list of words: do = ["nvidia-smi", "-pm", "1"]'))


def _refuse_unknown_keys(raw: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    """Raises `UsageError` for the first key of `raw` that is not among `keys`, naming near ones."""
    for key in raw:
        if key not in keys:
            raise UsageError(
                say(
                    "unknown key {key}{near}; available: {names}",
                    key=repr(key[:60]),
                    near=meant(key, keys),
                    names=", ".join(keys),
                )
            )


# ---- A file ----

MOST_PROFILE_BYTES = 128 << 10
"""Bytes of a profile that are read; one of 500 lines has 50 KiB."""
_LONGEST_LINE = 1500
"""Characters of a line: a key of many parts takes TOML's reader time by the square of their number."""
_MOST_LINES = 2000
_DEEPEST_EXTENDS = 8
"""Profiles that extend each other."""
_MOST_DOTS = 8
"""Dots of a key that is written without quotes, that is, as nested tables."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}\Z")
_KEYS = ("profile", "about", "sources", "checked", "extends", "without", "expect", "measure", "line")


def folder() -> Path:
    """The folder of the profiles that ship with the package: ``rules/profiles``."""
    return page_cache.home() / "profiles"


def shipped_names() -> list[str]:
    """Names of the profiles that ship with the package, sorted."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def load(asked: str) -> Profile:
    """The profile in the file of that name, else the shipped one of that name; raises `UsageError`."""
    return _load_file(_profile_path(asked), ())


def text_of(name: str) -> str:
    """The text of a shipped profile; raises `UsageError` for a name that is none."""
    if name not in shipped_names():
        raise UsageError(_no_such_profile(name))
    return (folder() / f"{name}.toml").read_text("utf-8")


def _profile_path(asked: str, beside: Path | None = None) -> Path:
    """The path `asked` (below `beside`) if it exists, else that of the shipped profile so called; else `UsageError`.

    With `beside`, the folder of an extending profile, only a regular file counts, no pipe.
    """
    path = (beside or Path()) / asked
    try:
        exists = path.is_file() if beside is not None else path.exists()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    if not exists and asked in shipped_names():
        return folder() / f"{asked}.toml"
    if not exists:
        raise UsageError(_no_such_profile(asked))
    return path


def _no_such_profile(asked: str) -> str:
    """The message for a missing profile, with near names."""
    names = shipped_names()
    near = meant(asked, names)
    sentence = "{name}: no such file, and no profile of that name ships{near}; gpudoctor expect list shows them"
    return say(sentence, name=asked[:200], near=near)


def _load_file(path: Path, extending: tuple[Path, ...]) -> Profile:
    """The profile in that file; raises `UsageError`, also where profiles extend each other in a circle or too deep.

    `extending` are the files whose profiles extend this one.
    """
    if path in extending or len(extending) == _DEEPEST_EXTENDS:
        raise UsageError(
            say(
                "{path}: profiles extend each other without end, or more than {count} deep",
                path=path,
                count=_DEEPEST_EXTENDS,
            )
        )
    return profile_of(_toml(path), str(path), path.parent, (*extending, path))


def profile_of(raw: Mapping[str, Any], origin: str, beside: Path = Path(), extending: tuple[Path, ...] = ()) -> Profile:
    """The profile of a TOML file's tables, with the lines of profiles that it extends, those under ``without`` removed.

    `beside` is the folder in which extended profiles are looked for, `extending` the files that extend this one. Raises
    `UsageError` for the first thing that is wrong, naming the file and the entry.
    """
    for key in raw:
        if key not in _KEYS:
            raise UsageError(
                say("{origin}: unknown key {key}{near}", origin=origin, key=repr(key[:60]), near=meant(key, _KEYS))
            )
    name = raw.get("profile")
    if not isinstance(name, str) or not NAME.match(name):
        raise UsageError(say('{origin}: it begins with its name, in lower case: profile = "our-h100"', origin=origin))
    bases = raw.get("extends", [])
    bases = [bases] if isinstance(bases, str) else _texts(raw, "extends", origin)
    lines: dict[str, Line] = {}
    sources: list[str] = []
    for base in bases:
        extended = _load_file(_profile_path(base, beside), extending)
        lines.update(extended.lines)
        sources += extended.sources
    for removed in _texts(raw, "without", origin):
        if lines.pop(line_name(removed), None) is None:
            raise UsageError(
                say(
                    "{origin}: without: there is no line {removed}{near}",
                    origin=origin,
                    removed=repr(removed[:60]),
                    near=meant(line_name(removed), list(lines)),
                )
            )
    own: dict[str, Line] = {}
    for line in _lines(raw, origin):
        if line.name in own:
            raise UsageError(
                say(
                    "{origin}: two lines would be called {name}; write one as [line.ANOTHER-NAME]",
                    origin=origin,
                    name=line.name,
                )
            )
        own[line.name] = line
        if len(own) > _MOST_LINES:
            raise UsageError(say("{origin}: more than {count} lines", origin=origin, count=_MOST_LINES))
    if not lines and not own:
        raise UsageError(say("{origin}: it expects nothing; write [expect] and under it: gpu.count = 8", origin=origin))
    about = raw.get("about", "")
    if not isinstance(about, str):
        raise UsageError(say("{origin}: about is text", origin=origin))
    return Profile(name, {**lines, **own}, about, (*sources, *_texts(raw, "sources", origin)), origin)


def _lines(raw: Mapping[str, Any], origin: str) -> Iterator[Line]:
    """The profile's own lines, of its tables expect, measure and line; raises `UsageError` naming the place."""
    for table, make in (("expect", fact_line), ("measure", kernel_line), ("line", condition_line)):
        entries = raw.get(table, {})
        if not isinstance(entries, Mapping):
            raise UsageError(say("{origin}: {table} is a table: [{table}]", origin=origin, table=table))
        for key, entry in _dotted_entries(entries, table):
            try:
                yield make(key, entry, origin)
            except UsageError as error:
                raise UsageError(f"{origin}: [{table}] {key[:80]}: {error}") from error


def _dotted_entries(entries: Mapping[str, Any], table: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and entry of each line of that table, nested tables taken apart: TOML reads ``gpu.count`` as nested.

    A table that is itself an entry (of a fact, a kernel, a ``[line.NAME]``) stays whole.
    """
    for key, entry in entries.items():
        name = f"{prefix}{key}"
        within = isinstance(entry, Mapping) and table != "line" and not is_key(name, table)
        if within and entry and name.count(".") < _MOST_DOTS:
            yield from _dotted_entries(entry, table, f"{name}.")
        else:
            yield name, entry


def _toml(path: Path) -> dict[str, Any]:
    """The file's tables; raises `UsageError` where it is unreadable, too large, or no TOML (with the line)."""
    if path.parent != folder():
        files.check_named_file(path, f"--expect {path}")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_PROFILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if len(content) > MOST_PROFILE_BYTES:
        raise UsageError(say("{path}: larger than {size} KiB; no profile is", path=path, size=MOST_PROFILE_BYTES >> 10))
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        if wide := next((number for number, line in enumerate(text.split("\n"), 1) if len(line) > _LONGEST_LINE), 0):
            raise UsageError(
                say(
                    "{path}: line {number} is longer than {count} characters",
                    path=path,
                    number=wide,
                    count=_LONGEST_LINE,
                )
            )
        return parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error if str(error) else type(error).__name__}") from error


def _texts(raw: Mapping[str, Any], key: str, origin: str) -> tuple[str, ...]:
    """The list of texts under the key, empty without one; raises `UsageError` where it is something else."""
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(say("{origin}: {key} is a list of texts", origin=origin, key=key))
    return tuple(value)
