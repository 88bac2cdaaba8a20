"""What ``gpudoctor bench`` prints: 80 columns for any number of GPUs, the odd ones named, what is alike said once."""

from dataclasses import replace

import pytest

from gpudoctor.app import pipeline
from gpudoctor.core.measurement import Bench, Device, Kernel, Meanwhile, Measurements, Run, Step, bench_verdict
from gpudoctor.views import bench
from gpudoctor.views._terminal import Style, digits
from tests.measured import node, too_old
from tests.views.tui.machines import diagnosis_of

MATMUL = Kernel("matmul.bf16", "bf16 matmul", "TFLOP/s")
ADD = Kernel("driver.add", "vector add, driver alone", "", rung="driver")
LOADER = Kernel("readiness.dataloader", "DataLoader at its best", "samples/s", rung="training")


def printed(found: Measurements) -> str:
    return bench.render(Bench(found, bench_verdict(found, ()), ()), Style())


def of(runs: list[Run], devices: int = 1, *kernels: Kernel) -> Measurements:
    names = tuple(Device(gpu, "H100") for gpu in range(devices))
    return Measurements("node05", kernels or (MATMUL, ADD, LOADER), names, tuple(runs))


def rack() -> Measurements:
    """72 GPUs: four at half the rate, one that is wrong."""
    values = [350.0 if gpu in {3, 4, 5, 17} else 700.0 for gpu in range(72)]
    runs = [Run(MATMUL.id, gpu, "ran", value, right=gpu != 9) for gpu, value in enumerate(values)]
    return of(runs, 72, MATMUL)


@pytest.mark.parametrize("found", [node(), too_old(), rack()], ids=["node", "too-old", "rack"])
def test_no_line_is_longer_than_a_terminal(found: Measurements) -> None:
    assert max(map(len, printed(found).splitlines())) <= 80


def test_eight_gpus_are_columns_and_the_odd_ones_are_marked() -> None:
    said = printed(node())
    line = next(line for line in said.splitlines() if line.startswith("  bf16 matmul"))
    assert line.split()[2:] == ["TFLOP/s", "721", "724", "725", "729", "724", "403<", "705!", "-"]
    assert "GPU 7: H100 80GB HBM3, in use by pid 41207, train.py: left alone" in said
    assert "GPU 5: 54 to 56 % of what was" in said
    assert said.splitlines()[-1].startswith("47 right, 2 wrong, 0 failed, 8 not run")


def test_72_gpus_are_folded_and_the_odd_ones_are_named() -> None:
    said = printed(rack())
    line = next(line for line in said.splitlines() if line.startswith("  bf16 matmul"))
    assert line.split()[3:6] == ["350", "700", "700"]
    assert "slow: GPUs 3-5, 17" in said
    assert "wrong: GPU 9" in said


def test_one_gpu_has_the_share_of_what_was_expected_beside_its_figure() -> None:
    found = node()
    one = replace(found, devices=found.devices[:1], runs=tuple(run for run in found.runs if run.gpu == 0))
    line = next(line for line in printed(one).splitlines() if line.startswith("  bf16 matmul"))
    assert line.split()[3:] == ["721", "100", "%"]


def test_a_kernel_that_did_not_run_on_a_gpu_leaves_its_columns_empty() -> None:
    runs = [Run(MATMUL.id, gpu, "ran", 700.0 + gpu) for gpu in (0, 2)]
    ran = [Run(LOADER.id, gpu, "ran", 700.0 + gpu) for gpu in range(3)]
    lines = [line for line in printed(of([*runs, *ran], 3)).splitlines() if "702" in line and "-" not in line]
    assert len({line.index("702") for line in lines[:2]}) == 1


def test_a_failure_names_its_layer_and_why() -> None:
    ladder = (
        Step("driver", False, "driver.add: 3 of 16 values are wrong"),
        Step("torch", False, "matmul.bf16: no image"),
    )
    said = printed(of([Run(MATMUL.id, 0, "failed", because="no image", ladder=ladder)]))
    assert "bf16 matmul: failed: no image. Layer: driver, where driver.add: 3 of 16" in " ".join(said.split())


def test_a_rung_that_does_not_open_is_one_line() -> None:
    kernels = [Kernel(f"matmul.{name}", f"{name} matmul", "TFLOP/s") for name in ("fp64", "fp32", "fp16", "bf16")]
    ladder = (Step("torch", False, "OSError: libcudart.so.12"),)
    runs = [
        Run(kernel.id, gpu, "failed", because="OSError: libcudart.so.12", ladder=ladder)
        for kernel in kernels
        for gpu in range(2)
    ]
    said = printed(of(runs, 2, *kernels))
    assert "torch (4 kernels), all GPUs: failed: OSError: libcudart.so.12. Layer: torch." in said
    assert said.count("libcudart") == 1


def test_what_a_figure_means_and_what_to_do_is_told_once_for_gpus_alike() -> None:
    runs = [
        Run(LOADER.id, gpu, "ran", 800.0 + gpu, words=f"{800 + gpu} with 4 workers.", advice="Set num_workers=4.")
        for gpu in range(4)
    ]
    said = printed(of(runs, 4))
    assert "DataLoader at its best, all GPUs: 800 to 803 samples/s. 800 with 4 workers." in said
    assert said.count("-> Set num_workers=4.") == 1


def test_errors_that_were_counted_meanwhile_stand_below_the_figures() -> None:
    noisy = [
        Run(one.id, 1, "ran", 1.0, right=True, meanwhile=Meanwhile(ecc_corrected=310, seconds=6))
        for one in (MATMUL, ADD)
    ]
    said = printed(
        of([*noisy, Run(MATMUL.id, 0, "ran", 1.0, right=True, meanwhile=Meanwhile(ecc_corrected=0, seconds=6))], 2)
    )
    assert "GPU 1 meanwhile: 620 memory errors repaired in 12.0 s" in said
    assert "GPU 0 meanwhile" not in said


def test_reasons_are_told_once_with_what_waits_for_them() -> None:
    runs = [Run(kernel.id, gpu, "not-run", because="needs two GPUs") for kernel in (MATMUL, LOADER) for gpu in range(2)]
    said = printed(of(runs, 2))
    assert said.count("needs two GPUs") == 1
    assert "-> bf16 matmul; DataLoader at its best, all GPUs" in said


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (0.00004, "4e-05"),
        (0.195, "0.195"),
        (4.123, "4.12"),
        (54.06, "54.1"),
        (712.4, "712"),
        (9994, "9994"),
        (12345, "12.3k"),
        (99_951, "100k"),
        (1.2e6, "1.2M"),
        (3.35e12, "3.4T"),
    ],
)
def test_a_figure_has_three_digits_in_five_columns(value: float, words: str) -> None:
    assert digits(value) == words
    assert len(digits(-value)) <= 6


def test_findings_are_those_that_rest_on_what_was_measured() -> None:
    made = pipeline.benched(diagnosis_of("hgx-h100").snapshot, node())
    assert made.verdict == "broken"
    assert {finding.severity for finding in made.findings} <= {"error", "warning", "info"}
    assert any("GPU 5" in finding.title or finding.subject for finding in made.findings)
    healthy = tuple(run for run in node().runs if run.gpu < 5)
    sound = pipeline.benched(diagnosis_of("hgx-h100").snapshot, replace(node(), runs=healthy))
    assert (sound.verdict, sound.findings) == ("sound", ())
