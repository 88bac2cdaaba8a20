"""A machine watched while it answers, and its record, which must answer the same; with nothing personal in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import probes
from gpudoctor.app import pipeline
from gpudoctor.app.commands.record import recorded
from gpudoctor.core.fact import Fact, Known, Rows
from gpudoctor.core.shipped import modules_of
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.snapshot import Target as Subject
from gpudoctor.diagnosis import rulebook
from gpudoctor.probes import collect
from gpudoctor.target import Answer
from gpudoctor.target.record import Record, from_json, to_json
from gpudoctor.target.recorded import Recorded
from gpudoctor.target.recording import Parts, Recording
from tests.environments import CUBIN, Venv, container, elf, entry
from tests.probes.trees import Tree

_PROBES = [module for module in modules_of(probes) if module.__name__.rpartition(".")[2] not in ("nvml", "libcuda")]


def watched(root: Path, python: str | None = None, **environ: str) -> tuple[Recording, Snapshot]:
    """A tree as a machine, asked everything but what runs on the machine below."""
    target = Recording("quick", root=str(root), environ={"PATH": "/nowhere", **environ})
    target.python = python
    return target, collect(target, _PROBES)


def replayed(record: Record) -> Snapshot:
    with Recorded(record) as target:
        return collect(target, _PROBES)


def told(snapshot: Snapshot) -> Mapping[str, Fact | Rows]:
    """The facts, but for what the machine below adds of itself, and the age of packages, which grows meanwhile."""
    facts = {**snapshot.facts, **snapshot.groups}
    return {name: fact for name, fact in facts.items() if not name.startswith(("fitness.", "space", "package_change"))}


def test_of_a_large_library_only_what_was_read_is_kept(tmp_path: Path) -> None:
    venv = Venv(tmp_path)
    venv.torch("2.9.0+cu128", "12.8")
    entries = [entry(CUBIN, arch, payload=os.urandom(1 << 20)) for arch in (80, 90)]
    library = f"{venv.site}/torch/lib/libtorch_cuda.so"
    venv.write(library, elf({".nv_fatbin": container(*entries)}))
    target, live = watched(tmp_path, venv.python)
    assert live.get("torch.archs") == Known(("sm_80", "sm_90"), f"1 fat binaries in {library}")
    record = recorded(target, pipeline.diagnose(live, rulebook.load()))
    assert told(replayed(record)) == told(live)
    assert record.sparse[library].size > 2 << 20
    assert len(json.dumps(to_json(record))) < 1 << 18


def test_what_was_too_large_is_unread_and_never_missing() -> None:
    raw = {"schema": "gpudoctor-record/1", "host": {"files": {"/etc/os-release": "ID=x"}, "left_out": ["/lib/big"]}}
    with Recorded(from_json({**raw, "host": {**raw["host"], "links": {"/lib/link": "big"}}})) as target:  # type: ignore[dict-item]
        assert target.exists("/lib/big")
        assert target.listing("/lib") == ["big", "link"]
        for path in ("/lib/big", "/lib/link"):
            with pytest.raises(OSError, match="left out of the record"):
                target.read(path)


def test_what_the_machine_refused_stays_refused(tmp_path: Path) -> None:
    Tree(tmp_path).file("/sys/x/secret", "words").file("/sys/x/open", "words")
    target = Recording("quick", root=str(tmp_path), environ={})
    target.seen.denied.add("/sys/x/secret")  # as the kernel would say to somebody without rights
    target.read("/sys/x/open")
    record = recorded(target, pipeline.diagnose(Snapshot(Subject("local", "x"), {}), rulebook.load()))
    with Recorded(record) as replay:
        assert replay.read("/sys/x/open") == "words"
        with pytest.raises(PermissionError):
            replay.read("/sys/x/secret")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is refused to root")
def test_a_refusal_is_noticed(tmp_path: Path) -> None:
    Tree(tmp_path).file("/sys/x/secret", "words", mode=0)
    target = Recording("quick", root=str(tmp_path), environ={})
    with pytest.raises(PermissionError):
        target.read("/sys/x/secret")
    assert target.seen.denied == {"/sys/x/secret"}


def test_a_log_that_is_not_there_is_not_an_empty_one(tmp_path: Path) -> None:
    target = Recording("quick", root=str(tmp_path), environ={})
    target.path("/dev/kmsg")
    assert target.seen.files == {}


def test_links_are_kept_and_nothing_lies_below_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/sys/devices/gpu/vendor", "0x10de").link("/sys/bus/pci", "../devices")
    target = Recording("quick", root=str(tree.root), environ={})
    assert target.read("/sys/bus/pci/gpu/vendor") == "0x10de"
    assert target.seen.links == {"/sys/bus/pci": "../devices"}
    assert list(target.seen.files) == ["/sys/devices/gpu/vendor"]


@pytest.mark.parametrize(
    ("read", "joined"),
    [
        ([(0, b"ab"), (2, b"cd")], [(0, b"abcd")]),
        ([(4, b"x"), (0, b"ab"), (1, b"bc")], [(0, b"abc"), (4, b"x")]),
        ([(0, b"abcd"), (1, b"b")], [(0, b"abcd")]),
        ([], []),
    ],
)
def test_parts_that_touch_become_one(read: list[tuple[int, bytes]], joined: list[tuple[int, bytes]]) -> None:
    parts = Parts(10)
    for offset, data in read:
        parts.note(offset, data)
    assert parts.joined() == joined


def test_only_variables_that_were_asked_for_are_kept_and_secrets_never(tmp_path: Path) -> None:
    target, live = watched(
        tmp_path,
        CUDA_VISIBLE_DEVICES="0",
        MY_DIARY="dear diary",
        NCCL_TOKEN="hunter2hunter2",
        HF_HOME="/home/jdoe/hf",
        PWD="/home/jdoe/work",
    )
    record = recorded(target, pipeline.diagnose(live, rulebook.load()))
    kept = record.environ
    assert kept["CUDA_VISIBLE_DEVICES"] == "0"
    assert "MY_DIARY" not in kept
    assert "hunter2" not in json.dumps(to_json(record))
    assert "jdoe" not in json.dumps(to_json(record))
    assert kept["PWD"].removesuffix("/work") == kept["HF_HOME"].removesuffix("/hf"), "the same home"


def told_by(lines: list[dict[str, Any]], status: int | None = 0, argv: str = "") -> Answer:
    out = "".join(f"@gpudoctor {json.dumps(line)}\n" for line in lines)
    return Answer(("python", "/x/ask_nvml.py", argv), status, out, "", 1.0)


@pytest.mark.parametrize("status", [-11, None])
def test_what_a_child_did_not_survive_is_a_fault_of_the_record(status: int | None) -> None:
    target = Recording("quick", environ={})
    target.seen.answers = [
        told_by(
            [
                {"gpu": None, "call": "library", "is": "libnvidia-ml.so.1"},
                {"gpu": None, "call": "nvmlInit", "is": 0},
                {"gpu": None, "call": "nvmlDeviceGetCount", "is": 2},
                {"gpu": 1, "call": "nvmlDeviceGetName", "is": "A100"},
                {"gpu": 1, "call": "nvmlDeviceGetUUID", "is": "GPU-8b0e7153-bf7c-3706-d85c-524e44006655"},
                {"gpu": 1, "call": "nvmlDeviceGetSerial", "is": "1654022003158"},
                {"gpu": 1, "call": "nvmlDeviceGetMigMode", "code": 15, "text": "GPU is lost"},
                {"ask": "nvmlDeviceGetTemperature(0)", "gpu": 1},
            ],
            status,
        )
    ]
    record = recorded(target, pipeline.diagnose(Snapshot(Subject("local", "x"), {}), rulebook.load()))
    assert record.nvml
    assert record.nvml["system"] == {"nvmlDeviceGetCount": 2}
    assert record.nvml["gpus"][1] == {
        "nvmlDeviceGetName": "A100",
        "nvmlDeviceGetUUID": "GPU-00000001-f000-4f00-8f00-000000000001",
        "nvmlDeviceGetSerial": "0000000000001",
        "nvmlDeviceGetMigMode": {"code": 15, "text": "GPU is lost"},
        "nvmlDeviceGetTemperature(0)": {"code": 999},
    }
    do = "hang" if status is None else "crash"
    assert record.nvml["faults"] == [{"call": "nvmlDeviceGetTemperature", "gpu": 1, "do": do}]
    with Recorded(record) as replay:
        first = replay.run(("python", "/y/ask_nvml.py", "/z"), timeout=5)
        assert first.status == status
        assert first.out.splitlines()[-1].endswith('{"ask": "nvmlDeviceGetTemperature(0)", "gpu": 1}')
        left_out = json.dumps({"left_out": [[1, "nvmlDeviceGetTemperature(0)"]]})
        second = replay.run(("python", "/y/ask_nvml.py", "/z", left_out), timeout=5)
        assert second.ok
        assert second.out.splitlines()[-1] == '@gpudoctor {"done": true}'
