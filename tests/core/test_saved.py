"""Files that we wrote, and what is left of them after a bad disk, a bad copy or a bad neighbour."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.app import pipeline, reading
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.compare import compare
from gpudoctor.readers import read_file
from gpudoctor.views import diff, document, text

_BOOK = rulebook.load()
GOOD: dict[str, Any] = {
    "schema": "gpudoctor/1",
    "tool": {"version": "0.1.0"},
    "target": {"kind": "local", "name": "node1", "python": None, "level": "quick"},
    "facts": {
        "driver.version": {"value": "570.86.15", "source": "/proc/driver/nvidia/version"},
        "driver.library_versions": {"value": ["570.86.15"], "source": "ls"},
        "host.container": {"absent": "no mark of a container"},
        "nvml.state": {"value": "ok", "source": "NVML"},
        "gpu.count": {"value": 1, "source": "NVML"},
        "gpu": [
            {
                "index": {"value": 0, "source": "NVML"},
                "name": {"value": "NVIDIA A100-SXM4-80GB", "source": "NVML"},
                "mig": {"value": False, "source": "NVML"},
                "memory_mib": {"value": 81920, "source": "NVML"},
                "throttle_reasons": {"value": [], "source": "NVML"},
                "ecc_uncorrected": {"unread": "NVML: unknown error"},
            }
        ],
        "nvlink": {"unread": "not asked"},
        "text": [{"line": {"value": "NVRM: loading", "source": "/dev/kmsg"}}],
        "torch.archs": {"value": ["sm_80", "sm_90"], "source": "libtorch_cuda.so"},
        "torch.version": {"value": "2.9.0+cu128", "source": "version.py"},
    },
    "timings_ms": {"probe.nvml": 48.1},
}


def worked(words: str) -> Diagnosis | None:
    """Everything that is done with a file; None where it was refused."""
    try:
        diagnosis = pipeline.diagnose(reading.snapshot_of(words, "file"), _BOOK)
    except DocumentError:
        return None
    shown = text.render(diagnosis) + diff.render(compare(diagnosis, diagnosis), ("a", "b"))
    assert not [sign for sign in shown if (ord(sign) < 32 and sign != "\n") or 127 <= ord(sign) < 160]
    json.loads(document.render(diagnosis), parse_constant=pytest.fail)
    return diagnosis


def changed(path: str, value: Any) -> str:
    raw = json.loads(json.dumps(GOOD))
    holder = raw
    *way, last = path.split("/")
    for step in way:
        holder = holder[int(step) if step.isdecimal() else step]
    holder[last] = value
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (json.dumps(GOOD)[:300], "broken JSON"),
        (changed("schema", "gpudoctor/9"), "is not gpudoctor/1; read it with the gpudoctor that wrote it or a newer"),
        (changed("facts", 3), "no facts"),
        (changed("target", None), "no target"),
        (changed("target/level", "thorough"), "level"),
        (changed("target/name", ["x"]), "name"),
        (changed("timings_ms", [1]), "timings_ms"),
        (changed("facts/gpu.count", 3), "'gpu.count': not a fact"),
        (changed("facts/gpu.count", {"value": "eight", "source": ""}), "gpu.count is 'eight', not a whole number"),
        (changed("facts/gpu.count", {"value": True, "source": ""}), "gpu.count is 'True', not a whole number"),
        (changed("facts/gpu/0/mig", {"value": 0, "source": ""}), "gpu.mig is '0', not true or false"),
        (changed("facts/gpu", {"value": 3, "source": ""}), "'gpu': a value where a list of rows belongs"),
        (changed("facts/gpu", [5]), "not a row"),
        (changed("facts/torch.version", [{"value": 1}]), "not a fact"),
        (changed("facts/gpu.count", {"value": 1, "source": ""}).replace('"value": 1,', '"value": NaN,'), "NaN"),
        (changed("facts/gpu.count", {"value": 1, "source": ""}).replace('"value": 1,', '"value": 1e999,'), "1e999"),
        (json.dumps(GOOD).replace("81920", "8" * 5000), "5000 digits"),
        ('{"schema": "gpudoctor/1", ' + json.dumps(GOOD)[1:], "'schema' is there twice"),
        (json.dumps(GOOD) + json.dumps(GOOD), "one document a file"),
        ('{"schema": "gpudoctor/1", "facts": ' + "[" * 1_000_000, "nested without end"),
        ('{"schema": "gpudoctor/1", "facts": ' + '{"a":' * 1_000_000, "nested without end"),
        (json.dumps(GOOD).replace('["sm_80", "sm_90"]', "[" * 200 + "]" * 200), "more than 20 deep"),
    ],
)
def test_what_is_wrong_is_said(words: str, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        reading.snapshot_of(words, "file")
    assert says in str(caught.value)
    assert str(caught.value).startswith("file: ")
    assert "\n" not in str(caught.value)


def test_names_that_a_newer_gpudoctor_may_have_are_no_trouble() -> None:
    diagnosis = worked(changed("facts/gpu.moods", {"value": [1], "source": "nvml 99"}))
    assert diagnosis


_ENTRIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "absent", "x"]), inner),
    max_leaves=6,
)
_PLACES = [
    "facts/gpu/0/name",
    "facts/gpu/0/index",
    "facts/gpu/0",
    "facts/gpu",
    "facts/text",
    "facts/gpu.count",
    "facts/driver.version",
    "facts/torch.archs",
    "facts",
    "target",
    "target/name",
    "timings_ms",
    "schema",
    "tool",
]


@settings(max_examples=50)
@given(st.sampled_from(_PLACES), _ENTRIES, st.booleans())
def test_anything_in_any_place(path: str, entry: Any, as_value: bool) -> None:
    raw = json.loads(json.dumps(GOOD))
    holder: Any = raw
    *way, last = path.split("/")
    for step in way:
        holder = holder[int(step) if step.isdecimal() else step]
    holder[int(last) if last.isdecimal() else last] = {"value": entry, "source": "x"} if as_value else entry
    worked(json.dumps(raw))


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.integers(1, 8))
def test_mutilated_files(dice: random.Random, strokes: int) -> None:
    words = json.dumps(GOOD)
    for _ in range(strokes):
        start = dice.randrange(len(words) + 1)
        end = min(len(words), start + dice.choice([0, 1, 40]))
        piece = dice.choice(
            ["", '"', "{", "]", "\\u0007", "\\ud800", "\x1b[2J", "NaN", "-1e400", "null", words[start:end]]
        )
        words = words[:start] + piece + words[end:]
    worked(words)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        time.sleep(0.05)
        with pipe.open("w") as file:
            file.write("driver:")
            file.flush()
            time.sleep(0.05)
            file.write(" 550.54\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert read_file(str(pipe)) == "driver: 550.54\n"
    writer.join()


def test_a_pipe_that_nobody_writes_into_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.readers._PATIENCE", 0.3)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="empty"):
        read_file(str(tmp_path / "pipe"))
