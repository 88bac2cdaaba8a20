"""The simulated libraries: compiled once, told their answers in a file, and unharmed by whatever is in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import needs
from tests.sim import build, clients

EVERYTHING: list[clients.Question] = [
    (0, "nvmlDeviceGetName", ()),
    (0, "nvmlDeviceGetMemoryInfo", ()),
    (0, "nvmlDeviceGetTemperature", (0,)),
    (0, "nvmlDeviceGetEccMode", ()),
    (0, "nvmlDeviceGetFieldValues", (91,)),
    (0, "nvmlDeviceGetComputeRunningProcesses", ()),
    (0, "nvmlDeviceGetGpuFabricInfoV", ()),
    (0, "nvmlDeviceGetCpuAffinity", ()),
    (0, "nvmlDeviceGetSupportedMemoryClocks", ()),
    (0, "nvmlDeviceGetGridLicensableFeatures", ()),
]


def test_a_section_is_flat_lines_sorted_by_path(tmp_path: Path) -> None:
    every = {"f": {"b": 1, "a": [True, -2, None]}, "f(0,*)": {"code": 15}, "g": "a\n\t\\"}
    build.write_answers({"every": every}, None, tmp_path / "answers")
    assert (tmp_path / "answers").read_text("utf-8").splitlines() == [
        "nvml\t{",
        "nvml.every\t{",
        "nvml.every.f\t{",
        "nvml.every.f(0,*)\t!15",
        "nvml.every.f.a\t[3",
        "nvml.every.f.a[0]\t=1",
        "nvml.every.f.a[1]\t=-2",
        "nvml.every.f.a[2]\t-",
        "nvml.every.f.b\t=1",
        'nvml.every.g\t"a\\n\\t\\\\',
    ]


@pytest.mark.parametrize(
    ("nvml", "complaint"),
    [
        ([], "nvml: an object is wanted, not []"),
        ({"gpu": []}, "nvml: no part of a section is called gpu"),
        ({"gpus": {}}, "nvml.gpus: a list is wanted, not {}"),
        ({"gpus": [3]}, "nvml.gpus[0]: an object is wanted, not 3"),
        ({"every": {"f\n": 1}}, "nvml.every: 'f\\n' is no name of a call or a field"),
        ({"every": {"f(1": 1}}, "nvml.every: 'f(1' is no name of a call or a field"),
        ({"every": {"f" * 200: 1}}, "is no name of a call or a field"),
        ({"every": {"f": 1 << 64}}, "nvml.every.f: 18446744073709551616 is no answer"),
        ({"every": {"f": float("nan")}}, "nvml.every.f: nan is no answer"),
        (
            {"every": {"f": {"code": "15"}}, "faults": [{}]},
            "nvml.faults[0].call: a function's bare name or * is wanted",
        ),
        ({"faults": [{"call": "f", "do": "explode"}]}, "nvml.faults[0].do: hang, crash, dstate, sleep:MS"),
        ({"faults": [{"call": "f", "do": 15, "gpu": "3"}]}, "nvml.faults[0].gpu: a whole number is wanted"),
        ({"faults": [{"call": "f", "do": 15, "after": 3}]}, "nvml.faults[0]: a fault has no after"),
    ],
)
def test_what_is_no_section_is_refused_by_name(tmp_path: Path, nvml: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        build.write_answers(nvml, None, tmp_path / "answers")


def test_what_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deep"):
        build.write_answers({"every": {"f": deep}}, None, tmp_path / "answers")


def test_texts_that_break_terminals_reach_the_binding_whole(tmp_path: Path) -> None:
    name = "NVIDIA \x1b[31mH100\n\r\t\\n 名 \udcff"
    nvml = clients.hgx(every={"nvmlDeviceGetSerial": name, "nvmlDeviceGetVbiosVersion": "x\0y"})
    del nvml["gpus"][1]["nvmlDeviceGetSerial"]
    script = "import pynvml, ctypes; pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(1)\n"
    script += "text = ctypes.create_string_buffer(96)\n"
    for function in ("nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion"):
        script += f"pynvml.nvmlLib.{function}(h, text, 96); print(text.value)\n"
    told = clients.run(["-c", script], clients.environ(tmp_path, nvml)).stdout.splitlines()
    assert told == [repr(name.encode("utf-8", "surrogateescape")), "b'x'"]


def test_answers_of_the_wrong_kind_or_size_are_errors_not_harm(tmp_path: Path) -> None:
    wrong = {
        "nvmlDeviceGetName": "N" * 5000,
        "nvmlDeviceGetMemoryInfo": {"total": "many"},
        "nvmlDeviceGetTemperature(0)": 1 << 40,
        "nvmlDeviceGetEccMode": [1],
        "nvmlDeviceGetFieldValues(91)": "18",
        "nvmlDeviceGetComputeRunningProcesses": 3,
        "nvmlDeviceGetGpuFabricInfoV": {"clusterUuid": "ab" * 500, "state": 3},
        "nvmlDeviceGetCpuAffinity": [1] * 500,
        "nvmlDeviceGetSupportedMemoryClocks": ["fast"],
        "nvmlDeviceGetGridLicensableFeatures": {"licensableFeaturesCount": 1 << 31, "gridLicensableFeatures": [{}] * 9},
    }
    nvml = clients.hgx(every=wrong)
    del nvml["gpus"][0]["nvmlDeviceGetTemperature(0)"], nvml["gpus"][0]["nvmlDeviceGetCpuAffinity"]
    got = clients.ask(EVERYTHING, clients.environ(tmp_path, nvml))
    unknown, too_long = {"code": 999}, {"code": 7}
    assert got[:6] == [too_long, unknown, unknown, unknown, unknown, unknown]
    assert got[6]["clusterUuid"] == "ab" * 16
    assert got[6]["state"] == 3
    assert got[7:9] == [[1] * 16, unknown]
    assert got[9]["licensableFeaturesCount"] == 3


def test_a_hundred_thousand_processes_are_told(tmp_path: Path) -> None:
    many = [{"pid": pid, "usedGpuMemory": pid} for pid in range(100_000)]
    env = clients.environ(tmp_path, clients.hgx(every={"nvmlDeviceGetComputeRunningProcesses": many}))
    script = "import pynvml; pynvml.nvmlInit(); h = pynvml.nvmlDeviceGetHandleByIndex(1)\n"
    script += "told = pynvml.nvmlDeviceGetComputeRunningProcesses(h); print(len(told), told[77_777].pid)"
    assert clients.run(["-c", script], env).stdout.split() == ["100000", "77777"]


def test_counts_and_gpus_that_contradict_each_other_are_told_as_they_are(tmp_path: Path) -> None:
    nvml = clients.hgx()
    nvml["system"]["nvmlDeviceGetCount"] = 1_000_000
    nvml["gpus"][1]["nvmlDeviceGetHandleByIndex"] = {"code": 999}
    calls: list[clients.Question] = [
        (None, "nvmlDeviceGetCount", ()),
        *((at, "nvmlDeviceGetName", ()) for at in (0, 1, 2, 999)),
    ]
    name = "NVIDIA H100 80GB HBM3"
    assert clients.ask(calls, clients.environ(tmp_path, nvml)) == [1_000_000, name, {"code": 999}, name, {"code": 2}]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=8)), min_size=1, max_size=40), cut=st.floats(0, 1)
)
def test_no_file_of_answers_crashes_the_library(tmp_path: Path, changes: list[tuple[float, bytes]], cut: float) -> None:
    """The file of a healthy machine, cut short and overwritten at random places."""
    env = clients.environ(tmp_path, clients.hgx())
    path = Path(env["GPUDOCTOR_SIM_ANSWERS"])
    content = bytearray(path.read_bytes())
    for place, new in changes:
        at = int(place * len(content))
        content[at : at + len(new)] = new
    path.write_bytes(content[: int(len(content) * cut)] if cut > 0.5 else bytes(content))
    done = clients.run([str(clients.FOLDER / "ask_pynvml.py")], env, json.dumps(EVERYTHING))
    assert done.returncode in (0, 1), done.stderr
    assert "NVMLError" in done.stderr or "UnicodeDecodeError" in done.stderr or done.returncode == 0


def test_without_a_file_or_without_the_section_nvml_does_not_start(tmp_path: Path) -> None:
    env = clients.environ(tmp_path, None, {"system": {"cuInit": 0}})
    done = clients.run(["-c", "import pynvml; pynvml.nvmlInit()"], env)
    assert "hold no section nvml" in done.stderr
    env["GPUDOCTOR_SIM_ANSWERS"] = str(tmp_path / "none")
    done = clients.run(["-c", "import pynvml; pynvml.nvmlInit()"], env)
    assert "cannot read answers from" in done.stderr


def test_answers_beside_the_library_are_read_where_no_variable_names_them(tmp_path: Path) -> None:
    env = clients.environ(tmp_path, clients.hgx(gpus=1))
    (tmp_path / "libnvidia-ml.so.1").symlink_to(build.libraries() / "libnvidia-ml.so.1")
    del env["GPUDOCTOR_SIM_ANSWERS"]
    script = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    assert clients.run(["-c", script], {**env, "LD_LIBRARY_PATH": str(tmp_path)}).stdout == "1\n"


def test_the_library_has_every_function_of_its_header() -> None:
    library = str(build.libraries() / "libnvidia-ml.so.1")
    symbols = subprocess.check_output([needs.program("nm"), "-D", library], text=True)
    exported = set(re.findall(r" [TW] (\w+)", symbols))
    header = (build.libraries() / "nvml_names.inc").read_text()
    assert exported == set(re.findall(r"STUB\((\w+)\)", header))
    assert len(exported) > 350


def test_two_processes_that_compile_at_once_get_the_same_whole_libraries(tmp_path: Path) -> None:
    needs.program("cc")
    script = "from tests.sim import build; print(build.libraries())"
    env = {**clients.environ(tmp_path, None), "TMPDIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = {each.communicate(timeout=120)[0].strip() for each in both}
    assert len(told) == 1
    made = Path(told.pop())
    assert made.parent.parent == tmp_path
    assert {path.name for path in made.iterdir()} == {
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "nvml_names.inc",
        *build.WORDS,
    }
    assert {path.name for path in made.parent.iterdir()} == {made.name, "lock"}
