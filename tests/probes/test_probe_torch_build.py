"""The torch build, from version.py, METADATA and fat binaries, sound and broken ones, without importing it."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import torch_build
from gpudoctor.probes._binaries import MalformedError, architectures, opened
from tests.environments import CUBIN, FAMILY, OWN, PTX, Venv, column, concatenated, container, elf, entry, value
from tests.probes.test_probe_python_env import conda

LINUX = 'platform_system == "Linux" and platform_machine == "x86_64"'
PINS = (f"nvidia-cudnn-cu12==9.1.0.70; {LINUX}", f"nvidia-nccl-cu12==2.21.5; {LINUX}", "filelock")
TRITON = f'triton==3.1.0; {LINUX} and python_version < "3.13"'


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path)


def test_no_torch_is_knowledge(venv: Venv) -> None:
    facts = venv.asked(torch_build)
    why = Absent("torch is not installed in /venv (looked in /venv/lib/python3.12/site-packages)")
    assert facts["torch.version"] == why
    assert facts["torch.archs"] == why


def test_a_torch_that_this_interpreter_does_not_read_is_named(venv: Venv) -> None:
    venv.write("/usr/bin/python3.12")
    venv.at(venv.python).unlink()
    venv.link(venv.python, "../../usr/bin/python3.12")
    project = "/home/ada/project/.venv/lib/python3.12/site-packages"
    for folder in (project, "/venv/lib/python3.10/site-packages"):
        venv.write(f"{folder}/torch/version.py", "__version__ = '2.5.1'\n")
    facts = venv.asked(torch_build, PWD="/home/ada/project", PYTHONPATH="")
    assert isinstance(facts["torch.version"], Absent)
    assert value(facts, "torch.elsewhere") == ("/venv/lib/python3.10/site-packages", project)


def test_a_cuda_build_says_what_it_is_without_being_run(venv: Venv) -> None:
    venv.torch("2.5.1+cu124", cuda="12.4")
    with venv.at(f"{venv.site}/torch/version.py").open("a") as file:
        file.write("raise SystemExit('ran')\n")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.version") == "2.5.1+cu124"
    assert value(facts, "torch.path") == f"{venv.site}/torch"
    assert value(facts, "torch.flavor") == "cuda"
    assert value(facts, "torch.cuda") == "12.4"
    assert value(facts, "torch.git") == "a8d6afb511a69687bbb2b7e88a3cf67917e1697e"
    assert facts["torch.hip"] == Absent("version.py says hip = None")
    assert value(facts, "torch.elsewhere") == ()


def test_a_cpu_build_has_no_cuda_and_a_rocm_build_is_told_by_hip(venv: Venv) -> None:
    venv.torch("2.13.0+cpu")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.flavor") == "cpu"
    assert facts["torch.cuda"] == Absent("version.py says cuda = None")
    assert facts["torch.archs"] == Absent("not a CUDA build")
    venv.torch("2.5.1+rocm6.2", hip="6.2.41133-dd7f95766")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.flavor") == "rocm"
    assert isinstance(facts["torch.archs"], Unread)


def test_a_dist_info_without_its_package_is_not_a_cpu_build(venv: Venv) -> None:
    venv.dist("torch", "2.5.1")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.version") == "2.5.1"
    assert facts["torch.path"] == Absent("no torch/version.py beside its dist-info")
    assert isinstance(facts["torch.flavor"], Unread)
    assert isinstance(facts["torch.archs"], Unread)


def test_pins_that_are_met_are_not_named(venv: Venv) -> None:
    venv.torch("2.5.1", "12.4", (*PINS, TRITON))
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70")
    venv.dist("nvidia-nccl-cu12", "2.21.5")
    venv.dist("triton", "3.1.0")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.pins_unmet") == ()
    assert value(facts, "torch.cudnn") == "9.1.0.70"
    assert value(facts, "torch.nccl") == "2.21.5"


def test_pins_that_are_not_met_name_both_versions(venv: Venv) -> None:
    venv.torch("2.5.1", "12.4", (*PINS, TRITON))
    venv.dist("nvidia-cudnn-cu12", "9.5.1.17")
    venv.dist("triton", "3.1.0")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.pins_unmet") == (
        "nvidia-cudnn-cu12 wants 9.1.0.70, has 9.5.1.17",
        "nvidia-nccl-cu12 wants 2.21.5, is not installed",
    )
    assert column(facts, "pin", "wants") == ["9.1.0.70", "2.21.5"]
    assert column(facts, "pin", "has") == ["9.5.1.17", None]


def test_markers_are_those_of_the_patients_python_and_of_the_wheels_platform(tmp_path: Path) -> None:
    newer, arm = Venv(tmp_path / "newer", version="3.13.1"), Venv(tmp_path / "arm")
    newer.torch("2.5.1", "12.4", (TRITON,))
    arm.torch("2.5.1", "12.4", PINS)
    arm.dist("torch", "2.5.1", PINS, tag="cp312-cp312-manylinux2014_aarch64")
    for venv in (newer, arm):
        assert value(venv.asked(torch_build), "torch.pins_unmet") == ()


def test_the_cuda_toolkit_package_is_followed_to_its_wheels(venv: Venv) -> None:
    venv.torch("2.12.0+cu130", "13.0", ('cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"',))
    venv.dist(
        "cuda-toolkit",
        "13.0.2",
        (
            'nvidia-cublas==13.1.0.3.*; sys_platform == "linux" and extra == "cublas"',
            'nvidia-cuda-runtime==13.0.96.*; sys_platform == "linux" and extra == "cudart"',
            'nvidia-cufft==12.0.0.61.*; sys_platform == "linux" and extra == "cufft"',
        ),
    )
    venv.dist("nvidia-cublas", "13.1.0.3")
    venv.dist("nvidia-cuda-runtime", "13.2.1")
    facts = venv.asked(torch_build)
    assert value(facts, "torch.pins_unmet") == ("nvidia-cuda-runtime wants 13.0.96.*, has 13.2.1",)
    assert column(facts, "pin", "wants") == ["13.0.96"]


def test_of_two_cudnn_wheels_the_one_of_torchs_cuda_counts(venv: Venv) -> None:
    venv.torch("2.5.1", "12.4")
    venv.dist("nvidia-cudnn-cu11", "8.9.4.25")
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70")
    assert value(venv.asked(torch_build), "torch.cudnn") == "9.1.0.70"


@pytest.mark.parametrize(
    ("name", "version", "requires", "said"),
    [
        ("torchvision", "0.20.1", ("numpy", "torch==2.5.1"), ()),
        ("torchvision", "0.20.1+cu124", ("torch==2.5.1",), ()),
        ("torchvision", "0.20.1+cu121", ("torch==2.5.1",), ()),
        ("torchvision", "0.19.0", ("torch==2.4.0",), ("torchvision 0.19.0 is for torch 2.4.0",)),
        (
            "torchvision",
            "0.20.1+cu118",
            ("torch==2.5.1",),
            ("torchvision 0.20.1+cu118 is for CUDA 11.8, torch is built with CUDA 12.4",),
        ),
        (
            "torchvision",
            "0.20.1+cpu",
            ("torch==2.5.1",),
            ("torchvision 0.20.1+cpu is a CPU build, torch is built with CUDA 12.4",),
        ),
        (
            "torchaudio",
            "2.5.1+cu121",
            ("torch==2.5.1",),
            ("torchaudio 2.5.1+cu121 is for CUDA 12.1, torch is built with CUDA 12.4",),
        ),
        ("torchaudio", "2.5.1+cpu", ("torch==2.5.1",), ()),
        ("torchtext", "0.18.0+cpu", ("torch>=2.3.0",), ()),
        ("torchvision", "0.20.0a0+git1234567", ("torch",), ()),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_companions(venv: Venv, name: str, version: str, requires: tuple[str, ...], said: tuple[str, ...]) -> None:
    venv.torch("2.5.1+cu124", "12.4")
    venv.dist(name, version, requires)
    assert value(venv.asked(torch_build), "torch.companions_unmet") == said


def test_a_companions_cuda_is_also_in_its_own_version_file(venv: Venv) -> None:
    venv.torch("2.5.1+cu124", "12.4")
    venv.dist("torchvision", "0.20.1", ("torch==2.5.1",))
    venv.write(f"{venv.site}/torchvision/version.py", "__version__ = '0.20.1+cu118'\ngit_version = '3ac97aa'\n")
    assert value(venv.asked(torch_build), "torch.companions_unmet") == (
        "torchvision 0.20.1 is for CUDA 11.8, torch is built with CUDA 12.4",
    )


def test_each_torch_is_an_install(venv: Venv) -> None:
    venv.torch("2.5.1+cu124", "12.4")
    venv.dist("torch", "2.4.0", installer="uv", site="/opt/more")
    facts = venv.asked(torch_build, PYTHONPATH="/opt/more")
    assert value(facts, "torch.installs") == ("uv 2.4.0 in /opt/more", f"pip 2.5.1+cu124 in {venv.site}")


def test_condas_torch_with_its_own_dist_info_is_one_install_and_pips_over_it_a_second(tmp_path: Path) -> None:
    env, both = conda(tmp_path), conda(tmp_path / "both")
    env.torch("2.4.0", "12.1")
    env.dist("torch", "2.4.0", installer="conda")
    assert value(env.asked(torch_build), "torch.installs") == (f"conda 2.4.0 in {env.site}",)
    both.torch("2.5.1+cu124", "12.4")
    assert value(both.asked(torch_build), "torch.installs") == (
        f"pip 2.5.1+cu124 in {env.site}",
        "conda 2.4.0 (py3.12_cuda12.1_cudnn9.1.0_0) in /opt/conda/envs/ml/conda-meta",
    )


def test_architectures_come_from_the_fat_binaries(venv: Venv) -> None:
    package = venv.torch("2.9.0+cu128", "12.8")
    usual = container(entry(CUBIN, 80), entry(CUBIN, 120), entry(PTX, 120))
    raw = elf({".nv_fatbin": usual * 3 + container(entry(CUBIN, 89))})
    venv.write(f"{package}/lib/libtorch_cuda.so", raw)
    facts = venv.asked(torch_build)
    assert value(facts, "torch.archs") == ("sm_80", "sm_120", "compute_120")
    assert value(facts, "torch.few_archs") == ("sm_89",)


def test_torch_before_2_0_keeps_them_in_a_split_library(venv: Venv) -> None:
    package = venv.torch("1.11.0+cu113", "11.3")
    venv.write(f"{package}/lib/libtorch_cuda.so", elf({".text": bytes(8)}))
    venv.write(f"{package}/lib/libtorch_cuda_cu.so", elf({".nv_fatbin": container(entry(CUBIN, 86))}))
    assert value(venv.asked(torch_build), "torch.archs") == ("sm_86",)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no libtorch_cuda.so in"),
        (b"version https://git-lfs.github.com/spec/v1\n" * 3, "not an ELF file"),
        (elf({".nv_fatbin": container(entry(CUBIN, 80))[:-4]}), "beyond its section"),
    ],
    ids=["missing", "not a library", "truncated"],
)
def test_architectures_that_cannot_be_read_are_unread(venv: Venv, content: bytes | None, why: str) -> None:
    package = venv.torch("2.5.1", "12.4")
    if content is not None:
        venv.write(f"{package}/lib/libtorch_cuda.so", content)
    fact = venv.asked(torch_build)["torch.archs"]
    assert isinstance(fact, Unread)
    assert why in fact.why


def library(folder: Path, *containers: bytes, section: str = ".nv_fatbin") -> Path:
    path = folder / "libtorch_cuda.so"
    path.write_bytes(elf({".text": bytes(40), section: b"".join(containers)}))
    return path


def test_what_half_of_the_containers_hold_is_main_and_the_rest_is_few(tmp_path: Path) -> None:
    usual = container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90))
    special = container(entry(CUBIN, 90, 0x11 | OWN), entry(CUBIN, 80), entry(CUBIN, 100, 0x11 | FAMILY))
    found = architectures(library(tmp_path, usual, usual, usual, special))
    assert found.containers == 4
    assert found.main == ("sm_80", "sm_90", "compute_90")
    assert found.few == ("sm_90a", "sm_100f")


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin"])
def test_both_sections_count(tmp_path: Path, section: str) -> None:
    assert architectures(library(tmp_path, container(entry(CUBIN, 75)), section=section)).main == ("sm_75",)


def test_fat_binaries_compressed_together_are_told_apart_and_padding_is_passed_over(tmp_path: Path) -> None:
    path = library(
        tmp_path, container(entry(CUBIN, 100), concatenated(PTX, [80, 90], 80), concatenated(CUBIN, [80, 90]))
    )
    assert architectures(path).main == ("sm_80", "sm_90", "sm_100", "compute_80", "compute_90")
    one = container(entry(CUBIN, 80))
    assert architectures(library(tmp_path, bytes(24), one, bytes(5000), one)).containers == 2
    path = tmp_path / "libc10.so"
    path.write_bytes(elf({".text": bytes(8)}))
    assert architectures(path).containers == 0
    with pytest.raises(TimeoutError):
        architectures(library(tmp_path, container(entry(CUBIN, 80))), seconds=-1)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (container(entry(CUBIN, 80))[:-8], "the fat binary at"),
        (
            container(entry(CUBIN, 80, header=64)[:4] + struct.pack("<I", 0) + entry(CUBIN, 80)[8:]),
            "the fat binary entry",
        ),
        (container(entry(CUBIN, 80)[:8] + struct.pack("<Q", 1 << 60) + entry(CUBIN, 80)[16:]), "the fat binary entry"),
        (container(entry(256, 0, header=72)[:64] + struct.pack("<II", 1 << 30, 64) + bytes(64)), "concatenated entry"),
    ],
    ids=["cut short", "header of 0 bytes", "payload beyond the file", "a billion headers"],
)
def test_a_broken_fat_binary_is_named_not_guessed(tmp_path: Path, broken: bytes, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        architectures(library(tmp_path, broken))


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"#!/bin/sh\n" * 20, b"\x7fELF\x01\x01" + bytes(80), elf({".text": b""})[:-1]],
    ids=["empty", "four bytes", "a script", "32-bit", "cut in its section table"],
)
def test_what_is_no_64_bit_library_is_malformed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(MalformedError):
        architectures(path)


SOUND = elf({".nv_fatbin": container(entry(CUBIN, 80), concatenated(PTX, [80, 90])), ".text": bytes(64)})


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=12),
    length=st.integers(0, len(SOUND)),
)
def test_damaged_bytes_end_in_an_answer_or_a_named_error(
    tmp_path: Path, changes: list[tuple[int, int]], length: int
) -> None:
    raw = bytearray(SOUND)
    for at, byte in changes:
        raw[at] = byte
    path = tmp_path / "damaged.so"
    path.write_bytes(raw[: length or None])
    try:
        found = architectures(path)
        with opened(path) as library_file:
            library_file.dynamic()
    except MalformedError:
        return  # any other exception fails the test
    assert all(name.startswith(("sm_", "compute_")) for name in found.counts)
