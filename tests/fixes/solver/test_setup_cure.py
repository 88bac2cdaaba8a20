"""The stack as a rule's cure: by the environment's own tool, and what its steps make true comes true."""

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.core.rule import SOLVED, Fix
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.fixes.solver.cure import MODES, torch_cures
from gpudoctor.fixes.solver.described_machine import parse_machine
from gpudoctor.fixes.solver.solver import solve
from tests.fixes.index import Index, alone
from tests.fixes.wheels import Wheel

H100 = ("NVIDIA H100 80GB HBM3", "9.0")
MACHINE: Mapping[str, Fact] = {
    name: Known(value, "test")
    for name, value in {
        "driver.version": "535.183.06",
        "python.version": "3.12.3",
        "python.path": "/opt/venv/bin/python",
        "python.prefix": "/opt/venv",
        "host.platform": "linux",
        "host.arch": "x86_64",
        "host.glibc": "2.35",
        "torch.version": "2.9.0+cu130",
        "torch.cuda": "13.0",
    }.items()
}
PACKAGES = {"torch": "2.9.0+cu130", "torchvision": "0.23.0+cu130", "nvidia-cudnn-cu13": "9.13.0.50"}


def rows(*items: Mapping[str, str]) -> Rows:
    return tuple({name: Known(value, "test") for name, value in item.items()} for item in items)


def gpus(*models: tuple[str, str]) -> Rows:
    return rows(*({"name": name, "compute_capability": capability} for name, capability in models))


def machine(packages: Mapping[str, str] = PACKAGES, gpu: tuple[str, str] = H100, **facts: object) -> Snapshot:
    """That of `MACHINE` but for some facts, whose names are written with two lines below for the dot."""
    said = {name.replace("__", "."): Known(value, "test") for name, value in facts.items()}  # type: ignore[arg-type]
    listed = rows(*({"name": name, "version": version} for name, version in packages.items()))
    return Snapshot(Target("local", "here"), {**MACHINE, **said}, {"gpu": gpus(gpu), "package": listed})


def commands(fixes: tuple[Fix, ...]) -> list[str]:
    return [" ".join(step.argv) for fix in fixes for step in fix.steps if step.argv]


def test_the_newest_that_fits_with_the_companions_that_are_installed() -> None:
    fixes = torch_cures(machine())
    assert [fix.title for fix in fixes] == ["Install torch 2.14.1 for CUDA 12.6"]
    assert commands(fixes) == [
        "/opt/venv/bin/python -m pip uninstall --yes nvidia-cudnn-cu13",
        (
            "/opt/venv/bin/python -m pip install torch==2.14.1+cu126 torchvision==0.29.1+cu126"
            " --index-url https://download.pytorch.org/whl/cu126"
        ),
    ]
    assert "driver 535.183.06 serves CUDA 12.6" in fixes[0].steps[-1].text
    assert fixes[0].undo == (
        "Install again what was there: torch==2.9.0+cu130 torchvision==0.23.0+cu130,"
        " torch's from https://download.pytorch.org/whl/cu130"
    )


def test_the_same_release_where_a_build_of_it_fits_else_the_newest() -> None:
    assert torch_cures(machine(), "torch same")[0].title == "Install torch 2.9.0 for CUDA 12.8"
    too_new = machine(gpu=("NVIDIA GeForce RTX 5090", "12.0"), driver__version="575.57", torch__version="2.5.1+cu124")
    assert torch_cures(too_new, "torch same")[0].title == torch_cures(too_new)[0].title


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["pip", "uv", "conda"])
@pytest.mark.parametrize("managed", [False, True])
def test_every_cure_goes_by_the_tool_of_the_environment_and_forces_nothing(mode: str, tool: str, managed: bool) -> None:
    said = commands(torch_cures(machine(python__installer=tool, python__externally_managed=managed), mode))
    for command in said:
        first = command.split()[0]
        if tool == "conda" and mode != "other python":
            assert first == "conda"
            assert "--prefix /opt/venv " in command
        elif tool == "uv" or mode == "other python":
            assert first in ("uv", "conda")
        else:
            assert " -m pip " in command or " -m venv " in command
        if managed and " -m pip " in command:
            assert first == ".venv/bin/python"
        assert not any(word in command for word in ("--break-system-packages", "sudo", "--user", "http://"))


def test_the_same_and_the_newest_release_are_one_fix_where_they_are_one_build() -> None:
    text = "PyTorch version: 2.13.0+cpu\nGPU 0: NVIDIA GeForce RTX 5090\nNvidia driver version: 580.57.02\n"
    (finding,) = pipeline.diagnose(reading.snapshot_of(text, "-"), rulebook.load()).findings
    assert [fix.title for fix in finding.fixes] == ["Install torch 2.13.0 for CUDA 12.9"]


def test_companions_are_mended_and_torch_is_kept() -> None:
    fixes = torch_cures(machine(), "companions")
    assert commands(fixes) == [
        (
            "/opt/venv/bin/python -m pip install --no-deps torchvision==0.24.0+cu130"
            " --index-url https://download.pytorch.org/whl/cu130"
        )
    ]
    assert fixes[0].undo == "Install again what was there: torchvision==0.23.0+cu130"


def test_where_nothing_fits_the_smallest_change_is_named() -> None:
    fixes = torch_cures(machine(gpu=("NVIDIA GeForce RTX 5090", "12.0"), driver__version="550.54.14"))
    assert commands(fixes) == []
    assert fixes[0].title.startswith("First driver 570 or newer")
    (command,) = re.findall("gpudoctor (setup torch --for .*) says why", fixes[0].steps[0].text)
    assert fixes[0].steps[1].text.startswith("Then torch: ")
    assert "pip install torch==" in fixes[0].steps[1].text
    wishes = parse_machine(shlex.split(command)[-1])
    assert (wishes.gpus[0].compute_capability, wishes.driver) == ("12.0", "550.54.14")
    assert solve(wishes).best is None


def test_a_report_that_is_silent_gets_what_most_machines_take() -> None:
    snapshot = complete(reading.snapshot_of("AssertionError: Torch not compiled with CUDA enabled"))
    fixes = torch_cures(snapshot)
    assert "+cu126" in commands(fixes)[0]
    assert "GPU and driver are not known here" in fixes[0].steps[-1].text
    none = replace(snapshot, groups={**snapshot.groups, "gpu": Absent("no GPU here")})
    assert "+cpu" in commands(torch_cures(none))[0]


def test_a_jetson_takes_nvidias_own_torch() -> None:
    assert torch_cures(machine(host__jetson="Jetson AGX Orin")) == ()


HOSTILE = ("--index-url=http://evil", "-rrequirements", "$(reboot)", "x\ny", "../../bin/sh", "http://evil/x.whl", "")


@pytest.mark.parametrize("word", HOSTILE)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_no_name_version_or_path_becomes_no_word_of_a_command(word: str, mode: str) -> None:
    pins = rows({"name": word, "wants": "1.0", "has": "2"}, {"name": "nvidia-nccl-cu13", "wants": word, "has": "1"})
    said = machine(
        {"torch": "2.9.0+cu130", word: "1.0", "torchvision": word, "nvidia-cudnn-cu12": word},
        python__path=word,
        python__prefix=word,
        torch__version=word,
        python__damaged=(word,),
        driver__version=word,
    )
    for snapshot in (said, replace(machine(), groups={**machine().groups, "pin": pins})):
        words = [word for fix in torch_cures(snapshot, mode) for step in fix.steps for word in step.argv]
        assert not word or word not in words
        assert not any(part.startswith("-") and "evil" in part for part in words)
        assert not any(word and word in part for part in words)


def torch(version: str, *requires: str) -> Wheel:
    cuda = repr(f"{version[-3:-1]}.{version[-1]}") if "+cu" in version else None
    files = {"torch/__init__.py": b"", "torch/version.py": f"__version__ = {version!r}\ncuda = {cuda}\n".encode()}
    return Wheel("torch", version, requires, files=files)


def run(argv: tuple[str, ...], index: Index) -> None:
    """A command as it is, but against the local shelves."""
    words = [word.replace("https://download.pytorch.org/whl/", index.url("").rstrip("/") + "/") for word in argv]
    env = {**alone(index.folder / "cache"), "PIP_INDEX_URL": index.url()}
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def looked(python: str) -> Snapshot:
    """The real environment, as if it were beside an H100 under an old driver."""
    snapshot = pipeline.look("quick", python)
    facts = {**snapshot.facts, "driver.version": Known("535.183.06", "test")}
    return complete(replace(snapshot, facts=facts, groups={**snapshot.groups, "gpu": gpus(H100)}))


@pytest.mark.full
def test_what_the_steps_make_true_comes_true(tmp_path: Path, python: str) -> None:
    with Index(tmp_path / "shelves") as index:
        index.add(torch("2.9.0+cpu"), Wheel("torchvision", "0.24.0+cpu", ("torch==2.9.0",)), shelf="cpu")
        run((python, "-m", "pip", "install", "torchvision", "--index-url", index.url("cpu")), index)
        (fix,) = torch_cures(looked(python))
        words = [word.partition("==") for word in fix.steps[-1].argv if "==" in word]
        versions = {name: version for name, _, version in words}
        pinned = (f"torch=={versions['torch'].partition('+')[0]}",)
        index.add(torch(versions["torch"]), Wheel("torchvision", versions["torchvision"], pinned), shelf="cu126")
        for step in fix.steps:
            run(step.argv, index)
        now = looked(python)
    for name, value in fix.steps[-1].makes:
        state = now.get(name)
        if isinstance(value, dict):
            assert isinstance(state, Absent), name
        elif isinstance(state, Known):
            assert state.value == (tuple(value) if isinstance(value, list) else value), name
    assert now.get("torch.version") == Known("2.14.1+cu126", now.get("torch.version").source)  # type: ignore[union-attr]


def test_what_the_solver_works_out_is_known_without_it() -> None:
    assert set(SOLVED) == set(MODES)
