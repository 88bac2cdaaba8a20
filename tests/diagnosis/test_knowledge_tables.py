"""Tables are whole, versions in them are text that parses; codes and symbols are those of NVIDIA; every look-up."""

import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core import versions
from gpudoctor.core.values import NOTHING, CannotJudge, Nothing, Version
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.knowledge import LOOKUPS
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.archs import codes_of_list
from gpudoctor.diagnosis.knowledge.gpus import gpu_capability
from gpudoctor.diagnosis.knowledge.printed_errors import (
    cuda_error_name,
    cuda_error_says,
    nvml_name,
    nvml_says,
    sxid_fatal,
    sxid_name,
    symbol_abi,
    symbol_library,
    symbol_says,
    xid_action,
    xid_class,
    xid_fatal,
    xid_name,
)

FOLDER = page_cache.home() / "tables"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))

COLUMNS = {
    "drivers": {
        "family": "major linux windows",
        "toolkit": "cuda* linux",
        "branch": "branch*",
        "shipped": "distribution release branches",
    },
    "compilers": {"nvcc": "cuda* gcc_max targets source"},
    "gpus": {"generation": "cc* arch", "family": "match* cc", "gpu": "name* cc kind", "device": "from* to chip"},
    "torch": {
        "early": "version* linux newest pythons",
        "release": "version* linux aarch64 pythons requires_python glibc cxx11 torchvision torchaudio",
        "build": "torch* build* cuda",
        "toolkit": "cuda nvrtc runtime",
        "glibc": "glibc distributions",
    },
    "companions": {
        "xformers": "version",
        "vllm": "version torch",
        "tensorflow": "version cuda cudnn",
        "jax": "version cuda_major",
        "bitsandbytes": "first last cuda",
        "flash_attn": "version torch wheel pythons abis archs",
        "source_builds": "name versions torch cuda",
        "sdists": "name source",
        "support": "name cc systems source",
    },
    "images": {
        "distribution": "image* release* tags python glibc",
        "ngc": "release* cuda torch python",
        "made_for_gpus": "image*",
    },
    "nccl": {
        "path": "name meaning",
        "ib_status": "code name",
        "variable": "name",
        "renamed": "name now source",
        "risk": "name match says source",
        "factor": "collective factor",
        "busbw": "platform collective",
        "port": "rate* least source",
        "line_rate": "link rate",
    },
    "xid": {"action": "name text", "xid": "code* name class", "sxid": "code* name fatal"},
    "codes": {"nvml": "code name", "cuda": "code name", "nccl": "code name", "clock_event": "bit name"},
    "rates": {
        "product": "cc",
        "reached": "kernels share source",
        "lane": "generation* rate",
        "nvlink": "version* rate",
    },
    "symbols": {"symbol": "match* says"},
}
"""Columns that each row must have; no two rows have the same in those with an asterisk."""
VERSIONS = re.compile(
    r"cuda|linux|windows|branch|cc|version|torch|torchvision|torchaudio|triton|cudnn|nccl|floor|ceiling|first|last|glibc"
)


def rows(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for group, entries in table(name).items():
        if isinstance(entries, list) and entries and isinstance(entries[0], dict):
            for row in entries:
                yield group, row


@pytest.mark.parametrize("name", NAMES)
def test_each_row_has_what_it_must(name: str) -> None:
    assert set(COLUMNS[name]) == {group for group, _ in rows(name)}
    for group, row in rows(name):
        must = COLUMNS[name][group].split()
        assert {column.rstrip("*") for column in must} <= set(row), f"{name}.{group}: {row}"
    for group, columns in COLUMNS[name].items():
        keys = [column[:-1] for column in columns.split() if column.endswith("*")]
        seen = Counter(tuple(row[key] for key in keys) for found, row in rows(name) if keys and found == group)
        assert [key for key, times in seen.items() if times > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_each_table_says_whence_and_when(name: str) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", table(name)["checked"])
    assert all(isinstance(source, str) and source.strip() for source in table(name)["source"])
    assert all(row.get("source", "-").strip() for _, row in rows(name))


@pytest.mark.parametrize("name", NAMES)
def test_versions_are_text_that_parses(name: str) -> None:
    """A bare 12.10 would be 12.1."""
    for group, row in rows(name):
        for column, value in row.items():
            assert not isinstance(value, float) or column in ("rate", "bandwidth", "nvlink", "share", "transfers"), (
                f"{name}.{group}.{column} {value}"
            )
            if (
                VERSIONS.fullmatch(column)
                and value
                and (name, column) not in {("torch", "linux"), ("torch", "windows")}
            ):
                assert isinstance(value, str), f"{name}.{group}.{column} {value!r}"
                for part in value.split():
                    assert versions.parse(part.lstrip("<>=~")), f"{name}.{group}.{column} {part!r}"


def test_architecture_lists_are_architectures() -> None:
    for _, row in rows("torch"):
        for column in ("archs", "windows", "aarch64"):
            if "build" in row and column in row:
                assert codes_of_list(row[column])
    for _, row in rows("compilers"):
        assert codes_of_list(row["targets"])


def test_tables_agree_with_each_other() -> None:
    generations = {row["cc"] for row in table("gpus")["generation"]}
    for _, row in rows("gpus"):
        if "cc" in row:
            assert set(row["cc"].split()) <= generations, row
    releases = {row["version"] for row in table("torch")["release"]}
    assert {row["torch"] for row in table("torch")["build"]} == releases
    built = {(row["torch"], row["build"]) for row in table("torch")["build"]}
    for release in table("torch")["release"]:
        for default in (release["linux"], release["aarch64"]):
            assert default == "cpu" or (release["version"], default) in built
    for row in table("torch")["build"]:
        assert row["build"] == "cu" + row["cuda"].replace(".", "")


def test_every_product_is_of_the_family_its_name_says() -> None:
    """The name patterns, tried on the names whose capability is published, never contradict it."""
    families = table("gpus")["family"]
    for row in table("gpus")["gpu"]:
        family = next((one for one in families if re.match(one["match"], row["name"], re.IGNORECASE)), None)
        assert family is None or row["cc"] in family["cc"].split(), f"{row['name']}: {family}"
        if family and "nvlink" in family:
            assert family["nvlink"] == ("nvlink" in row), row["name"]


def test_device_ranges_are_apart_and_agree_with_the_products_in_them() -> None:
    ranges = [(int(row["from"], 16), int(row["to"], 16), row["chip"]) for row in table("gpus")["device"]]
    assert all(first <= last for first, last, _ in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    for row in table("gpus")["gpu"]:
        for number in (int(device, 16) for device in row.get("pci", "").split()):
            chip = next((chip for first, last, chip in ranges if first <= number <= last), None)
            assert chip is None or gpu_capability(chip) == row["cc"], f"{row['name']} {number:04x} {chip}"


def test_branches_fall_and_their_cuda_with_them() -> None:
    branches = [row for row in table("drivers")["branch"] if "cuda" in row]
    for newer, older in pairwise(branches):
        assert int(newer["branch"]) > int(older["branch"])
        assert versions.parse(newer["cuda"]) >= versions.parse(older["cuda"])  # type: ignore[operator]


def test_a_warm_start_parses_no_toml(tmp_path: Path) -> None:
    ask = (
        "import sys; from gpudoctor.diagnosis.knowledge.gpus import gpu_capability as ask; ask('Tesla T4');"
        " print(*sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def modules() -> set[str]:
        done = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True, env=environment)
        return set(done.stdout.split())

    parsers = {"tomllib", "tomli"}
    assert parsers & modules()
    assert not parsers & modules()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (13, "app"),
        (63, "memory"),
        (74, "nvlink"),
        (79, "bus"),
        (119, "driver"),
        (54, "hardware"),
        (154, "consequence"),
        (9999, "other"),
    ],
)
def test_class(code: int, kind: str) -> None:
    """Memory, NVLink and consequences as the Xid catalogue groups them."""
    assert xid_class(code) == kind
    assert xid_class(str(code)) == kind


def test_name_and_action() -> None:
    assert xid_name(79) == "GPU has fallen off the bus"
    assert xid_action(79) == "reboot the host"
    assert xid_action("13") == "restart the application"
    assert "nvidia-smi --gpu-reset" in xid_action(95)
    with pytest.raises(CannotJudge, match="names no action"):
        xid_action(175)
    with pytest.raises(CannotJudge, match="does not describe"):
        xid_name(1)


FATAL = (46, 48, 54, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 149, 158, 167, 171, 173)
"""What the catalogue answers with a reset, a reboot, a look at the hardware or support."""
HARMLESS = (13, 31, 43, 45, 63, 68, 92, 94, 121, 137, 154, 162)
"""Programs' errors, consequences, a remapped row (63), contained errors (94), corrected ones (92, 121)."""


def test_the_gpus_own_faults_are_fatal() -> None:
    assert {code: xid_fatal(code) for code in (*FATAL, *HARMLESS)} == {
        code: code in FATAL for code in (*FATAL, *HARMLESS)
    }


def test_nvswitch_errors_and_return_codes() -> None:
    """Fabric manager guide, appendix: 22003 is fatal to the fabric, 12028 is not fatal."""
    assert (sxid_name(22003), sxid_fatal(22003)) == ("Minion Halt", "always")
    assert sxid_fatal(12028) == "no"
    # nvml.h and driver_types.h.
    assert nvml_name(18) == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
    assert "fell off the bus" in str(nvml_says("15"))
    assert cuda_error_name(209) == "cudaErrorNoKernelImageForDevice"
    assert "fabric" in str(cuda_error_says(802))
    with pytest.raises(CannotJudge, match="does not know"):
        cuda_error_name(12345)


ERROR_NEW = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
ERROR_OLD = "_ZN3c105ErrorC2ENS_14SourceLocationESs"


@pytest.mark.parametrize(
    ("symbol", "abi"),
    [
        (ERROR_NEW, "cxx11"),
        ("_ZN3c1013MessageLogger6streamB5cxx11Ev", "cxx11"),
        ("_ZNK3c107SymBool10guard_boolEPKcl", "any"),
        ("_ZN5torch9SssomenameEv", "any"),  # Ss inside a name is no string
        ("ncclCommSplit", "any"),
    ],
)
def test_strings_in_a_mangled_name_tell_the_abi(symbol: str, abi: str) -> None:
    """Itanium C++ ABI: Ss abbreviates std::string of the old ABI; the new one lives in std::__cxx11."""
    assert symbol_abi(symbol) == abi


@pytest.mark.parametrize(
    ("symbol", "library", "words"),
    [
        (ERROR_NEW, "torch", "C++11 ABI"),
        (ERROR_OLD, "torch", "old C++ ABI"),
        ("_ZN3c104cuda9SetDeviceEi", "torch", "torch up to 2.2 has it"),
        ("_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib", "torch", "torch 2.0 to 2.9"),
        ("ncclCommRegister", "libnccl", "since 2.19"),
        ("__nvJitLinkAddData_12_1, version libnvJitLink.so.12", "libnvJitLink", "CUDA 12.1 and newer 12.x"),
        ("iJIT_NotifyEvent", "libmkl", "mkl<2024.1"),
        ("GLIBCXX_3.4.30", "libstdc++", "GCC 12"),
        ("GLIBC_2.34", "libc", "glibc 2.34"),
        ("cuMemcpyBatchAsync", "libcuda", "driver is older"),
        ("cudaGetDriverEntryPointByVersion@libcudart.so.12", "libcudart", "CUDA runtime"),
    ],
)
def test_what_a_symbol_says(symbol: str, library: str, words: str) -> None:
    """The threads and headers named on each row of the table."""
    assert symbol_library(symbol) == library
    assert words in symbol_says(symbol)


def test_a_symbol_that_nobody_knows() -> None:
    for look_up in (symbol_says, symbol_library):
        with pytest.raises(CannotJudge, match="does not know it"):
            look_up("my_own_function")


PLAUSIBLE = st.sampled_from(
    ["12.8", "570.86", "9.0", "sm_90", "2.4.0+cu121", "NVIDIA A100-...", "torchvision", "79", "linux", "_ZNSs", "..."]
)
ANYTHING = PLAUSIBLE | st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.text())


def required(look_up: Callable[..., object]) -> int:
    """How many arguments it must have."""
    parameters = inspect.signature(look_up).parameters.values()
    return sum(parameter.default is parameter.empty for parameter in parameters)


@pytest.mark.parametrize("name", sorted(LOOKUPS))
def test_absent_in_any_place_gives_absent(name: str) -> None:
    count = required(LOOKUPS[name])
    for place in range(count):
        arguments = ["x"] * count
        assert LOOKUPS[name](*arguments[:place], NOTHING, *arguments[place + 1 :]) is NOTHING


@pytest.mark.parametrize("name", sorted(LOOKUPS))
@settings(max_examples=25)
@given(st.data())
def test_nonsense_is_judged_or_refused_never_a_crash(name: str, data: st.DataObject) -> None:
    arguments = [data.draw(ANYTHING) for _ in range(required(LOOKUPS[name]))]
    with suppress(CannotJudge):
        assert isinstance(LOOKUPS[name](*arguments), (str, bool, int, float, tuple, dict, Nothing))


def test_versions_of_expressions_are_taken_as_text() -> None:
    """``driver_floor(version(torch.cuda))`` is as good as ``driver_floor(torch.cuda)``."""
    assert LOOKUPS["driver_floor"](Version("12.8")) == LOOKUPS["driver_floor"]("12.8")
    assert LOOKUPS["runs_on"](("sm_90",), Version("9.0")) is True
