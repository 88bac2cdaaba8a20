"""A sample of the generated environments in every run; ``python -m tests.generated --all`` judges them all.

Combinations that the field knows are written by hand: the tables have no part in what is expected of them, but release
notes, NVIDIA's compatibility pages and many bug reports.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from tests.generated import tables
from tests.generated.changes import broken, changes
from tests.generated.figures import Figures
from tests.generated.machine import PLACES, SYSTEMS, Machine, machines
from tests.generated.sound import draft_of, sound
from tests.generated.tables import Driver

COMBINATIONS = """
GeForce RTX 5090             570.124.06  2.7.0+cu128   runs
GeForce RTX 5090             570.124.06  2.6.0+cu124   torch.arch-too-new
GeForce RTX 5090             570.124.06  2.5.1+cu118   torch.arch-too-new
GeForce RTX 5090             575.57.08   2.9.0+cu129   runs
GeForce RTX 5090             575.57.08   2.9.0+cu130   torch.driver-too-old
GeForce RTX 5090             550.163.01  2.7.0+cu128   driver.too-old-for-gpu
GeForce RTX 4090             525.147.05  2.6.0+cu124   runs
GeForce RTX 4090             535.183.01  2.8.0+cu128   runs
GeForce RTX 4090             550.90.07   2.9.0+cu130   torch.driver-too-old
GeForce RTX 4090             525.60.13   1.13.1+cu117  runs
GeForce RTX 4090             580.95.05   1.8.0+cu102   torch.arch-too-new
GeForce RTX 3090             450.248.02  1.8.1+cu111   driver.too-old-for-gpu
GeForce RTX 3090             460.106.00  1.8.1+cu111   runs
GeForce RTX 3090             460.106.00  1.8.1+cu102   torch.arch-too-new
GeForce RTX 3090             470.256.02  2.1.0+cu118   runs
GeForce RTX 3090             470.256.02  2.1.0+cu121   torch.driver-too-old
GeForce RTX 2080 Ti          418.226.00  1.8.1+cu101   runs
GeForce RTX 2080 Ti          418.226.00  1.8.1+cu102   torch.driver-too-old
GeForce RTX 2080 Ti          580.95.05   2.9.0+cu130   runs
GeForce GTX 1080 Ti          580.95.05   2.9.1+cu126   runs
GeForce GTX 1080 Ti          580.95.05   2.9.1+cu128   torch.arch-dropped
GeForce GTX 1080 Ti          590.48.01   2.9.1+cu126   driver.gpu-dropped
GeForce GTX 980              470.256.02  2.0.1+cu118   runs
Tesla K80                    470.256.02  1.12.1+cu113  runs
Tesla K80                    525.147.05  1.12.1+cu113  driver.gpu-dropped
Tesla M40                    535.183.01  2.4.0+cu121   runs
Tesla P100-PCIE-16GB         550.90.07   2.6.0+cu124   runs
Tesla V100-SXM2-32GB         535.183.01  2.7.1+cu126   runs
Tesla V100-SXM2-32GB         570.124.06  2.7.1+cu128   torch.arch-dropped
Tesla V100-SXM2-32GB         580.95.05   2.8.0+cu128   runs
Tesla V100-SXM2-32GB         580.95.05   2.9.0+cu130   torch.arch-dropped
Tesla V100-SXM2-32GB         580.95.05   2.11.0+cu128  torch.arch-dropped
Tesla V100-SXM2-32GB         580.95.05   2.11.0+cu126  runs
Tesla V100-SXM2-32GB         590.48.01   2.11.0+cu126  driver.gpu-dropped
Tesla T4                     450.248.02  1.13.1+cu117  runs
Tesla T4                     450.248.02  2.4.0+cu121   torch.driver-too-old
Tesla T4                     580.95.05   2.12.0+cu130  runs
A100-SXM4-80GB               450.248.02  1.13.1+cu117  runs
A100-SXM4-80GB               525.147.05  2.8.0+cu128   runs
A100-SXM4-80GB               535.183.01  1.8.0+cu102   torch.arch-too-new
A10                          470.256.02  2.0.1+cu118   runs
L40S                         535.183.01  2.0.1+cu117   runs
H100 80GB HBM3               525.147.05  2.1.0+cu121   runs
H100 80GB HBM3               535.183.01  2.0.1+cu117   torch.arch-too-new
H100 80GB HBM3               535.183.01  2.0.1+cu118   runs
H100 80GB HBM3               535.183.01  2.9.0+cu130   torch.driver-too-old
H200                         550.90.07   2.3.1+cu121   runs
B200                         570.124.06  2.7.0+cu128   runs
B200                         570.124.06  2.6.0+cu126   torch.arch-too-new
B200                         570.124.06  2.9.0+cu130   torch.driver-too-old
B300 SXM6 AC                 580.95.05   2.9.0+cu130   runs
GB10                         580.95.05   2.9.0+cu130   runs
RTX PRO 6000 Blackwell Server Edition  580.95.05  2.8.0+cu128  runs
RTX PRO 6000 Blackwell Server Edition  580.95.05  2.6.0+cu126  torch.arch-too-new
"""


class Combination(NamedTuple):
    """One line of `COMBINATIONS`; `outcome` is ``runs`` or the id of the cause."""

    gpu: str
    driver: str
    torch: str
    outcome: str


def combinations() -> Iterator[Combination]:
    for line in COMBINATIONS.strip().splitlines():
        *gpu, driver, torch, outcome = line.split()
        yield Combination(" ".join(gpu), driver, torch, outcome)


def snapshot_of(combination: Combination) -> Snapshot:
    """The machine at level quick, as it is found when its driver is loaded."""
    gpu = next(row for row in tables.gpus() if row["name"] == combination.gpu)
    arch = "aarch64" if combination.gpu.startswith("GB1") else "x86_64"
    build = next(one for one in tables.builds() if one.version == combination.torch and one.arch == arch)
    driver = next(one for one in tables.drivers() if one.version == combination.driver)
    machine = Machine(
        gpu=gpu,
        count=8 if gpu.get("nvswitch") else 1,
        driver=Driver(*driver),
        module=tables.modules(gpu, driver)[0],
        build=build,
        python="3.10.12",
        system=SYSTEMS[1],
        place="bare",
        level="quick",
        toolkit=None,
        companions=(),
        environment="venv",
        mig=0,
        busy=False,
    )
    return draft_of(machine).snapshot(str(combination), "quick")


pytestmark = pytest.mark.full

MEASURED = ("measured.", "memory_fault.", "rung.", "rate.", "live.peers_wrong", "live.wrong_everywhere")
"""What kernels measure: these machines were not, as tests/rates.py has others that were."""
LOGGED = (
    *("run.", "run_gpu.", "job.", "rank.", "canary.", "rank_group.", "display.", "windows."),
    *(
        "path_dll.",
        "driver_event.",
        "gpu.driver_model",
        "best.",
        "gpu.seconds_at_work",
        "worker_end.",
        "fitness.cpu",
        "fitness.smt",
    ),
    *("nccl.ranks_behind", "nccl.differing_calls", "kubernetes", "slurm_node.", "write_error.", "request.", "failure."),
    *("jax.gpus", "nccl.wrong_values", "nccl.ranks_missing", "nccl.ranks_failed", "p2p.direct_gbps"),
)
"""What only a job, a cluster or a program prints or does, which no machine has by itself."""


@pytest.fixture(scope="module")
def book() -> Rulebook:
    return rulebook.load([])


def test_sound_environments_raise_no_alarm(book: Rulebook) -> None:
    figures = Figures(book)
    figures.sound(islice(sound(seed=2), 300))
    assert figures.judged == 300
    assert figures.alarms == []


def test_the_one_thing_changed_is_named_first(book: Rulebook) -> None:
    figures = Figures(book)
    figures.broken(broken(seed=2, each=4))
    assert figures.places.total() == 4 * len(changes())
    assert figures.first >= 0.98, figures.missed
    assert figures.places[0] <= figures.places.total() / 100, figures.missed


@pytest.mark.parametrize("combination", combinations(), ids=lambda one: f"{one.gpu}-{one.driver}-{one.torch}")
def test_what_the_field_knows(combination: Combination, book: Rulebook) -> None:
    found = [finding.id for finding in diagnose(snapshot_of(combination), book).findings]
    assert found[:1] == ["workload.fits" if combination.outcome == "runs" else combination.outcome]


def _generated() -> Iterator[Snapshot]:
    yield from (one.snapshot for one in islice(sound(seed=5), 200))
    yield from (one.snapshot for one in broken(seed=5, each=1))


def test_generated_facts_are_declared_and_of_their_kind() -> None:
    declared = catalog()
    for snapshot in _generated():
        assert list(declared.misfits(snapshot)) == []
        assert [name for name in snapshot.facts if not declared.find(name)] == []
        assert [group for group in snapshot.groups if group not in declared.groups] == []


def test_every_place_tells_what_rules_ask(book: Rulebook) -> None:
    """Nothing that a rule's conditions need is left out, or the rules would pass for want of facts."""
    measured = {
        rule.id for rule in book.rules if any(name.startswith((*MEASURED, *LOGGED)) for name in facts_read(rule))
    }
    for place in PLACES:
        machine = next(one for one in machines(6, (place,)) if one.level == "standard")
        diagnosis = diagnose(draft_of(machine).snapshot(place, "standard"), book)
        assert {one.id for one in diagnosis.unjudged if one.because.endswith("not asked")} <= measured
