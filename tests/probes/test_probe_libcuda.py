"""The CUDA driver library asked in a child: a library of our own that answers, fails, hangs or crashes as told."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes import libcuda
from gpudoctor.target import Answer
from gpudoctor.target.local import Local
from gpudoctor.target.protocol import seconds_to_wake
from tests import needs
from tests.probes import nvml_machine
from tests.probes.nvml_machine import why
from tests.probes.trees import Tree
from tests.sim import build

Facts = dict[str, "Fact | Rows"]
Ask = Callable[..., Facts]

EVERY: dict[str, Any] = {
    "cuDeviceGetName": "NVIDIA H100 80GB HBM3",
    "cuDeviceTotalMem": 85028765696,
    "cuDeviceGetAttribute(13)": 1980000,
    "cuDeviceGetAttribute(16)": 132,
    "cuDeviceGetAttribute(18)": 0,
    "cuDeviceGetAttribute(20)": 3,
    "cuDeviceGetAttribute(32)": 1,
    "cuDeviceGetAttribute(36)": 2619000,
    "cuDeviceGetAttribute(37)": 5120,
    "cuDeviceGetAttribute(38)": 52428800,
    "cuDeviceGetAttribute(41)": 1,
    "cuDeviceGetAttribute(75)": 9,
    "cuDeviceGetAttribute(76)": 0,
    "cuDeviceGetAttribute(83)": 1,
    "cuDeviceGetAttribute(88)": 0,
    "cuDeviceGetAttribute(89)": 1,
    "cuDeviceGetAttribute(97)": 232448,
    "cuDeviceGetAttribute(115)": 1,
    "cuDeviceGetAttribute(116)": 1,
    "cuDeviceGetAttribute(124)": 1,
    "cuDeviceGetAttribute(128)": 0,
    "cuDeviceGetAttribute(132)": 1,
    "cuDeviceGetAttribute(133)": 0,
    "cuDeviceCanAccessPeer": 1,
}


def section(gpus: int = 2, faults: list[dict[str, Any]] | None = None, **system: Any) -> dict[str, Any]:
    """The answers of that many H100; `system` and `faults` change them."""
    return {
        "system": {"cuInit": 0, "cuDriverGetVersion": 13000, "cuDeviceGetCount": gpus, **system},
        "every": EVERY,
        "gpus": [
            {"cuDeviceGetUuid": f"a1b2c3d4000011112222{n:012x}", "cuDeviceGetPCIBusId": f"0000:{0x1A + n:02X}:00.0"}
            for n in range(gpus)
        ],
        "faults": faults or [],
    }


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run the probe over the library with these answers; `folder` is where the loader looks instead."""
    monkeypatch.setattr(libcuda, "SECONDS", 20.0)

    def run(
        answers: dict[str, Any] | None = None, level: str = "standard", folder: Path | None = None, **variables: str
    ) -> Facts:
        build.write_answers(None, section() if answers is None else answers, tmp_path / "answers")
        environ = {
            "PATH": "/nowhere",
            "LD_LIBRARY_PATH": str(folder or build.libraries()),
            "GPUDOCTOR_SIM_ANSWERS": str(tmp_path / "answers"),
            "GPUDOCTOR_SIM_TRACE": str(tmp_path / "trace"),
            **variables,
        }
        return dict(libcuda.probe(Local(level, sys.executable, environ=environ)))

    return run


def known(state: Fact | Rows) -> Any:
    return nvml_machine.known(state)


def rows(facts: Facts) -> tuple[Row, ...]:
    return nvml_machine.rows(facts, "cuda_device")


def test_every_column_of_a_healthy_device(ask: Ask) -> None:
    facts = ask()
    assert known(facts["cuda_driver.state"]) == "ok"
    assert isinstance(facts["cuda_driver.message"], Absent)
    assert known(facts["cuda_driver.library"]) == str(build.libraries() / "libcuda.so.1")
    assert known(facts["cuda_driver.kind"]) == "driver"
    assert known(facts["cuda_driver.version"]) == "13.0"
    assert known(facts["cuda_driver.init_code"]) == 0
    assert isinstance(facts["cuda_driver.init_name"], Absent)
    assert known(facts["cuda_driver.count"]) == 2
    assert why(facts["cuda_driver.masked"]) == "CUDA_VISIBLE_DEVICES is not set"
    assert "text" not in facts
    second = rows(facts)[1]
    assert {name: state.value for name, state in second.items() if isinstance(state, Known)} == {
        "index": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-a1b2c3d4-0000-1111-2222-000000000001",
        "address": "0000:1b:00.0",
        "compute_capability": "9.0",
        "memory_mib": 81089,
        "sms": 132,
        "clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "memory_bus_bits": 5120,
        "l2_kib": 51200,
        "shared_memory_kib": 227,
        "integrated": False,
        "ecc": True,
        "compute_mode": "Exclusive_Process",
        "unified_addressing": True,
        "managed_memory": True,
        "concurrent_managed_access": True,
        "pageable_memory_access": False,
        "memory_pools": True,
        "gpudirect_rdma": True,
        "dma_buf": True,
        "fabric_handles": False,
        "multicast": True,
        "mps": False,
        "peers": (0,),
    }
    declared = {spec.name.partition(".")[2] for spec in libcuda.FACTS if spec.group}
    assert set(second) == declared


def test_quick_loads_and_initialises_nothing_and_no_level_makes_a_context(ask: Ask, tmp_path: Path) -> None:
    facts = ask(level="quick")
    assert known(facts["cuda_driver.state"]) == "loaded"
    assert known(facts["cuda_driver.version"]) == "13.0"
    assert why(facts["cuda_driver.init_code"]) == "cuInit is asked from level standard on"
    assert isinstance(facts["cuda_device"], Unread)
    assert (tmp_path / "trace").read_text() == "cuDriverGetVersion\t-\n"
    ask()
    calls = {line.partition("\t")[0].partition("(")[0] for line in (tmp_path / "trace").read_text().splitlines()}
    assert "cuDeviceGetName" in calls
    assert not [call for call in calls if "Ctx" in call or "Mem" in call.replace("TotalMem", "")]


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"),
        (999, "CUDA_ERROR_UNKNOWN", "unknown error"),
    ],
)
def test_an_init_that_fails_is_named_and_leaves_the_devices_unread(ask: Ask, code: int, name: str, words: str) -> None:
    facts = ask(section(cuInit=code))
    assert known(facts["cuda_driver.state"]) == "failed"
    assert known(facts["cuda_driver.init_code"]) == code
    assert known(facts["cuda_driver.init_name"]) == name
    assert known(facts["cuda_driver.init_error"]) == words
    assert known(facts["cuda_driver.message"]) == words
    assert isinstance(facts["cuda_driver.count"], Unread)
    assert isinstance(facts["cuda_device"], Unread)
    source = getattr(facts["cuda_driver.state"], "source", "")
    assert facts["text"] == ({"line": Known(f"cuInit: {name} ({code}): {words}", source)},)


def test_no_device_is_knowledge_and_a_code_of_the_future_keeps_its_number(ask: Ask, tmp_path: Path) -> None:
    """Without a mask nothing is asked twice."""
    facts = ask(section(cuInit=100))
    assert known(facts["cuda_driver.count"]) == 0
    assert facts["cuda_device"] == Absent("CUDA lists no device")
    assert "text" not in facts
    assert (tmp_path / "trace").read_text().count("cuInit\t") == 1
    facts = ask(section(cuInit=12345))
    assert known(facts["cuda_driver.init_code"]) == 12345
    assert known(facts["cuda_driver.init_name"]) == "CUDA error 12345"
    assert isinstance(facts["cuda_driver.init_error"], Absent)


def test_a_missing_library_is_told_from_an_old_one(ask: Ask, tmp_path: Path) -> None:
    missing = ask(folder=tmp_path)
    assert known(missing["cuda_driver.state"]) == "library not found"
    assert "libcuda.so.1" in known(missing["cuda_driver.message"])
    assert why(missing["cuda_driver.version"]) == "the loader finds no libcuda.so.1"
    assert isinstance(missing["cuda_driver.library"], Absent)
    assert isinstance(missing["cuda_device"], Absent)
    old = ask(section(cuDriverGetVersion=10020))
    assert known(old["cuda_driver.version"]) == "10.2"
    assert known(old["cuda_driver.state"]) == "ok"


def test_a_library_that_cannot_be_loaded_is_there_and_unusable(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    facts = ask(folder=tmp_path)
    assert known(facts["cuda_driver.state"]) == "library unusable"
    assert "file too short" in known(facts["cuda_driver.message"])
    assert isinstance(facts["cuda_driver.library"], Unread)


def test_what_is_behind_the_link_tells_the_kind(ask: Ask, tmp_path: Path) -> None:
    real = tmp_path / "usr/local/cuda-13.0/compat/libcuda.so.580.65.06"
    real.parent.mkdir(parents=True)
    real.write_bytes((build.libraries() / "libcuda.so.1").read_bytes())
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(real)
    facts = ask(folder=folder, level="quick")
    assert known(facts["cuda_driver.library"]) == str(folder / "libcuda.so.1")
    assert known(facts["cuda_driver.kind"]) == "compat"


def test_a_stub_is_known_by_its_answer_wherever_it_was_copied(ask: Ask) -> None:
    facts = ask(section(cuInit=34), level="quick")
    assert known(facts["cuda_driver.kind"]) == "stub"
    assert isinstance(facts["cuda_driver.version"], Unread)


def test_an_init_that_crashes_keeps_what_came_before(ask: Ask) -> None:
    facts = ask(section(faults=[{"call": "cuInit", "do": "crash"}]))
    assert known(facts["cuda_driver.state"]) == "crashed"
    assert known(facts["cuda_driver.message"]) == "cuInit crashed: killed by SIGSEGV"
    assert known(facts["cuda_driver.version"]) == "13.0"
    assert why(facts["cuda_driver.init_code"]) == "cuInit crashed: killed by SIGSEGV"
    assert isinstance(facts["cuda_device"], Unread)


def test_an_init_that_never_returns_is_given_up_and_not_judged(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda, "SECONDS", 0.7)
    facts = ask(section(faults=[{"call": "cuInit", "do": "hang"}]))
    assert known(facts["cuda_driver.state"]) == "not finished"
    words = known(facts["cuda_driver.message"])
    assert re.fullmatch(r"cuInit did not return within \d+ s", words)
    assert known(facts["cuda_driver.version"]) == "13.0"
    for name in ("init_code", "count"):
        assert facts[f"cuda_driver.{name}"] == Unread(words)
    assert facts["cuda_device"] == Unread(words)


def test_an_init_that_cannot_even_be_killed_is_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    out = "".join(
        f"@gpudoctor {json.dumps(line)}\n"
        for line in (
            {"ask": "library", "gpu": None},
            {"gpu": None, "call": "library", "is": "/lib/libcuda.so.1"},
            {"ask": "cuInit", "gpu": None},
        )
    )
    answer = Answer(("python",), None, out, "", 30.4, stuck=4242)
    monkeypatch.setattr(Local, "run", lambda *_, **__: answer)
    facts = dict(libcuda.probe(Local("standard", sys.executable)))
    assert known(facts["cuda_driver.state"]) == "hung"
    assert known(facts["cuda_driver.message"]) == (
        "cuInit did not return within 30 s (pid 4242 cannot be stopped and is left behind)"
    )


@pytest.mark.parametrize(("gpus", "seconds"), [(0, 30), (1, 30), (8, 45)])
def test_the_time_given_grows_with_the_gpus_on_the_bus(tmp_path: Path, gpus: int, seconds: int) -> None:
    tree = Tree(tmp_path).file("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    for slot in range(gpus):
        for function, kind in (("0", "0x030200"), ("1", "0x040300")):
            folder = f"/sys/bus/pci/devices/0000:{slot + 1:02x}:00.{function}"
            tree.file(f"{folder}/vendor", "0x10de\n").file(f"{folder}/class", f"{kind}\n")
    assert seconds_to_wake(tree.target()) == seconds


def test_a_hang_in_the_second_device_keeps_the_first(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda, "SECONDS", 0.7)
    facts = ask(section(3, faults=[{"call": "cuDeviceGetUuid", "gpu": 1, "do": "hang"}]))
    assert known(facts["cuda_driver.message"]).startswith("cuDeviceGetUuid of device 1 did not return within ")
    first, second, third = rows(facts)
    assert known(first["sms"]) == 132
    assert known(second["name"]) == "NVIDIA H100 80GB HBM3"
    assert isinstance(second["uuid"], Unread)
    assert isinstance(third["name"], Unread)
    assert isinstance(first["peers"], Unread), "nobody had asked for peers yet"


def test_a_failing_attribute_costs_one_column_and_an_unknown_one_is_absent(ask: Ask) -> None:
    answers = section(1)
    answers["every"] = {**EVERY, "cuDeviceTotalMem": {"code": 999}, "cuDeviceGetAttribute(132)": None}
    (row,) = rows(ask(answers))
    assert why(row["memory_mib"]) == "CUDA_ERROR_UNKNOWN (999): unknown error"
    assert row["multicast"] == Absent("this driver does not tell it")
    assert known(row["sms"]) == 132


def test_a_device_that_cannot_be_opened_says_so_and_peers_are_those_that_can_be_reached(ask: Ask) -> None:
    first, second = rows(ask(section(faults=[{"call": "cuDeviceGet", "gpu": 1, "do": 101}])))
    assert isinstance(first["error"], Absent)
    assert known(second["error"]) == "CUDA_ERROR_INVALID_DEVICE (101): invalid device ordinal"
    assert isinstance(second["name"], Unread)
    answers = section(4)
    answers["gpus"][0]["cuDeviceCanAccessPeer(2)"] = 0
    first, second, *_ = rows(ask(answers))
    assert known(first["peers"]) == (1, 3)
    assert known(second["peers"]) == (0, 2, 3)


def test_the_mask_is_obeyed_and_is_told_from_a_machine_without_gpus(ask: Ask) -> None:
    second = ask(CUDA_VISIBLE_DEVICES="1")
    (row,) = rows(second)
    assert known(row["address"]) == "0000:1b:00.0"
    assert known(second["cuda_driver.masked"]) is False
    hidden = ask(CUDA_VISIBLE_DEVICES="7")
    assert known(hidden["cuda_driver.init_code"]) == 100
    assert known(hidden["cuda_driver.count"]) == 0
    assert known(hidden["cuda_driver.masked"]) is True
    none = ask(section(0), CUDA_VISIBLE_DEVICES="0")
    assert known(none["cuda_driver.masked"]) is False, "there is nothing to hide"


def test_a_mig_device_has_a_mig_id_and_control_characters_are_escaped(ask: Ask) -> None:
    answers = section(1)
    answers["gpus"][0]["cuDeviceGetName"] = "NVIDIA \x1b[31mA100-SXM4-40GB MIG 1g.5gb\n"
    (row,) = rows(ask(answers))
    assert known(row["uuid"]).startswith("MIG-a1b2c3d4-")
    assert known(row["name"]) == "NVIDIA \\x1b[31mA100-SXM4-40GB MIG 1g.5gb\\n"


def test_an_interpreter_that_does_not_start_gives_way_to_ours(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    build.write_answers(None, section(1), tmp_path / "answers")
    target = Local(environ={"LD_LIBRARY_PATH": str(build.libraries()), "GPUDOCTOR_SIM_ANSWERS": f"{tmp_path}/answers"})
    vars(target)["python"] = str(broken)
    assert known(dict(libcuda.probe(target))["cuda_driver.count"]) == 1


def test_an_older_driver_without_a_function_loses_only_that(ask: Ask, tmp_path: Path) -> None:
    source = "int cuInit(unsigned f){(void)f;return 0;} int cuDeviceGetCount(int*n){*n=0;return 0;}"
    (tmp_path / "old.c").write_text(source)
    words = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "old.c"]
    subprocess.run([needs.program("cc"), *words], cwd=tmp_path, check=True)
    facts = ask(folder=tmp_path)
    assert known(facts["cuda_driver.init_code"]) == 0
    assert why(facts["cuda_driver.version"]) == "this library has no cuDriverGetVersion"
    assert facts["cuda_device"] == Absent("CUDA lists no device")
