"""Whole cures as one types them: real installers, a real environment, the rule judged again, and the way back.

The machine is simulated, with eight H100; the index serves stubs. What a run took away it must give back: the same
distributions and the same files, by their digests.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.fixes import shelves
from tests.fixes.index import Index
from tests.fixes.place import Patient, difference, record
from tests.sim.software import PYTHON

pytestmark = pytest.mark.full

OLD = ("torch==2.9.0+cpu", "torchvision==0.24.0+cpu", "torchaudio==2.9.0+cpu")
SAME = {"torch": "2.9.0+cu128", "torchvision": "0.24.0+cu128", "torchaudio": "2.9.0+cu128"}
CUDA = {**SAME, "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.27.5", "triton": "3.5.0"}
Made = Callable[..., Patient]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index(tmp_path_factory.mktemp("shelves")) as index:
        yield shelves.stock(index)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip alone."""
    return Patient(record("hgx-h100"), tmp_path_factory.mktemp("made").resolve() / "root").prefix


@pytest.fixture
def made(tmp_path: Path, index: Index, empty: Path) -> Made:
    """``made(SHELF, REQUIREMENT...)``: a machine in whose environment these are, each as its own command had it."""

    def patient(shelf: str, *requirements: str, tool: str = "pip") -> Patient:
        base = index.url("").rstrip("/")
        surroundings = {"PIP_INDEX_URL": index.url(), "UV_INDEX_URL": index.url(), "GPUDOCTOR_TORCH_INDEX": base}
        patient = Patient(record("hgx-h100", **surroundings), tmp_path.resolve() / "root", empty)
        if tool == "uv":
            patient.put_program("uv", needs.program("uv"))
        for requirement in requirements:
            install(patient, index.url(shelf), requirement, tool)
        return patient

    return patient


def install(patient: Patient, url: str, requirement: str, tool: str = "pip") -> None:
    """As a user does who thinks of nothing else."""
    words = ["install", requirement, "--index-url", url, *(["--no-deps"] if "nvidia" in requirement else [])]
    if tool == "uv":
        words[2] = "--default-index"
        ran = patient.run(["/usr/bin/uv", "pip", *words, "--python", PYTHON], timeout=600)
        assert ran.code == 0, ran.err
    else:
        patient.pip(*words)


def cured(patient: Patient, rule: str) -> None:
    """The plan for all that is found cures that rule, and taking it back leaves nothing behind."""
    before, there = patient.files(), patient.distributions()
    assert patient.found()[0] == rule
    planned = patient.doctor("fix", "--dry-run", "--json").document
    assert rule in planned["foreseen"]["cleared"]
    assert not planned["foreseen"]["new"]
    ran = patient.doctor("fix", "--yes", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.document["outcome"] == "fixed"
    assert ran.document["judged"][rule] is False
    assert rule not in patient.found()
    after = patient.distributions()
    assert after != there or difference(before, patient.files())
    back = patient.doctor("fix", "--undo", ran.document["id"], "--yes")
    assert back.code == 0, back.out + back.err
    assert patient.distributions() == there
    assert not difference(before, patient.files())
    assert patient.found()[0] == rule


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_from_a_cpu_build_to_the_cuda_build_with_its_companions(made: Made, tool: str) -> None:
    patient = made("cpu", *OLD, tool=tool)
    there = patient.distributions()
    ran = patient.doctor("fix", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert patient.distributions() == {**there, **CUDA}
    assert patient.doctor("fix", "--undo", "last", "--yes").code == 0
    cured(patient, "torch.cpu-build")


def test_setup_torch_installs_the_newest_that_the_index_has(made: Made) -> None:
    patient = made("cpu", *OLD)
    before, there = patient.files(), patient.distributions()
    ran = patient.gpudoctor("setup", "torch", "--apply", "--yes", timeout=300)
    assert ran.code == 0, ran.out + ran.err
    assert patient.distributions() == {
        **there,
        "torch": "2.15.0+cu132",
        "torchvision": "0.29.2+cu132",
        "torchaudio": "2.11.0",
        "nvidia-cudnn-cu13": "9.26.0.51",
        "nvidia-nccl-cu13": "2.30.7",
        "triton": "3.9.0",
    }
    assert "torch.cpu-build" not in patient.found()
    back = patient.doctor("fix", "--undo", "last", "--yes")
    assert back.code == 0, back.out + back.err
    assert not difference(before, patient.files())


def test_a_wheel_off_torchs_pin(made: Made) -> None:
    cured(made("cu128", "torch==2.9.0+cu128", "nvidia-cudnn-cu12==9.1.0.70"), "torch.nvidia-wheels")


def test_two_cuda_majors_side_by_side(made: Made) -> None:
    cured(made("cu128", "torch==2.9.0+cu128", "nvidia-cudnn-cu11==9.1.0.70"), "torch.nvidia-wheels")


def test_a_library_that_the_wheel_of_another_major_took_along(made: Made) -> None:
    patient = made("cu128", "torch==2.9.0+cu128", "nvidia-cudnn-cu11==9.1.0.70")
    patient.pip("uninstall", "--yes", "nvidia-cudnn-cu11")
    assert not list(patient.prefix.rglob("libcudnn.so.9"))
    cured(patient, "torch.nvidia-wheels")


def test_a_companion_of_another_torch(made: Made) -> None:
    patient = made("cu128", "torch==2.9.0+cu128")
    url = f"{patient.record.environ['GPUDOCTOR_TORCH_INDEX']}/cu128/"
    patient.pip("install", "--no-deps", "torchvision==0.23.0+cu128", "--index-url", url)
    cured(patient, "torch.companion-mismatch")
