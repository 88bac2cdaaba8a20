"""The ladder on sick children: which rung is named, what is tried above it, and that devices do not cost each other."""

import os
import sys
import threading
from collections.abc import Sequence

from gpudoctor.core.fact import Unread
from gpudoctor.core.measurement import Device, Measurements, Run, Step
from gpudoctor.kernels import facts
from gpudoctor.kernels.ladder import NODE, Ladder
from gpudoctor.kernels.specs import KernelEntry
from gpudoctor.target.local import Local
from tests.sick_kernels import Sick
from tests.sick_kernels import sick as sick

ONE = (Device(0, "H100", uuid="GPU-0"),)
THREE = (*ONE, Device(1, "H100", uuid="GPU-1"), Device(2, "H100", uuid="GPU-2"))


_OURS = {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}
"""What a ladder sets for its children, and a session may have set before."""


def target(sick: Sick, **environ: str) -> Local:
    kept = {name: value for name, value in os.environ.items() if name not in _OURS}
    return Local("quick", sys.executable, environ={**kept, "SICK_NOTES": str(sick.notes), **environ})


def climbed(sick: Sick, kernels: Sequence[KernelEntry], devices: Sequence[Device] = ONE) -> Measurements:
    return Ladder(target(sick), devices, kernels).climb()


def run_of(found: Measurements, kernel: str, gpu: int = 0) -> Run:
    run = found.run(kernel, gpu)
    assert run
    return run


def test_each_run_says_on_what_it_stood(sick: Sick) -> None:
    found = climbed(
        sick, [*sick.family("driver", "right"), *sick.family("eager", "right"), *sick.family("compiled", "right")]
    )
    assert {run.status for run in found.runs} == {"ran"}
    assert run_of(found, "compiled.right").ladder == (Step("driver", True), Step("torch", True), Step("triton", True))
    assert run_of(found, "driver.right").ladder == (Step("driver", True),)


def test_above_a_rung_that_does_not_open_nothing_is_tried_and_its_layer_is_named(sick: Sick) -> None:
    kernels = [
        *sick.family("driver", "right", opened="raise RuntimeError('CUDA_ERROR_NO_DEVICE')"),
        *sick.family("eager", "right"),
        *sick.family("training", "right_too"),
    ]
    found = climbed(sick, kernels)
    driver, torch, training = found.runs
    assert (driver.status, driver.because) == ("failed", "RuntimeError: CUDA_ERROR_NO_DEVICE")
    for run in (torch, training):
        assert run.status == "not-run"
        assert run.because == "not tried: the rung below it, driver, does not hold: RuntimeError: CUDA_ERROR_NO_DEVICE"
        assert run.broken == Step("driver", False, "RuntimeError: CUDA_ERROR_NO_DEVICE")
        assert run.ladder[-1].held is None
    assert len(sick.openings()) == 1


def test_one_kernel_that_fails_names_its_layer_and_what_is_above_is_tried(sick: Sick) -> None:
    found = climbed(sick, [*sick.family("driver", "right", "wrong"), *sick.family("eager", "right", "raises")])
    assert [run.status for run in found.runs] == ["ran", "ran", "ran", "failed"]
    assert run_of(found, "driver.right").broken is None
    assert run_of(found, "eager.raises").broken == Step("driver", False, "driver.wrong: 3 of 16 values are wrong")


def test_above_a_rung_on_which_nothing_is_right_nothing_is_tried(sick: Sick) -> None:
    found = climbed(sick, [*sick.family("driver", "wrong", "cannot"), *sick.family("eager", "right")])
    above = run_of(found, "eager.right")
    assert above.status == "not-run"
    assert above.because.startswith("not tried: on the rung below it, driver, nothing is right: driver.wrong: 3 of 16")


def test_what_is_not_there_is_no_failure(sick: Sick) -> None:
    kernels = [
        *sick.family("driver", "right", opened="raise CannotRun('libcuda.so.1 is not there')"),
        *sick.family("eager", "right"),
    ]
    found = climbed(sick, kernels)
    driver, torch = found.runs
    assert (driver.status, driver.broken, torch.status) == ("not-run", None, "ran")
    assert torch.ladder == (Step("driver", None, "libcuda.so.1 is not there"), Step("torch", True))


def test_a_kernel_that_cannot_run_says_nothing_against_its_rung(sick: Sick) -> None:
    found = climbed(sick, [*sick.family("driver", "cannot"), *sick.family("eager", "right")])
    assert run_of(found, "driver.cannot").ladder == (Step("driver", None),)
    assert run_of(found, "eager.right").status == "ran"


def test_devices_do_not_cost_each_other(sick: Sick) -> None:
    sick_one = "if ask['device'] == 'cuda:1': os.kill(os.getpid(), signal.SIGSEGV)"
    kernels = [*sick.family("driver", "right", opened=sick_one), *sick.family("eager", "right")]
    found = climbed(sick, kernels, THREE)
    assert [run.status for run in found.of("driver.right")] == ["ran", "failed", "ran"]
    assert [run.status for run in found.of("eager.right")] == ["ran", "not-run", "ran"]


def test_devices_side_by_side_share_the_cpu(sick: Sick) -> None:
    kernels = sick.family("eager", "right")
    share = str(max(1, len(os.sched_getaffinity(0)) // 3))
    climbed(sick, kernels, THREE)
    assert sorted(sick.openings()) == [[f"cuda:{gpu}", share, "None"] for gpu in range(3)]
    Ladder(target(sick, OMP_NUM_THREADS="7"), THREE, kernels).climb()
    assert {threads for _, threads, _ in sick.openings()[3:]} == {"7"}


def test_one_device_alone_has_all_of_the_cpu(sick: Sick) -> None:
    climbed(sick, sick.family("eager", "right"))
    assert sick.openings() == [["cuda:0", "None", "None"]]


def test_a_gpu_in_use_is_left_alone_and_what_needs_all_sees_the_others(sick: Sick) -> None:
    devices = (THREE[0], Device(1, "H100", "pid 7, train.py", "GPU-1"), THREE[2])
    kernels = [*sick.family("eager", "right"), *sick.family("collective", "right", scope="node")]
    found = climbed(sick, kernels, devices)
    assert run_of(found, "eager.right", 1).because == "in use by pid 7, train.py"
    assert run_of(found, "collective.right", NODE).status == "ran"
    assert sorted(device for device, *_ in sick.openings()) == ["cuda:0", "cuda:2", "node"]
    assert sick.openings()[-1] == ["node", "None", "GPU-0,GPU-2"]


def test_what_needs_all_is_not_tried_where_no_gpu_is_fit(sick: Sick) -> None:
    devices = (ONE[0], Device(1, "H100", "pid 7, train.py"))
    kernels = [*sick.family("eager", "raises"), *sick.family("collective", "right", scope="node")]
    found = climbed(sick, kernels, devices)
    assert run_of(found, "eager.raises", 1).because == "in use by pid 7, train.py"
    assert run_of(found, "collective.right", NODE).because.startswith(
        "no GPU is left for it: GPU 0: on the rung below it, torch, nothing is right: eager.raises: "
    )


def test_who_stops_it_keeps_what_was_measured(sick: Sick) -> None:
    stop = threading.Event()

    def tell(found: Measurements) -> None:
        if any(run.kernel == "eager.hangs" and run.status == "running" for run in found.runs):
            stop.set()

    kernels = [*sick.family("eager", "right", "hangs", "right_too"), *sick.family("training", "right")]
    found = Ladder(target(sick), ONE, kernels, tell, stop).climb()
    assert [(run.status, run.because) for run in found.runs] == [
        ("ran", ""),
        ("not-run", "stopped while it ran"),
        ("not-run", "stopped before its turn came"),
        ("not-run", "stopped before its turn came"),
    ]


def test_it_takes_no_longer_than_it_may(sick: Sick) -> None:
    kernels = sick.family("eager", "right", "hangs", "right_too", seconds=60)
    found = Ladder(target(sick), ONE, kernels, budget=3).climb()
    assert [(run.status, run.because) for run in found.runs] == [
        ("ran", ""),
        ("not-run", "the 3 s for kernels were over while it ran"),
        ("not-run", "the 3 s for kernels were over before its turn came"),
    ]


def test_a_rung_on_which_a_kernel_was_given_up_is_not_judged(sick: Sick) -> None:
    found = Ladder(target(sick), ONE, sick.family("eager", "right", "hangs", "right_too", seconds=1)).climb()
    assert [run.status for run in found.runs] == ["ran", "not-run", "ran"]
    _, rungs = facts.rows(found)
    assert isinstance(rungs, tuple)
    assert [row["held"] for row in rungs] == [Unread("eager.hangs: it did not come to an end within 1 s")]


def test_what_stands_on_a_rung_with_a_kernel_that_was_given_up_says_so(sick: Sick) -> None:
    found = climbed(sick, [*sick.family("driver", "right", "hangs", seconds=1), *sick.family("eager", "right")])
    below, _ = run_of(found, "eager.right").ladder
    assert below == Step("driver", None, "driver.hangs: it did not come to an end within 1 s")


def test_what_is_told_last_is_all_there_is(sick: Sick) -> None:
    told: list[Measurements] = []
    kernels = sick.family("eager", "right", "raises", "hangs", seconds=1)
    found = Ladder(target(sick), THREE, kernels, told.append).climb()
    assert told[-1].runs == found.runs
    over = [sum(run.status not in {"waiting", "running"} for run in one.runs) for one in told]
    assert over == sorted(over)
