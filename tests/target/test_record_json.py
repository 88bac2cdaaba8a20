"""Records as files: what is whole is read, what is cut short, hostile or of another make is refused by name."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor import probes
from gpudoctor.app import reading
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Known, Unread
from gpudoctor.core.shipped import modules_of
from gpudoctor.probes import collect
from gpudoctor.target.record import from_json, parse, to_json
from gpudoctor.target.recorded import Recorded

_PROBES = list(modules_of(probes))[:3]


_DATA = base64.b64encode(zlib.compress(b"\x7fELF")).decode()


HOST: dict[str, Any] = {
    "files": {"/etc/os-release": "ID=ubuntu\n"},
    "links": {"/lib": "usr/lib"},
    "sparse": {"/usr/lib/x.so": {"size": 100, "parts": [[0, 4]], "data": _DATA}},
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sparse": {"/x": {"size": 1 << 50, "parts": [], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [[5, 5]], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [[-1, 5]], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [0], "data": ""}}}, "outside of its size"),
        ({"sparse": {"/x": {"size": 9, "parts": [[0, 4]], "data": "!"}}}, "not base64"),
        ({"sparse": {"/x": {"size": 9, "parts": [[0, 4]], "data": "AAAA"}}}, "not compressed"),
        ({"sparse": {"/x": {"size": 9, "parts": [[0, 3]], "data": _DATA}}}, "other than"),
        ({"sparse": {"/x": {"size": 1 << 30, "parts": [[0, 1 << 30]], "data": ""}}}, "bytes in its parts"),
        ({"sparse": {"../x": {"size": 9, "parts": [], "data": ""}}}, "not an absolute path"),
        ({"left_out": ["/etc/os-release"]}, "there twice"),
        ({"files": {"/lib/x": ""}}, "below"),
    ],
)
def test_a_hostile_record_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        reading.snapshot_of(json.dumps({"schema": "gpudoctor-record/1", "host": {**HOST, **change}}), "file")


@pytest.mark.parametrize(
    ("raw", "says"),
    [({}, "it has no host"), ({"host": {}, "machine": {"driver": None}}, "'machine' is no part of a record")],
)
def test_what_is_no_whole_record_is_not_diagnosed(raw: dict[str, Any], says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        from_json({"schema": "gpudoctor-record/1", **raw})


@pytest.mark.parametrize("level", ["thorough", 3])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    with pytest.raises(DocumentError, match="level"):
        parse(json.dumps({"schema": "gpudoctor-record/1", "host": {}, "level": level}))


_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)


@settings(max_examples=30)
@given(
    st.sampled_from(
        ["files", "bytes", "links", "folders", "devices", "denied", "space", "times", "sparse", "left_out", "commands"]
    ),
    st.recursive(_VALUES, lambda inner: st.dictionaries(st.text(max_size=9).map("/".__add__), inner, max_size=2)),
)
def test_anything_in_any_part_of_a_record(part: str, entry_: Any) -> None:
    raw = {"schema": "gpudoctor-record/1", "host": {"files": {}, part: entry_}}
    try:
        replay = Recorded(parse(json.dumps(raw)))
    except DocumentError:
        return
    with replay as target:
        assert target.listing("/") is not None
        assert isinstance(collect(target, _PROBES[:3]).get("nothing.asked"), Unread)


def test_an_answer_that_is_an_empty_object_is_no_failure() -> None:
    raw = {
        "schema": "gpudoctor-record/1",
        "host": {},
        "nvml": {"system": {"nvmlSystemGetDriverVersion": {}}, "gpus": []},
    }
    diagnosis = reading.read(json.dumps(raw))
    assert not [fact for fact in diagnosis.snapshot.facts.values() if isinstance(fact, Unread) and "died" in fact.why]


def test_an_object_where_a_list_of_processes_belongs_is_no_list() -> None:
    answers = {"nvmlDeviceGetComputeRunningProcesses": {"pid": 1}}
    nvml = {"system": {"nvmlDeviceGetCount": 1}, "every": answers, "gpus": [{}]}
    diagnosis = reading.read(json.dumps({"schema": "gpudoctor-record/1", "host": {}, "nvml": nvml}))
    assert isinstance(diagnosis.snapshot.rows("gpu_process"), Unread)
    assert diagnosis.snapshot.facts["nvml.state"] == Known("ok", diagnosis.snapshot.facts["nvml.state"].source)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ([], "kernels is not an object"),
        ({"children": {"ask": 1}}, "kernels: children is not a list"),
        ({"children": [7]}, "kernels.children is not an object"),
        ({"children": [{"ask": {}, "out": "no", "status": 0}]}, "kernels.children: out is not a list"),
        ({"children": [{"ask": {}, "out": [], "status": "0"}]}, "kernels.children: a status is not a whole number"),
        ({"meanwhile": [{"kernel": "a", "gpu": 0, "power_w": "hot"}]}, "power_w is not a number"),
    ],
)
def test_what_is_wrong_with_the_children_of_a_ladder_is_named(kernels: object, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        from_json({"schema": "gpudoctor-record/1", "host": {}, "kernels": kernels})


def test_the_children_of_a_ladder_answer_the_same_question_and_no_other() -> None:
    ask = {"family": "driver", "device": "cuda:0", "kernels": ["driver.add"], "seed": 1}
    children = [{"ask": ask, "out": [{"opened": {}}, {"done": True}], "err": "", "status": 0}, {}]
    record = from_json({"schema": "gpudoctor-record/1", "host": {}, "kernels": {"children": children}})
    assert from_json(to_json(record)) == record
    with Recorded(record) as target:
        same = target.run(["/elsewhere/python", "/elsewhere/__main__.py", json.dumps({**ask, "seed": 2})])
        assert '"opened"' in same.out
        other = target.run(["/elsewhere/python", "/elsewhere/__main__.py", json.dumps({**ask, "device": "cuda:1"})])
        assert '{"closed": "the record has no answer to this", "failed": false}' in other.out
