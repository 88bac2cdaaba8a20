"""The check of many hosts: who is sound, what is counted, and its document."""

from __future__ import annotations

import json

import pytest

from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fleet import OK, Check, Drain, Fleet, Host, Pairwise, Result, Suspect, from_json

HOSTS = (Host("node01", "leaf1", 8, "H100"), Host("node02", "leaf1", 8, "H100"), Host("node03", because="timed out"))
CHECKS = (Check("driver", "driver version", "drv"), Check("nccl", "NCCL all-reduce", "nccl"))
PAIRS = Pairwise(
    "NCCL send and receive",
    "GB/s",
    48.0,
    ("node01", "node02"),
    ((None, 46.5), (19.2, None)),
    frozenset({("node02", "node01")}),
    {("node02", "node01"): "2 of 4194304 bytes differ"},
)
FLEET = Fleet(
    "rack a",
    HOSTS,
    CHECKS,
    {"node01": {"driver": OK, "nccl": Result("warning", "41 %", "nccl.slow", 0.41)}, "node02": {"driver": OK}},
    "no-go",
    PAIRS,
    (Suspect("host", ("node01",), "warning", "likely", "node01 is slow", ("every pair at 40 %",), "nccl.slow", "see"),),
    (Drain(("node02",), "slow", ("scontrol", "update", "NodeName=node02")),),
    "2026-11-21T03:02:11Z",
    31.0,
)


def test_what_no_result_speaks_of_was_not_judged() -> None:
    assert FLEET.result("node02", "nccl") == Result("unjudged", "not asked")
    assert FLEET.result("node03", "driver") == Result("unjudged", "timed out")
    assert FLEET.counts == {"ok": 2, "error": 0, "warning": 1, "info": 0, "unjudged": 3}


def test_sound_is_who_answered_and_is_not_taken_out() -> None:
    assert FLEET.sound == ["node01"]


def test_a_host_with_an_error_is_not_sound_though_nobody_drains_it() -> None:
    fleet = Fleet("", HOSTS[:1], CHECKS, {"node01": {"driver": Result("error")}}, "no-go")
    assert fleet.sound == []


def test_a_pair_knows_its_share_and_its_words() -> None:
    pair = PAIRS.pair("node02", "node01")
    assert pair.ratio == pytest.approx(0.4)
    assert (pair.wrong, pair.words) == (True, "2 of 4194304 bytes differ")
    assert PAIRS.pair("node01", "node01").ratio is None


def test_the_document_loses_nothing() -> None:
    assert from_json(json.loads(json.dumps(FLEET.to_json()))) == FLEET


PAIR = {"unit": "GB/s", "expected": 48, "names": [], "measured": []}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "gpudoctor/1"}, "schema 'gpudoctor/1' is not gpudoctor-fleet/1"),
        ({"verdict": "maybe"}, "verdict is not one of go, no-go, unknown"),
        ({"hosts": [{"name": 3}]}, "hosts.0.name is not a text"),
        ({"hosts": [{"name": "a"}] * 16385}, "16385 hosts"),
        ({"results": {"node01": {"driver": "fine"}}}, "results.node01.driver is not one of ok"),
        ({"results": {"node01": {"driver": 3}}}, "results.node01.driver is no object"),
        ({"pairwise": {**PAIR, "names": ["a", "b"]}}, "pairwise.measured is no square of 2"),
        ({"pairwise": {**PAIR, "wrong": [["a"]]}}, "pairwise.wrong is no list of 2 texts each"),
        ({"suspects": [{"kind": "moon"}]}, "suspects.0.kind is not one of host, gpu, link, switch"),
        ({"drain": [{"hosts": "node01"}]}, "drain.0.hosts is not a list of texts"),
    ],
)
def test_what_is_wrong_with_a_document_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(DocumentError, match=f"^{words}"):
        from_json({**FLEET.to_json(), **change})
