"""What people name in passing: GPUs, drivers and torches in sentences, lists in one line, two torches."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.readers import read_text


def values(snapshot: Snapshot) -> dict[str, object]:
    return {name: fact.value for name, fact in snapshot.facts.items() if isinstance(fact, Known)}


def gpu_names(snapshot: Snapshot) -> list[object]:
    found = snapshot.rows("gpu")
    return [fact.value for row in found if isinstance(fact := row["name"], Known)] if isinstance(found, tuple) else []


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("torch 2.8.0+cu128, RTX 5090, driver 570.86", "driver.version", "570.86"),
        ("RTX 5090 with 550.144", "driver.version", "550.144"),
        ("driver is still 450.80.02", "driver.version", "450.80.02"),
        ("host driver: 535.129.03", "driver.version", "535.129.03"),
        ("torch in the container: 2.4.0", "torch.version", "2.4.0"),
        ("pip freeze shows torch==2.3.0 and no nvidia wheels", "torch.version", "2.3.0"),
        ("installed with: pip3 install torch==2.1.0+cu121 -f https://x", "torch.version", "2.1.0+cu121"),
        ("after upgrading torch from 2.2 (cu118) to 2.6 (cu124) it went False", "torch.version", "2.6"),
        ("after upgrading torch from 2.2 (cu118) to 2.6 (cu124) it went False", "torch.cuda", "12.4"),
        ("torch 2.9.0 with CUDA 13.0", "torch.cuda", "13.0"),
        ('python -c "import torch; print(torch.version.cuda)"\n12.4', "torch.cuda", "12.4"),
        ("print(torch.cuda.is_available()) gives False", "live.cuda_available", False),
        ("packages: torch 2.8.0, torchvision 0.23.0", "torch.version", "2.8.0"),
        ("torch 1.13.0, torchvision 0.6.0", "torch.version", "1.13.0"),
        ("environment: torch 2.9.0+cu130, driver 550.54.14", "driver.version", "550.54.14"),
        ("machine: A100, driver 450.80.02", "driver.version", "450.80.02"),
        (
            "torch.__version__ gives 1.8.1 although 2.2.0 was installed",
            "torch.installs",
            ("imported 1.8.1", "listed 2.2.0"),
        ),
        (
            "torch.__version__: 1.13.1\npip list: torch 2.0.1",
            "torch.installs",
            ("imported 1.13.1", "listed 2.0.1"),
        ),
    ],
)
def test_named(text: str, name: str, value: object) -> None:
    assert values(read_text(text)).get(name) == value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("upgrading torch to 2.6.0 fixed it", "torch.version"),
        ("it wants torch 2.6.0+cu124", "torch.version"),
        ("works with driver 535.129.03", "driver.version"),
        ("driver 535.129.03 or newer is required", "driver.version"),
        ("pip install torch==1.13.1: no matching distribution", "torch.version"),
        ("driver in the other machine: 535.129.03", "driver.version"),
        ("torch.__version__: 2.0.1\npip list: torch 2.0.1+cu118", "torch.installs"),
        ("torch.__version__ is 2.0.1 but torchvision is 0.14.0", "torch.installs"),
    ],
)
def test_named_and_not_of_this_machine(text: str, name: str) -> None:
    assert name not in values(read_text(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("env: RTX 5090, torch 2.5.1+cu124", ["RTX 5090"]),
        ("hardware: 2x H100, driver 535.129.03", ["H100", "H100"]),
        ("torch 2.1.0, RTX 3090, driver 535.129.03", ["RTX 3090"]),
        ("GPU Tesla V100", ["Tesla V100"]),
        ("nvidia-smi lists GTX 1080 Ti", ["GTX 1080 Ti"]),
        ("gpu: A4000", ["A4000"]),
        ("GPU: RTX3090", ["RTX3090"]),
        ("gpu: mx150", ["mx150"]),
        ("Video card: 3060ti", ["3060ti"]),
        ("my graphics card is rtx3080.", ["rtx3080"]),
        ("The runtime uses a Tesla K80 GPU.", ["Tesla K80 GPU"]),
        ("works on an A100", []),
    ],
)
def test_gpu_in_passing(text: str, names: list[object]) -> None:
    assert gpu_names(read_text(text)) == names


CONDA = "conda install pytorch torchvision cudatoolkit=11.3 -c pytorch"


@pytest.mark.parametrize(
    ("beside", "cuda"),
    [
        (">>> torch.cuda.is_available()\nFalse", None),
        ("NVIDIA-SMI 470.57\n>>> torch.cuda.is_available()\nFalse", "11.3"),
        (">>> torch.cuda.is_available()\nTrue", "11.3"),
    ],
    ids=["asked in vain", "a driver is named", "it works"],
)
def test_what_conda_was_asked_for_is_not_what_torch_is_where_it_sees_no_gpu(beside: str, cuda: str | None) -> None:
    assert values(read_text(f"{CONDA}\n{beside}")).get("torch.cuda") == cuda


@pytest.mark.parametrize(("prompt", "jetson"), [("me@jetson-nano:~$ ls", "jetson"), ("mail me@jetson.example", None)])
def test_a_jetson_is_told_by_the_name_at_its_prompt(prompt: str, jetson: str | None) -> None:
    assert values(read_text(prompt)).get("host.jetson") == jetson
