"""The simulated libraries are faithful, to gpustat, NVIDIA's own binding and runtime, in their words and functions."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.probes import libcuda
from gpudoctor.target import error_words
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.test_probe_libcuda import section
from tests.sim import build, clients, words


def test_gpustat_reads_the_scenario(tmp_path: Path) -> None:
    """Two GPUs at work, no two alike."""
    nvml = clients.hgx()
    for index, gpu in enumerate(nvml["gpus"]):
        gpu["nvmlDeviceGetUtilizationRates"] = {"gpu": 90 + index, "memory": 40 + index}
        gpu["nvmlDeviceGetTemperature(0)"] = 61 + index
        gpu["nvmlDeviceGetPowerUsage"] = 512_000 + 1000 * index
        memory = nvml["every"]["nvmlDeviceGetMemoryInfo"]
        used = (index + 1) << 34
        free = memory["total"] - memory["reserved"] - used
        gpu["nvmlDeviceGetMemoryInfo"] = {**memory, "used": used, "free": free}
    nvml["gpus"][1]["nvmlDeviceGetComputeRunningProcesses"] = [{"pid": os.getpid(), "usedGpuMemory": 3 << 30}]
    told = gpustat(nvml, tmp_path)
    assert told["driver_version"] == "580.95.05"
    for index, (got, own) in enumerate(zip(told["gpus"], nvml["gpus"], strict=True)):
        assert got["name"] == "NVIDIA H100 80GB HBM3"
        assert got["uuid"] == own["nvmlDeviceGetUUID"]
        assert got["temperature.gpu"] == 61 + index
        assert got["fan.speed"] is None, "an SXM board has no fan to ask about"
        assert got["utilization.gpu"] == 90 + index
        assert (got["power.draw"], got["enforced.power.limit"]) == (512 + index, 700)
        assert (got["memory.used"], got["memory.total"]) == ((index + 1) << 14, 81559)
    assert told["gpus"][0]["processes"] == []
    assert [(each["pid"], each["gpu_memory_usage"]) for each in told["gpus"][1]["processes"]] == [(os.getpid(), 3072)]


def test_gpustat_sees_a_lost_gpu_as_lost(tmp_path: Path) -> None:
    told = gpustat(clients.hgx(faults=[{"call": "*", "gpu": 1, "do": 15}]), tmp_path)["gpus"]
    assert [one["name"] for one in told] == ["NVIDIA H100 80GB HBM3", "((GPU is lost))"]


def gpustat(nvml: dict[str, Any], folder: Path) -> Any:
    return json.loads(clients.run(["-m", "gpustat", "--json"], clients.environ(folder, nvml)).stdout)


BINDING = """
import json
from cuda.bindings import driver
init, = driver.cuInit(0)
out = {"init": int(init), "version": driver.cuDriverGetVersion()[1]}
out["name"] = driver.cuGetErrorName(init)[1].decode()
out["words"] = driver.cuGetErrorString(init)[1].decode()
def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1]
if out["init"] == 0:
    kinds = driver.CUdevice_attribute
    out["devices"] = []
    for index in range(ok(driver.cuDeviceGetCount())):
        device = ok(driver.cuDeviceGet(index))
        out["devices"].append({
            "name": ok(driver.cuDeviceGetName(128, device)).split(b"\\0")[0].decode(),
            "memory": ok(driver.cuDeviceTotalMem(device)),
            "uuid": ok(driver.cuDeviceGetUuid(device)).bytes.hex(),
            "address": ok(driver.cuDeviceGetPCIBusId(64, device)).split(b"\\0")[0].decode(),
            "sms": ok(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)),
            "l2": ok(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device)),
            "rdma": ok(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device)),
            "peers": [other for other in range(ok(driver.cuDeviceGetCount()))
                      if ok(driver.cuDeviceCanAccessPeer(device, ok(driver.cuDeviceGet(other))))],
        })
    first = ok(driver.cuDeviceGet(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(first))
    assert int(driver.cuCtxSetCurrent(context)[0]) == 0
    assert driver.cuMemGetInfo() == (0, out["devices"][0]["memory"], out["devices"][0]["memory"])
    place = ok(driver.cuMemAlloc(4096))
    assert int(driver.cuMemFree(place)[0]) == 0
    assert int(driver.cuDevicePrimaryCtxRelease(first)[0]) == 0
    assert int(driver.cuDevicePrimaryCtxRelease(first)[0]) == 201
    assert int(driver.cuDeviceGet(99)[0]) == 101
print(json.dumps(out))
"""

RUNTIME = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.cudaGetErrorString.restype = library.cudaGetErrorName.restype = ctypes.c_char_p
count, driver = ctypes.c_int(-1), ctypes.c_int(-1)
code = library.cudaGetDeviceCount(ctypes.byref(count))
library.cudaDriverGetVersion(ctypes.byref(driver))
print(json.dumps({"code": code, "words": library.cudaGetErrorString(code).decode(), "driver": driver.value}))
"""


def run(script: str, folder: Path, answers: dict[str, Any] | None, tmp_path: Path, *words: str, **more: str) -> Any:
    """What the script prints as JSON, where the loader finds `folder`'s libcuda."""
    build.write_answers(None, answers or {}, tmp_path / "answers")
    environ = {
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(folder),
        "GPUDOCTOR_SIM_ANSWERS": str(tmp_path / "answers"),
        **more,
    }
    argv = [sys.executable, "-c", script, *words]
    done = subprocess.run(argv, env=environ, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def runtime() -> str:
    """The real libcudart.so of the wheel nvidia-cuda-runtime."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations or () if spec else ()
    found = [path for folder in folders for path in sorted(Path(folder).glob("cu*/lib/libcudart.so.*"))]
    return str(found[0]) if found else needs.missing("libcudart.so of the package nvidia-cuda-runtime")


@pytest.fixture(scope="module")
def binding() -> str:
    if not importlib.util.find_spec("cuda") or not importlib.util.find_spec("cuda.bindings"):
        needs.missing("the package cuda-bindings")
    return BINDING


def test_the_binding_reads_what_the_probe_reads(binding: str, tmp_path: Path) -> None:
    answers = section(4)
    answers["gpus"][2]["cuDeviceCanAccessPeer(1)"] = 0
    told = run(binding, build.libraries(), answers, tmp_path)
    assert told["init"] == 0
    assert told["version"] == 13000
    environ = {"LD_LIBRARY_PATH": str(build.libraries()), "GPUDOCTOR_SIM_ANSWERS": str(tmp_path / "answers")}
    facts = dict(libcuda.probe(Local(python=sys.executable, environ=environ)))
    rows = facts["cuda_device"]
    assert isinstance(rows, tuple)
    ours = [{name: state.value for name, state in row.items() if isinstance(state, Known)} for row in rows]
    assert [one["name"] for one in ours] == [one["name"] for one in told["devices"]]
    assert [one["memory_mib"] for one in ours] == [one["memory"] >> 20 for one in told["devices"]]
    assert [str(one["uuid"]).replace("-", "") for one in ours] == ["GPU" + one["uuid"] for one in told["devices"]]
    assert [one["address"] for one in ours] == [one["address"].lower() for one in told["devices"]]
    assert [one["sms"] for one in ours] == [one["sms"] for one in told["devices"]]
    assert [one["l2_kib"] for one in ours] == [one["l2"] >> 10 for one in told["devices"]]
    assert [one["gpudirect_rdma"] for one in ours] == [bool(one["rdma"]) for one in told["devices"]]
    assert [one["peers"] for one in ours] == [tuple(one["peers"]) for one in told["devices"]]
    assert told["devices"][2]["peers"] == [0, 3]


def test_the_binding_obeys_the_mask(binding: str, tmp_path: Path) -> None:
    def addresses(mask: str) -> list[str]:
        told = run(binding, build.libraries(), section(4), tmp_path, CUDA_VISIBLE_DEVICES=mask)
        return [one["address"][5:7] for one in told.get("devices", ())] if told["init"] == 0 else [str(told["init"])]

    assert addresses("3,0") == ["1D", "1A"]
    assert addresses("1,9,0") == ["1B"]
    assert addresses("GPU-a1b2c3d4-0000-1111-2222-000000000002") == ["1C"]
    assert addresses("GPU-a1b2c3d4") == ["100"], "the head of four UUIDs names none"
    assert addresses("2,2") == ["100"]
    assert addresses("") == ["100"]
    assert addresses("-1") == ["100"]


def test_the_mask_names_a_mig_device_by_its_own_id(binding: str, tmp_path: Path) -> None:
    answers = section(1)
    answers["gpus"][0]["cuDeviceGetName"] = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    uuid = "a1b2c3d4-0000-1111-2222-000000000000"
    inits = [
        run(binding, build.libraries(), answers, tmp_path, CUDA_VISIBLE_DEVICES=f"{kind}-{uuid}")["init"]
        for kind in ("MIG", "GPU")
    ]
    assert inits == [0, 100]


def test_the_runtime_cannot_tell_a_missing_library_from_an_old_driver_and_the_probe_can(
    runtime: str, tmp_path: Path
) -> None:
    """Error 35 both times: this is why the probe asks for itself."""
    (tmp_path / "empty").mkdir()
    missing = run(RUNTIME, tmp_path / "empty", None, tmp_path, runtime)
    old = run(RUNTIME, build.libraries(), section(cuDriverGetVersion=11040), tmp_path, runtime)
    assert (missing["code"], missing["words"]) == (old["code"], old["words"])
    assert missing["code"] == 35
    states = []
    for folder in (tmp_path / "empty", build.libraries()):
        environ = {"LD_LIBRARY_PATH": str(folder), "GPUDOCTOR_SIM_ANSWERS": str(tmp_path / "answers")}
        facts = dict(libcuda.probe(Local("quick", sys.executable, environ=environ)))
        states.append((facts["cuda_driver.state"], facts["cuda_driver.version"]))
    (no_library, _), (loaded, version) = states
    assert isinstance(no_library, Known)
    assert no_library.value == "library not found"
    assert isinstance(loaded, Known)
    assert loaded.value == "loaded"
    assert isinstance(version, Known)
    assert version.value == "11.4"


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
    told = {each.communicate(timeout=600)[0].strip() for each in both}
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


def test_the_table_is_what_the_real_libraries_say() -> None:
    needs.nvidia_driver()
    done = clients.run(["-m", "tests.sim.words"], {"PYTHONPATH": str(needs.REPOSITORY)})
    assert done.returncode == 0, done.stderr
    assert words.undated(done.stdout) == words.undated(words.TABLE.read_text("utf-8")), (
        "write it anew: python -m tests.sim.words --write"
    )


def test_the_programs_table_of_codes_lacks_none() -> None:
    withdrawn = 202  # CUDA_ERROR_CONTEXT_ALREADY_CURRENT, which the runtime no longer has
    rows = table("codes")
    assert set(error_words.NVML) <= {row["code"] for row in rows["nvml"]}
    assert set(error_words.CUDA) - {withdrawn} <= {row["code"] for row in rows["cuda"]}
