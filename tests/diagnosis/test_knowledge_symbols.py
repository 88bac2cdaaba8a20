"""Symbols that loaders report missing, as they stand in real messages."""

from __future__ import annotations

import pytest

from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge.printed_errors import symbol_abi, symbol_library, symbol_says

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
