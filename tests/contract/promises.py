"""All that is promised, as this version has it and as 1.0 had it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.views import prometheus, schema
from tests.contract import program, schemas
from tests.views.tui.machines import diagnosis_of

HOME = Path(__file__).parent / "1.0"
_SCHEMA, _PROGRAM, _NAMES = "schema-", "program", "names"


@cache
def now() -> dict[str, Any]:
    """By the names of files: schemas of documents, what can be typed and called, names that scripts hold on to."""
    kinds = {f"{_SCHEMA}{kind}": json.loads(schema.text(kind)) for kind in schema._KINDS}
    typed = {"commands": program.commands(), "codes": program.codes(), "functions": program.functions()}
    return {**kinds, _PROGRAM: typed, _NAMES: _names()}


def _names() -> dict[str, Any]:
    """Ids of rules, facts with their kinds, and metrics with their labels."""
    metrics = text_string_to_metric_families(prometheus.render(diagnosis_of("throttled-heat-h100"), 1.0, 1.0) + "\n")
    return {
        "rules": sorted(rule.id for rule in rulebook.load().rules),
        "facts": {name: spec.kind for name, spec in sorted(catalog().specs.items())},
        "metrics": {one.name: sorted(one.samples[0].labels) for one in metrics},
    }


def stored() -> dict[str, Any]:
    """As 1.0 promised it."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(HOME.glob("*.json"))}


def write() -> None:
    """Make what is promised now the promise of 1.0."""
    HOME.mkdir(exist_ok=True)
    for name, promise in now().items():
        (HOME / f"{name}.json").write_text(f"{json.dumps(promise, indent=1, ensure_ascii=True)}\n", "utf-8")


def breakages(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Every promise of `old` that `new` does not keep."""
    for name, promise in old.items():
        if name not in new:
            yield f"{name}: is gone"
        elif name.startswith(_SCHEMA):
            yield from schemas.breakages(promise, new[name], name.removeprefix(_SCHEMA))
        elif name == _PROGRAM:
            yield from program.breakages(promise, new[name])
        else:
            yield from _lost_names(promise, new[name])


def _lost_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"rule {name}: is gone" for name in old["rules"] if name not in new["rules"])
    for what in ("facts", "metrics"):
        for name, said in old[what].items():
            now = new[what].get(name)
            if now is None:
                yield f"{what} {name}: is gone"
            elif now != said and not (isinstance(said, list) and set(said) <= set(now)):
                yield f"{what} {name}: was {said}, is {now} now"
