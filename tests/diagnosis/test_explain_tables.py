"""`gpudoctor explain TABLE KEY`: rows of the tables in words, found by what people type and tools print."""

import re
import shlex

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.diagnosis.knowledge import explain_tables
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.gpus import candidate_gpus
from gpudoctor.views.explain import entries_page, table_page
from tests.conftest import Program
from tests.diagnosis.test_knowledge_tables import NAMES, rows


def titles(name: str, key: str) -> list[str]:
    return [entry.title for entry in explain_tables.entries(name, key).entries]


def said(name: str, key: str) -> dict[str, dict[str, str]]:
    """What each row says, by title and label."""
    return {entry.title: dict(entry.lines) for entry in explain_tables.entries(name, key).entries}


def test_every_table_and_every_section_has_its_words() -> None:
    assert sorted(explain_tables.NAMES) == NAMES
    for name in NAMES:
        assert {group for group, _ in rows(name)} == set(table(name)["words"]["sections"])


@pytest.mark.parametrize("name", NAMES)
def test_every_key_that_a_table_lists_is_one_it_takes(name: str) -> None:
    patterns = {"Names by pattern", "Symbols, as patterns", "PCI device ids by chip"}
    about = explain_tables.overview(name)
    assert all(explain_tables.entries(name, key).entries for key in about.tries)
    for heading, keys in about.keys:
        assert keys, heading
        if heading not in patterns:
            assert all(explain_tables.entries(name, key).entries for key in keys)


def test_a_cuda_release_with_its_floor_and_a_driver_by_their_numbers() -> None:
    floor, *came_with, branch = titles("drivers", "12.8")
    assert "any CUDA 12 " in floor
    assert came_with == ["Driver that came with CUDA 12.8.1", "Driver that came with CUDA 12.8.0"]
    assert branch == "Driver branch 570"
    assert said("drivers", "CUDA 12.8.1")["Driver that came with CUDA 12.8.1"]["on Linux"] == "570.124.06"
    assert titles("drivers", "570.124.06")[0] == "Driver branch 570"
    assert "572.16 is read as a driver of branch 570" in explain_tables.entries("drivers", "572.16").note


@pytest.mark.parametrize(
    ("key", "title", "note"),
    [
        ("RTX 5090", "GeForce RTX 5090", ""),
        ("10de:2b85", "GeForce RTX 5090", ""),
        ("2b85", "GeForce RTX 5090", ""),
        ("1080", "GeForce GTX 1080", ""),
        ("2080", "GeForce RTX 2080", ""),
        ("10de:1080", "PCI ids 10de:1080", "by its chip"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "GeForce RTX 4070 Laptop GPU", "is looked up as"),
        ("NVIDIA A10-24Q", "A10", "a slice that a hypervisor cut from A10"),
        ("GRID A100-10C", "Names that begin like ", "a slice that a hypervisor cut from A100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100-SXM4-40GB", "one instance of A100-SXM4-40GB"),
        ("NVIDIA GeForce RTX 5090 Ti", "Names that begin like ", "no row of its own"),
        ("NVIDIA GeForce RTX 30...", "GeForce RTX 3050", "matches several GPUs"),
        ("8.9", "Compute capability 8.9: Ada Lovelace", ""),
        ("sm_90a", "Compute capability 9.0: Hopper", ""),
        ("blackwell", "Compute capability 10.0: Blackwell", ""),
    ],
)
def test_a_gpu_by_any_name_of_it(key: str, title: str, note: str) -> None:
    found = explain_tables.entries("gpus", key)
    assert found.entries[0].title.startswith(title)
    assert note in found.note
    assert bool(note) == bool(found.note)


def test_the_rows_of_a_name_are_those_that_judge_it_also_by_its_chip() -> None:
    found = explain_tables.entries("gpus", "10de:2bfe")
    assert found.entries[0].title == "PCI ids 10de:2b80 to 10de:2bff"
    assert found.entries[-1].title == "Compute capability 12.0: Blackwell"
    assert "by its chip" in found.note
    for name in ("NVIDIA GeForce RTX 30...", "GRID A100-10C", "Quadro RTX 4000", "NVIDIA H100 80GB HBM3"):
        judged = {gpu.compute_capability for gpu in candidate_gpus(name)}
        told = {
            title.split()[2].rstrip(":") for title in titles("gpus", name) if title.startswith("Compute capability")
        }
        assert told == judged


def test_a_build_of_torch_with_its_release_and_what_it_pins() -> None:
    assert titles("torch", "2.9.0+cu128") == ["torch 2.9.0", "torch 2.9.0+cu128", "Wheels of CUDA toolkit 12.8.1"]
    assert titles("torch", "torch==2.9.0+cu128") == titles("torch", "2.9.0+cu128")
    assert "sm_120" in said("torch", "2.9.0+cu128")["torch 2.9.0+cu128"]["GPU code, Linux x86_64"]
    unknown = said("torch", "2.13.0+cu129")["torch 2.13.0+cu129"]
    assert unknown["GPU code, Linux x86_64"] == "not in the tables"
    assert list(unknown)[:3] == ["CUDA", "built with toolkit", "GPU code, Linux x86_64"]
    assert {"torch 2.9.0", "torch 2.9.1", "torch 2.9.1+cu130"} <= set(titles("torch", "2.9"))
    assert titles("torch", "2.9.1+cpu") == ["torch 2.9.1"]
    assert not [title for title in titles("torch", "2.1") if "2.10" in title or "2.11" in title]


def test_an_xid_with_what_its_action_words_mean() -> None:
    row = said("xid", "79")["Xid 79: GPU has fallen off the bus"]
    assert row["do at once"] == "RESTART_BM (reboot the host)"
    assert titles("xid", "Xid 79") == titles("xid", "79")
    assert titles("xid", "SXid 22013")[0].startswith("SXid 22013: ")
    assert titles("xid", "21") == ["Xid 21: listed as unused by NVIDIA's catalogue"]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("802", ["CUDA 802: cudaErrorSystemNotReady"]),
        ("nvml 15", ["NVML 15: NVML_ERROR_GPU_IS_LOST"]),
        ("nvml_error_gpu_is_lost", ["NVML 15: NVML_ERROR_GPU_IS_LOST"]),
        ("3", ["CUDA 3: ", "NVML 3: ", "NCCL 3: "]),
        ("ncclRemoteError", ["NCCL 6: ncclRemoteError"]),
        ("nccl=5", ["NCCL 5: ncclInvalidUsage"]),
        ("0x40", ["Clock event 0x40: HwThermalSlowdown"]),
    ],
)
def test_a_code_of_each_library(key: str, found: list[str]) -> None:
    assert all(told.startswith(title) for told, title in zip(titles("codes", key), found, strict=True))


def test_compilers_companions_nccl_and_symbols() -> None:
    assert said("compilers", "12.4.131")["nvcc 12.4"]["newest GCC"] == "13"
    assert titles("compilers", "sm_120")[0] == "nvcc 12.8"
    assert said("companions", "torchvision 0.24")["torchvision 0.24.1"]["belongs to torch"] == "2.9.1"
    assert titles("companions", "torchvision==0.24.0+cu128") == ["torchvision 0.24.0"]
    assert titles("companions", "bitsandbytes 0.47.0") == ["bitsandbytes 0.46.1 to 0.47.0"]
    assert len(titles("companions", "vllm")) == len(table("companions")["vllm"]) + 1
    assert titles("companions", "vllm")[-1] == "What vllm asks of a machine"
    assert titles("companions", "flash-attn 2.8.2") == ["Wheels of flash-attn 2.8.2 for cu12"]
    assert titles("companions", "flash_attn")[-3:] == [
        "What flash-attn asks of a machine",
        "flash-attn, compiled",
        "flash-attn, which the package index has as source only",
    ]
    assert said("drivers", "ubuntu 24.04")["Drivers for ubuntu 24.04"]["branches, the one to prefer first"][:3] == "580"
    assert said("torch", "glibc 2.28")["glibc 2.28"] == {"in": "RHEL 8, Debian 10"}
    assert titles("nccl", "nccl_p2p_level")[:2] == ["NCCL_P2P_LEVEL", "NCCL_P2P_LEVEL = LOC|0"]
    assert said("nccl", "NCCL_BLOCKING_WAIT")["NCCL_BLOCKING_WAIT"]["is now"] == "TORCH_NCCL_BLOCKING_WAIT"
    assert titles("nccl", "status 12") == ["InfiniBand status 12: RETRY_EXC_ERR"]
    assert "torch 2.8 and newer have it" in explain_tables.entries("symbols", "_ZN3c104cuda9SetDeviceEab").note


@pytest.mark.parametrize(
    ("name", "key", "near"),
    [
        ("drivers", "14.1", "near it: 13.3.1, "),
        ("gpus", "NVIDIA GeForce RTX 9090", "near it: GeForce RTX 5090, "),
        ("gpus", "13.7", "near it: 12.1, "),
        ("torch", "2.17.0", "near it: 2.15.0, "),
        ("torch", "2.9.0+cu999", "near it: 2.9.0+cu130, "),
        ("xid", "177", "near it: 176, "),
        ("codes", "nvml 31", "near it: nvml 30, "),
        ("companions", "torchvision 0.99", "near it: torchvision 0.29.2, "),
        ("compilers", "14.0", "near it: 13.5, "),
        ("nccl", "NCCL_P2P_LEVELS", "near it: NCCL_P2P_LEVEL, "),
        ("symbols", "main", "keys such as "),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(name: str, key: str, near: str) -> None:
    with pytest.raises(UsageError, match=re.escape(near)):
        explain_tables.entries(name, key)


KEYS = ("", " ", "10de:", "9" * 20, "1" * 5000, "١٢", "\x1b[31m", "[", "(?", "1..2", "+cu128", "sm_", "8.9.9.9")


@pytest.mark.parametrize("name", NAMES)
def test_no_key_breaks_it(name: str) -> None:
    for key in KEYS:
        try:
            assert explain_tables.entries(name, key).entries, key
        except UsageError as error:
            assert len(str(error)) < 400, key  # noqa: PT017 (some keys are refused, and some are answered)


def test_a_page_ends_with_the_day_and_every_source(called: Program) -> None:
    done = called("explain", "gpus", "RTX", "5090")
    assert done.code == 0
    head, _, sources = done.out.partition(f"Table gpus, checked {table('gpus')['checked']} against\n")
    assert "  PCI ids:                    10de:2b85\n" in head
    flat = " ".join(sources.split())
    assert all(" ".join(source.split()) in flat for source in table("gpus")["source"])
    assert all(len(line) <= 80 or " " not in line.strip() for line in done.out.splitlines())


def test_a_row_of_its_own_source_names_it() -> None:
    page = entries_page(explain_tables.overview("compilers"), explain_tables.entries("compilers", "9.0"))
    assert "Source: targets: nvcc documentation of that release" in page


@pytest.mark.parametrize("name", NAMES)
def test_a_table_alone_lists_its_sources_and_what_to_type(name: str) -> None:
    page = table_page(explain_tables.overview(name))
    assert f"Checked {table(name)['checked']} against:" in page
    typed = [shlex.split(line.strip(" $")) for line in page.splitlines() if line.startswith("  $ ")]
    assert [words[:3] for words in typed] == [["gpudoctor", "explain", name]] * len(explain_tables.overview(name).tries)
    assert all(explain_tables.entries(name, words[3]).entries for words in typed)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("drivers", "nonsense"), "gpudoctor explain drivers lists them"),
        (("driver", "12.8"), "only tables have keys"),
        (("drvers",), "near it: drivers"),
        (("gpu.ecx",), "near it: gpu.ecc"),
        (("shm_mib",), "it is part of limits.shm_mib"),
    ],
)
def test_misuse_is_one_line_and_exit_2(called: Program, words: tuple[str, ...], says: str) -> None:
    done = called("explain", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
