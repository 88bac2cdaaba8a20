"""What a note denies is no sign of it; what a program prints is."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.core.log_lines import denied
from gpudoctor.readers import read_text


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("Xid 79: none", "Xid 79"),
        ("checked dmesg for Xid 48, 63, 94: none", "Xid 48"),
        ("no Xid 79 in dmesg", "Xid 79"),
        ("dmesg: nothing about a GPU fallen off the bus", "fallen off the bus"),
        ("double-bit ECC errors: 0", "double-bit ECC"),
        ("CUDA out of memory: no, 3 of 24 GB used", "CUDA out of memory"),
        ("uncorrectable ECC error: not any more", "uncorrectable ECC error"),
    ],
)
def test_denied(line: str, word: str) -> None:
    start = line.index(word)
    assert denied(line, start, start + len(word))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "Xid (PCI:0000:01:00): 79"),
        ("failed to listen on any local network address. port: 29500, useIpv6: false, code: -98", "port: 29500"),
        ("libcudnn.so.9: not found", "libcudnn.so.9"),
        ("nvcc: no such file or directory", "nvcc"),
        ("Could not load dynamic library 'libcudart.so.11.0'", "libcudart.so.11.0"),
        ("uncorrectable ECC errors: 01", "uncorrectable ECC errors"),
        ("failed (exitcode: -7) local_rank: 0 (pid: 2625) of binary: python", "exitcode: -7"),
    ],
)
def test_not_denied(line: str, word: str) -> None:
    start = line.index(word)
    assert not denied(line, start, start + len(word))


def test_a_denied_xid_is_no_row() -> None:
    assert "xid" not in read_text("dmesg: no Xid 79\nXid 31: none\n").groups
    assert read_text("NVML says GPU is lost: no\n").facts.get("nvml.state") != Known("gpu is lost", "line 1")
