"""Every form in which an Xid is printed, live and pasted by one parser; and what a note denies is no sign of it."""

from pathlib import Path

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.core.log_lines import denied
from gpudoctor.readers import read_text
from tests.probes.test_probe_kernel_log import record, rows, tree_of
from tests.readers.reading import rows as pasted

FORMS = {
    "no process": ("(PCI:0000:1a:00): 79, GPU has fallen off the bus.", 79, ""),
    "a process": ("(PCI:0000:1a:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault", 31, ""),
    "an unknown process": ("(PCI:0000:1a:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception", 13, ""),
    "a process without a name": ("(PCI:0000:1a:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes", 95, ""),
    "a GPU instance": ("(PCI:0000:1a:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No", 94, "5"),
    "a compute instance": ("(PCI:0000:1a:00 GPU-I:01 GPU-CI:00): 43, pid=7, name=a.out, Ch 00000010", 43, "1/0"),
    "a consequence": ("(PCI:0000:1a:00): 45, pid=7, name=a.out, Ch 00000010 caused by previous Xid 31", 45, ""),
    "no PCI": ("(0000:1a:00): 8, Channel 00000014", 8, ""),
    "no domain": ("(1a:00): 13, 0001 00000000 00005097 00001b0c", 13, ""),
    "a function": ("(PCI:0000:1a:00.0): 62, 2023b230", 62, ""),
    "a bus of four digits": ("(001a:00): 6, PE0001", 6, ""),
    "eight digits of domain": ("(PCI:00000000:1A:00): 119, Timeout after 6s of waiting for RPC response", 119, ""),
    "nothing after the code": ("(PCI:0000:1a:00): 62", 62, ""),
    "a recovery action": ("(PCI:0000:1a:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (Reset)", 154, ""),
}
STAMPS = [
    "NVRM: Xid {}",
    "[  123.456789] NVRM: Xid {}",
    "[Mon Mar  3 10:11:12 2025] NVRM: Xid {}",
    "Mar  3 10:11:12 node17 kernel: NVRM: Xid {}",
    "2025-03-03T10:11:12.123456+00:00 node17 kernel: [  123.456789] NVRM: Xid {}",
    "2025-03-03T10:11:12,123456+01:00 NVRM: Xid {}",
    "kern  :err   : [  123.456789] NVRM: Xid {}",
    "<3>[  123.456789] NVRM: Xid {}",
    "3,4711,123456789,-;NVRM: Xid {}",
    "Xid {}",
]
NVLINK = [
    ("(PCI:0000:1a:00): 149, NETIR_LINK_EVT  Nonfatal   XC0 i0 Link 03 (0x004505c6)", "NETIR_LINK_EVT", False, 3),
    ("(PCI:0000:1a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x004505c6)", "NETIR_LINK_EVT", True, 9),
    ("(PCI:0000:1a:00): 145, RLW_SRC_TRACK Non-fatal XC0 i0 Link 00 (0x1)", "RLW_SRC_TRACK", False, 0),
    ("(PCI:0000:1a:00): 144, pid=7, name=a.out, SAW_MVB Fatal XC0 i0 Link 12 (0x1)", "SAW_MVB", True, 12),
    ("(PCI:0000:1a:00): 147, pid='<unknown>', name=<unknown>, TREX Nonfatal XC0 i0 Link 04 (0x1)", "TREX", False, 4),
]


def _pasted(text: str, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row.get(name) for name in columns) for row in pasted(text, "xid")]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_attributed_live(tmp_path: Path, form: str) -> None:
    printed, code, instance = FORMS[form]
    (row,) = rows(tree_of(tmp_path, record(f"NVRM: Xid {printed}")), "xid", "code", "address", "instance")
    assert row[:2] == (code, "0000:1a:00.0")
    assert (row[2] if instance else "") == instance


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_attributed_in_a_paste(form: str) -> None:
    printed, code, instance = FORMS[form]
    columns = ("code", "address", "instance")
    for stamp in STAMPS:
        assert _pasted(stamp.format(printed), *columns) == [(code, "0000:1a:00.0", instance or None)], stamp


@pytest.mark.parametrize(("printed", "unit", "fatal", "link"), NVLINK)
def test_nvlink_5_says_unit_severity_and_link(tmp_path: Path, printed: str, unit: str, fatal: bool, link: int) -> None:
    line = f"NVRM: Xid {printed}"
    assert _pasted(line, "unit", "fatal", "link") == [(unit, fatal, link)]
    assert rows(tree_of(tmp_path, record(line)), "xid", "unit", "fatal", "link") == [(unit, fatal, link)]


def test_two_instances_of_one_gpu_are_two_events(tmp_path: Path) -> None:
    lines = [f"NVRM: Xid (PCI:0000:1a:00 GPU-I:0{n}): 94, Contained: SM (0x1)." for n in (1, 1, 2)]
    tree = tree_of(tmp_path, *(record(line, 90 - n) for n, line in enumerate(lines)))
    assert rows(tree, "xid", "code", "instance", "count") == [(94, "1", 2), (94, "2", 1)]


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
