"""NVML asked through a real shared library that answers, fails, hangs or crashes as told; nvidia-smi as a script."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pynvml
import pytest

from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes import nvml
from gpudoctor.target.local import Local
from tests import needs

LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FAULTS is "call=code;call@gpu=hang;...": what that call answers instead of success. */
static int fault(const char *call, long gpu) {
    char all[2048], key[160], *at;
    snprintf(all, sizeof all, ";%s;", getenv("FAULTS") ? getenv("FAULTS") : "");
    snprintf(key, sizeof key, ";%s@%ld=", call, gpu);
    at = strstr(all, key);
    if (!at) { snprintf(key, sizeof key, ";%s=", call); at = strstr(all, key); }
    if (!at) return 0;
    at += strlen(key);
    if (!strncmp(at, "hang", 4)) for (;;) pause();
    if (!strncmp(at, "crash", 5)) abort();
    return atoi(at);
}
static unsigned gpus(void) { return getenv("GPUS") ? atoi(getenv("GPUS")) : 1; }
#define SYSTEM(name, ...) int name(__VA_ARGS__) { int bad = fault(#name, -1); if (bad) return bad;
#define DEVICE(name, ...) int name(long gpu, __VA_ARGS__) { int bad = fault(#name, gpu - 1); if (bad) return bad;
#define END return 0; }

SYSTEM(nvmlInitWithFlags, unsigned flags) printf("a greeting on standard output\n"); fflush(stdout); END
const char *nvmlErrorString(int code) {
    switch (code) {
    case 3: return "Not Supported"; case 4: return "Insufficient Permissions"; case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost"; case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch"; default: return "Unknown Error"; }
}
SYSTEM(nvmlSystemGetDriverVersion, char *v, unsigned n) snprintf(v, n, "570.124.06"); END
SYSTEM(nvmlSystemGetNVMLVersion, char *v, unsigned n) snprintf(v, n, "12.570.124.06"); END
SYSTEM(nvmlSystemGetCudaDriverVersion_v2, int *v) *v = 12080; END
SYSTEM(nvmlDeviceGetCount_v2, unsigned *n) *n = gpus(); END
int nvmlDeviceGetHandleByIndex_v2(unsigned index, long *gpu) {
    int bad = fault("nvmlDeviceGetHandleByIndex_v2", index); *gpu = index + 1; return bad; }
DEVICE(nvmlDeviceGetName, char *v, unsigned n) char *told = getenv("NAME");
    snprintf(v, n, "%s", told ? told : "NVIDIA H100 80GB HBM3"); END
DEVICE(nvmlDeviceGetUUID, char *v, unsigned n) snprintf(v, n, "GPU-0000000%ld-1111-2222-3333-444444444444", gpu); END
DEVICE(nvmlDeviceGetPciInfo_v3, char *info) sprintf(info + 36, "00000000:3%ld:00.0", gpu); END
DEVICE(nvmlDeviceGetCudaComputeCapability, int *major, int *minor) *major = 9; *minor = 0; END
DEVICE(nvmlDeviceGetMemoryInfo, unsigned long long *m) m[0] = 81559ull << 20; m[2] = 5ull << 20; m[1] = m[0] - m[2]; END
DEVICE(nvmlDeviceGetMigMode, unsigned *now, unsigned *later) return 3; END
DEVICE(nvmlDeviceGetComputeMode, int *mode) *mode = 3; END
DEVICE(nvmlDeviceGetTotalEccErrors, int kind, int since, unsigned long long *n)
    *n = kind == 1 && since == 0 ? 7 : 99; END
DEVICE(nvmlDeviceGetRemappedRows, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed)
    *c = 2; *u = 1; *pending = 1; *failed = 0; END
DEVICE(nvmlDeviceGetTemperature, int sensor, unsigned *t) *t = 41; END
DEVICE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long *bits) *bits = 0x48; END
DEVICE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned *v) *v = 1; END
DEVICE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned *v) *v = 5; END
DEVICE(nvmlDeviceGetCurrPcieLinkWidth, unsigned *v) *v = 8; END
DEVICE(nvmlDeviceGetMaxPcieLinkWidth, unsigned *v) *v = 16; END
DEVICE(nvmlDeviceGetClockInfo, int kind, unsigned *v) *v = kind == 1 ? 615 : 99; END
DEVICE(nvmlDeviceGetMaxClockInfo, int kind, unsigned *v) *v = kind == 1 ? 1980 : 99; END
DEVICE(nvmlDeviceGetPowerUsage, unsigned *v) *v = 238410; END
DEVICE(nvmlDeviceGetEnforcedPowerLimit, unsigned *v) *v = 400000; END
DEVICE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned *v) *v = 700000; END
DEVICE(nvmlDeviceGetUtilizationRates, unsigned *v) v[0] = 63; v[1] = 2; END
DEVICE(nvmlDeviceGetVirtualizationMode, int *v) *v = 1; END
"""

Facts = dict[str, "Fact | Rows"]
Ask = Callable[..., Facts]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 of our own."""
    compiler = shutil.which("gcc") or needs.program("cc")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    words = ["-shared", "-fPIC", "-w", "-Wl,-soname,libnvidia-ml.so.1", "-o", "libnvidia-ml.so.1", "nvml.c"]
    subprocess.run([compiler, *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def ask(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run the probe against the library with these faults; nothing else is on PATH unless `smi` is a script."""
    monkeypatch.setattr(nvml, "TIMEOUT", 1.0)
    monkeypatch.setattr(nvml, "_SMI_SECONDS", 1.0)
    for name in ("cat", "head", "sleep"):
        (tmp_path / name).symlink_to(shutil.which(name) or f"/bin/{name}")

    def run(faults: str = "", smi: str = "", where: Path = library, **variables: str) -> Facts:
        if smi:
            program = tmp_path / "nvidia-smi"
            program.write_text("#!/bin/sh\n" + smi)
            program.chmod(0o755)
        environ = {"LD_LIBRARY_PATH": str(where), "PATH": str(tmp_path), "FAULTS": faults, **variables}
        return dict(nvml.probe(Local(environ=environ)))

    return run


def known(state: Fact | Rows) -> object:
    assert isinstance(state, Known), state
    return state.value


def why(state: Fact | Rows) -> str:
    assert isinstance(state, (Absent, Unread)), state
    return state.why


def rows(facts: Mapping[str, Fact | Rows]) -> tuple[Row, ...]:
    group = facts["gpu"]
    assert isinstance(group, tuple), group
    return group


def test_every_column_of_a_healthy_gpu(ask: Ask) -> None:
    facts = ask(GPUS="2")
    assert known(facts["nvml.state"]) == "ok"
    assert known(facts["nvml.code"]) == 0
    assert isinstance(facts["nvml.message"], Absent)
    assert known(facts["driver.version"]) == "570.124.06"
    assert known(facts["driver.cuda_version"]) == "12.8"
    assert known(facts["gpu.count"]) == 2
    second = rows(facts)[1]
    assert {name: state.value for name, state in second.items() if isinstance(state, Known)} == {
        "index": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-00000002-1111-2222-3333-444444444444",
        "address": "0000:32:00.0",
        "compute_capability": "9.0",
        "memory_mib": 81559,
        "memory_used_mib": 5,
        "compute_mode": "Exclusive_Process",
        "ecc_corrected": 99,
        "ecc_corrected_aggregate": 99,
        "ecc_uncorrected": 7,
        "ecc_uncorrected_aggregate": 99,
        "remapped_corrected": 2,
        "remapped_uncorrected": 1,
        "memory_clock_mhz": 99,
        "memory_clock_max_mhz": 99,
        "virtualization": "passthrough",
        "remap_pending": True,
        "remap_failed": False,
        "temperature_c": 41,
        "throttle_reasons": ("hw_slowdown", "hw_thermal_slowdown"),
        "link_generation": 1,
        "link_generation_max": 5,
        "link_width": 8,
        "link_width_max": 16,
        "clock_mhz": 615,
        "clock_max_mhz": 1980,
        "power_w": 238,
        "power_limit_w": 400,
        "power_limit_default_w": 700,
        "utilization": 63,
        "virtual": False,
    }
    assert why(second["mig"]) == "this GPU does not report it"
    assert why(second["error"]) == "it answers"


@pytest.mark.parametrize(
    ("code", "state", "message"),
    [
        (4, "no permission", "Insufficient Permissions"),
        (9, "driver not loaded", "Driver Not Loaded"),
        (15, "gpu is lost", "GPU is lost"),
        (17, "gpu access blocked by the operating system", "GPU access blocked by the operating system"),
        (18, "version mismatch", "Driver/library version mismatch"),
        (999, "unknown error", "Unknown Error"),
    ],
)
def test_init_that_fails_is_named_and_leaves_the_gpus_unread(ask: Ask, code: int, state: str, message: str) -> None:
    facts = ask(f"nvmlInitWithFlags={code}")
    assert known(facts["nvml.state"]) == state
    assert known(facts["nvml.code"]) == code
    assert known(facts["nvml.message"]) == message
    assert isinstance(facts["gpu"], Unread)
    assert isinstance(facts["gpu.count"], Unread)
    assert message in why(facts["gpu.count"])


def test_a_missing_library_is_no_missing_gpu(ask: Ask, tmp_path: Path) -> None:
    facts = ask(where=tmp_path)
    assert known(facts["nvml.state"]) == "library not found"
    assert "libnvidia-ml.so.1" in str(known(facts["nvml.message"]))
    assert isinstance(facts["gpu"], Unread)
    assert isinstance(facts["gpu.count"], Unread)


def test_a_damaged_library_is_told_from_a_missing_one(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    facts = ask(where=tmp_path)
    assert known(facts["nvml.state"]) == "library unusable"
    assert "file too short" in str(known(facts["nvml.message"]))


def test_hanging_init_is_ended_in_time_and_named(ask: Ask) -> None:
    started = time.monotonic()
    facts = ask("nvmlInitWithFlags=hang")
    assert time.monotonic() - started < 3
    assert known(facts["nvml.state"]) == "hung"
    assert known(facts["nvml.message"]) == "nvmlInit did not return within 1 s"
    assert isinstance(facts["gpu"], Unread)


def test_crashing_init_is_named_with_its_signal(ask: Ask) -> None:
    facts = ask("nvmlInitWithFlags=crash")
    assert known(facts["nvml.state"]) == "crashed"
    assert "nvmlInit crashed: killed by SIGABRT" in str(known(facts["nvml.message"]))


def test_one_lost_gpu_of_eight_leaves_seven(ask: Ask) -> None:
    facts = ask("nvmlDeviceGetHandleByIndex_v2@5=15", GPUS="8")
    assert known(facts["nvml.state"]) == "ok"
    assert known(facts["gpu.count"]) == 8
    group = rows(facts)
    assert [row["index"] for row in group if isinstance(row["name"], Unread)] == [Known(5, "NVML")]
    assert len([row for row in group if isinstance(row["error"], Absent)]) == 7
    assert known(group[5]["error"]) == "GPU is lost"
    assert why(group[5]["name"]) == "NVML: GPU is lost"


def test_one_failing_getter_costs_one_column(ask: Ask) -> None:
    (row,) = rows(ask("nvmlDeviceGetTemperature=999;nvmlDeviceGetRemappedRows=3"))
    assert why(row["temperature_c"]) == "NVML: Unknown Error (code 999)"
    assert isinstance(row["remap_failed"], Absent)
    assert known(row["utilization"]) == 63


def test_a_gpu_lost_between_two_calls_says_so(ask: Ask) -> None:
    (row,) = rows(ask("nvmlDeviceGetTemperature=15"))
    assert known(row["error"]) == "GPU is lost"
    assert known(row["name"]) == "NVIDIA H100 80GB HBM3"


def test_a_hang_in_the_second_gpu_keeps_the_first(ask: Ask) -> None:
    facts = ask("nvmlDeviceGetUUID@1=hang", GPUS="3")
    assert known(facts["nvml.state"]) == "hung"
    message = "nvmlDeviceGetUUID of GPU 1 did not return within 0.5 s"
    assert known(facts["nvml.message"]) == message
    assert known(facts["gpu.count"]) == 3
    first, second, third = rows(facts)
    assert known(first["utilization"]) == known(third["utilization"]) == 63
    assert known(second["name"]) == "NVIDIA H100 80GB HBM3"
    assert why(second["uuid"]) == why(second["utilization"]) == message
    assert known(second["error"]) == message
    assert isinstance(first["error"], Absent)


def test_control_characters_in_a_name_are_escaped(ask: Ask) -> None:
    (row,) = rows(ask(NAME="NVIDIA \x1b[31mA100\n"))
    assert known(row["name"]) == "NVIDIA \\x1b[31mA100\\n"


def test_no_gpu_at_all_is_knowledge(ask: Ask) -> None:
    facts = ask(GPUS="0")
    assert known(facts["gpu.count"]) == 0
    assert facts["gpu"] == Absent("NVML lists no GPU")


OLD = """\
Tue Mar  4 11:02:31 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:3B:00.0 Off |                    0 |
| N/A   31C    P0             70W /  700W |       1MiB /  81559MiB |      0%      Default |
|   1  NVIDIA GeForce RTX 3050 ...    Off |   00000000:5E:00.0 Off |                  N/A |
"""
NEW = (
    OLD.replace("Driver Version", "KMD Version")
    .replace("CUDA Version", "CUDA UMD Version")
    .replace("570.86.15", "610.43.02")
    .replace("12.8", "13.3")
)
HEADER = (
    "index, name, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB], mig.mode.current, compute_mode,"
    " ecc.errors.uncorrected.volatile.total, temperature.gpu, pcie.link.gen.current, pcie.link.gen.max,"
    " pcie.link.width.current, pcie.link.width.max, utilization.gpu [%]\n"
)
SECOND = (
    "1, NVIDIA GeForce RTX 3050 Laptop GPU, GPU-c7d2, 00000000:5E:00.0, 4096 MiB, 5 MiB, [N/A], Default, [N/A],"
    " [GPU is lost], 1, 4, 8, 16, 0 %\n"
)
CSV = (
    HEADER
    + "0, NVIDIA H100 80GB HBM3, GPU-a5b1, 00000000:3B:00.0, 81559 MiB, 1 MiB, Disabled, Default, 0, 31, 1, 5, 16, 16,"
    " 0 %\n" + SECOND
)


def printing(text: str, status: int = 0) -> str:
    return f"cat <<'END'\n{text}END\nexit {status}\n"


@pytest.mark.parametrize(
    ("banner", "driver", "cuda"), [(OLD, "570.86.15", "12.8"), (NEW, "610.43.02", "13.3")], ids=["to R595", "from R610"]
)
def test_nvidia_smi_answers_where_no_library_is_found(
    ask: Ask, tmp_path: Path, banner: str, driver: str, cuda: str
) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(CSV)}fi\n{printing(banner)}'
    facts = ask(smi=smi, where=tmp_path)
    assert known(facts["nvml.state"]) == "library not found"
    assert facts["driver.version"] == Known(driver, "nvidia-smi")
    assert facts["driver.cuda_version"] == Known(cuda, "nvidia-smi")
    assert known(facts["gpu.count"]) == 2
    first, second = rows(facts)
    assert known(first["memory_mib"]) == 81559
    assert known(first["address"]) == "0000:3b:00.0"
    assert known(first["mig"]) is False
    assert known(second["name"]) == "NVIDIA GeForce RTX 3050 Laptop GPU"
    assert isinstance(second["mig"], Absent)
    assert isinstance(second["temperature_c"], Unread)
    assert isinstance(second["remap_failed"], Unread)


def test_the_banners_own_table_serves_where_the_query_fails(ask: Ask, tmp_path: Path) -> None:
    facts = ask(smi=f'[ -n "$1" ] && exit 2\n{printing(NEW)}', where=tmp_path)
    first, second = rows(facts)
    assert known(first["name"]) == "NVIDIA H100 80GB HBM3"
    assert isinstance(second["name"], Unread), "a name that the table cuts short is not known"
    assert known(second["address"]) == "0000:5e:00.0"


@pytest.mark.parametrize(
    ("sentence", "state"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest",
            "driver not loaded",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.129",
            "version mismatch",
        ),
        ("Failed to initialize NVML: Unknown Error", "unknown error"),
        ("Failed to initialize NVML: Insufficient Permissions", "no permission"),
        ("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error", "unknown error"),
        ("Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system", "gpu is lost"),
    ],
)
def test_error_sentences_of_nvidia_smi_become_state_message_and_text(
    ask: Ask, tmp_path: Path, sentence: str, state: str
) -> None:
    facts = ask(smi=printing(sentence + "\n", status=9), where=tmp_path)
    assert facts["nvml.state"] == Known(state, "nvidia-smi")
    assert known(facts["nvml.message"]) == sentence.splitlines()[0]
    assert isinstance(facts["gpu"], Unread)
    lines = facts["text"]
    assert isinstance(lines, tuple)
    assert [known(row["line"]) for row in lines] == sentence.splitlines()


def test_nvidia_smi_is_heard_beside_an_nvml_that_fails(ask: Ask) -> None:
    sentence = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n"
    facts = ask("nvmlInitWithFlags=18", smi=printing(sentence, status=18))
    assert facts["nvml.state"] == Known("version mismatch", "NVML")
    assert facts["nvml.message"] == Known("Driver/library version mismatch", "NVML")
    lines = facts["text"]
    assert isinstance(lines, tuple)
    assert known(lines[1]["line"]) == "NVML library version: 570.133"


def test_rows_are_matched_by_index_where_nvidia_smi_leaves_a_gpu_out(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(HEADER + SECOND)}fi\n{printing(OLD)}'
    facts = ask("nvmlDeviceGetHandleByIndex_v2@0=15;nvmlDeviceGetUUID@1=999", smi=smi, GPUS="2")
    lost, alive = rows(facts)
    assert known(facts["gpu.count"]) == 2
    assert known(lost["error"]) == "GPU is lost"
    assert isinstance(lost["name"], Unread)
    assert known(alive["uuid"]) == "GPU-c7d2"


def test_no_devices_were_found_is_knowledge(ask: Ask, tmp_path: Path) -> None:
    facts = ask(smi=printing("No devices were found\n", status=6), where=tmp_path)
    assert known(facts["gpu.count"]) == 0
    assert isinstance(facts["gpu"], Absent)
    assert known(facts["nvml.state"]) == "library not found"


@pytest.mark.parametrize("noise", [printing("hello\n"), "head -c 4096 /dev/urandom\n", "exit 1\n", "exec sleep 60\n"])
def test_a_program_that_is_no_nvidia_smi_is_never_believed(ask: Ask, tmp_path: Path, noise: str) -> None:
    facts = ask(smi=noise, where=tmp_path)
    assert known(facts["nvml.state"]) == "library not found"
    assert isinstance(facts["gpu"], Unread)
    assert str(tmp_path / "nvidia-smi") in why(facts["gpu"])
    assert not isinstance(facts["driver.version"], Known)
    assert "text" not in facts


def test_nvidia_smi_completes_what_a_crash_cut_off(ask: Ask) -> None:
    smi = f'if [ -n "$1" ]; then\n{printing(CSV)}fi\n{printing(OLD)}'
    facts = ask("nvmlDeviceGetUUID@1=crash", smi=smi, GPUS="2")
    assert known(facts["nvml.state"]) == "crashed"
    first, second = rows(facts)
    assert first["utilization"] == Known(63, "NVML")
    assert second["uuid"] == Known("GPU-c7d2", "nvidia-smi")


def test_the_children_run_from_inside_a_zip_file(library: Path, tmp_path: Path) -> None:
    """One gpudoctor.pyz on a node without an installation: neither our files nor the binding's are files there."""
    package = Path(nvml.__file__).parent.parent
    archive = tmp_path / "gpudoctor.pyz"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in package.rglob("*.py"):
            zipped.write(path, f"gpudoctor/{path.relative_to(package)}")
        zipped.write(pynvml.__file__, "pynvml.py")
    code = (
        "from gpudoctor.probes import nvml, torch_live; from gpudoctor.target.local import Local;"
        "print(dict(nvml.probe(Local()))['nvml.state'].value, dict(torch_live.probe(Local()))['live.import_outcome'])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(archive), "LD_LIBRARY_PATH": str(library), "PATH": str(tmp_path)},
    )
    assert done.stdout.startswith("ok ")
    assert "could not" not in done.stdout


@pytest.mark.parametrize("child", sorted(Path(nvml.__file__).with_name("children").glob("*.py")), ids=lambda p: p.name)
def test_children_keep_to_the_syntax_of_python_38_and_never_bear_a_packages_name(child: Path) -> None:
    tree = ast.parse(child.read_text("utf-8"), feature_version=(3, 8))
    assert ast.get_docstring(tree)
    assert "_" in child.stem, "a bare word may be the name of a package that it would shadow"
