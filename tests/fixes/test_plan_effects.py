"""What steps bring about: package commands by their words, facts by name, and what is then no longer known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core.fact import Absent, Json, Known, Unread, Value, listed
from gpudoctor.core.rule import Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.fixes.effects import snapshot_after
from gpudoctor.fixes.effects.commands import Wanted, command_of
from gpudoctor.fixes.effects.outlook import ANEW, fact_of
from tests.fixes.specimens import linux

PYTHON = "/opt/venv/bin/python"
CU126 = "https://download.pytorch.org/whl/cu126"


def machine(rows: tuple[tuple[str, str], ...] = (), **facts: Value) -> Snapshot:
    """A machine with two 4090; ``torch__version`` is torch.version."""
    gpu = ("NVIDIA GeForce RTX 4090", "8.9")
    return complete(linux((gpu, gpu), dict(rows), **facts))


def value(snapshot: Snapshot, name: str) -> object:
    """The value of a fact, or its reason where it is none."""
    fact = snapshot.get(name)
    return fact.value if isinstance(fact, Known) else fact.why


def install(*words: str, python: str = PYTHON) -> Step:
    return Step((python, "-m", "pip", "install", *words), touches="environment")


@pytest.mark.parametrize(
    ("argv", "wanted", "build"),
    [
        (
            (PYTHON, "-m", "pip", "install", "torch==2.9.0+cu126", "--index-url", CU126),
            ("torch", "2.9.0+cu126"),
            "cu126",
        ),
        (("uv", "pip", "install", "--python", PYTHON, "torch", "--torch-backend=cu128"), ("torch", ""), "cu128"),
        (("conda", "install", "--yes", "-c", "conda-forge", "pytorch-gpu=2.9"), ("pytorch-gpu", "2.9"), ""),
        (("pip", "install", "tensorflow[and-cuda]"), ("tensorflow", ""), ""),
        (("pip", "install", "--no-binary", "flash_attn", "flash_attn"), ("flash-attn", ""), ""),
        (
            ("pip", "install", "https://x.org/flash_attn-2.8.3+cu12-cp312-cp312-linux_x86_64.whl"),
            ("flash-attn", "2.8.3+cu12"),
            "",
        ),
    ],
)
def test_a_package_command_is_read_from_its_words(argv: tuple[str, ...], wanted: tuple[str, str], build: str) -> None:
    command = command_of(argv)
    assert command
    assert (command.wanted, command.build) == ((Wanted(*wanted),), build)


@pytest.mark.parametrize(
    "argv", [(), ("pip", "freeze"), (PYTHON, "-c", "import torch"), ("apt-get", "install", "-y", "gcc"), ("uv", "sync")]
)
def test_what_is_no_package_command_changes_no_package(argv: tuple[str, ...]) -> None:
    assert command_of(argv) is None
    before = machine(torch__version="2.9.0+cu128")
    assert snapshot_after(before, [Step(argv)]) == before


def test_another_torch_brings_its_build_and_what_belongs_to_it() -> None:
    before = machine((("torch", "2.9.0+cpu"), ("torchvision", "0.23.0+cpu")), torch__version="2.9.0+cpu")
    then = snapshot_after(before, [install("torch==2.9.0+cu128", "torchvision==0.24.0+cu128")])
    assert value(then, "torch.flavor") == "cuda"
    assert value(then, "torch.cuda") == "12.8"
    assert "sm_90" in str(value(then, "torch.archs"))
    assert value(then, "torch.pins_unmet") == ()
    assert value(then, "torch.companions_unmet") == ()
    assert value(then, "triton.version") == "3.5.0"


def test_companions_that_stay_behind_no_longer_fit() -> None:
    before = machine((("torch", "2.8.0+cu126"), ("torchvision", "0.23.0+cu126")), torch__version="2.8.0+cu126")
    then = snapshot_after(before, [install("torch==2.9.0+cu126")])
    assert value(then, "torch.companions_unmet") == ("torchvision 0.23.0+cu126 is for torch 2.8",)


@pytest.mark.parametrize(
    ("words", "then"),
    [
        (("torch", "--index-url", CU126), "2.9.0+cpu"),
        (("torch==2.9.0", "--index-url", CU126), "2.9.0+cpu"),
        (("torch==2.9.0+cu126", "--index-url", CU126), "2.9.0+cu126"),
        (("--upgrade", "torch==2.9.0", "--index-url", CU126), "2.9.0+cu126"),
    ],
)
def test_pip_leaves_what_satisfies_it(words: tuple[str, ...], then: str) -> None:
    """That the index has another build of the release is no reason to it."""
    before = machine((("torch", "2.9.0+cpu"),), torch__version="2.9.0+cpu")
    assert value(snapshot_after(before, [install(*words)]), "torch.version") == then


def test_what_was_tried_out_must_be_tried_again_after_a_change() -> None:
    before = machine(live__cuda_available=False, driver__version="570.124.06")
    assert snapshot_after(before, [Step(("nvidia-smi",))]).get("live.cuda_available") == Known(False, "x")
    assert snapshot_after(before, [install("numpy")]).get("live.cuda_available") == ANEW
    assert value(snapshot_after(before, [install("numpy")]), "driver.version") == "570.124.06"


def test_another_environment_is_none_of_ours() -> None:
    before = machine(torch__version="2.9.0+cpu")
    assert (
        value(snapshot_after(before, [install("torch==2.9.0+cu128", python="/other/python")]), "torch.version")
        == "2.9.0+cpu"
    )


def test_a_new_environment_takes_the_place_of_the_one_that_is_managed() -> None:
    before = machine((("torch", "2.9.0+cpu"),), torch__version="2.9.0+cpu", python__externally_managed=True)
    empty = snapshot_after(before, [Step((PYTHON, "-m", "venv", ".venv"), touches="environment")])
    assert isinstance(empty.get("torch.version"), Absent)
    new = install("torch==2.9.0", "--index-url", CU126, python=".venv/bin/python")
    then = snapshot_after(before, [Step((PYTHON, "-m", "venv", ".venv"), touches="environment"), new])
    assert value(then, "torch.version") == "2.9.0+cu126"
    assert value(then, "python.externally_managed") is False


def test_of_two_installs_the_one_that_is_found_first_goes() -> None:
    installs = ("pip 2.9.0+cpu in /home/user/.local", "pip 2.9.0+cu128 in /opt/venv")
    before = machine(torch__version="2.9.0+cpu", torch__installs=installs)
    then = snapshot_after(before, [Step((PYTHON, "-m", "pip", "uninstall", "-y", "torch"), touches="environment")])
    assert value(then, "torch.version") == "2.9.0+cu128"
    assert value(then, "torch.installs") == installs[1:]


def test_a_new_driver_is_another_driver_in_all_that_follows_from_it() -> None:
    before = machine(driver__version="535.183.01", driver__library_version="535.183.01", nvml__state="ok")
    assert value(before, "driver.cuda_version") == "12.2"
    makes = (("driver.version", "580.65.06"), ("driver.module_loaded", True))
    then = snapshot_after(before, [Step(("ubuntu-drivers", "install"), touches="system", makes=makes)])
    assert value(then, "driver.cuda_version") == "13.0"
    assert value(then, "driver.module_loaded") is True
    assert then.get("driver.library_version") == then.get("nvml.state") == ANEW


def test_a_column_is_made_of_all_rows_or_of_one() -> None:
    def modes(name: str) -> list[object]:
        then = snapshot_after(machine(), [Step(("nvidia-smi",), makes=((name, "default"),))])
        return [row.get("compute_mode") for row in listed(then.rows("gpu"))]

    assert [isinstance(mode, Known) for mode in modes("gpu.compute_mode")] == [True, True]
    assert [isinstance(mode, Known) for mode in modes("gpu[1].compute_mode")] == [False, True]


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("driver.version", "580.65.06", "580.65.06"),
        ("gpu.count", "8", 8),
        ("driver.module_loaded", "False", False),
        ("libs.missing", "libcudnn.so.9, libnccl.so.2", ("libcudnn.so.9", "libnccl.so.2")),
        ("libs.missing", "", ()),
    ],
)
def test_a_filled_hole_is_of_the_kind_of_its_fact(name: str, written: str, meant: Value) -> None:
    spec = catalog().find(name)
    assert spec
    fact = fact_of(written, spec)
    assert isinstance(fact, Known)
    assert fact.value == meant


@pytest.mark.parametrize(
    ("name", "written"), [("gpu.count", "many"), ("driver.version", 580), ("driver.version", "(not known)")]
)
def test_what_does_not_fit_its_fact_is_read_again(name: str, written: str | int) -> None:
    spec = catalog().find(name)
    assert spec
    assert isinstance(fact_of(written, spec), Unread)


def test_what_one_step_makes_a_later_one_does_not_make_doubtful() -> None:
    loaded = Step(("modprobe", "nvidia"), touches="system", makes=(("nvml.state", "ok"),))
    later = Step(("systemctl", "restart", "x"), touches="system", makes=(("driver.persistenced", True),))
    assert value(snapshot_after(machine(nvml__state="driver not loaded"), [loaded, later]), "nvml.state") == "ok"


_WORDS = st.text(max_size=12) | st.sampled_from(
    ["install", "uninstall", "-m", "pip", "uv", "conda", "venv", "create", "-n", "torch", "torch==", "=", "@", "["]
)
_PREFIXES = st.sampled_from([(PYTHON, "-m", "pip"), ("uv", "pip"), ("conda",), ("uv", "venv"), (), ("env", "-u")])
_NAMES = st.sampled_from(
    ["driver.version", "gpu.mig", "gpu[1].mig", "gpu[99].mig", "xid", "env.X", "torch.installs", "no.such"]
)
_VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(_PREFIXES, st.lists(_WORDS, max_size=6), st.dictionaries(_NAMES, _VALUES, max_size=3), st.text(max_size=20))
def test_whatever_a_step_says_the_outlook_is_a_snapshot(
    prefix: tuple[str, ...], words: list[str], makes: dict[str, Json], torch: str
) -> None:
    """Steps come from pages and from saved plans, versions from snapshots: none of them is trusted to make sense."""
    before = machine((("torch", torch), ("nvidia-cudnn-cu12", torch)), torch__version=torch, torch__installs=(torch,))
    step = Step((*prefix, *words), touches="environment", makes=tuple(makes.items()))
    then = snapshot_after(before, [step, step])
    assert not list(catalog().misfits(then))
    assert then.target == before.target
