"""The architectures in fat binaries built here byte by byte, sound and broken ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.probes._binaries import MalformedError, architectures, opened
from tests.environments import CUBIN, FAMILY, OWN, PTX, concatenated, container, elf, entry


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


def test_entries_compressed_together_are_told_apart(tmp_path: Path) -> None:
    path = library(
        tmp_path, container(entry(CUBIN, 100), concatenated(PTX, [80, 90], 80), concatenated(CUBIN, [80, 90]))
    )
    assert architectures(path).main == ("sm_80", "sm_90", "sm_100", "compute_80", "compute_90")


def test_padding_is_passed_over_and_a_library_may_have_none(tmp_path: Path) -> None:
    one = container(entry(CUBIN, 80))
    assert architectures(library(tmp_path, bytes(24), one, bytes(5000), one)).containers == 2
    path = tmp_path / "libc10.so"
    path.write_bytes(elf({".text": bytes(8)}))
    assert architectures(path).containers == 0


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


def test_a_slow_disk_ends_in_a_timeout(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        architectures(library(tmp_path, container(entry(CUBIN, 80))), seconds=-1)


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
