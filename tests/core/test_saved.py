"""Files that we wrote after a bad disk or copy, streams that are full or closed, and commands that a shell takes."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.app import pipeline, reading
from gpudoctor.core import files
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.system import is_of_windows, program_name, shell_line, signal_name
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import read_file
from tests.needs import REPOSITORY

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
    words = changed("facts/gpu.moods", {"value": [1], "source": "nvml 99"})
    assert pipeline.diagnose(reading.snapshot_of(words, "file"), _BOOK).verdict


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
    monkeypatch.setattr("gpudoctor.readers._PIPE_SECONDS", 0.3)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="empty"):
        read_file(str(tmp_path / "pipe"))


def test_a_file_has_any_name_that_its_folder_takes(tmp_path: Path) -> None:
    place = tmp_path / ("模" * 84 + ".md")  # 255 bytes
    files.put(place, b"a report")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [(place.name, b"a report")]


_PROGRAM = (sys.executable, "-m", "gpudoctor")
_BEHIND = """
import atexit, socket, sys, threading
from gpudoctor.core import system
atexit.register(print, "children ended")
here, there = socket.socketpair()
threading.Thread(target=here.recv, args=(1,), daemon=True).start()
print("said")
sys.exit(system.finish_process(7))
"""


def _run(words: tuple[str, ...], unbuffered: str, **streams: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(words, check=False, text=True, env=environ, cwd=REPOSITORY, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_a_line(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = _run((*_PROGRAM, "schema"), unbuffered, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 2
    said = (
        "gpudoctor: the answer could not be written whole: No space left on device; make room, or write it elsewhere\n"
    )
    assert ended.stderr == said


def test_what_is_cut_short_is_told(tmp_path: Path) -> None:
    """A write that finds room for a part says so: the rest is tried, and fails."""
    words = ("sh", "-c", f"ulimit -f 4; exec {' '.join(_PROGRAM)} schema > {tmp_path}/schema.json")
    ended = _run(words, "1", stderr=subprocess.PIPE)
    assert ended.returncode == 2
    assert "the answer could not be written whole: File too large" in ended.stderr


@pytest.mark.parametrize(
    ("closed", "unbuffered"), [(">&-", ""), (">&-", "1"), ("2>&-", ""), ("<&-", ""), ("<&- >&- 2>&-", "1")]
)
def test_closed_streams_leave_the_exit_code(closed: str, unbuffered: str) -> None:
    words = ("sh", "-c", f"exec {' '.join(_PROGRAM)} rules list {closed}")
    ended = _run(words, unbuffered, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("torch.cpu-build" in ended.stdout) is (">&- 2" not in closed and closed != ">&-")


def test_beside_a_thread_that_was_given_up_the_process_ends_whole() -> None:
    ended = _run((sys.executable, "-c", _BEHIND), "", capture_output=True, timeout=600)
    assert (ended.returncode, ended.stdout) == (7, "said\nchildren ended\n")


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8), min_size=1, max_size=4))
def test_a_posix_shell_takes_the_same_words(argv: list[str]) -> None:
    line = shell_line(argv)
    assert is_of_windows(argv) or shlex.split(line) == argv


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["C:\\venv\\Scripts\\python.exe", "-m", "pip"], "C:\\venv\\Scripts\\python.exe -m pip"),
        (["C:\\a b\\python.exe", "-m", "pip"], '& "C:\\a b\\python.exe" -m pip'),
        (["uv", "pip", "install", "--python", "D:/x", "torch>=2"], 'uv pip install --python D:/x "torch>=2"'),
        (["D:\\py.exe", "-c", 'print("$HOME,`")'], 'D:\\py.exe -c "print(`"`$HOME,```")"'),
        (["D:\\py.exe", "a,b", ""], 'D:\\py.exe "a,b" ""'),
        (["D:\\O'Neil 模型\\x.exe", "100%", "^", "“"], '& "D:\\O\'Neil 模型\\x.exe" 100% "^" "`“"'),
        (["winget", "install", "--id", "A.B+.x64", "a b"], 'winget install --id A.B+.x64 "a b"'),
        ([".venv\\Scripts\\python.exe", "-m", "pip"], ".venv\\Scripts\\python.exe -m pip"),
    ],
)
def test_powershell_takes_paths_of_a_drive(argv: list[str], line: str) -> None:
    assert shell_line(argv) == line


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("/usr/bin/python3.12", "python3.12"),
        ("uv", "uv"),
        ("C:\\Program Files\\Python\\Python.exe", "python"),
        ("D:/miniconda3/condabin/conda.bat", "conda"),
        ("C:\\Users\\jo\\env\\bin\\python", "python"),
        ("\\\\server\\share\\tools\\uv", "uv"),
        ("/srv/odd\\pip", "odd\\pip"),
    ],
)
def test_a_program_is_known_by_its_name(word: str, name: str) -> None:
    assert program_name(word) == name


def test_signals_have_the_names_that_they_have_here() -> None:
    numbered = {number: signal.Signals(number).name for number in range(1, 32)}
    assert {number: signal_name(number) for number in numbered} == numbered
    assert (signal_name(0), signal_name(40)) == ("signal 0", "signal 40")
