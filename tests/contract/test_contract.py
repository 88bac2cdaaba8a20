"""What 1.0 promised is kept; and whoever breaks a promise is told, by name: each kind of breakage is planted once."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gpudoctor.app import output
from gpudoctor.views import schema
from tests.contract import promises

Change = Callable[[dict[str, Any]], object]


def broken(name: str, change: Change) -> list[str]:
    """What is found where this version is changed so, and the version before was as this one is."""
    new = copy.deepcopy(promises.now())
    change(new[name])
    return list(promises.breakages(promises.now(), new))


def test_every_promise_of_1_0_is_kept() -> None:
    stored = promises.stored()
    assert len(stored) >= 10
    assert list(promises.breakages(stored, promises.now())) == []


def test_every_kind_of_document_can_be_asked_for() -> None:
    kinds = next(one for one in promises.now()["program"]["commands"]["gpudoctor schema"] if not one["option"])
    assert kinds["choices"] == [*schema._KINDS, *schema._READ]


def test_the_exit_codes_are_those_of_the_contract() -> None:
    assert (output.SOUND, output.BROKEN, output.MISUSE, output.UNKNOWN) == (0, 1, 2, 3)


def finding(document: dict[str, Any]) -> dict[str, Any]:
    """The schema of a finding."""
    found: dict[str, Any] = document["properties"]["findings"]["items"]
    return found


def widen(document: dict[str, Any]) -> None:
    finding(document)["properties"]["title"]["type"] = ["string", "null"]


def loosen(document: dict[str, Any]) -> None:
    del document["properties"]["findings"]["items"]


def drop_a_shape(document: dict[str, Any]) -> None:
    document["properties"]["facts"]["additionalProperties"]["oneOf"].pop()


PLANTED: dict[str, tuple[Change, str]] = {
    "removed": (lambda doc: doc["properties"].pop("verdict"), "diagnosis.verdict: is gone"),
    "retyped": (
        lambda doc: doc["properties"]["counts"]["properties"]["found"].update(type="string"),
        "diagnosis.counts.found: was integer, may be string now",
    ),
    "null": (widen, "diagnosis.findings[].title: was string, may be null now"),
    "optional": (
        lambda doc: doc["required"].remove("unjudged"),
        "diagnosis.unjudged: was always there, may be left out now",
    ),
    "word gone": (
        lambda doc: doc["properties"]["verdict"]["enum"].remove("impaired"),
        "diagnosis.verdict: 'impaired' is gone",
    ),
    "word new": (
        lambda doc: finding(doc)["properties"]["severity"]["enum"].append("fatal"),
        "diagnosis.findings[].severity: 'fatal' is new in a closed vocabulary",
    ),
    "no vocabulary": (
        lambda doc: doc["properties"].update(verdict={"type": "string"}),
        "diagnosis.verdict: any word is allowed now",
    ),
    "version": (
        lambda doc: doc["properties"]["schema"].update(const="gpudoctor/2"),
        "diagnosis.schema: const 'gpudoctor/1' is 'gpudoctor/2' now",
    ),
    "bound": (
        lambda doc: finding(doc)["properties"]["evidence"].update(minItems=0),
        "diagnosis.findings[].evidence: minItems was 1, is 0 now",
    ),
    "items": (loosen, "diagnosis.findings[]: anything is allowed now"),
    "shape": (drop_a_shape, "diagnosis.facts.*: the shape array is gone, or another"),
    "unheard of": (
        lambda doc: doc.update({"not": {}}),
        "diagnosis: not is not compared; teach tests.contract",
    ),
}


TYPED: dict[str, tuple[Change, str]] = {
    "command": (lambda now: now["commands"].pop("gpudoctor rules list"), "gpudoctor rules list: is gone"),
    "option": (
        lambda now: option(now, "gpudoctor check", "--strict").update(names=["--severe"]),
        "gpudoctor check --strict: is gone",
    ),
    "values": (
        lambda now: option(now, "gpudoctor check", "--level").update(values="0"),
        "gpudoctor check --level: took 1 values, takes 0 now",
    ),
    "choice": (
        lambda now: option(now, "gpudoctor check", "--format")["choices"].remove("junit"),
        "gpudoctor check --format: junit is no choice any more",
    ),
    "must": (
        lambda now: option(now, "gpudoctor check", "--python").update(required=True),
        "gpudoctor check --python: must be given now",
    ),
    "argument": (
        lambda now: now["commands"]["gpudoctor check"].append(
            {"names": ["HOST"], "option": False, "values": "1", "choices": None, "required": True}
        ),
        "gpudoctor check HOST: is new, and must be given",
    ),
    "code": (lambda now: now["codes"].update(unknown=4), "exit code unknown: was 3, is 4 now"),
    "function": (lambda now: now["functions"].pop("check"), "gpudoctor.check: is gone"),
    "parameter": (
        lambda now: now["functions"]["check"].pop(1),
        "gpudoctor.check: python is gone, elsewhere, or must be given now",
    ),
    "new parameter": (
        lambda now: now["functions"]["check"].append(["host", True]),
        "gpudoctor.check: host is new, and must be given",
    ),
}


def option(now: dict[str, Any], command: str, name: str) -> dict[str, Any]:
    """That option of that command."""
    found: dict[str, Any] = next(one for one in now["commands"][command] if name in one["names"])
    return found


NAMED: dict[str, tuple[Change, str]] = {
    "rule": (lambda now: now["rules"].remove("driver.missing"), "rule driver.missing: is gone"),
    "fact": (lambda now: now["facts"].pop("driver.version"), "facts driver.version: is gone"),
    "kind": (
        lambda now: now["facts"].update({"driver.version": "int"}),
        "facts driver.version: was version, is int now",
    ),
    "metric": (lambda now: now["metrics"].pop("gpudoctor_verdict"), "metrics gpudoctor_verdict: is gone"),
    "label": (
        lambda now: now["metrics"]["gpudoctor_finding"].remove("uuid"),
        "metrics gpudoctor_finding: was ['gpu', 'id', 'severity', 'uuid'], is ['gpu', 'id', 'severity'] now",
    ),
}


KINDS = {"schema-diagnosis": PLANTED, "program": TYPED, "names": NAMED}


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, kinds in KINDS.items() for name in kinds])
def test_a_breakage_is_found(part: str, name: str) -> None:
    change, says = KINDS[part][name]
    assert says in broken(part, change)


def test_a_whole_document_that_is_gone_is_found() -> None:
    new = {name: promise for name, promise in promises.now().items() if name != "schema-plan"}
    assert list(promises.breakages(promises.now(), new)) == ["schema-plan: is gone"]
