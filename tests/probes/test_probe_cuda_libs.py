"""Copies of CUDA libraries, and which one is loaded: real libraries, held against the real loader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import cuda_libs
from gpudoctor.probes._loader import parse_cache
from gpudoctor.target.local import Local
from tests import needs
from tests.environments import Machine, Venv, column, compiled, ld_cache, rows, value
from tests.processes import finished

LIB64 = "/usr/lib/x86_64-linux-gnu"


class Stack:
    """A torch with wheels beside it on this machine, and another CUDA in a folder of its own."""

    def __init__(self, folder: Path, torch_tag: str, cudnn_tag: str) -> None:
        version = ".".join(map(str, sys.version_info[:3]))
        self.venv = Venv(Path("/"), version, prefix=f"{folder}/venv")
        Path(self.venv.python).unlink()
        Path(self.venv.python).symlink_to(os.path.realpath(sys.executable))
        self.torch = Path(self.venv.torch("2.5.1", "12.4"))
        self.other = folder / "other"
        nvidia = Path(self.venv.site) / "nvidia"
        cudnn_folders = {cudnn_tag: "$ORIGIN:$ORIGIN/../../cublas/lib"} if cudnn_tag else {}
        beside = "$ORIGIN:" + ":".join(
            f"$ORIGIN/../../nvidia/{part}/lib" for part in ("cudnn", "cuda_runtime", "cublas")
        )
        lt = compiled(nvidia / "cublas/lib/libcublasLt.so.12")
        cublas = compiled(nvidia / "cublas/lib/libcublas.so.12", [lt], runpath="$ORIGIN")
        cudart = compiled(nvidia / "cuda_runtime/lib/libcudart.so.12")
        cudnn = compiled(nvidia / "cudnn/lib/libcudnn.so.9", [cublas], **cudnn_folders)
        self.part = compiled(nvidia / "cudnn/lib/libcudnn_ops.so.9", [cublas])
        self.deps = compiled(self.torch / "lib/libtorch_global_deps.so", [cudart, cublas], **{torch_tag: beside})
        cuda = compiled(self.torch / "lib/libtorch_cuda.so", [cudart, cudnn, cublas], **{torch_tag: beside})
        self.module = compiled(self.torch / "lib/libtorch_python.so", [cuda], **{torch_tag: beside})

    def loaded_really(self, library_path: str) -> dict[str, str]:
        """What this machine's loader does with the same steps, from the process's own map."""
        code = (
            "import ctypes, json, sys\n"
            "for path in sys.argv[1:]: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)\n"
            "print(json.dumps(sorted({line.split()[-1] for line in open('/proc/self/maps') if '/lib' in line})))"
        )
        argv = [os.path.realpath(sys.executable), "-c", code, str(self.deps), str(self.module)]
        done = finished(argv, env={**os.environ, "LD_LIBRARY_PATH": library_path})
        paths = [path for path in done.document if "/libcu" in path]
        return {path.rpartition("/")[2]: path for path in paths}


@pytest.mark.parametrize(
    ("torch_tag", "cudnn_tag"), [("rpath", "rpath"), ("rpath", "runpath"), ("runpath", "runpath"), ("runpath", "")]
)
@pytest.mark.parametrize("others", [(), ("libcudnn.so.9",), ("libcublasLt.so.12", "libcudart.so.12")])
def test_the_copy_chosen_is_the_one_the_loader_takes(
    tmp_path: Path, torch_tag: str, cudnn_tag: str, others: tuple[str, ...]
) -> None:
    stack = Stack(tmp_path.resolve(), torch_tag, cudnn_tag)
    for name in others:
        compiled(stack.other / name)
    library_path = f"/nowhere:{stack.other}"
    facts = stack.venv.asked(cuda_libs, LD_LIBRARY_PATH=library_path)
    really = stack.loaded_really(library_path)
    chosen = {
        str(path).rpartition("/")[2]: path
        for path, took in zip(column(facts, "lib", "path"), column(facts, "lib", "chosen"), strict=True)
        if took and "libcuda.so" not in str(path)
    }
    assert chosen == really
    assert set(really) >= {"libcudart.so.12", "libcublas.so.12", "libcudnn.so.9"}
    shadowed = sorted(path for path in really.values() if str(stack.other) in path)
    assert sorted(line.partition(" instead of ")[0] for line in value(facts, "libs.shadowing")) == shadowed  # type: ignore[attr-defined]


def test_an_interpreter_named_relatively_lacks_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Stack(tmp_path.resolve(), "runpath", "runpath")
    monkeypatch.chdir(tmp_path)
    facts = dict(cuda_libs.probe(Local("quick", "venv/bin/python")))
    assert value(facts, "libs.missing") == ()


def test_a_part_of_cudnn_from_another_folder_is_shadowing_and_a_library_found_nowhere_is_missing(
    tmp_path: Path,
) -> None:
    stack = Stack(tmp_path.resolve(), "rpath", "runpath")
    other = compiled(stack.other / "libcudnn_ops.so.9")
    facts = stack.venv.asked(cuda_libs, LD_LIBRARY_PATH=str(stack.other))
    assert value(facts, "libs.shadowing") == (f"{other} instead of {stack.part}",)
    stack = Stack((tmp_path / "nowhere").resolve(), "rpath", "")
    (Path(stack.venv.site) / "nvidia/cudnn/lib/libcudnn.so.9").unlink()
    assert value(stack.venv.asked(cuda_libs), "libs.missing") == ("libcudnn.so.9, which libtorch_cuda.so needs",)


def nvjitlink(venv: Venv, folder: Path, version: str) -> Path:
    """A libnvJitLink of one release: each names its functions after itself."""
    return compiled(folder / "libnvJitLink.so.12", source=f"void __nvJitLinkAddData_{version}(void) {{}}\n")


def test_an_older_library_in_front_lacks_what_its_caller_wants(tmp_path: Path) -> None:
    stack = Stack(tmp_path.resolve(), "runpath", "")
    own = nvjitlink(stack.venv, Path(stack.venv.site) / "nvidia/nvjitlink/lib", "12_4")
    calls = "void __nvJitLinkAddData_12_4(void);\nvoid use(void) { __nvJitLinkAddData_12_4(); }\n"
    folder = "$ORIGIN/../../nvjitlink/lib"
    cusparse = compiled(own.parents[2] / "cusparse/lib/libcusparse.so.12", [own], runpath=folder, source=calls)
    beside = "$ORIGIN/../../nvidia/cusparse/lib:$ORIGIN/../../nvidia/nvjitlink/lib"
    compiled(stack.torch / "lib/libtorch_cuda.so", [cusparse], runpath=beside)
    assert value(stack.venv.asked(cuda_libs), "libs.clashes") == ()
    other = nvjitlink(stack.venv, stack.other, "12_1")
    facts = stack.venv.asked(cuda_libs, LD_LIBRARY_PATH=str(stack.other))
    assert value(facts, "libs.shadowing") == (f"{other} instead of {own}",)
    assert value(facts, "libs.clashes") == (
        f"libcusparse.so.12 wants __nvJitLinkAddData_12_4, which {other} does not define",
    )


def test_a_wheel_of_another_release_lacks_what_torch_wants(tmp_path: Path) -> None:
    stack = Stack(tmp_path.resolve(), "rpath", "")
    folder = Path(stack.venv.site) / "nvidia/nccl/lib"
    nccl = compiled(
        folder / "libnccl.so.2", source="void ncclAllReduce(void) {}\nvoid ncclCommWindowRegister(void) {}\n"
    )
    calls = "void ncclAllReduce(void);\nvoid ncclCommWindowRegister(void);\n"
    source = calls + "void use(void) { ncclAllReduce(); ncclCommWindowRegister(); }\n"
    compiled(stack.torch / "lib/libtorch_cuda.so", [nccl], rpath="$ORIGIN/../../nvidia/nccl/lib", source=source)
    compiled(folder / "libnccl.so.2", source="void ncclAllReduce(void) {}\n")
    stack.venv.dist("nvidia-nccl-cu12", "2.21.5")
    stack.venv.dist("torch", "2.5.1", ("nvidia-nccl-cu12==2.27.3",))
    assert value(stack.venv.asked(cuda_libs), "libs.clashes") == (
        f"libtorch_cuda.so wants ncclCommWindowRegister, which {nccl} does not define",
    )


def test_torch_preloads_from_the_wheels_what_its_rpath_does_not_reach(tmp_path: Path) -> None:
    stack = Stack(tmp_path.resolve(), "rpath", "")
    for library, needed in (("libtorch_global_deps.so", "libcudart.so.12"), ("libtorch_cuda.so", "libcudnn.so.9")):
        found = next(Path(stack.venv.site).glob(f"nvidia/*/lib/{needed}"))
        compiled(stack.torch / "lib" / library, [found])
    stack.venv.write(
        str(stack.torch / "__init__.py"),
        'cuda_libs = {\n    "cublas": "libcublas.so.*[0-9]",\n    "cudnn": "libcudnn.so.*[0-9]",\n'
        '    "cuda_runtime": "libcudart.so.*[0-9]",\n}\n',
    )
    facts = stack.venv.asked(cuda_libs)
    whys = dict(zip(column(facts, "lib", "path"), column(facts, "lib", "why"), strict=True))
    assert value(facts, "libs.missing") == ()
    assert whys[f"{stack.venv.site}/nvidia/cuda_runtime/lib/libcudart.so.12"] == "preloaded by torch/__init__.py"


@pytest.mark.parametrize(
    ("path", "real", "kind", "version"),
    [
        (f"{LIB64}/libcuda.so.1", "libcuda.so.570.124.06", "driver", "570.124.06"),
        ("/usr/local/cuda/compat/libcuda.so.1", "libcuda.so.575.57.08", "compat", "575.57.08"),
        ("/usr/local/cuda/lib64/stubs/libcuda.so.1", "libcuda.so", "stub", None),
        ("/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so.1.1", "wsl", None),
    ],
)
def test_what_kind_of_libcuda(tmp_path: Path, path: str, real: str, kind: str, version: str | None) -> None:
    machine = Machine(tmp_path)
    folder = path.rpartition("/")[0]
    compiled(machine.at(f"{folder}/{real}"), soname="libcuda.so.1")
    machine.link(path, real)
    machine.write("/etc/ld.so.cache", ld_cache([(0x0303, "libcuda.so.1", path)]))
    facts = dict(cuda_libs.probe(machine.target(None)))
    assert facts["libs.libcuda"] == Known(path, "ld.so.cache")
    assert value(facts, "libs.libcuda_kind") == kind
    assert value(facts, "libs.compat_on_path") is (kind == "compat")
    if version:
        assert value(facts, "libs.libcuda_version") == version
    else:
        assert isinstance(facts["libs.libcuda_version"], Unread)


def test_a_stub_in_ld_library_path_comes_before_the_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    stub = "/usr/local/cuda-12.4/lib64/stubs"
    compiled(machine.at(f"{stub}/libcuda.so"), soname="libcuda.so.1")
    compiled(machine.at(f"{LIB64}/libcuda.so.550.54.14"), soname="libcuda.so.1")
    machine.link(f"{LIB64}/libcuda.so.1", "libcuda.so.550.54.14")
    facts = dict(cuda_libs.probe(machine.target(None, LD_LIBRARY_PATH=stub)))
    assert value(facts, "libs.libcuda_kind") == "driver"  # the stub has no alias libcuda.so.1: nobody asks for it
    machine.link(f"{stub}/libcuda.so.1", "libcuda.so")
    facts = dict(cuda_libs.probe(machine.target(None, LD_LIBRARY_PATH=stub)))
    assert value(facts, "libs.libcuda_kind") == "stub"
    whys = dict(zip(column(facts, "lib", "path"), column(facts, "lib", "why"), strict=True))
    assert whys[f"{LIB64}/libcuda.so.1"] == f"{stub}/libcuda.so.1 comes first (LD_LIBRARY_PATH entry 1)"


def test_no_libcuda_is_known_only_where_the_cache_could_be_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert isinstance(dict(cuda_libs.probe(machine.target(None)))["libs.libcuda"], Absent)
    machine.write("/etc/ld.so.cache", b"something else")
    fact = dict(cuda_libs.probe(machine.target(None)))["libs.libcuda"]
    assert fact == Unread("/etc/ld.so.cache: not a cache that glibc 2.x writes")


def test_each_real_file_is_one_copy_with_its_version(tmp_path: Path) -> None:
    venv = Venv(tmp_path)
    home = "/usr/local/cuda-12.4/targets/x86_64-linux/lib"
    venv.write(f"{home}/libcublas.so.12.4.5.8", b"toolkit")
    for alias in ("libcublas.so.12", "libcublas.so"):
        venv.link(f"{home}/{alias}", "libcublas.so.12.4.5.8")
    venv.link("/usr/local/cuda-12.4/lib64", "targets/x86_64-linux/lib")
    venv.link("/usr/local/cuda", "cuda-12.4")
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70", files={"nvidia/cudnn/lib/libcudnn.so.9": b"wheel"})
    venv.write(f"{LIB64}/libcudnn.so.8.9.7", b"system")
    venv.link(f"{LIB64}/libcudnn.so.8", "libcudnn.so.8.9.7")
    facts = venv.asked(cuda_libs)
    found = zip(*(column(facts, "lib", name) for name in ("path", "version", "origin")), strict=True)
    assert sorted(found, key=str) == [
        (f"{LIB64}/libcudnn.so.8", "8.9.7", "system"),
        ("/usr/local/cuda/lib64/libcublas.so.12", "12.4.5.8", "toolkit"),
        (f"{venv.site}/nvidia/cudnn/lib/libcudnn.so.9", "9.1.0.70", "wheel"),
    ]
    assert all(isinstance(row["chosen"], Absent) for row in rows(facts, "lib"))  # no torch that could choose


@pytest.mark.parametrize("old", [False, True], ids=["new format", "old format before it"])
def test_the_cache_gives_the_first_64_bit_entry(old: bool) -> None:
    raw = ld_cache(
        [
            (0x0003, "libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1"),
            (0x0303, "libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"),
            (0x0303, "libcuda.so.1", f"{LIB64}/libcuda.so.1"),
        ],
        old,
    )
    assert parse_cache(raw) == {"libcuda.so.1": "/usr/local/cuda/compat/libcuda.so.1"}
    with pytest.raises(ValueError, match="cut short"):
        parse_cache(raw[:-8])


def test_this_machines_cache_is_what_ldconfig_prints() -> None:
    cache = Path("/etc/ld.so.cache")
    if not cache.exists():
        needs.missing("an ld.so.cache")
    ldconfig = next((str(path) for path in Path("/").glob("*bin/ldconfig")), None) or needs.program("ldconfig")
    printed = subprocess.run([ldconfig, "-p"], check=True, capture_output=True, text=True).stdout
    theirs: dict[str, str] = {}
    for line in printed.splitlines():
        name, arrow, path = line.partition(" => ")
        if arrow and ("x86-64" in name or "AArch64" in name) and "hwcap" not in name:
            theirs.setdefault(name.split()[0], path.strip())
    assert parse_cache(cache.read_bytes()) == theirs
