"""Profiles from machines that are as they should be, and those that ship: where they hold and where they do not."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Fact, Known, Row, Unread, Value
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.expect import Profile, load
from gpudoctor.diagnosis.expect.reading import shipped_names, text_of
from gpudoctor.diagnosis.expect.writing import profile_text
from gpudoctor.diagnosis.knowledge import complete
from tests.diagnosis.expect.machines import folded, held, known, machine, profile, unjudged, unmet
from tests.sim import scenario

_TODAY = "2026-11-22"
_HEALTHY = scenario.names(scenario.PROFILES)


def golden(folder: Path, *names: str) -> Profile:
    return profile(folder, profile_text([complete(machine(name)) for name in names], _TODAY, "golden"), "golden")


def another(snapshot: Snapshot) -> Snapshot:
    """Another healthy machine of the kind: what is one's own, or of the moment, is otherwise."""
    moved: dict[str, Value] = {
        "temperature_c": 61,
        "clock_mhz": 1980,
        "memory_used_mib": 4096,
        "power_w": 411,
        "utilization": 93,
        "pstate": 0,
        "link_generation": 5,
        "processes": 3,
        "vbios": "96.00.99.00.02",
        "inforom": "G520.0200.00.06",
        "throttle_reasons": ("sw_power_cap",),
        "ecc_corrected": 2,
        "remapped_corrected": 1,
        "numa_node": 0,
    }
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    gpus = tuple(
        {
            **row,
            **{name: Known(value, "a test") for name, value in moved.items() if isinstance(row.get(name), Known)},
            "uuid": Known(f"GPU-{index:08x}", "a test"),
            "serial": Known(f"99{index}", "a test"),
            "address": Known(f"0000:{index + 0x60:02x}:00.0", "a test"),
        }
        for index, row in enumerate(rows)
    )
    own = {"host.uptime_s": Known(77, "a test"), "host.kernel": Known("6.8.0-81-generic", "a test")}
    facts = {name: own.get(name, state) for name, state in snapshot.facts.items()}
    return replace(snapshot, facts=facts, groups={**snapshot.groups, "gpu": gpus})


@pytest.mark.parametrize("name", _HEALTHY)
def test_the_machine_it_was_written_from_and_its_like_are_as_expected(name: str, tmp_path: Path) -> None:
    expected = golden(tmp_path, name)
    for snapshot in (machine(name), another(machine(name))):
        diagnosis = held(snapshot, expected)
        assert not unmet(diagnosis)
        assert not folded(diagnosis)
        assert not unjudged(diagnosis)


_SICK = {
    "lost-gpu-h100": ("hgx-h100", {"gpu-error"}),
    "nvlink-three-links-h100": ("hgx-h100", {"nvlink-active"}),
    "throttled-heat-h100": ("hgx-h100", {"gpu-throttle-reasons"}),
    "fabric-manager-stopped": ("hgx-h100", {"driver-fabric-manager"}),
    "driver-missing-hgx": ("hgx-h100", {"driver-version"}),
    "mig-no-instance-a100": ("hgx-a100", {"gpu-mig"}),
    "nvlink5-gpu-dark-b200": ("hgx-b200", {"nvlink-active"}),
    "infiniband-port-fell": ("hgx-h100", {"rdma-400"}),
    "torch-cpu-build-4090": ("rtx4090", {"torch-cuda"}),
}


@pytest.mark.parametrize("name", _SICK)
def test_a_machine_that_deviates_does_not_pass(name: str, tmp_path: Path) -> None:
    base, lines = _SICK[name]
    diagnosis = held(machine(name), golden(tmp_path, base))
    assert lines <= {*unmet(diagnosis), *folded(diagnosis)}
    assert diagnosis.verdict == "broken"


@pytest.mark.parametrize(
    ("fact", "value", "line"),
    [
        ("driver.version", "570.124.06", "driver-version"),
        ("driver.version", "590.44.01", "driver-version"),
        ("gpu.count", 7, "gpu-count"),
        ("torch.version", "2.8.0+cu128", "torch-version"),
        ("limits.memlock_kib", 64, "limits-memlock-kib"),
        ("fitness.cpus_present", 56, "fitness-cpus-present"),
        ("topology.numa_nodes", 8, "topology-numa-nodes"),
    ],
)
def test_one_thing_changed_is_one_line_unmet(fact: str, value: Value, line: str, tmp_path: Path) -> None:
    snapshot = machine("hgx-h100")
    changed = replace(snapshot, facts={**snapshot.facts, fact: Known(value, "a test")})
    diagnosis = held(changed, golden(tmp_path, "hgx-h100"))
    assert line in {*unmet(diagnosis), *folded(diagnosis)}


def test_a_newer_driver_of_the_branch_is_as_good(tmp_path: Path) -> None:
    snapshot = machine("hgx-h100")
    newer = replace(snapshot, facts={**snapshot.facts, "driver.version": Known("580.105.08", "a test")})
    assert "driver-version" not in unmet(held(newer, golden(tmp_path, "hgx-h100")))


def test_nothing_of_it_is_one_machines_own() -> None:
    snapshot = machine("hgx-h100")
    text = profile_text([complete(snapshot)], _TODAY)
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    for column in ("uuid", "serial", "address", "vbios"):
        for row in rows:
            state = row[column]
            assert isinstance(state, Known)
            assert str(state.value) not in text
    assert not re.search(rf"\b{snapshot.target.name}\b", text.replace("hgx-h100", ""))


def test_from_several_machines_what_differs_is_loosened_or_left_out(tmp_path: Path) -> None:
    expected = golden(tmp_path, "hgx-h100", "hgx-h200")
    for name in ("hgx-h100", "hgx-h200"):
        diagnosis = held(machine(name), expected)
        assert not unmet(diagnosis)
        assert diagnosis.verdict == "sound"
    text = profile_text([complete(machine(name)) for name in ("hgx-h100", "hgx-h200")], _TODAY)
    assert 'gpu.name = ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]' in text
    assert 'gpu.memory_mib = ">= 81559"' in text
    assert 'driver.version = ">= 580.95.05, < 581"' in text
    assert {"gpu-links", "gpu-name"} <= set(unmet(held(machine("hgx-a100"), expected)))


def test_what_is_not_known_everywhere_is_a_comment(tmp_path: Path) -> None:
    snapshot = complete(machine("hgx-h100"))
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    gpus = ({**rows[0], "ecc": Unread("denied")}, *rows[1:])
    text = profile_text([replace(snapshot, groups={**snapshot.groups, "gpu": gpus})], _TODAY)
    assert "# gpu.ecc: known of 7 of 8 only" in text
    assert "gpu-ecc" not in profile(tmp_path, text).lines


def test_rates_that_were_measured_become_floors(tmp_path: Path) -> None:
    rows = [
        {"kernel": "matmul.bf16", "gpu": gpu, "value": rate, "status": "ran", "rung": "torch"}
        for gpu, rate in enumerate((684.0, 671.0))
    ]
    snapshot = known({"gpu.count": 2}, "deep", measured=rows)
    text = profile_text([snapshot], _TODAY)
    assert 'matmul.bf16 = ">= 604 TFLOP/s"' in text
    assert not unmet(held(snapshot, profile(tmp_path, text)))
    slow = known({"gpu.count": 2}, "deep", measured=[{**rows[0], "value": 520.0}])
    assert list(unmet(held(slow, profile(tmp_path, text)))) == ["matmul-bf16"]
    memory = known({"gpu.count": 2}, "deep", measured=[{**rows[0], "kernel": "copy.device", "value": 3012.7}])
    text = profile_text([memory], _TODAY)
    assert 'copy.device = ">= 2710 GB/s"' in text
    assert not unmet(held(memory, profile(tmp_path, text)))


def test_names_that_are_no_toml_are_written_so_that_they_are_read_again(tmp_path: Path) -> None:
    odd = 'A "quoted" \\ name\x1b[31m\n# \u2603 \x7f'
    snapshot = known({"gpu.count": 1}, gpu=[{"name": odd}], mig=[{"profile": "1g'\"\\ \n"}])
    expected = profile(tmp_path, profile_text([snapshot], _TODAY))
    assert not unmet(held(snapshot, expected))
    assert {"gpu-name", "mig-layout"} <= set(expected.lines)


def test_of_a_machine_of_which_nothing_is_known_there_is_no_profile() -> None:
    with pytest.raises(UsageError, match="nothing that another machine could be held to"):
        profile_text([known()], _TODAY)


_GPUS = {
    "hgx-a100-80gb": "hgx-a100",
    "hgx-h100": "hgx-h100",
    "hgx-h200": "hgx-h200",
    "hgx-b200": "hgx-b200",
    "hgx-b300": "hgx-b300",
    "gb200-nvl": "gb200-nvl",
    "gb300-nvl": "gb300-nvl",
    "dgx-spark": "dgx-spark",
    "l40s-8x": "l40s",
}
"""Profiles of nodes, and the simulated machine of that kind."""
_CLOUD = {
    "aws-p4d.24xlarge": ("hgx-a100", 4, 100),
    "aws-p4de.24xlarge": ("hgx-a100", 4, 100),
    "aws-p5.48xlarge": ("hgx-h100", 32, 100),
    "aws-p5e.48xlarge": ("hgx-h200", 32, 100),
    "aws-p5en.48xlarge": ("hgx-h200", 16, 200),
    "aws-p6-b200.48xlarge": ("hgx-b200", 8, 400),
    "aws-p6-b300.48xlarge": ("hgx-b300", 0, 0),
    "aws-p6e-gb200.36xlarge": ("gb200-nvl", 0, 0),
    "aws-g6e.48xlarge": ("l40s", 4, 100),
    "azure-nd96asr-v4": ("hgx-a100", 8, 200),
    "azure-nd96amsr-a100-v4": ("hgx-a100", 8, 200),
    "azure-nd96isr-h100-v5": ("hgx-h100", 8, 400),
    "azure-nd96isr-h200-v5": ("hgx-h200", 8, 400),
    "azure-nd128isr-ndr-gb200-v6": ("gb200-nvl", 4, 400),
    "gcp-a2-highgpu-8g": ("hgx-a100", 0, 0),
    "gcp-a2-ultragpu-8g": ("hgx-a100", 0, 0),
    "gcp-a2-megagpu-16g": ("hgx-a100", 0, 0),
    "gcp-a3-highgpu-8g": ("hgx-h100", 0, 0),
    "gcp-a3-megagpu-8g": ("hgx-h100", 0, 0),
    "gcp-a3-ultragpu-8g": ("hgx-h200", 8, 400),
    "gcp-a4-highgpu-8g": ("hgx-b200", 8, 400),
    "gcp-a4x-highgpu-4g": ("gb200-nvl", 4, 400),
    "rtx-pro-6000-8x": ("l40s", 0, 0),
    "oci-bm.gpu.h100.8": ("hgx-h100", 16, 200),
}
"""Instance types: the machine they are made of, and its ports for RDMA with their rate."""
_FORTY = {"hgx-a100-40gb", "aws-p4d.24xlarge", "azure-nd96asr-v4", "gcp-a2-highgpu-8g", "gcp-a2-megagpu-16g"}
_VERSIONS = "nvidia-advisories"
"""The profile that is about versions, not about a kind of machine."""
_KINDS = [name for name in shipped_names() if name != _VERSIONS]


def of_kind(name: str) -> Snapshot:
    """The machine that the profile is about, made of a simulated one."""
    if name in _GPUS:
        return machine(_GPUS[name])
    base, ports, rate = _CLOUD.get(name, ("hgx-a100", 0, 0))
    snapshot = machine(base)
    gpus, rdma = snapshot.rows("gpu"), snapshot.rows("rdma")
    assert isinstance(gpus, tuple)
    assert isinstance(rdma, tuple)
    if name in _FORTY:
        small = {"name": Known("NVIDIA A100-SXM4-40GB", "a test"), "memory_mib": Known(40960, "a test")}
        gpus = tuple({**row, **small} for row in gpus)
    more: dict[str, Fact] = dict.fromkeys(("limits.cpus", "fitness.cpus_present"), Known(192, "a test"))
    if name == "rtx-pro-6000-8x":  # of the simulated cards of that kind there is one, for a workstation
        gpus = tuple({**row, **_server_card()} for row in gpus)
        more.update({"driver.module_kind": Known("open", "a test"), "driver.version": Known("580.95.05", "a test")})
    if "16g" in name:
        gpus = (*gpus, *gpus)
    port = {**rdma[0], "rate_gbps": Known(float(rate), "a test")}
    memory = Known(1_990_000 if base != "hgx-a100" else 1_860_000, "a test")
    facts = {**snapshot.facts, **more, "gpu.count": Known(len(gpus), "a test"), "host.memory_mib": memory}
    return replace(snapshot, facts=facts, groups={**snapshot.groups, "gpu": gpus, "rdma": (port,) * ports})


def _server_card() -> Row:
    """The columns of an RTX PRO 6000 in which it is not as an L40S."""
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    numbers = {"memory_mib": 97887, "link_generation_max": 5, "link_generation": 5, "power_limit_w": 600}
    return {"name": Known(name, "a test"), **{column: Known(value, "a test") for column, value in numbers.items()}}


def test_every_one_has_a_machine_here() -> None:
    assert {*_GPUS, *_CLOUD, "hgx-a100-40gb", _VERSIONS} == set(shipped_names())


@pytest.mark.parametrize(
    ("driver", "line"),
    [("580.95.05", True), ("580.159.03", False), ("570.211.01", False), ("535.288.01", True), ("615.71.05", False)],
)
def test_published_vulnerabilities_are_information_and_newer_drivers_are_silent(driver: str, line: bool) -> None:
    snapshot = machine("hgx-h100")
    snapshot = replace(snapshot, facts={**snapshot.facts, "driver.version": Known(driver, "a test")})
    found = unmet(held(snapshot, load(_VERSIONS)))
    assert ("driver-advisories" in found) == line
    assert all(one.severity == "info" for one in found.values())


def test_a_container_toolkit_with_a_published_vulnerability() -> None:
    snapshot = machine("docker")
    for version, line in (("1.17.7", True), ("1.19.1", False)):
        facts = {**snapshot.facts, "container.toolkit_version": Known(version, "a test")}
        found = unmet(held(replace(snapshot, facts=facts), load(_VERSIONS)))
        assert ("container-toolkit-advisories" in found) == line


@pytest.mark.parametrize("name", _KINDS)
def test_a_healthy_machine_of_the_kind_is_as_expected(name: str) -> None:
    diagnosis = held(of_kind(name), load(name))
    assert not unmet(diagnosis)
    assert not unjudged(diagnosis)
    assert diagnosis.verdict == "sound"


@pytest.mark.parametrize("name", _KINDS)
def test_a_machine_with_one_gpu_less_or_of_another_kind_is_not(name: str) -> None:
    snapshot = of_kind(name)
    gpus = snapshot.rows("gpu")
    assert isinstance(gpus, tuple)
    fewer = {**snapshot.facts, "gpu.count": Known(len(gpus) - 1, "a test")}
    lost = replace(snapshot, facts=fewer, groups={**snapshot.groups, "gpu": gpus[1:]})
    diagnosis = held(lost, load(name))
    assert "gpu-count" in {*unmet(diagnosis), *folded(diagnosis)}  # the bus shows a GPU that the driver does not
    assert diagnosis.verdict == "broken"
    other = machine("l40s" if "l40s" not in name and "g6e" not in name else "hgx-h100")
    diagnosis = held(other, load(name))
    assert "gpu-name" in unmet(diagnosis)
    assert diagnosis.verdict == "broken"


@pytest.mark.parametrize("name", [name for name, (_, ports, _) in _CLOUD.items() if ports])
def test_a_port_that_is_missing_is_found(name: str) -> None:
    snapshot = of_kind(name)
    ports = snapshot.rows("rdma")
    assert isinstance(ports, tuple)
    down = replace(snapshot, groups={**snapshot.groups, "rdma": ports[1:]})
    (finding,) = unmet(held(down, load(name))).values()
    assert finding.id in {"expect.efa", "expect.infiniband", "expect.rdma"}
    assert f"on {len(ports) - 1} port" in finding.title


@pytest.mark.parametrize(("processors", "lines"), [(96, ["fitness-cpus-present"]), (192, [])])
def test_half_of_the_processors_is_a_warning(processors: int, lines: list[str]) -> None:
    snapshot = of_kind("aws-p5.48xlarge")
    facts = {**snapshot.facts, "fitness.cpus_present": Known(processors, "a test")}
    found = unmet(held(replace(snapshot, facts=facts), load("aws-p5.48xlarge")))
    assert list(found) == lines
    assert {one.severity for one in found.values()} <= {"warning"}


def test_dark_links_are_a_finding_or_under_one() -> None:
    for sick, name in (("nvlink-three-links-h100", "aws-p5.48xlarge"), ("nvlink-gpu-dark-a100", "hgx-a100-80gb")):
        diagnosis = held(machine(sick), load(name))
        assert "nvlink-active" in {*unmet(diagnosis), *folded(diagnosis)}


@pytest.mark.parametrize("name", shipped_names())
def test_it_says_where_it_is_from_and_when(name: str) -> None:
    text = text_of(name)
    profile = load(name)
    assert profile.name == name
    assert profile.about
    assert profile.sources
    assert re.search(r'^checked = "20\d\d-\d\d-\d\d"$', text, re.MULTILINE)
    assert f"--expect {name}" in text
