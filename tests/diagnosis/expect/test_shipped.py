"""Profiles that ship: they are read, they hold on machines of their kind, and on no other."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.expect import load
from gpudoctor.diagnosis.expect.reading import shipped_names, text_of
from tests.diagnosis.expect.machines import folded, held, machine, unjudged, unmet

_GPUS = {
    "hgx-a100-80gb": "hgx-a100",
    "hgx-h100": "hgx-h100",
    "hgx-h200": "hgx-h200",
    "hgx-b200": "hgx-b200",
    "gb200-nvl": "gb200-nvl",
    "l40s-8x": "l40s",
}
"""Profiles of nodes, and the simulated machine of that kind."""
_CLOUD = {
    "aws-p4d.24xlarge": ("hgx-a100", 4, 100),
    "aws-p4de.24xlarge": ("hgx-a100", 4, 100),
    "aws-p5.48xlarge": ("hgx-h100", 32, 100),
    "aws-p5en.48xlarge": ("hgx-h200", 16, 200),
    "aws-p6-b200.48xlarge": ("hgx-b200", 8, 400),
    "aws-g6e.48xlarge": ("l40s", 4, 100),
    "azure-nd96asr-v4": ("hgx-a100", 8, 200),
    "azure-nd96amsr-a100-v4": ("hgx-a100", 8, 200),
    "azure-nd96isr-h100-v5": ("hgx-h100", 8, 400),
    "azure-nd96isr-h200-v5": ("hgx-h200", 8, 400),
    "gcp-a2-highgpu-8g": ("hgx-a100", 0, 0),
    "gcp-a2-ultragpu-8g": ("hgx-a100", 0, 0),
    "gcp-a2-megagpu-16g": ("hgx-a100", 0, 0),
    "gcp-a3-highgpu-8g": ("hgx-h100", 0, 0),
    "gcp-a3-megagpu-8g": ("hgx-h100", 0, 0),
    "gcp-a3-ultragpu-8g": ("hgx-h200", 8, 400),
    "gcp-a4-highgpu-8g": ("hgx-b200", 8, 400),
    "oci-bm.gpu.h100.8": ("hgx-h100", 16, 200),
}
"""Instance types: the machine they are made of, and its ports for RDMA with their rate."""
_FORTY = {"hgx-a100-40gb", "aws-p4d.24xlarge", "azure-nd96asr-v4", "gcp-a2-highgpu-8g", "gcp-a2-megagpu-16g"}


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
    if "16g" in name:
        gpus = (*gpus, *gpus)
    port = {**rdma[0], "rate_gbps": Known(float(rate), "a test")}
    memory = Known(1_990_000 if base != "hgx-a100" else 1_860_000, "a test")
    facts = {**snapshot.facts, "gpu.count": Known(len(gpus), "a test"), "host.memory_mib": memory}
    return replace(snapshot, facts=facts, groups={**snapshot.groups, "gpu": gpus, "rdma": (port,) * ports})


def test_every_one_has_a_machine_here() -> None:
    assert {*_GPUS, *_CLOUD, "hgx-a100-40gb"} == set(shipped_names())


@pytest.mark.parametrize("name", shipped_names())
def test_a_healthy_machine_of_the_kind_is_as_expected(name: str) -> None:
    diagnosis = held(of_kind(name), load(name))
    assert not unmet(diagnosis)
    assert not unjudged(diagnosis)
    assert diagnosis.verdict == "sound"


@pytest.mark.parametrize("name", shipped_names())
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
