"""A candidate written down, and taken by the real tools: pip and uv against an index of stub wheels."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpudoctor.fixes.solver.environment import Environment
from gpudoctor.fixes.solver.index import Indexes
from gpudoctor.fixes.solver.install_commands import COMMANDS, Order
from gpudoctor.fixes.solver.solution import Candidate, Package
from gpudoctor.fixes.solver.stacks import FILES
from tests import needs
from tests.fixes.index import Index, alone
from tests.fixes.wheels import Wheel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TORCH, VISION = Package("torch", "2.9.0", "torch"), Package("torchvision", "0.24.0", "torch")
CU126 = Candidate("2.9.0", "cu126", "12.6", (TORCH, VISION))
WITH_VLLM = replace(CU126, packages=(TORCH, VISION, Package("vllm", "0.13.0")))
COMPILING = replace(CU126, packages=(TORCH, Package("flash-attn", "2.8.3", compiled=True)))


def written(order: Order, tool: str) -> list[str]:
    return [" ".join(argv) for argv in COMMANDS[tool](order)]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """torch's index as it is: its own builds, copies of what they require, some of these old; and the public one."""
    with Index(tmp_path / "shelves") as index:
        for build, cudnn in (("cpu", ""), ("cu126", "nvidia-cudnn-cu12"), ("cu130", "nvidia-cudnn-cu13")):
            library = [Wheel(cudnn, "9.1", files={"nvidia/cudnn/lib/libcudnn.so.9": build.encode()})] if cudnn else []
            index.add(
                Wheel("torch", f"2.9.0+{build}", ("jinja2", *([f"{cudnn}==9.1"] if cudnn else []))),
                Wheel("torchvision", f"0.24.0+{build}", ("torch==2.9.0",)),
                Wheel("jinja2", "3.0"),
                *library,
                shelf=build,
            )
        index.add(Wheel("nvidia-cudnn-cu12", "9.1"), Wheel("nvidia-cudnn-cu13", "9.1"))
        index.add(Wheel("torch", "2.9.0"), Wheel("torch", "2.10.0"), Wheel("torchvision", "0.24.0"))
        index.add(Wheel("jinja2", "3.1"), Wheel("vllm", "0.13.0", ("torch==2.9.0", "jinja2>=3.1")))
        yield index


def run(argv: tuple[str, ...], index: Index, cwd: Path | None = None) -> str:
    """What the command says; the user's own index is the public shelf."""
    own = {"PIP_INDEX_URL": index.url(), "UV_DEFAULT_INDEX": index.url(), "UV_PYTHON_DOWNLOADS": "never"}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**alone(index.folder / "cache"), **own, "PATH": path}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=env, cwd=cwd, timeout=600)
    assert done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def has(python: str, index: Index) -> dict[str, str]:
    lines = run((python, "-m", "pip", "list", "--format=freeze"), index).split()
    return dict(line.split("==", 1) for line in lines if "==" in line)


def order(candidate: Candidate, python: str, index: Index) -> Order:
    environment = Environment(python=python, installed=has(python, index))
    return Order(candidate, environment, base=index.url("").rstrip("/"))


def install(python: str, index: Index, *words: str) -> None:
    run((python, "-m", "pip", "install", *words), index)


@pytest.mark.full
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_another_build_of_the_same_release_takes_the_place_of_the_installed_one(
    tool: str, python: str, index: Index
) -> None:
    if tool == "uv":
        uv()
    install(python, index, "torch==2.9.0+cpu", "torchvision==0.24.0+cpu", "--index-url", index.url("cpu"))
    commands = COMMANDS[tool](order(CU126, python, index))
    assert len(commands) == 1
    run(commands[0], index)
    now = has(python, index)
    assert (now["torch"], now["torchvision"], now["nvidia-cudnn-cu12"]) == ("2.9.0+cu126", "0.24.0+cu126", "9.1")


def uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else needs.program("uv")


@pytest.mark.parametrize("tool", [pytest.param("pip", marks=pytest.mark.full), "uv"])
def test_what_is_not_on_torchs_index_comes_from_the_users_own_and_brings_no_other_torch(
    tool: str, python: str, index: Index
) -> None:
    if tool == "uv":
        uv()
    for command in COMMANDS[tool](order(WITH_VLLM, python, index)):
        run(command, index)
    now = has(python, index)
    assert (now["torch"], now["vllm"], now["jinja2"]) == ("2.9.0+cu126", "0.13.0", "3.1")


@pytest.mark.full
@pytest.mark.parametrize("tool", [pytest.param("pip", marks=pytest.mark.full), "uv"])
def test_wheels_of_another_cuda_go_before_they_could_take_their_files_along(
    tool: str, python: str, index: Index
) -> None:
    if tool == "uv":
        uv()
    install(python, index, "torch==2.9.0+cu130", "--index-url", index.url("cu130"))
    commands = COMMANDS[tool](order(CU126, python, index))
    assert [("nvidia-cudnn-cu13" in command, "install" in command) for command in commands] == [
        (True, False),
        (False, True),
    ]
    for command in commands:
        run(command, index)
    library = next(Path(python).parent.parent.glob("lib/python*/site-packages/nvidia/cudnn/lib/libcudnn.so.9"))
    assert library.read_bytes() == b"cu126"
    assert "nvidia-cudnn-cu13" not in has(python, index)


def test_with_pytorchs_own_index_uv_needs_one_command_for_everything() -> None:
    assert written(Order(WITH_VLLM, Environment(python="/v/bin/python")), "uv") == [
        (
            "uv pip install --python /v/bin/python torch==2.9.0+cu126 torchvision==0.24.0+cu126 vllm==0.13.0"
            " --torch-backend=cu126"
        )
    ]


def test_a_python_that_the_distribution_manages_gets_an_environment_beside_it() -> None:
    managed = Environment(python="/usr/bin/python3", managed=True, installed={"nvidia-cudnn-cu13": "9"})
    assert written(Order(CU126, managed), "pip") == [
        "/usr/bin/python3 -m venv .venv",
        (
            ".venv/bin/python -m pip install torch==2.9.0+cu126 torchvision==0.24.0+cu126"
            " --index-url https://download.pytorch.org/whl/cu126"
        ),
    ]
    assert written(Order(CU126, managed), "uv")[0] == "uv venv --python /usr/bin/python3 .venv"
    windows = replace(managed, python=r"C:\Python312\python.exe", windows=True)
    assert written(Order(CU126, windows), "pip")[1].startswith(r".venv\Scripts\python.exe -m pip install torch==")


def test_what_is_compiled_comes_last_against_the_torch_that_is_there() -> None:
    assert written(Order(COMPILING), "pip") == [
        "python -m pip install torch==2.9.0+cu126 --index-url https://download.pytorch.org/whl/cu126",
        "python -m pip install torch==2.9.0+cu126 ninja packaging psutil setuptools wheel",
        "python -m pip install --no-build-isolation torch==2.9.0+cu126 flash-attn==2.8.3",
    ]


def test_conda_takes_conda_forges_own_build_of_that_cuda_major() -> None:
    there = Environment("conda", prefix="/opt/conda/envs/x")
    assert written(Order(WITH_VLLM, there, pinned=True), "conda") == [
        (
            "conda install --yes --prefix /opt/conda/envs/x --override-channels --channel conda-forge"
            " pytorch-gpu=2.9.0 cuda-version>=12.6,<13 torchvision=0.24.0"
        )
    ]
    assert written(Order(replace(CU126, cuda="11.8", build="cu118"), there), "conda") == []
    venv = Environment("pip", python="/v/bin/python", prefix="/v").by("conda")
    assert written(Order(CU126, venv, python="3.12"), "conda") == [
        (
            "conda create --yes --name torch --override-channels --channel conda-forge python=3.12"
            " pytorch-gpu cuda-version>=12.6,<13 torchvision"
        )
    ]


@pytest.mark.full
def test_pip_installs_the_requirements_by_themselves(python: str, index: Index, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text(FILES["requirements"](order(WITH_VLLM, python, index)))
    run((python, "-m", "pip", "install", "-r", str(tmp_path / "r.txt")), index)
    now = has(python, index)
    assert (now["torch"], now["torchvision"], now["vllm"]) == ("2.9.0+cu126", "0.24.0+cu126", "0.13.0")


@pytest.mark.full
def test_pip_checks_the_hashes_that_an_index_told(python: str, index: Index, tmp_path: Path) -> None:
    shelves = Indexes(index.url("").rstrip("/"), index.url().rstrip("/"))
    wanted = order(WITH_VLLM, python, index)
    verdict = shelves.verdict(wanted, "3.12", "linux", "x86_64")
    text = FILES["requirements"](replace(wanted, hashes=verdict.hashes))
    assert text.count("#sha256=") == 3
    (tmp_path / "r.txt").write_text(text)
    hashed = (python, "-m", "pip", "install", "--no-deps", "--require-hashes", "-r", str(tmp_path / "r.txt"))
    run(hashed, index)
    assert has(python, index)["torch"] == "2.9.0+cu126"
    (tmp_path / "r.txt").write_text(text.replace("#sha256=", "#sha256=0", 1)[:-1])
    with pytest.raises(AssertionError, match=r"(?i)hash|sha256"):
        run((*hashed, "--force-reinstall"), index)


def test_uv_locks_the_project_with_torch_from_torchs_index_alone(index: Index, tmp_path: Path, python: str) -> None:
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    project = Order(WITH_VLLM, base=index.url("").rstrip("/"), python=minor, system="linux", arch=os.uname().machine)
    (tmp_path / "pyproject.toml").write_text(FILES["pyproject"](project))
    run((uv(), "lock", "--python", sys.executable), index, cwd=tmp_path)
    lock = tomllib.loads((tmp_path / "uv.lock").read_text())
    where = {item["name"]: (item["version"], item["source"].get("registry", "")) for item in lock["package"]}
    assert where["torch"] == ("2.9.0+cu126", index.url("cu126").rstrip("/"))
    assert where["jinja2"][0] == "3.1"
    assert where["vllm"][1].rstrip("/") == index.url().rstrip("/")


def test_conda_reads_the_environment_file() -> None:
    document = yaml.safe_load(FILES["environment"](Order(WITH_VLLM, python="3.12")))
    assert document == {
        "name": "torch",
        "channels": ["conda-forge", "nodefaults"],
        "dependencies": [
            "python=3.12",
            "pytorch-gpu=2.9.0",
            "cuda-version>=12.6,<13",
            "torchvision=0.24.0",
            "pip",
            {"pip": ["vllm==0.13.0"]},
        ],
    }


def test_pixi_reads_its_project() -> None:
    document = tomllib.loads(FILES["pixi"](Order(WITH_VLLM, python="3.12", arch="aarch64", system="linux")))
    assert document["workspace"]["platforms"] == ["linux-aarch64"]
    unnamed = tomllib.loads(FILES["pixi"](Order(CU126, arch="aarch64")))
    assert unnamed["workspace"]["platforms"] == ["linux-aarch64"]
    assert document["system-requirements"] == {"cuda": "12"}
    assert document["dependencies"]["cuda-version"] == ">=12.6,<13"
    assert document["pypi-dependencies"] == {"vllm": "==0.13.0"}


def test_an_image_is_pythons_own_unless_something_is_compiled() -> None:
    assert FILES["dockerfile"](Order(CU126, python="3.12")).splitlines() == [
        "# docker build -t torch . && docker run --gpus all --shm-size=8g --rm -it torch",
        "FROM python:3.12-slim",
        (
            "RUN python -m pip install --no-cache-dir torch==2.9.0+cu126 torchvision==0.24.0+cu126"
            " --index-url https://download.pytorch.org/whl/cu126"
        ),
    ]
    compiling = FILES["dockerfile"](Order(COMPILING, python="3.12")).splitlines()
    assert compiling[1] == "FROM nvidia/cuda:12.6.3-devel-ubuntu22.04"
    assert compiling[-1].endswith("--no-cache-dir --no-build-isolation torch==2.9.0+cu126 flash-attn==2.8.3")
