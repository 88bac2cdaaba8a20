"""Why compiling failed, from what Triton and inductor really say; what JAX and TensorFlow see, and what is told."""

import getpass
import os

import pytest

from gpudoctor.kernels.child import _framework, compiled
from gpudoctor.kernels.child._kernel import Broken, CannotRun
from gpudoctor.kernels.child.compiled import Machine, caches

SOUND = Machine(headers=True, python="3.11", cache="/tmp/gpudoctor-x/triton")
CC = (
    "CalledProcessError: Command '['/usr/bin/gcc', '/tmp/t/main.c', '-O3', '-shared', '-fPIC', '-o', "
    "'/tmp/t/cuda_utils.cpython-311-x86_64-linux-gnu.so', '-l:libcuda.so.1']' returned non-zero exit status 1."
)
PTXAS = "CalledProcessError: Command '['/opt/ptxas', '--version']' returned non-zero exit status 127."
OLD_PTXAS = (
    "PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
    "ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'\n\nRepro command: /x/ptxas -v x.ptx\n" + CC
)
LDCONFIG = "FileNotFoundError: [Errno 2] No such file or directory: '/sbin/ldconfig'"


@pytest.mark.parametrize(
    ("text", "what", "advice"),
    [
        ("RuntimeError: Failed to find C compiler. Please specify via CC", "there is no C compiler", "install gcc"),
        ("InvalidCxxCompiler: No working C++ compiler found in", "there is no C++ compiler", "install g++"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/x/gcc-9'", "CC names /x/gcc-9, which", "unset CC"),
        (CC, "/usr/bin/gcc, with which Triton builds its launcher, ended with status 1", "CC names another"),
        (PTXAS, "/opt/ptxas, which Triton runs, ended with status 127", "/opt/ptxas --version"),
        (LDCONFIG, "Triton looks for libcuda.so.1 with /sbin/ldconfig", "TRITON_LIBCUDA_PATH"),
        ("AssertionError: libcuda.so cannot found!\nPlease", "Triton does not find libcuda.so.1", "run ldconfig"),
        ("RuntimeError: Cannot find ptxas-blackwell", "assembler ptxas-blackwell is missing", "reinstall triton"),
        ("PermissionError: [Errno 13] Permission denied: '/v/bin/ptxas'", "/v/bin/ptxas is missing or", "TRI"),
        (OLD_PTXAS, "ptxas is too old for this GPU: it does not know sm_103a", "TRITON_PTXAS_BLACKWELL_PATH"),
        ("ptxas x.ptx, line 5; fatal : Unsupported .version 9.0; current", "older than the PTX 9.0", "TRITON_PTXAS"),
        ("'sm_121a' is not a recognized processor for this target", "does not know sm_121a", "newest Triton"),
        ("ImportError: /c/x.so: failed to map segment from shared object", "mounted noexec", "TRITON_CACHE_DIR"),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", "cannot be kept in /tmp/gpudoctor-x", "with room"),
        ("PermissionError: [Errno 13] Permission denied: ''", "CC or CXX is set, and to nothing", "unset it"),
        ("RuntimeError: Cannot find a working triton installation.", "none that works", "that belongs to this torch"),
        ("RuntimeError: 0 active drivers ([]). There should only be one.", "Triton sees no GPU", "libcuda.so.1"),
        ("version `GLIBC_2.38' not found (required by /v/libtriton.so)", "libtriton.so needs GLIBC_2.38", "for this"),
    ],
)
def test_each_cause_is_told_with_its_remedy(text: str, what: str, advice: str) -> None:
    found = compiled.known_cause(text, SOUND)
    assert found
    assert what in found[0]
    assert advice in found[1]


def test_causes_are_found_behind_what_wraps_them_and_the_unknown_stays_as_it_is() -> None:
    error = ValueError("something else")
    assert compiled.known_cause("ValueError: something else", SOUND) is None
    assert compiled.classify_error(error, on_cpu=False) is error
    try:
        try:
            raise RuntimeError("Failed to find C compiler.")
        except RuntimeError as inner:
            raise ValueError("backend='inductor' raised") from inner
    except ValueError as outer:
        told = compiled.classify_error(outer, on_cpu=False)
    assert isinstance(told, Broken)
    assert told.advice.startswith("install gcc")
    found = compiled.known_cause(CC, SOUND._replace(headers=False))
    assert found == (
        "Python.h is missing: Triton builds its launcher as an extension of Python 3.11",
        "install python3.11-dev (Debian, Ubuntu) or python3.11-devel (Fedora, RHEL)",
    )


@pytest.mark.parametrize(
    ("text", "on_cpu"),
    [
        ("InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')", True),
        ("InductorError: RuntimeError: Compiler: cl is not found.", True),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that", True),
        ("OutOfResources: out of resource: shared memory, Required: 98304, Hardware limit: 65536.", False),
        ("GPUTooOldForTriton: Found Tesla P4 which is too old to be supported by the triton GPU compiler", False),
    ],
)
def test_what_says_nothing_against_the_gpu_is_no_failure(text: str, on_cpu: bool) -> None:
    assert isinstance(compiled.classify_error(RuntimeError(text), on_cpu), CannotRun)


def test_caches_are_where_triton_and_inductor_put_them() -> None:
    given = {"TRITON_HOME": "/scratch", "TORCHINDUCTOR_CACHE_DIR": "/fast/inductor"}
    assert caches.folders(given) == {
        "TRITON_CACHE_DIR": "/scratch/.triton/cache",
        "TORCHINDUCTOR_CACHE_DIR": "/fast/inductor",
    }
    assert caches.folders({})["TORCHINDUCTOR_CACHE_DIR"].endswith(f"/torchinductor_{getpass.getuser()}")
    assert caches.folders({"TRITON_CACHE_DIR": "/x"})["TRITON_CACHE_DIR"] == "/x"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"writable": False}, "/home may not be written to"),
        ({"noexec": True}, "/home is on a file system mounted noexec: no library can be loaded from there"),
        ({"free": 3 << 20}, "/home has 3 MiB left"),
    ],
)
def test_a_cache_that_is_of_no_use_is_told(change: dict[str, object], words: str) -> None:
    place = caches.Place("/home/u/.triton/cache", "TRITON_CACHE_DIR", "/home", True, False, 1 << 40)
    assert caches.troubles(place) == []
    assert caches.troubles(place._replace(**change)) == [  # type: ignore[arg-type]
        f"compiled kernels cannot be kept in /home/u/.triton/cache: {words}"
    ]


@pytest.mark.parametrize(
    ("device", "before", "after", "is_gpu"),
    [
        ("cuda:2", None, "2", True),
        ("cuda:1", "GPU-aa,GPU-bb", "GPU-bb", True),
        ("cuda:0", "3, 1", "3", True),
        ("cpu", "0,1", "", False),
    ],
)
def test_only_the_device_itself_is_seen(
    monkeypatch: pytest.MonkeyPatch, device: str, before: str | None, after: str, is_gpu: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is put back, whatever it was
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    assert _framework.restrict_visible_devices(device) is is_gpu
    assert os.environ["CUDA_VISIBLE_DEVICES"].strip() == after


def test_what_is_written_meanwhile_is_kept_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with _framework.captured_stderr() as heard:
        os.write(2, b"W gpu_device.cc:1] Cannot dlopen some GPU libraries\n")
    os.write(2, b"and after\n")
    assert heard == ["W gpu_device.cc:1] Cannot dlopen some GPU libraries"]
    assert capfd.readouterr().err == "W gpu_device.cc:1] Cannot dlopen some GPU libraries\nand after\n"


def test_warnings_are_what_is_said_of_gpus() -> None:
    skipping = "gpu_device.cc:2344] Cannot dlopen some GPU libraries. Skipping registering GPU devices..."
    lines = [
        "2026-11-22 00:10:11.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is optimized",
        "I0000 00:00:1732233.0 4242 gpu_device.cc:2020] Created device /device:GPU:0 with 76000 MB memory",
        f"W0000 00:00:1732233.1 4242 {skipping}",
        f"W0000 00:00:1732233.2 4242 {skipping}",
        "WARNING:jax._src.xla_bridge: An NVIDIA GPU may be present on this machine",
    ]
    assert _framework.warnings(lines) == (
        "Cannot dlopen some GPU libraries. Skipping registering GPU devices... "
        "WARNING:jax._src.xla_bridge: An NVIDIA GPU may be present on this machine"
    )
    assert _framework.warnings(["nothing of note"]) == ""
