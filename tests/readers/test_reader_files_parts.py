"""Single lines of manifests: what they ask for, where from, and on which line they stand."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Known
from gpudoctor.diagnosis.knowledge.manifests import Image, parse_image
from gpudoctor.diagnosis.knowledge.manifests.pip_takes import EVERY, PYPI, UNKNOWN, WITHOUT_TORCH, builds_in
from gpudoctor.readers import read_text
from gpudoctor.readers.files import _manifest, _requirements, dockerfile, pyproject
from gpudoctor.readers.files._manifest import substituted
from gpudoctor.readers.files._requirements import parse_requirement
from gpudoctor.readers.files.dockerfile import instructions
from tests.readers.manifests import RTX_4090, RTX_5090, errors, judged, value
from tests.readers.reading import rows


@pytest.mark.parametrize(
    ("line", "name", "spec"),
    [
        ("torch", "torch", ""),
        ("torch == 2.5.1", "torch", "==2.5.1"),
        ("torch[opt-einsum] >=2.4, <3", "torch", ">=2.4,<3"),
        ("torch (>=2.4)", "torch", ">=2.4"),
        ("Flash_Attn==2.7.4.post1", "flash-attn", "==2.7.4.post1"),
        ("torch @ https://example.org/torch-2.6.0%2Bcu124-cp312-cp312-linux_x86_64.whl", "torch", "==2.6.0+cu124"),
        ("./wheels/torch-2.6.0+cu124-cp312-cp312-linux_x86_64.whl", "torch", "==2.6.0+cu124"),
        ("git+https://github.com/pytorch/pytorch.git", None, None),
        ("torch==", None, None),
        ("RuntimeError: CUDA error: no kernel image", None, None),
    ],
)
def test_a_requirement_is_a_name_and_the_versions_it_takes(line: str, name: str | None, spec: str | None) -> None:
    found = parse_requirement(line)
    assert (found.name if found else None, found.spec if found else None) == (name, spec)


@pytest.mark.parametrize(
    ("line", "spec", "build"),
    [
        ("pytorch", "", ""),
        ("pytorch=2.5", "==2.5.*", ""),
        ("pytorch=2.5.1", "==2.5.1", ""),
        ("pytorch==2.5.1", "==2.5.1", ""),
        ("pytorch 2.5.*", "==2.5.*", ""),
        ("pytorch>=2.4,<3", ">=2.4,<3", ""),
        ("pytorch=2.5.1=py3.12_cuda12.4_cudnn9.1.0_0", "==2.5.1", "py3.12_cuda12.4_cudnn9.1.0_0"),
        ("conda-forge::pytorch=*=*cpu*", "", "*cpu*"),
        ("pytorch-gpu", "", "*cuda*"),
    ],
)
def test_conda_writes_versions_and_builds_in_its_own_way(line: str, spec: str, build: str) -> None:
    found = _requirements.conda_requirement(line, ["conda-forge"])
    assert found
    assert (found.name, found.spec, found.build) == ("torch", spec, build)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("", PYPI),
        ("https://pypi.org/simple", PYPI),
        ("https://mirrors.aliyun.com/pypi/simple/", PYPI),
        ("https://nexus.example.org/repository/pypi-proxy/simple", PYPI),
        ("https://download.pytorch.org/whl/cu124", "cu124"),
        ("https://download.pytorch.org/whl/cpu/", "cpu"),
        ("https://mirror.sjtu.edu.cn/pytorch-wheels/cu121", "cu121"),
        ("https://download.pytorch.org/whl/rocm6.2", "rocm6.2"),
        ("https://download.pytorch.org/whl/nightly/cu128", UNKNOWN),
        ("https://download.pytorch.org/whl/torch_stable.html", EVERY),
        ("https://pypi.nvidia.com", WITHOUT_TORCH),
        ("https://data.pyg.org/whl/torch-2.5.0+cu124.html", WITHOUT_TORCH),
        ("https://artifacts.example.org/ml", UNKNOWN),
    ],
)
def test_an_index_is_known_by_its_address(url: str, kind: str) -> None:
    assert builds_in(url) == kind


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", Image(torch="2.5.1+cu124", cuda="12.4", for_gpus=True)),
        ("docker.io/library/python:3.12-slim-bookworm", Image(python="3.12", own_python=True, glibc="2.36")),
        ("python:3.11", Image(python="3.11", own_python=True)),
        ("ubuntu:22.04", Image(python="3.10", glibc="2.35")),
        ("postgres:17", Image()),
        ("${BASE}", Image()),
        ("vllm/vllm-openai:v0.8.5", Image(for_gpus=True)),
    ],
)
def test_an_image_is_known_by_its_name(name: str, image: Image) -> None:
    assert parse_image(name) == image


def test_nvidias_images_ask_for_their_cuda() -> None:
    image = parse_image("nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04")
    assert (image.cuda, image.python, image.for_gpus) == ("12.4", "3.10", True)
    assert image.requires.split()[0] == "cuda>=12.4"
    text = "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN true\n"
    assert errors(judged(text, "Dockerfile", "gpu=RTX 2080 Ti,driver=450.80.02")) == ["container.requirement"]
    assert errors(judged(text, "Dockerfile", "gpu=RTX 2080 Ti,driver=535.183.01")) == []


def test_the_compatibility_libraries_of_nvidias_images_lift_drivers_of_data_center_gpus() -> None:
    text = "FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04\nRUN pip install torch==2.11.0\n"
    assert errors(judged(text, "Dockerfile", "gpu=RTX 4090,driver=550.90.07")) == ["torch.driver-too-old"]
    assert errors(judged(text, "Dockerfile", "gpu=A100,driver=535.183.01")) == []
    assert errors(judged(text, "Dockerfile", "gpu=A100,driver=470.256.02"))[:1] == ["container.requirement"]
    assert errors(judged(text, "Dockerfile", "gpu=A100,driver=570.124.06")) == []


def test_ngcs_torch_is_by_its_cuda() -> None:
    image = parse_image("nvcr.io/nvidia/pytorch:24.12-py3")
    assert (image.torch, image.cuda, image.python) == ("2.6.0a0+df5bbc09d1", "12.6.3", "3.12")
    text = "FROM nvcr.io/nvidia/pytorch:24.12-py3\nRUN true\n"
    assert errors(judged(text, "Dockerfile", RTX_5090)) == ["torch.arch-too-new"]
    assert value(judged(text, "Dockerfile", RTX_5090), "torch.cuda") == "12.6"


@pytest.mark.parametrize(
    ("command", "names", "index"),
    [
        ("pip install torch torchvision", ["torch", "torchvision"], ""),
        ("sudo -E python3.12 -m pip --no-cache-dir install 'torch>=2.4'", ["torch"], ""),
        ("/opt/venv/bin/pip3 install torch -i https://x/cu124", ["torch"], "https://x/cu124"),
        ("PIP_NO_CACHE_DIR=1 pip install --index-url=https://x/cpu torch", ["torch"], "https://x/cpu"),
        ("uv pip install --torch-backend=cu128 torch", ["torch"], "https://download.pytorch.org/whl/cu128"),
        ("uv add torch --index pytorch=https://x", ["torch"], ""),
        ("conda install -y -c pytorch pytorch=2.4.1 cpuonly", ["torch", "cpuonly"], "pytorch"),
        ("conda run -n base pip install torch", ["torch"], ""),
        ("micromamba create -n t -c conda-forge pytorch-gpu", ["torch"], "conda-forge"),
        ("apt-get install -y python3-pip", [], ""),
        ("pip uninstall -y torch", [], ""),
        ("pip download torch", [], ""),
        ("echo pip install torch", [], ""),
    ],
)
def test_a_command_installs_what_its_words_say(command: str, names: list[str], index: str) -> None:
    ((words),) = dockerfile.commands(command)
    found, _ = dockerfile.installed_packages(words)
    assert [one.name for one in found] == names
    assert {one.index for one in found} <= {index}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("pip install -r requirements.txt -c constraints.txt", ["requirements.txt", "constraints.txt"]),
        ("pip install -e .[gpu]", ["pyproject.toml"]),
        ("uv sync --frozen", ["uv.lock"]),
        ("poetry install --no-root", ["poetry.lock"]),
        ("mamba env update -n base --file environment.yml", ["environment.yml"]),
        ("pip install torch", []),
    ],
)
def test_files_that_a_command_takes_more_from_are_named(command: str, files: list[str]) -> None:
    ((words),) = dockerfile.commands(command)
    assert dockerfile.installed_packages(words)[1] == files


def test_uv_takes_the_first_index_that_has_it_and_pip_the_highest_version() -> None:
    def torch(command: str) -> object:
        text = f"FROM python:3.12-slim\nRUN {command} --extra-index-url https://download.pytorch.org/whl/cu124\n"
        return value(judged(text, "Dockerfile", RTX_4090), "torch.version")

    assert torch("pip install torch") == "2.15.0"
    assert torch("uv pip install --system torch") == "2.6.0+cu124"
    assert torch("pip install torch==2.9.1") == "2.9.1"
    assert torch("uv pip install --system torch==2.9.1") is None


def test_commands_are_told_apart_and_quotes_that_do_not_close_are_survived() -> None:
    assert list(dockerfile.commands("a b && c 'd && e' | f; (g)\nh")) == [
        ["a", "b"],
        ["c", "d && e"],
        ["f"],
        ["g"],
        ["h"],
    ]
    assert list(dockerfile.commands("pip install 'torch")) == [["pip", "install", "'torch"]]


def test_instructions_are_joined_over_lines_comments_and_heredocs() -> None:
    lines = ["FROM a \\", "# no", "  AS b", "RUN <<EOF", "x", "EOF", "", "# c", "CMD c"]
    assert [(one.keyword, one.first, one.last, one.script) for one in instructions(lines)] == [
        ("FROM", 1, 3, ""),
        ("RUN", 4, 6, "x"),
        ("CMD", 9, 9, ""),
    ]
    windows = ["# escape=`", "RUN a `", "  b"]
    assert [one.arguments for one in instructions(windows)] == ["a    b"]


@pytest.mark.parametrize(
    ("text", "is_"), [("$A-${B}", "1-${B}"), ("${A:-x}${B:-y}${B-z}", "1yz"), ("${A:+x}${B:+y}", "x"), ("\\$A", "$A")]
)
def test_variables_are_filled_as_docker_fills_them(text: str, is_: str) -> None:
    assert substituted(text, {"A": "1"}) == is_


@pytest.mark.parametrize(
    ("text", "size"),
    [("16gb", 16384), ("2Gi", 2048), ("64m", 64), ("67108864", 64), ("1.5g", 1536), ("much", None), ("", None)],
)
def test_sizes(text: str, size: int | None) -> None:
    assert _manifest.size_mib(text) == size


@pytest.mark.parametrize(
    ("poetry", "pip"),
    [("^2.4", ">=2.4,<3"), ("^0.21", ">=0.21,<0.22"), ("~2.4.1", ">=2.4.1,<2.5"), ("2.5.1", "==2.5.1"), ("*", "")],
)
def test_poetrys_carets(poetry: str, pip: str) -> None:
    assert pyproject.pip_specifier(poetry) == pip


def test_a_manifest_is_known_by_its_content_where_the_name_says_nothing() -> None:
    def kind(text: str, name: str = "-") -> object:
        fact = read_text(text, name).get("manifest.kind")
        return fact.value if isinstance(fact, Known) else None

    assert kind("--index-url https://download.pytorch.org/whl/cu124\ntorch==2.6.0\n") == "requirements"
    assert kind("FROM python:3.12\nRUN pip install torch\n") == "dockerfile"
    assert kind("services:\n  a:\n    image: pytorch/pytorch\n", "stack.yml") == "compose"
    assert kind("apiVersion: v1\nkind: Pod\nspec:\n  containers: [{name: a, image: b}]\n") == "pod"
    assert kind("channels: [conda-forge]\ndependencies:\n  - pytorch\n") == "environment"
    assert kind('[project]\nname = "x"\ndependencies = ["torch"]\n') == "pyproject"
    assert kind("torch==2.6.0\nnumpy==2.0.0\n") is None  # what pip freeze prints is what is installed
    assert kind("Traceback (most recent call last):\nRuntimeError: x\n", "requirements.txt") is None


def test_hashes_are_no_part_of_a_requirement() -> None:
    text = (
        "torch==2.4.0 \\\n    --hash=sha256:0d9bc3f1 \\\n    --hash=sha256:a1b2c3d4\nnumpy==1.26.4 --hash=sha256:cc01\n"
    )
    packages = rows(judged(text, "requirements.txt", RTX_4090).snapshot, "package")
    assert [(row["name"], row["version"]) for row in packages] == [("torch", "2.4.0"), ("numpy", "1.26.4")]


def test_a_service_has_64_mib_of_shared_memory_where_nothing_else_is_said() -> None:
    text = "services:\n  train:\n    image: nvcr.io/nvidia/pytorch:25.01-py3\n    gpus: all\n"
    assert value(judged(text, "compose.yaml", RTX_4090), "limits.shm_mib") == 64
