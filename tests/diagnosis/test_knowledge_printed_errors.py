"""Xids against NVIDIA's catalogue, return codes against the headers, symbols as loaders report them missing."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import CannotJudge
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


def test_a_code_the_catalogue_does_not_act_on() -> None:
    with pytest.raises(CannotJudge, match="names no action"):
        xid_action(175)
    with pytest.raises(CannotJudge, match="does not describe"):
        xid_name(1)


@pytest.mark.parametrize("code", [46, 48, 54, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 149, 158, 167, 171, 173])
def test_the_gpus_own_faults(code: int) -> None:
    """The catalogue answers these with a reset, a reboot, a look at the hardware or support."""
    assert xid_fatal(code) is True


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 92, 94, 121, 137, 154, 162])
def test_no_faults_of_the_gpu(code: int) -> None:
    """Programs' errors, consequences, a remapped row (63), contained errors (94), corrected ones (92, 121)."""
    assert xid_fatal(code) is False


def test_nvswitch_errors() -> None:
    """Fabric manager guide, appendix: 22003 is fatal to the fabric, 12028 is not fatal."""
    assert (sxid_name(22003), sxid_fatal(22003)) == ("Minion Halt", "always")
    assert sxid_fatal(12028) == "no"


def test_return_codes() -> None:
    """nvml.h and driver_types.h."""
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
