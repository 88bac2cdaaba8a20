"""Every kernel there is, on the CPU, by one `gpudoctor bench --device cpu`: each runs, is right, and tells a figure."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core import measurement
from gpudoctor.core.measurement import Measurements, Run
from gpudoctor.diagnosis import rulebook
from gpudoctor.kernels import child, facts, specs
from gpudoctor.target.record import to_json
from tests import needs
from tests.conftest import Program
from tests.kernels.on_torch.test_kernels_readiness_data import WHOLE
from tests.processes import finished, left
from tests.sim import scenario

FRAMEWORKS = ("jax.", "tensorflow.")
"""What need not be installed beside torch."""
TIMES_ALONE = {"driver.launch", "allocator", "compile.caches"}
"""Kernels without a result that could be right or wrong."""
UNCOUNTED = {"readiness.amp.bf16", "readiness.amp.fp16", "readiness.utilization"}
"""Whose result is how near or how large something is, not so many right values."""
COPIES = ("copy.device", "copy.to", "copy.from", "peer.copy")
COMPILED = [one.spec.id for one in specs.select_kernels(["compiled"]) if one.spec.scope == "gpu"]
STEPS = ("accumulation", "amp.bf16", "amp.fp16", "clipping", "parallel", "split", "utilization")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of whoever asks, with a folder for temporary files and nothing else in it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def found(gpudoctor: Program, home: Path) -> Measurements:
    needs.program("g++")
    argv = ("bench", "--device", "cpu", "--json", "--python", needs.triton_python())
    places = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "TRITON_CACHE_DIR": "", "TORCHINDUCTOR_CACHE_DIR": ""}
    ran = gpudoctor(*argv, timeout=550, env=places)
    assert ran.code == 0, ran.out
    return measurement.from_json(json.loads(ran.out))


@pytest.fixture(scope="module")
def runs(found: Measurements) -> Mapping[str, Run]:
    return {run.kernel: run for run in found.runs}


@pytest.mark.full
def test_every_kernel_runs_without_a_gpu(runs: Mapping[str, Run]) -> None:
    assert set(runs) == {one.spec.id for one in specs.select_kernels(())}
    idle = {name: run.because for name, run in runs.items() if run.status != "ran"}
    assert [name for name in idle if not name.startswith(FRAMEWORKS)] == [], idle
    assert all("is not installed" in because for because in idle.values())


@pytest.mark.full
def test_every_result_is_compared_with_a_reference_and_right(runs: Mapping[str, Run]) -> None:
    checked = {name: run for name, run in runs.items() if run.status == "ran" and name not in TIMES_ALONE}
    assert [name for name, run in checked.items() if run.right is not True or run.differ] == []
    assert {name for name, run in checked.items() if not run.compared} == UNCOUNTED


@pytest.mark.full
@pytest.mark.parametrize("name", COMPILED)
def test_what_is_compiled_is_right_each_time(runs: Mapping[str, Run], name: str) -> None:
    run = runs[name]
    assert (run.compared or 0) > 200
    assert (run.value or 0) > 0
    assert run.details["repeats_equal"] is True
    assert float(str(run.details["first_call_s"])) > 0


@pytest.mark.full
def test_the_users_folders_stay_as_they_are(runs: Mapping[str, Run], home: Path) -> None:
    caches = runs["compile.caches"].details
    assert caches["TRITON_CACHE_DIR"] == f"{home}/.triton/cache"
    assert str(caches["TORCHINDUCTOR_CACHE_DIR"]).startswith(f"{home}/tmp/torchind")
    assert left((home / "tmp").iterdir) == []
    assert [path.name for path in home.iterdir()] == ["tmp"]


@pytest.mark.full
def test_readiness_says_what_a_figure_means_and_what_to_do(runs: Mapping[str, Run]) -> None:
    """A CPU has no copy to run beside its compute, and no figure says which profiler there is."""
    readiness = {name: run for name, run in runs.items() if name.startswith("readiness.")}
    assert [name for name, run in readiness.items() if not run.words or not run.advice] == []
    assert all(runs[f"readiness.{name}"].words.endswith(".") for name in STEPS)
    assert all(runs[f"readiness.{name}"].advice.endswith(".") for name in STEPS)
    without = {name for name, run in readiness.items() if not (run.value or 0) > 0}
    assert without == {"readiness.pinned", "readiness.nsight"}


@pytest.mark.full
def test_every_way_gives_the_gradients_of_one_batch_bit_for_bit(runs: Mapping[str, Run]) -> None:
    """One process, two replicas in it, two processes, a split model, and small batches one after another."""
    for name, compared in (("accumulation", WHOLE), ("parallel", 4 * WHOLE), ("split", 2 * WHOLE + 2)):
        run = runs[f"readiness.{name}"]
        assert (run.differ, run.compared) == (0, compared)


@pytest.mark.full
def test_gradients_of_ordinary_numbers_are_near_those_of_float64(runs: Mapping[str, Run]) -> None:
    def told(kernel: str, name: str) -> float:
        return float(str(runs[f"readiness.{kernel}"].details[name]))

    assert 0 < told("accumulation", "apart_float32") < 1e-6
    assert 0 < told("accumulation", "apart_float64") < 1e-14
    for mixed, most in (("amp.bf16", 2**-4), ("amp.fp16", 2**-7)):
        assert 0 < told(mixed, "apart") < most
        assert 1 - told(mixed, "cosine") < 1e-4
        assert told(mixed, "last_loss") < told(mixed, "first_loss")
    assert told("amp.fp16", "scale") == 65536


@pytest.mark.full
@pytest.mark.parametrize("name", [one.spec.id for one in specs.select_kernels(["collective"])])
def test_collectives_of_two_ranks_tell_the_rate_of_the_larger_size(runs: Mapping[str, Run], name: str) -> None:
    run = runs[name]
    assert (run.compared or 0) >= 2 * (256 << 10) // 4 // 2
    assert run.details["bytes"] == [4096, 256 << 10]
    rates = run.details["busbw_gb_s"]
    assert isinstance(rates, list)
    assert run.value == pytest.approx(rates[-1], abs=0.001)


@pytest.mark.full
def test_copies_launch_and_allocator_tell_a_figure_and_what_was_moved_is_compared(runs: Mapping[str, Run]) -> None:
    """Ordinary memory is measured beside page-locked, and two buffers stand in for two GPUs."""
    for name in (*COPIES, "launch", "allocator"):
        assert (runs[name].value or 0) > 0
        assert runs[name].expected is None
    assert all((runs[name].compared or 0) >= 1 << 17 for name in COPIES)
    for name in ("copy.to", "copy.from"):
        assert float(str(runs[name].details["pageable"])) > 0
        assert isinstance(runs[name].details["alone"], bool)
    details = runs["peer.copy"].details
    assert isinstance(details["rates"], dict)
    assert set(details["rates"]) == {"0-1", "1-0"}
    assert details["wrong"] == []


@pytest.mark.full
def test_figures_of_a_cpu_accuse_no_gpu_of_the_machine(found: Measurements) -> None:
    record = json.dumps(to_json(scenario.load(scenario.PROFILES / "hgx-h100.json")))
    machine = snapshot_of(record)
    measured = diagnose(facts.measured(machine, found), rulebook.load())
    assert [finding.id for finding in measured.findings] == [
        finding.id for finding in diagnose(machine, rulebook.load()).findings
    ]


OPENED = f"""
import sys
sys.argv = ["none"]
sys.path.insert(0, {str(Path(child.__file__).parent.parent)!r})
from child.eager import copies, opened
context = opened({{"device": "cpu"}})
"""
FLIPPED = """
sent = copies.random_words(context, 1 << 20, 7)
for bit in (0, 31, 52, 62):
    changed = sent.clone()
    changed[4711] ^= 1 << bit
    judged = copies.compare_words(changed, sent)
    print(judged.differ, judged.compared, judged.first[0], copies.compare_words(sent.clone(), sent).differ)
"""
TIMED = """
context.seconds = lambda work, **_: work() is None or [0.5]
print(*(copies.run(context, spec).value for spec in copies.KERNELS))
"""
"""Copies by a clock on which each of them takes half a second."""


@pytest.mark.full
def test_one_flipped_bit_of_a_million_is_one_wrong_word() -> None:
    done = finished([needs.torch_python(), "-c", OPENED + FLIPPED])
    assert done.out.splitlines() == ["1 131072 4711 0"] * 4, done.err


def test_a_copy_in_gpu_memory_counts_what_is_read_and_written_and_one_to_the_host_what_is_sent() -> None:
    done = finished([needs.torch_python(), "-c", OPENED + TIMED])
    block = 2 << 20
    assert [float(word) * 1e9 * 0.5 for word in done.out.split()] == pytest.approx([4 * block, block, block])
