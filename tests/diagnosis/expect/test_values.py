"""What a line takes for a fact being as it must be, over rows and by conditions; and how it joins findings."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.core.language import speaking
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.expect import load
from tests.diagnosis.expect.machines import folded, held, known, lines_passed, machine, profile, unjudged, unmet

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
    ('host.memory_mib = ">= 1.5e+06"', "host.memory_mib", 2_000_000),
    ('host.cpu_vendor = { matches = "(Genuine)?(?(1)Intel|AMD)" }', "host.cpu_vendor", "GenuineIntel"),
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


def test_what_could_not_be_read_or_is_no_version_is_not_judged(tmp_path: Path) -> None:
    expected = profile(tmp_path, '[expect]\ndriver.version = ">= 570"\nhost.arch = "x86_64"')
    diagnosis = held(known({"driver.version": Unread("permission denied"), "host.arch": "x86_64"}), expected)
    assert unjudged(diagnosis) == {"driver-version": "driver.version: permission denied"}
    assert lines_passed(diagnosis) == ["host-arch"]
    assert diagnosis.verdict == "unknown"
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


def test_the_rows_that_deviate_are_named_each_value_once(tmp_path: Path) -> None:
    rows = [{"ecc": index not in (3, 5), "address": f"0000:{index:02x}:00.0", "index": index} for index in range(8)]
    diagnosis = held(known(gpu=rows), profile(tmp_path, "[expect]\ngpu.ecc = true"))
    (finding,) = unmet(diagnosis).values()
    assert finding.title == "gpu.ecc is no on GPU 3 and GPU 5, expected yes (ours)"
    assert [(item.fact, item.index) for item in finding.evidence] == [("gpu.ecc", 3), ("gpu.ecc", 5)]
    assert finding.subjects == ({"gpu": 3, "address": "0000:03:00.0"}, {"gpu": 5, "address": "0000:05:00.0"})
    assert finding.about == {"0000:03:00.0", "0000:05:00.0"}
    rows = [{"ecc": True, "uuid": "GPU-0"}, {"ecc": False, "uuid": "GPU-1"}]
    (finding,) = unmet(held(known(gpu=rows), profile(tmp_path, "[expect]\ngpu.ecc = true"))).values()
    assert finding.subject == {"gpu": 1, "uuid": "GPU-1"}


def test_what_is_unmet_is_said_in_the_language_that_is_spoken(tmp_path: Path) -> None:
    rows = [{"ecc": index not in (1, 3, 5), "index": index} for index in range(8)]
    lines = "[expect]\ngpu.ecc = true\n[line.each]\neach = 'gpu'\nwhen = ['gpu.ecc']\n"
    lines += "[line.ports]\neach = 'rdma'\nwhen = ['rdma.port > 0']\n"
    lines += "[line.own]\nwhen = ['gpu.count == 8']\nsays = '{gpu.count} only'"
    with speaking("zh"):
        found = unmet(held(known({"gpu.count": 7}, gpu=rows, rdma=[]), profile(tmp_path, lines)))
    assert [one.title for one in found.values()] == [
        "gpu.ecc 为 no（GPU 1、GPU 3、GPU 5），应为 yes（ours）",
        "GPU 1、GPU 3、GPU 5：gpu.ecc 为 no，应为 gpu.ecc（ours）",
        "这里没有 rdma，而 ports 要求逐个检查（ours）",
        "7 only（ours）",
    ]


def test_rows_that_were_not_read_or_are_not_there(tmp_path: Path) -> None:
    expected = profile(tmp_path, "[expect]\ngpu.ecc = true")
    rows: list[dict[str, object]] = [{"ecc": Unread("lost")}, {"ecc": True}]
    assert unjudged(held(known(gpu=rows), expected)) == {"gpu-ecc": "gpu.ecc: lost"}
    assert set(unmet(held(known(gpu=[*rows, {"ecc": False}]), expected))) == {"gpu-ecc"}
    diagnosis = held(known(nvlink=[]), profile(tmp_path, "[expect]\nnvlink.active = true"))
    assert unmet(diagnosis)["nvlink-active"].title == "nvlink.active: there are no NVLinks here, expected yes (ours)"
    quiet = profile(tmp_path, "[expect]\nxid.code = { not = 79 }\naer.kind = { present = false }\ngpu.count = 8")
    diagnosis = held(known({"gpu.count": 8}, xid=[], aer=[]), quiet)
    assert lines_passed(diagnosis) == ["xid-code", "aer-kind", "gpu-count"]
    rows = [{"address": "0000:01:00.0", "code": 79, "kind": "Physical Layer"}]
    assert set(unmet(held(known({"gpu.count": 8}, xid=rows, aer=rows), quiet))) >= {"xid-code", "aer-kind"}


_RAILS = """
[line.rails]
fact = "rdma.state"
is = "ACTIVE"
where = "rdma.rate_gbps == 400"
at_least = 2
"""


def test_so_many_rows_at_least_of_those_that_count(tmp_path: Path) -> None:
    expected = profile(tmp_path, _RAILS)
    up, down, slow = (
        {"device": name, "port": 1, "state": state, "rate_gbps": rate}
        for name, state, rate in (("mlx5_0", "ACTIVE", 400.0), ("mlx5_1", "DOWN", 400.0), ("mlx5_2", "ACTIVE", 25.0))
    )
    assert lines_passed(held(known(rdma=[up, up, down, slow]), expected)) == ["rails"]
    (finding,) = unmet(held(known(rdma=[up, down, slow]), expected)).values()
    assert finding.title == (
        "rdma.state is ACTIVE on 1 port where rdma.rate_gbps == 400, expected on 2 at least (ours);"
        " DOWN on mlx5_1 port 1"
    )
    unsure = {**up, "state": Unread("denied")}
    assert unjudged(held(known(rdma=[up, unsure]), expected)) == {"rails": "rdma.state: denied"}


def test_conditions_are_those_of_rule_pages(tmp_path: Path) -> None:
    text = """
[line.layout]
when = ["sorted([one.profile for one in mig]) == ['1g.10gb', '3g.40gb']"]
says = "the MIG devices are {[one.profile for one in mig]}"

[line.capable]
each = "gpu"
when = ["version(gpu.compute_capability) >= '9.0'", "gpu.memory_mib >= 80000"]
"""
    gpus = [{"compute_capability": "9.0", "memory_mib": 81559}, {"compute_capability": "8.0", "memory_mib": 81920}]
    machine = known(gpu=gpus, mig=[{"profile": "1g.10gb"}])
    found = unmet(held(machine, profile(tmp_path, text)))
    assert found["layout"].title == "the MIG devices are 1g.10gb (ours)"
    assert found["capable"].title == (
        "GPU 1: gpu.compute_capability is 8.0, expected version(gpu.compute_capability) >= '9.0'"
        " and gpu.memory_mib >= 80000 (ours)"
    )


def test_what_a_higher_level_measures_is_not_judged_and_no_reason_to_call_it_unknown(tmp_path: Path) -> None:
    expected = profile(tmp_path, '[expect]\ngpu.count = 8\n[measure]\nnccl.all_reduce = ">= 360 GB/s"')
    diagnosis = held(machine("hgx-h100"), expected)
    assert unjudged(diagnosis) == {"nccl-all-reduce": "measured: measured from level deep on; this was level standard"}
    assert diagnosis.verdict == "sound"
    assert diagnosis.notes[-1].text == (
        "As expected by ours: 1 line holds, 1 is not judged (1 for want of a higher level)."
    )


def test_a_floor_under_a_rate_is_held_to_what_was_measured(tmp_path: Path) -> None:
    expected = profile(tmp_path, '[measure]\n"matmul.bf16" = ">= 0.6 PFLOP/s"\nnccl.all_reduce = ">= 360 GB/s"')
    rows = [
        {"kernel": "matmul.bf16", "gpu": gpu, "value": rate, "status": "ran"} for gpu, rate in ((0, 684.0), (1, 520.5))
    ]
    rows.append({"kernel": "nccl.all_reduce", "gpu": Absent("all"), "value": 401.0, "status": "ran"})
    diagnosis = held(known(level="deep", measured=rows), expected)
    assert unmet(diagnosis)["matmul-bf16"].title == (
        "matmul.bf16 is 520.5 TFLOP/s on GPU 1, expected >= 0.6 PFLOP/s (ours)"
    )
    assert lines_passed(diagnosis) == ["nccl-all-reduce"]
    assert unjudged(held(known(level="deep", measured=[]), expected)) == {
        "matmul-bf16": "matmul.bf16: no measurement of it",
        "nccl-all-reduce": "nccl.all_reduce: no measurement of it",
    }


def test_in_a_paste_what_it_does_not_say_is_not_judged() -> None:
    from gpudoctor.app import reading

    diagnosis = reading.read("NVIDIA-SMI 535.54.03\nDriver Version: 535.54.03", expect="hgx-h100")
    assert unjudged(diagnosis)["gpu-ecc"] == "gpu: the report does not say"
    assert diagnosis.verdict == "unknown"


def test_what_a_cause_explains_is_folded_under_it() -> None:
    """The first thing to act on stays the cause."""
    for name, cause, line in (
        ("nvlink-three-links-h100", "gpu.nvlink-down", "nvlink-active"),
        ("driver-missing-hgx", "driver.missing", "driver-version"),
        ("lost-gpu-h100", "gpu.fell-off-bus", "gpu-error"),
    ):
        diagnosis = held(machine(name), load("hgx-h100"))
        assert diagnosis.findings[0].id == cause
        assert folded(diagnosis)[line] == cause


def test_what_nothing_explains_comes_behind_the_causes_and_in_the_order_of_the_profile(tmp_path: Path) -> None:
    expected = profile(tmp_path, '[expect]\ntorch.version = "2.4.0"\nhost.arch = "aarch64"\ngpu.links = 18')
    diagnosis = held(machine("nvlink-three-links-h100"), expected)
    assert [one.id for one in diagnosis.findings] == ["gpu.nvlink-down", "expect.torch-version", "expect.host-arch"]


def test_what_is_wrong_with_one_gpu_does_not_explain_another(tmp_path: Path) -> None:
    snapshot = machine("nvlink-three-links-h100")
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    odd = tuple({**row, "links": Known(12, "a test")} if index == 6 else row for index, row in enumerate(rows))
    sick = replace(snapshot, groups={**snapshot.groups, "gpu": odd})
    diagnosis = held(sick, profile(tmp_path, "[expect]\ngpu.links = 18"))
    assert unmet(diagnosis)["gpu-links"].title == "gpu.links is 12 on GPU 6, expected 18 (ours)"
    assert not folded(diagnosis)


def test_a_machine_that_is_sound_is_no_longer_called_so_where_a_line_is_unmet(tmp_path: Path) -> None:
    diagnosis = held(machine("hgx-h100"), profile(tmp_path, "[expect]\ngpu.count = 16"))
    assert diagnosis.verdict == "broken"
    assert [one.id for one in diagnosis.findings] == ["expect.gpu-count"]
    warned = held(machine("hgx-h100"), profile(tmp_path, '[expect]\ngpu.count = { is = 16, severity = "warning" }'))
    assert warned.verdict == "impaired"
    assert [one.id for one in warned.findings] == ["expect.gpu-count", "workload.none"]


def test_a_line_about_each_gpu_is_unmet_where_there_is_none() -> None:
    bare = Snapshot(Target("snapshot", "node", None, "quick"), {}, {"gpu": Absent("no NVIDIA GPU on the bus")})
    said = {finding.id: finding for finding in held(bare, load("hgx-h100")).findings}
    assert "expect.fabric" in said
    assert "no NVIDIA GPU on the bus" in str(said["expect.fabric"].evidence)
