"""The simulated CUDA driver library is read by programs that were not written for it: NVIDIA's own.

``cuda-bindings`` (NVIDIA's Python binding of the driver API) reads the same values as our child, and the real CUDA
runtime library, which torch is linked to, gives the errors that users meet.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.probes import libcuda
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.test_probe_libcuda import section
from tests.sim import build

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
