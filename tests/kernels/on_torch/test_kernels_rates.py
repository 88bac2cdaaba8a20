"""Copies, launch and allocator in the real child on the CPU: every word is compared, and a CPU accuses no GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import snapshot_of
from gpudoctor.core import measurement
from gpudoctor.core.measurement import Measurements, Run
from gpudoctor.diagnosis import rulebook
from gpudoctor.kernels import child, facts
from gpudoctor.target.record import to_json
from tests import needs
from tests.conftest import Program
from tests.processes import finished
from tests.sim import scenario

KERNELS = ("copy.device", "copy.to", "copy.from", "peer.copy", "launch", "allocator")
PLANT = """
import sys
sys.argv = ["none"]
sys.path.insert(0, {folder!r})
from child.eager import copies, opened, peers
context = opened({{"device": "cpu"}})
sent = copies.random_words(context, 1 << 20, 7)
changed = sent.clone()
changed[4711] ^= 1 << {bit}
judged = copies.compare_words(changed, sent)
print(judged.differ, judged.compared, judged.first[0], copies.compare_words(sent.clone(), sent).differ)
"""


@pytest.fixture(scope="module")
def found(gpudoctor: Program) -> Measurements:
    names = [word for name in KERNELS for word in ("--kernel", name)]
    ran = gpudoctor("bench", "--device", "cpu", "--python", needs.torch_python(), "--json", *names, timeout=600)
    return measurement.from_json(json.loads(ran.out))


@pytest.fixture(scope="module")
def runs(found: Measurements) -> Mapping[str, Run]:
    return {run.kernel: run for run in found.runs}


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
def test_each_runs_and_tells_a_figure(runs: Mapping[str, Run], name: str) -> None:
    assert runs[name].status == "ran", runs[name].because
    assert (runs[name].value or 0) > 0
    assert runs[name].expected is None


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "allocator"])
def test_what_was_moved_is_compared(runs: Mapping[str, Run], name: str) -> None:
    assert runs[name].right is True
    assert runs[name].differ == 0
    assert (runs[name].compared or 0) >= (1 if name == "launch" else 1 << 17)


@pytest.mark.full
def test_ordinary_memory_is_measured_beside_page_locked_and_two_buffers_stand_in_for_two_gpus(
    runs: Mapping[str, Run],
) -> None:
    for name in ("copy.to", "copy.from"):
        assert float(str(runs[name].details["pageable"])) > 0
        assert isinstance(runs[name].details["alone"], bool)
    details = runs["peer.copy"].details
    assert isinstance(details["rates"], dict)
    assert set(details["rates"]) == {"0-1", "1-0"}
    assert details["wrong"] == []


@pytest.mark.full
@pytest.mark.parametrize("bit", [0, 31, 52, 62])
def test_one_flipped_bit_of_a_million_is_one_wrong_word(bit: int) -> None:
    folder = str(Path(child.__file__).parent.parent)
    program = PLANT.format(folder=folder, bit=bit)
    done = finished([needs.torch_python(), "-c", program])
    assert done.out.split() == ["1", "131072", "4711", "0"]


@pytest.mark.full
def test_figures_of_a_cpu_accuse_no_gpu_of_the_machine(found: Measurements) -> None:
    record = json.dumps(to_json(scenario.load(scenario.PROFILES / "hgx-h100.json")))
    machine = snapshot_of(record)
    measured = diagnose(facts.measured(machine, found), rulebook.load())
    assert [finding.id for finding in measured.findings] == [
        finding.id for finding in diagnose(machine, rulebook.load()).findings
    ]


TIMED = """
import sys
sys.argv = ["none"]
sys.path.insert(0, {folder!r})
from child.eager import copies
from child.eager import opened
context = opened({{"device": "cpu"}})
context.seconds = lambda work, **_: work() is None or [0.5]
print(*(copies.run(context, spec).value for spec in copies.KERNELS))
"""
"""Copies by a clock on which each of them takes half a second."""


def test_a_copy_in_gpu_memory_counts_what_is_read_and_written_and_one_to_the_host_what_is_sent() -> None:
    program = TIMED.format(folder=str(Path(child.__file__).parent.parent))
    done = finished([needs.torch_python(), "-c", program])
    block = 2 << 20
    assert [float(word) * 1e9 * 0.5 for word in done.out.split()] == pytest.approx([4 * block, block, block])
