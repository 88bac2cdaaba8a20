"""Single lines of manifests: what they ask for, where from, where they stand; manifests made to break a reader."""

import contextlib
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.app.commands.reports import rendered
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import from_json
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.knowledge.manifests import Image, parse_image
from gpudoctor.diagnosis.knowledge.manifests.pip_takes import EVERY, PYPI, UNKNOWN, WITHOUT_TORCH, builds_in
from gpudoctor.readers import decode, read_text
from gpudoctor.readers.files import _manifest, _requirements, dockerfile, pyproject
from gpudoctor.readers.files._manifest import documents, substituted
from gpudoctor.readers.files._requirements import parse_requirement
from gpudoctor.readers.files.dockerfile import instructions
from tests.readers.reading import RTX_4090, RTX_5090, errors, examples, judged, rows, value


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


def test_nvidias_images_ask_for_their_cuda_and_bring_torch() -> None:
    image = parse_image("nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04")
    assert (image.cuda, image.python, image.for_gpus) == ("12.4", "3.10", True)
    assert image.requires.split()[0] == "cuda>=12.4"
    text = "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN true\n"
    assert errors(judged(text, "Dockerfile", "gpu=RTX 2080 Ti,driver=450.80.02")) == ["container.requirement"]
    assert errors(judged(text, "Dockerfile", "gpu=RTX 2080 Ti,driver=535.183.01")) == []
    text = "FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04\nRUN pip install torch==2.11.0\n"
    assert errors(judged(text, "Dockerfile", "gpu=RTX 4090,driver=550.90.07")) == ["torch.driver-too-old"]
    assert errors(judged(text, "Dockerfile", "gpu=A100,driver=535.183.01")) == []
    assert errors(judged(text, "Dockerfile", "gpu=A100,driver=470.256.02"))[:1] == ["container.requirement"]
    assert errors(judged(text, "Dockerfile", "gpu=A100,driver=570.124.06")) == []
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
    [
        ("^2.4", ">=2.4,<3"),
        ("^0.21", ">=0.21,<0.22"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("~2.4.1", ">=2.4.1,<2.5"),
        ("~2", ">=2,<3"),
        ("2.5.1", "==2.5.1"),
        ("*", ""),
    ],
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
    assert kind("-e git+https://github.com/a/b@9f3c#egg=b\ntorch==2.6.0\nx @ file:///tmp/x\n") is None
    assert kind("-e .\ntorch>=2.6\n") == "requirements"
    assert kind("Traceback (most recent call last):\nRuntimeError: x\n", "requirements.txt") is None


def test_hashes_are_no_part_of_a_requirement() -> None:
    text = (
        "torch==2.4.0 \\\n    --hash=sha256:0d9bc3f1 \\\n    --hash=sha256:a1b2c3d4\nnumpy==1.26.4 --hash=sha256:cc01\n"
    )
    packages = rows(judged(text, "requirements.txt", RTX_4090).snapshot, "package")
    assert [(row["name"], row["version"]) for row in packages] == [("torch", "2.4.0"), ("numpy", "1.26.4")]


def test_a_service_has_64_mib_of_shared_memory_where_nothing_else_is_said() -> None:
    text = "services:\n  train:\n    image: nvcr.io/nvidia/pytorch:25.01-py3\n    gpus: all\n"
    for more in ("", "    ipc: shareable\n"):
        assert value(judged(text + more, "compose.yaml", RTX_4090), "limits.shm_mib") == 64


NAMES = ("requirements.txt", "pyproject.toml", "uv.lock", "environment.yml", "Dockerfile", "compose.yaml", "pod.yaml")
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{own}: &{own} [{','.join(['*' + before] * 9)}]\n" for before, own in zip("abcdefgh", "bcdefghi", strict=True)
)
BROKEN = [
    ("requirements.txt", "torch==2.5.1\n" * 200_000, "larger than"),
    ("pyproject.toml", "a = " + "[" * 100_000, "line 1: brackets"),
    ("pyproject.toml", "[" + "a." * 50_000 + "b]\n", "line 1: brackets"),
    ("pyproject.toml", "a = {" * 50 + "\n" * 10, "no TOML"),
    ("pyproject.toml", "[project]\ndependencies = [\n" + "[\n" * 5_000, "no TOML"),
    ("pyproject.toml", "\n".join(f"a{number} = {number}" for number in range(40_000)), "longer than"),
    ("environment.yml", "dependencies: " + "[" * 100_000, "without end"),
    ("environment.yml", "a:\n  " + "- " * 50_000 + "b\n", "without end"),
    ("environment.yml", "\n".join(f"{' ' * depth}a:" for depth in range(500)), "without end"),
    ("environment.yml", "dependencies:\n" + "  - pytorch=2.5\n" * 20_000, "longer than"),
    ("environment.yml", "dependencies:\n  - pytorch\n  - *x\n", "line 3: no YAML"),
    ("environment.yml", "dependencies:\n  - a: 'b\n", "no YAML"),
    ("environment.yml", "dependencies: [\x1b[31m]\n", "no YAML"),
    ("pod.yaml", "{{ if .Values.x }}\napiVersion: v1\nkind: Pod\n", "line 2: no YAML"),
]
SURVIVED = [
    ("requirements.txt", "torch\\\n" + "\\\n" * 100_000),
    ("requirements.txt", "torch[" + "a," * 100_000 + "]==2\n"),
    ("requirements.txt", "torch==2.5.1 ; " + "(" * 50_000),
    ("requirements.txt", "torch==" + "9" * 100_000),
    ("requirements.txt", "torch==1e999\ntorch==2.*.*\ntorch===weird\n"),
    ("requirements.txt", "torch==2.5.1+cu999\n-r\n"),
    ("requirements.txt", "".join(f"nvidia-{number}==1\n" for number in range(30_000))),
    ("uv.lock", "version = 1\n" + '[[package]]\nname = "torch"\nversion = "2.5.1"\n' * 40_000),
    ("pyproject.toml", "[project]\nname = 'x'\nrequires-python = 3\ndependencies = [1, {}, [], 'torch']\n"),
    ("pyproject.toml", "[tool.uv.sources]\ntorch = 5\n[project]\ndependencies = ['torch']\n"),
    ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '^'\npython = '^99999999999999'\n"),
    ("environment.yml", LAUGHS + "dependencies: *i\n"),
    ("environment.yml", "a: &a\n  b: *a\ndependencies: &d\n  - *d\n  - pytorch\n"),
    ("environment.yml", "dependencies: {a: b}\n"),
    ("environment.yml", "!!python/object/apply:os.system ['true']\n"),
    ("environment.yml", "dependencies: &a\n" + "  - &b\n" * 3_000),
    ("Dockerfile", "FROM a AS a\nFROM a AS b\n" * 20_000),
    ("Dockerfile", "FROM x\nRUN <<EOF\n" + "pip install torch\n" * 30_000),
    ("Dockerfile", "FROM x\nRUN pip install torch \\\n" + "a \\\n" * 100_000),
    ("Dockerfile", "FROM x\nRUN " + "a && " * 100_000),
    ("Dockerfile", "FROM x\nRUN [" + "[" * 100_000 + "\nRUN (" * 50),
    ("Dockerfile", "ARG A=x\n" + "ARG A=$A$A$A$A$A\n" * 1_000 + "FROM $A\nENV A\nRUN pip install $A\n"),
    ("Dockerfile", "FROM x\nENV A=" + "\\" * 100_000),
    ("compose.yaml", "services: &s\n  a: *s\n"),
    ("compose.yaml", "services:\n  a: &a\n    <<: *a\n    image: x\n"),
    ("compose.yaml", LAUGHS + "services:\n  x: *i\n  y: {image: [x], environment: 5, deploy: []}\n"),
    ("compose.yaml", "services:\n" + "".join(f"  s{number}:\n    image: a\n" for number in range(3_000))),
    ("compose.yaml", "services:\n  a:\n    image: ${A:-${B}}\n    shm_size: 99999999999999999999g\n    gpus: [{}]\n"),
    ("pod.yaml", "apiVersion: v1\nkind: Pod\nspec: &s\n  containers: [*s]\n"),
    ("pod.yaml", "apiVersion: v1\nkind: List\nitems: &i [*i]\n"),
    ("pod.yaml", "---\n" * 100_000),
]


def check(diagnosis: Diagnosis) -> None:
    """It can be shown, saved and read again; no reader failed; every fact is of its kind."""
    assert value(diagnosis, "report.trouble") is None
    assert list(catalog().misfits(diagnosis.snapshot)) == []
    for form in ("text", "markdown", "html", "json"):
        assert "\x1b" not in rendered(diagnosis, form, io.StringIO())
    again = from_json(json.loads(rendered(diagnosis, "json", io.StringIO())))
    assert again.facts == diagnosis.snapshot.facts


@pytest.mark.parametrize(("name", "text", "why"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_such_file_says_so_in_one_line(name: str, text: str, why: str) -> None:
    with pytest.raises(DocumentError) as caught:
        judged(text, name, RTX_5090)
    assert str(caught.value).startswith(f"{name}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), SURVIVED, ids=range(len(SURVIVED)))
def test_what_can_be_read_of_it_is_read(name: str, text: str) -> None:
    check(judged(text, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\xff", b"\xff" * 300, b"t\x00orch==2.5.1\n" * 50, b"\x00" * 9, b"\xef\xbb\xbftorch\n"]
)
def test_bytes_that_are_no_text(name: str, raw: bytes) -> None:
    with contextlib.suppress(DocumentError):
        check(judged(decode(raw, name), name))


def test_hostile_names_bear_no_control_characters_and_are_no_words_of_a_command() -> None:
    diagnosis = judged("torch==2.5.1\x1b]0;x\x07\x1b[31m\n", "requirements\x1b[2J.txt")
    check(diagnosis)
    assert value(diagnosis, "torch.version") == "2.5.1"
    diagnosis = judged("torch==1.13.1 ; python_version < '4'\n", "requirements.txt", "gpu=--index-url,driver=550")
    words = [
        word for finding in diagnosis.findings for fix in finding.fixes for step in fix.steps for word in step.argv
    ]
    assert not any(word.startswith("--index-url") for word in words)


def test_only_documents_that_matter_are_parsed_of_a_long_stream() -> None:
    filler = "---\nkind: ConfigMap\ndata:\n" + "  a: b\n" * 1_000
    found = documents(filler * 100 + "---\nkind: Pod\nspec: {containers: []}\n", ("containers:",))
    assert [node.at("kind").text for node in found] == ["Pod"]
    assert found[0].at("kind").line == 100 * 1_003 + 2


@settings(max_examples=50)
@given(st.sampled_from(NAMES), st.data())
def test_mutations_of_the_examples_are_survived(name: str, data: st.DataObject) -> None:
    kind = name.rpartition(".")[2]
    alike = [text for own, text in examples().items() if kind in own or name.partition(".")[0] in own]
    text = data.draw(st.sampled_from(alike))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        middle = data.draw(st.text("{}[]()<>&*!|'\"\\#-:=,;$@%\n\t \x00\x1b+.0aé", max_size=6))
        text = text[:start] + middle + text[end:]
    with contextlib.suppress(DocumentError):
        check(judged(decode(text.encode(), name), name))
