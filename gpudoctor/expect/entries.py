"""One entry of a profile as a line: a fact with what it must be, a kernel with its floor, or named conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.catalog import catalog
from gpudoctor.expect import wanted as short
from gpudoctor.expect.bounds import tree_of
from gpudoctor.expect.levels import DEEP, level_of, level_of_condition
from gpudoctor.expect.profile import ConditionLine, FactLine, Line, Told
from gpudoctor.expect.wanted import Wanted, wanted
from gpudoctor.model.catalog import FactSpec
from gpudoctor.model.errors import RuleError, UsageError
from gpudoctor.model.near import meant
from gpudoctor.model.rule import SEVERITIES, Fix, Step

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
    """Whether a table of that name is an entry, not a part of longer names."""
    if table == "measure":
        from gpudoctor.kernels.specs import every

        return name in {one.spec.id for one in every()}
    return catalog().find(name) is not None


def fact_line(key: str, entry: Any, origin: str) -> FactLine:
    """``gpu.count = 8``, or a table with what it must be and more; raises `UsageError`."""
    spec = _spec(key)
    raw = entry if isinstance(entry, Mapping) else {"is": entry}
    _only(raw, _FACT_KEYS)
    group = spec.name.rpartition(".")[0] if spec.group else ""
    where, at_least = raw.get("where", ""), raw.get("at_least", 0)
    if (where or at_least) and not group:
        raise UsageError(f"where and at_least choose among the rows of a group; {key} is a fact of the machine")
    if not isinstance(at_least, int) or isinstance(at_least, bool) or not 0 <= at_least <= 100_000:
        raise UsageError("at_least is a whole number")
    if where:
        _checked(where, group)
    return FactLine(
        name=line_name(key),
        fact=key,
        group=group,
        wanted=_wanted(spec, raw),
        where=where,
        at_least=at_least,
        level=level_of(key),
        unit=spec.unit,
        told=_told(raw, origin),
    )


def kernel_line(key: str, entry: Any, origin: str) -> FactLine:
    """``matmul.bf16 = ">= 600 TFLOP/s"``: what a kernel must reach on every GPU; raises `UsageError`."""
    from gpudoctor.kernels.specs import every

    kernels = {one.spec.id: one.kernel for one in every()}
    if key not in kernels:
        raise UsageError(f"no kernel {key[:60]!r}{meant(key, kernels)}; gpudoctor bench --list names them")
    kernel = kernels[key]
    raw = entry if isinstance(entry, Mapping) else {"is": entry}
    _only(raw, ("is", *_TOLD))
    if not kernel.unit:
        raise UsageError("it measures no rate; what it found wrong is a finding without being expected")
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
        told=_told(raw, origin),
    )


def condition_line(key: str, entry: Any, origin: str) -> Line:
    """``[line.NAME]``: conditions as on a rule's page, or a fact under another name; raises `UsageError`."""
    if not _LINE.match(key) or len(key) > 60:
        raise UsageError("a line's name has lower-case letters, digits and dashes: [line.all-rails]")
    if not isinstance(entry, Mapping):
        raise UsageError('it is a table with when = [...], or with fact = "..."')
    if "fact" in entry:
        own = {name: value for name, value in entry.items() if name != "fact"}
        return replace(fact_line(str(entry["fact"]), own, origin), name=key)
    _only(entry, _CONDITION_KEYS)
    each, says, when = entry.get("each", ""), entry.get("says", ""), entry.get("when")
    when = [when] if isinstance(when, str) else when
    if not isinstance(when, list) or not when:
        raise UsageError('when is missing: the conditions that must hold, as in when = ["gpu.count in (4, 8)"]')
    if not isinstance(each, str) or (each and each not in catalog().groups):
        raise UsageError(f"each = {str(each)[:60]!r} is no group{meant(str(each), catalog().groups)}")
    for condition in when:
        _checked(condition, each)
    if not isinstance(says, str):
        raise UsageError("says is the sentence where it does not hold")
    for hole in re.findall(r"\{([^{}]+)\}", says):
        _checked(hole.partition("|")[0].strip(), each)
    level = max((level_of_condition(condition, each) for condition in when), key=("quick", "standard", DEEP).index)
    return ConditionLine(key, tuple(when), each, says, level, _told(entry, origin))


def _spec(key: str) -> FactSpec:
    known = catalog()
    spec = known.find(key)
    if spec is None or "." not in key:
        names = [name for name in known.specs if not name.endswith("*")]
        raise UsageError(f"no fact {key[:80]!r}{meant(key, names)}; gpudoctor explain FACT tells what one means")
    return spec


def _wanted(spec: FactSpec, raw: Mapping[str, Any]) -> Wanted:
    """All forms that the entry has, together."""
    if "present" in raw:
        if not isinstance(raw["present"], bool) or set(raw) & set(_FORMS) != {"present"}:
            raise UsageError("present = false: it must not be there; present = true: it must, whatever its value")
        return short.THERE if raw["present"] else short.NOT_THERE
    parts = [wanted(spec, raw["is"])] if "is" in raw else []
    if "not" in raw:
        parts.append(short.others(wanted(spec, raw["not"])))
    if "matches" in raw:
        if spec.kind not in {"text", "version"}:
            raise UsageError(f"matches is for text; {spec.name} is {spec.kind}")
        parts.append(short.matching(raw["matches"]))
    if (more := {"has", "lacks"} & set(raw)) and spec.kind != "list":
        raise UsageError(f"{more.pop()} is for lists; {spec.name} is {spec.kind}")
    if "has" in raw:
        parts.append(short.holding(raw["has"]))
    if "lacks" in raw:
        parts.append(short.lacking(raw["lacks"]))
    if not parts:
        raise UsageError(f"it says nothing of what it must be: one of {', '.join(_FORMS)}")
    return short.both(parts)


def _checked(condition: object, each: str) -> None:
    from gpudoctor.rulebook.conditions import check_expression

    tree = tree_of(condition)
    try:
        check_expression(tree, catalog(), each)
    except RuleError as error:
        raise UsageError(f"in {str(condition)[:80]!r}: {error}") from error


def _told(raw: Mapping[str, Any], origin: str) -> Told:
    severity, why = raw.get("severity", "error"), raw.get("why", "")
    if severity not in SEVERITIES:
        raise UsageError(f"severity is one of {', '.join(SEVERITIES)}, not {str(severity)[:40]!r}")
    if not isinstance(why, str):
        raise UsageError("why is text")
    return Told(severity, why, _fixes(raw), origin)


def _fixes(raw: Mapping[str, Any]) -> tuple[Fix, ...]:
    do, needs = raw.get("do"), raw.get("needs", [])
    if not isinstance(needs, list) or not set(map(str, needs)) <= set(_NEEDS):
        raise UsageError(f"needs is a list of {', '.join(_NEEDS)}")
    if do is None:
        if needs:
            raise UsageError("needs goes with do")
        return ()
    if isinstance(do, str) and do.strip():
        return (Fix(do, (Step(text=do, needs=tuple(needs), touches="system"),)),)
    if isinstance(do, list) and do and all(isinstance(word, str) for word in do):
        return (Fix("run what the profile names", (Step(tuple(do), needs=tuple(needs), touches="system"),)),)
    raise UsageError('do is a sentence, or a command as a list of words: do = ["nvidia-smi", "-pm", "1"]')


def _only(raw: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in raw:
        if key not in keys:
            raise UsageError(f"unknown key {key[:60]!r}{meant(key, keys)}; there are {', '.join(keys)}")
