"""What a line takes for a fact being as it must be: short forms, units, versions, lists, absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Unread
from tests.diagnosis.expect.machines import held, known, lines_passed, profile, unjudged, unmet

_HOLDS: list[tuple[str, str, object]] = [
    ("gpu.count = 8", "gpu.count", 8),
    ('gpu.count = ">= 4, <= 8"', "gpu.count", 8),
    ('gpu.count = "!= 7"', "gpu.count", 8),
    ('"gpu.count" = 8', "gpu.count", 8),
    ('limits.shm_mib = ">= 64 GiB"', "limits.shm_mib", 65536),
    ('limits.shm_mib = ">= 60 GB"', "limits.shm_mib", 60 * 10**9 // 2**20 + 1),
    ('host.memory_mib = "1 TiB +- 5 %"', "host.memory_mib", 1_000_000),
    ('host.memory_mib = "1024 GiB ± 64 GiB"', "host.memory_mib", 1_100_000),
    ('fitness.cpu_mhz_max = ">= 3.5 GHz"', "fitness.cpu_mhz_max", 3500),
    ('driver.version = "570.124.06"', "driver.version", "570.124.06"),
    ('driver.version = ">= 570, < 590"', "driver.version", "580.95.05"),
    ('driver.version = "580.*"', "driver.version", "580.95.05"),
    ('driver.version = ["570.124.06", "580.*"]', "driver.version", "580.95.05"),
    ('torch.version = "2.9.1"', "torch.version", "2.9.1+cu128"),
    ('torch.version = "~= 2.9.0"', "torch.version", "2.9.3"),
    ('torch.version = { is = ">= 2.7", not = "2.8.0" }', "torch.version", "2.9.1+cu128"),
    ('host.kernel = "6.8.0-79-generic"', "host.kernel", "6.8.0-79-generic"),
    ('host.kernel = ">= 6.8"', "host.kernel", "6.8.0-79-generic"),
    ('host.distribution = ["ubuntu", "debian"]', "host.distribution", "debian"),
    ('host.cpu_vendor = { not = "AuthenticAMD" }', "host.cpu_vendor", "GenuineIntel"),
    ('host.os = { matches = "^ubuntu 24" }', "host.os", "Ubuntu 24.04.3 LTS"),
    ("driver.peermem_loaded = true", "driver.peermem_loaded", True),
    ('torch.archs = { has = ["sm_90"] }', "torch.archs", ("sm_80", "sm_90")),
    ('torch.archs = { lacks = ["sm_50"] }', "torch.archs", ("sm_80", "sm_90")),
    ('torch.archs = { lacks = ["sm_50"] }', "torch.archs", Absent("not installed")),
    ('host.container = { not = "docker" }', "host.container", Absent("not in a container")),
    ('torch.archs = ["sm_90", "sm_80"]', "torch.archs", ("sm_80", "sm_90")),
    ("env.CUDA_VISIBLE_DEVICES = { present = false }", "env.CUDA_VISIBLE_DEVICES", Absent("not set")),
    ("env.NCCL_SOCKET_IFNAME = { present = true }", "env.NCCL_SOCKET_IFNAME", "eth0"),
    ('env.NCCL_SOCKET_IFNAME = "eth0"', "env.NCCL_SOCKET_IFNAME", "eth0"),
]
_DOES_NOT: list[tuple[str, str, object, str]] = [
    ("gpu.count = 8", "gpu.count", 7, "gpu.count is 7, expected 8 (ours)"),
    ('limits.shm_mib = ">= 64 GiB"', "limits.shm_mib", 64, "limits.shm_mib is 64 MiB, expected >= 64 GiB (ours)"),
    (
        'driver.version = ">= 570, < 590"',
        "driver.version",
        "535.54.03",
        "driver.version is 535.54.03, expected >= 570, < 590 (ours)",
    ),
    ('cuda.nvcc_version = "12.1"', "cuda.nvcc_version", "12.10", "cuda.nvcc_version is 12.10, expected 12.1 (ours)"),
    (
        'torch.version = "2.9.1+cu128"',
        "torch.version",
        "2.9.1+cu130",
        "torch.version is 2.9.1+cu130, expected 2.9.1+cu128 (ours)",
    ),
    ('torch.version = "< 2.9"', "torch.version", "2.9.0+cu128", "torch.version is 2.9.0+cu128, expected < 2.9 (ours)"),
    ("driver.persistenced = true", "driver.persistenced", False, "driver.persistenced is no, expected yes (ours)"),
    ('host.os = { matches = "^rocky" }', "host.os", "Ubuntu", "host.os is Ubuntu, expected a match of '^rocky' (ours)"),
    (
        'torch.archs = { lacks = ["sm_50"] }',
        "torch.archs",
        ("sm_50",),
        "torch.archs is sm_50, expected a list without sm_50 (ours)",
    ),
    (
        'host.memory_mib = "1 TiB +- 5 %"',
        "host.memory_mib",
        900_000,
        "host.memory_mib is 900000 MiB, expected 1 TiB +- 5 % (ours)",
    ),
    (
        "env.CUDA_VISIBLE_DEVICES = { present = false }",
        "env.CUDA_VISIBLE_DEVICES",
        "0",
        "env.CUDA_VISIBLE_DEVICES is 0, expected none (ours)",
    ),
    (
        'env.NCCL_ALGO = "Ring"',
        "env.NCCL_ALGO",
        Absent("not set"),
        "env.NCCL_ALGO is none (not set), expected Ring (ours)",
    ),
    (
        'driver.version = "525"',
        "driver.version",
        "525.60.13",
        'driver.version is 525.60.13, expected 525 (ours); its whole branch is written "525.*"',
    ),
    (
        'host.os = "Ubuntu 24.04"',
        "host.os",
        "Ubuntu 24.04.3 LTS",
        'host.os is Ubuntu 24.04.3 LTS, expected Ubuntu 24.04 (ours); a part of it is { matches = "Ubuntu 24.04" }',
    ),
]


@pytest.mark.parametrize(("line", "fact", "value"), _HOLDS)
def test_it_is_as_expected(tmp_path: Path, line: str, fact: str, value: object) -> None:
    diagnosis = held(known({fact: value}), profile(tmp_path, f"[expect]\n{line}"))
    assert len(lines_passed(diagnosis)) == 1, unmet(diagnosis)
    assert not unmet(diagnosis)


@pytest.mark.parametrize(("line", "fact", "value", "says"), _DOES_NOT)
def test_it_is_otherwise_and_the_finding_says_what_is_and_what_is_expected(
    tmp_path: Path, line: str, fact: str, value: object, says: str
) -> None:
    diagnosis = held(known({fact: value}), profile(tmp_path, f"[expect]\n{line}"))
    (finding,) = unmet(diagnosis).values()
    assert finding.title == says
    assert (finding.severity, finding.role, finding.confidence) == ("error", "cause", "certain")
    assert [item.fact for item in finding.evidence] == [fact]
    assert diagnosis.verdict == "broken"


def test_what_could_not_be_read_is_not_judged_and_leaves_no_verdict(tmp_path: Path) -> None:
    expected = profile(tmp_path, '[expect]\ndriver.version = ">= 570"\nhost.arch = "x86_64"')
    diagnosis = held(known({"driver.version": Unread("permission denied"), "host.arch": "x86_64"}), expected)
    assert unjudged(diagnosis) == {"driver-version": "driver.version: permission denied"}
    assert lines_passed(diagnosis) == ["host-arch"]
    assert diagnosis.verdict == "unknown"


def test_a_value_that_is_no_version_is_not_judged(tmp_path: Path) -> None:
    diagnosis = held(known({"driver.version": "??"}), profile(tmp_path, '[expect]\ndriver.version = ">= 570"'))
    assert unjudged(diagnosis) == {"driver-version": "driver.version: ?? cannot be compared with >= 570"}


def test_severity_reason_and_what_to_do_are_the_lines_own(tmp_path: Path) -> None:
    text = """
[expect.driver.persistenced]
is = true
severity = "warning"
why = "Starts take seconds without it."
do = ["systemctl", "enable", "--now", "nvidia-persistenced"]
needs = ["root"]
"""
    diagnosis = held(known({"driver.persistenced": False}), profile(tmp_path, text))
    (finding,) = unmet(diagnosis).values()
    assert finding.severity == "warning"
    assert finding.why == "Starts take seconds without it."
    assert finding.fixes[0].steps[0].argv == ("systemctl", "enable", "--now", "nvidia-persistenced")
    assert finding.fixes[0].steps[0].needs == ("root",)
    assert diagnosis.verdict == "unknown"  # nothing else is known of this machine
