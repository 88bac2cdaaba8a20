"""What the figures of a training step mean, and what to do: words and advice follow from them alone."""

import math
from typing import Any

import pytest

from gpudoctor.kernels.child._kernel import CannotRun
from gpudoctor.kernels.child.training import _model, accumulation, amp, clipping, parallel, split, utilization
from gpudoctor.kernels.child.training.utilization import LoopProfile, Shares, shares_by_clock, shares_by_profiler


class TestShares:
    def test_each_moment_counts_once(self) -> None:
        shares = shares_by_profiler(kernels=[(10, 40), (30, 50)], copies=[(45, 60)], data=[(0, 20)], whole=(0, 100))
        assert shares == Shares(data=0.1, transfer=0.1, launch=0.4, compute=0.4)

    def test_what_lies_outside_the_loop_is_not_of_it(self) -> None:
        assert shares_by_profiler([(-50, 10), (95, 400)], [], [], (0, 100)).compute == pytest.approx(0.15)

    def test_nothing_seen_is_all_launch(self) -> None:
        assert shares_by_profiler([], [], [], (0, 100)) == Shares(0, 0, 1, 0)

    @pytest.mark.parametrize(
        ("limit", "data", "copy", "issue"),
        [("data", 8.0, 0.1, 1.5), ("transfer", 0.5, 7.0, 1.0), ("launch", 0.5, 0.1, 9.2), ("compute", 0.5, 0.1, 3.0)],
    )
    def test_the_clock_alone_tells_what_limits(self, limit: str, data: float, copy: float, issue: float) -> None:
        shares = shares_by_clock(data, copy, issue, 10.0)
        assert shares.largest == limit
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) >= 0


class TestUtilization:
    @pytest.mark.parametrize(
        ("shares", "advice"),
        [
            (Shares(0.6, 0.1, 0.1, 0.2), "DataLoader workers"),
            (Shares(0.1, 0.6, 0.1, 0.2), "non_blocking=True"),
            (Shares(0.1, 0.1, 0.6, 0.2), "CUDA graphs"),
            (Shares(0.1, 0.1, 0.1, 0.7), "as it should be"),
        ],
    )
    def test_advice_is_of_what_limits(self, shares: Shares, advice: str) -> None:
        assert advice in utilization.advice(shares)

    def test_words_say_how_the_shares_were_found(self) -> None:
        seen = LoopProfile(Shares(0.05, 0.05, 0.1, 0.8), 0.01, kernels=300.0, kernel_us=21.0)
        assert utilization.summary(seen, on_cpu=False) == (
            "The GPU computes in 80 % of a training loop, copies in 5 %, and waits in 5 % for data and in 10 % for its"
            " next kernel. A step is 300 kernels of 21 µs."
        )
        blind = utilization.summary(LoopProfile(seen.shares, 0.01, blind="CUPTI is missing"), on_cpu=False)
        assert blind.endswith("By the clock alone, which tells them apart roughly: CUPTI is missing.")


class TestMixedPrecision:
    RIGHT = amp.TrainingResult(0.002, 0.999998, 0.06, [1.0, 0.9], 0, 65536.0)

    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            ({}, ""),
            ({"skipped": 3}, ""),
            ({"apart": 0.3}, "gradients are 0.3 of their norm from float64's, 0.06 at most"),
            ({"apart": math.nan}, "gradients are nan of their norm from float64's, 0.06 at most"),
            ({"losses": [1.0, math.nan, math.nan]}, "the loss is not finite at step 1"),
            ({"skipped": 20, "scale": 0.0625}, "the scaler skipped 20 of 20 steps: its scale fell to 0.0625"),
        ],
    )
    def test_faults_are_named(self, change: dict[str, Any], fault: str) -> None:
        trained = self.RIGHT._replace(**change)
        assert trained.faults == fault
        assert fault in amp.summary(trained, "fp16", 0.02, 0.01, native=True)

    @pytest.mark.parametrize(
        ("speedup", "short", "native", "advice"),
        [
            (3.0, "fp16", True, "Train in torch.autocast('cuda', dtype=torch.float16) and torch.amp.GradScaler."),
            (3.0, "bf16", True, "Train in torch.autocast('cuda', dtype=torch.bfloat16), which needs no GradScaler."),
            (1.2, "bf16", True, "Much of the step is not matmuls"),
            (0.9, "bf16", True, "Nothing is won here"),
            (0.4, "bf16", False, "Train in fp16 with GradScaler on this GPU"),
        ],
    )
    def test_advice_follows_from_the_speed_up(self, speedup: float, short: str, native: bool, advice: str) -> None:
        assert advice in amp.advice(speedup, short, native)

    @pytest.mark.parametrize(
        ("said", "cannot"),
        [
            ("Currently, AutocastCPU only support Bfloat16 as the autocast_cpu_dtype", True),
            ("Current CUDA Device does not support bfloat16. Please switch dtype to float16.", True),
            ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(...)`", True),
            ("CUDA error: an illegal memory access was encountered", False),
        ],
    )
    def test_a_type_that_is_not_there_is_no_failure(self, said: str, cannot: bool) -> None:
        assert amp.is_unsupported(said) is cannot

    def test_a_gpu_without_bf16_units_is_said_to_have_none(self) -> None:
        assert "no bf16 units" in amp.summary(self.RIGHT, "bf16", 0.02, 0.05, native=False)


ALONE = {"one": 100.0, "one_differ": 0, "data_parallel": 150.0, "data_parallel_differ": 0}


class TestParallel:
    def rank(self, ddp: float, apart: float, differ: int = 0) -> dict[str, Any]:
        return {"ddp": ddp, "apart": apart, "ddp_differ": differ, "ddp_words": f"{differ} of 9 values are wrong"}

    def test_efficiency_is_of_as_many_times_one(self) -> None:
        found = parallel.throughput(ALONE, [self.rank(90, 98), self.rank(90, 98)])
        assert (found["ddp"], found["efficiency"], found["efficiency_without_exchange"]) == (180, 90, 98)
        assert "DistributedDataParallel 180: 90 % of 2 times one" in parallel.summary(found, 2, "")
        assert parallel.advice(found) == "Use DistributedDataParallel, one process a GPU (torchrun), not DataParallel."

    @pytest.mark.parametrize(
        ("ddp", "apart", "limit"), [(50, 97, "The exchange of gradients"), (50, 55, "without any exchange")]
    )
    def test_what_limits_is_told_from_the_same_steps_without_exchange(self, ddp: int, apart: int, limit: str) -> None:
        assert limit in parallel.advice(parallel.throughput(ALONE, [self.rank(ddp, apart)] * 2))

    def test_wrong_gradients_name_the_way_and_the_rank(self) -> None:
        ranks = [self.rank(90, 98), self.rank(90, 98, differ=3)]
        wrong = parallel.wrong_gradients(ALONE, ranks)
        assert wrong == "by DistributedDataParallel on rank 1 3 of 9 values are wrong"
        assert "on GPU 5 3 of 9" in parallel.wrong_gradients(ALONE, ranks, ["GPU 4", "GPU 5"])
        assert parallel.summary(parallel.throughput(ALONE, ranks), 2, wrong).startswith(
            f"Gradients are wrong: {wrong}."
        )


def test_a_model_that_does_not_fit_has_fewer_samples_and_at_last_cannot_run() -> None:
    whole = _model.bytes_needed(_model.TIMED)
    assert _model.fit_samples(_model.TIMED, whole) == _model.TIMED
    fewer = _model.fit_samples(_model.TIMED, whole - 1)
    assert fewer == _model.TIMED._replace(samples=16)
    with pytest.raises(CannotRun, match="MiB are needed"):
        _model.fit_samples(_model.TIMED, 100 << 20)


def test_ways_to_train_say_what_they_save_cost_or_damage() -> None:
    assert "(apart by 1.0e-07 in float32) and need 75 % less memory" in accumulation.summary(75, {"float32": 1e-7}, [])
    assert "not those of the large one: 3 of 9 values are" in accumulation.summary(75, {}, ["3 of 9 values are wrong"])
    assert "no_sync" in accumulation.advice(75)
    assert "buys no larger batch" in accumulation.advice(4)
    assert clipping.summary(120e-6, 9e-4, 48, []).endswith(
        "It costs 120 µs a step for 48 tensors, one after another 900 µs."
    )
    assert clipping.summary(120e-6, None, 48, []).endswith("It costs 120 µs a step for 48 tensors.")
    assert clipping.summary(1, 1, 48, ["norm 2: 1 of 1 values is wrong"]).startswith("Clipping is wrong: norm 2")
    assert clipping.advice(120e-6, 9e-4, on_cpu=False) == "Nothing to do."
    assert "torch 2.0" in clipping.advice(9e-4, None, on_cpu=False)
    assert "memory traffic" in clipping.advice(9e-4, 9e-4, on_cpu=False)
    assert "It trains 90 samples/s, on one device 100" in split.summary(100, 90, 2, [])
    assert "pipelining" in split.advice(90, [])
    assert split.advice(40, []).startswith("The link costs much of the speed.")
    assert "NCCL_P2P_DISABLE" in split.advice(90, ["GPU 0 and GPU 1: 3 of 9 values are wrong"])
