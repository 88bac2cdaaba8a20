"""Toolkits found in trees on disk, compilers asked as real programs."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.probes import cuda_toolkit
from gpudoctor.target import Answer
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.nvml_machine import known, rows
from tests.probes.trees import Tree

Facts = dict[str, "Fact | Rows"]


def ask(root: Path, python: str | None = None, **environ: str) -> Facts:
    """The probe on a tree, with nothing on PATH that the test did not put there."""
    target = Local(root=str(root), environ={"PATH": "", **environ})
    target.__dict__["python"] = python
    return dict(cuda_toolkit.probe(target))


def toolkits(facts: Mapping[str, Fact | Rows]) -> dict[object, object]:
    return {known(row["path"]): known(row["version"]) for row in rows(facts, "toolkit")}


def row(facts: Mapping[str, Fact | Rows], path: str) -> Row:
    return next(row for row in rows(facts, "toolkit") if known(row["path"]) == path)


def test_every_place_and_every_way_to_tell_the_release(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/usr/local/cuda-12.4/version.json", json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}))
    tree.file("/usr/local/cuda-12.4/bin/nvcc")
    tree.file("/usr/local/cuda-12.10/version.json", json.dumps({"cuda_nvcc": {"version": "12.10.131"}}))
    tree.file("/usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\nCUDA Patch Version 10.2.1\n")
    tree.file("/usr/local/cuda-11.8/bin/ptxas")
    tree.link("/usr/local/cuda", "/usr/local/cuda-12.4")
    tree.file("/opt/cuda/targets/x86_64-linux/include/cuda.h", "#define CUDA_VERSION 13010\n")
    tree.file("/opt/cuda/bin/nvcc")
    tree.file("/opt/nvidia/hpc_sdk/Linux_x86_64/24.3/cuda/12.3/bin/nvcc")
    tree.file("/opt/nvidia/hpc_sdk/Linux_x86_64/24.3/cuda/12.3/version.json", '{"cuda": {"version": "12.3.2"}}')
    tree.file("/venv/lib/python3.12/site-packages/nvidia/cu13/bin/nvcc")
    tree.file(
        "/venv/lib/python3.12/site-packages/nvidia/cu13/include/cuda_runtime_api.h", "#define CUDART_VERSION  13000\n"
    )
    tree.file("/usr/local/cuda-leftover/lib64/libcudart.so.11.0")
    facts = ask(tmp_path, python="/venv/bin/python")
    assert toolkits(facts) == {
        "/usr/local/cuda-12.4": "12.4",
        "/usr/local/cuda-12.10": "12.10",
        "/usr/local/cuda-10.2": "10.2",
        "/usr/local/cuda-11.8": "11.8",
        "/opt/cuda": "13.1",
        "/opt/nvidia/hpc_sdk/Linux_x86_64/24.3/cuda/12.3": "12.3",
        "/venv/lib/python3.12/site-packages/nvidia/cu13": "13.0",
    }
    assert known(row(facts, "/usr/local/cuda-12.4")["nvcc"]) is True
    assert known(row(facts, "/usr/local/cuda-11.8")["nvcc"]) is False
    assert facts["cuda.toolkit_version"] == Known("12.4", "/usr/local/cuda-12.4/version.json")


def test_a_machine_without_any_says_so(tmp_path: Path) -> None:
    facts = ask(tmp_path)
    for name in ("toolkit", "cuda.home", "cuda.home_has_nvcc", "cuda.nvcc", "cuda.toolkit_version", "cuda.ptxas"):
        assert isinstance(facts[name], Absent), name
    assert isinstance(facts["cuda.host_compiler"], Absent)


def test_cuda_home_wins_and_may_be_broken(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/usr/local/cuda/version.json", '{"cuda": {"version": "12.4.1"}}')
    tree.file("/data/cuda-11.7/include/cuda.h", "#define CUDA_VERSION 11070\n")
    facts = ask(tmp_path, CUDA_HOME="/data/cuda-11.7/")
    assert facts["cuda.home"] == Known("/data/cuda-11.7/", "CUDA_HOME")
    assert known(facts["cuda.home_has_nvcc"]) is False
    assert known(facts["cuda.toolkit_version"]) == "11.7"
    assert toolkits(facts) == {"/usr/local/cuda": "12.4", "/data/cuda-11.7": "11.7"}
    gone = ask(tmp_path, CUDA_PATH="/data/cuda-12.9")
    assert gone["cuda.toolkit_version"] == Absent("CUDA_PATH=/data/cuda-12.9, which is not there")
    assert known(gone["cuda.home_has_nvcc"]) is False


def test_damaged_version_files_fall_through_to_the_next_witness(tmp_path: Path) -> None:
    tree = Tree(tmp_path).file("/usr/local/cuda-12.6/version.json", "{ broken")
    tree.file("/usr/local/cuda-12.6/include/cuda.h", "#define CUDA_VERSION 12060\n")
    tree.file("/usr/local/cuda/version.json", "[]")
    facts = ask(tmp_path)
    assert isinstance(row(facts, "/usr/local/cuda")["version"], Unread)
    assert known(row(facts, "/usr/local/cuda-12.6")["version"]) == "12.6"


NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2024 NVIDIA Corporation
Built on Thu_Mar_28_02:18:24_PDT_2024
Cuda compilation tools, release 12.4, V12.4.131
Build cuda_12.4.r12.4/compiler.34097967_0
"""


def here(tmp_path: Path, **environ: str) -> Facts:
    """The probe on this machine's files, with only the test's programs on PATH."""
    return dict(cuda_toolkit.probe(Local(environ={"PATH": f"{tmp_path}/bin", **environ})))


def program(path: Path, prints: str, then: str = "") -> None:
    script = "#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in prints.splitlines()) + then
    Tree(path.parent).file(path.name, script, 0o755)


def test_nvcc_is_run_only_where_its_files_do_not_tell(tmp_path: Path) -> None:
    program(tmp_path / "cuda/bin/nvcc", "", then=f"touch {tmp_path}/was-run\n")
    Tree(tmp_path).file("/cuda/version.json", '{"cuda": {"version": "12.2.140"}}')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").symlink_to(tmp_path / "cuda/bin/nvcc")
    facts = here(tmp_path)
    assert facts["cuda.nvcc_version"] == Known("12.2", f"{tmp_path}/cuda/version.json")
    assert facts["cuda.toolkit_version"] == facts["cuda.nvcc_version"]
    assert not (tmp_path / "was-run").exists()


def test_a_wrapper_is_asked(tmp_path: Path) -> None:
    program(tmp_path / "bin/nvcc", NVCC)
    program(tmp_path / "bin/ptxas", NVCC.replace("12.4", "12.6"))
    facts = here(tmp_path)
    assert facts["cuda.nvcc_version"] == Known("12.4", f"{tmp_path}/bin/nvcc --version")
    assert known(facts["cuda.ptxas_version"]) == "12.6"


@pytest.mark.parametrize("then", ["exit 1\n", "kill -9 $$\n"])
def test_an_nvcc_that_fails_leaves_its_release_unread(tmp_path: Path, then: str) -> None:
    program(tmp_path / "bin/nvcc", "no such thing", then)
    facts = here(tmp_path)
    assert known(facts["cuda.nvcc"]) == f"{tmp_path}/bin/nvcc"
    assert isinstance(facts["cuda.nvcc_version"], Unread)


@pytest.mark.parametrize(
    ("first", "version", "kind"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0", "gcc"),
        ("g++ (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)", "11.4.1", "gcc"),
        ("x86_64-conda-linux-gnu-c++ (conda-forge gcc 13.3.0-1) 13.3.0", "13.3.0", "gcc"),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1", "14.0.0", "clang"),
        ("clang version 17.0.6 (https://github.com/llvm/llvm-project 6009708b4367)", "17.0.6", "clang"),
    ],
)
def test_compilers_by_their_first_line(tmp_path: Path, first: str, version: str, kind: str) -> None:
    program(tmp_path / "bin/g++", first + "\nCopyright (C) 2022 Free Software Foundation, Inc.")
    facts = here(tmp_path)
    assert known(facts["cuda.host_compiler"]) == f"{tmp_path}/bin/g++"
    assert known(facts["cuda.host_compiler_version"]) == version
    assert known(facts["cuda.host_compiler_kind"]) == kind


def test_compilers_that_are_unknown_or_missing_are_not_guessed(tmp_path: Path) -> None:
    program(tmp_path / "bin/c++", "nvc++ 24.1-0 64-bit target on x86-64 Linux")
    facts = here(tmp_path)
    assert isinstance(facts["cuda.host_compiler_kind"], Unread)
    assert isinstance(facts["cuda.host_compiler_version"], Unread)
    program(tmp_path / "missing" / "bin/g++", "g++ (GCC) 9.5.0")
    assert here(tmp_path / "missing", CXX="g++-99")["cuda.host_compiler"] == Absent("CXX=g++-99, which is not there")


@pytest.mark.parametrize(
    ("variables", "chosen"),
    [
        ({"CXX": "ccache g++-11 -pthread"}, "g++-11"),
        ({"NVCC_CCBIN": "g++-9", "CXX": "g++-11"}, "g++-9"),
        ({"NVCC_PREPEND_FLAGS": "-ccbin=g++-9 -O2", "CXX": "g++-11"}, "g++-9"),
        ({"NVCC_PREPEND_FLAGS": "-O2"}, "g++"),
        ({}, "g++"),
    ],
)
def test_variables_come_before_path(tmp_path: Path, variables: dict[str, str], chosen: str) -> None:
    for name in ("g++", "g++-9", "g++-11", "ccache"):
        program(tmp_path / f"bin/{name}", f"{name} (GCC) 9.5.0")
    assert known(here(tmp_path, **variables)["cuda.host_compiler"]) == f"{tmp_path}/bin/{chosen}"


def test_the_real_compiler_of_this_machine() -> None:
    needs.program("g++")
    facts = dict(cuda_toolkit.probe(Local(environ={"PATH": os.environ["PATH"]})))
    assert known(facts["cuda.host_compiler_kind"]) in {"gcc", "clang"}
    assert str(known(facts["cuda.host_compiler_version"]))[0].isdigit()


class Windows(Local):
    """A Windows machine of these files, on which vswhere.exe prints a folder, or cannot be started."""

    def __init__(self, files: Mapping[str, str], printed: str | None) -> None:
        super().__init__(environ={"PATH": ""})
        self.system = "windows"
        self._files, self._printed = files, printed

    def exists(self, path: str) -> bool:
        return path in self._files

    def read(self, path: str, limit: int = 0) -> str:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def run(self, argv: Sequence[str], *_: object, **__: object) -> Answer:
        if self._printed is None:
            raise OSError(5, "Access is denied")
        return Answer(tuple(argv), 0, self._printed, "", 0.1)


INSTALLER = "C:/Program Files (x86)/Microsoft Visual Studio/Installer/vswhere.exe"
STUDIO = "C:/Program Files/Microsoft Visual Studio/2022/BuildTools"
CL = f"{STUDIO}/VC/Tools/MSVC/14.42.34433/bin/Hostx64/x64/cl.exe"
TOOLSET = f"{STUDIO}/VC/Auxiliary/Build/Microsoft.VCToolsVersion.default.txt"
WITH_TOOLS = {INSTALLER: "", CL: "", TOOLSET: "14.42.34433\r\n"}


def test_the_compiler_of_visual_studio_is_found_without_its_prompt() -> None:
    facts = dict(cuda_toolkit.host_compiler_facts(Windows(WITH_TOOLS, f"{STUDIO}\r\n")))
    assert facts == {
        "cuda.host_compiler": Known(CL, "vswhere.exe"),
        "cuda.host_compiler_kind": Known("msvc", "vswhere.exe"),
        "cuda.host_compiler_version": Known("19.42.34433", "toolset 14.42.34433"),
    }


@pytest.mark.parametrize(
    ("files", "printed", "kind"),
    [
        ({}, "", Absent),
        ({INSTALLER: ""}, "", Absent),
        ({INSTALLER: ""}, f"{STUDIO}\r\n", Unread),
        ({INSTALLER: "", TOOLSET: "14.42.34433"}, f"{STUDIO}\r\n", Unread),
        ({**WITH_TOOLS, TOOLSET: "..\\..\\x"}, f"{STUDIO}\r\n", Unread),
        (WITH_TOOLS, None, Unread),
    ],
)
def test_without_the_tools_there_is_no_compiler(files: Mapping[str, str], printed: str | None, kind: type) -> None:
    facts = dict(cuda_toolkit.host_compiler_facts(Windows(files, printed)))
    assert {type(fact) for fact in facts.values()} == {kind}
    assert len(facts) == 3
