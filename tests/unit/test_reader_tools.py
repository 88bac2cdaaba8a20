"""What other programs print of the machine: ollama's environment, AMD's and Windows' lists, torch's answers, boards."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text


def facts(text: str) -> dict[str, object]:
    found = read_text(text).facts
    return {name: fact.value for name, fact in found.items() if isinstance(fact, Known)}


def column(text: str, group: str, name: str) -> list[object]:
    rows = read_text(text).groups.get(group, ())
    assert isinstance(rows, tuple)
    return [fact.value for row in rows if isinstance(fact := row.get(name), Known)]


OLLAMA = (
    'time=2025-01-02T10:11:12Z level=INFO msg="server config" env="map[CUDA_VISIBLE_DEVICES:-1 HIP_VISIBLE_DEVICES:'
    ' OLLAMA_DEBUG:false OLLAMA_ORIGINS:[http://localhost] NCCL_DEBUG:INFO]"\n'
)


def test_the_environment_as_a_go_program_prints_it() -> None:
    found = facts(OLLAMA)
    assert found["env.CUDA_VISIBLE_DEVICES"] == "-1"
    assert found["env.NCCL_DEBUG"] == "INFO"
    assert not {"env.HIP_VISIBLE_DEVICES", "env.OLLAMA_DEBUG"} & set(found)


def test_torchs_answers_on_the_line_of_the_question() -> None:
    text = "torch.__version__ 2.5.1+cu124\ntorch.cuda.get_arch_list() ['sm_80', 'sm_90']\ntorch.version.cuda -> 12.4\n"
    found = facts(text)
    assert found["torch.version"] == "2.5.1+cu124"
    assert found["torch.archs"] == ("sm_80", "sm_90")
    assert found["torch.cuda"] == "12.4"


def test_a_device_name_on_the_line_of_the_question() -> None:
    assert column("torch.cuda.get_device_name(1) NVIDIA B200\n", "gpu", "name") == ["NVIDIA B200"]
    assert column("torch.cuda.get_device_name(0) raises an error\n", "gpu", "name") == []


def test_nvidia_smi_as_a_label() -> None:
    assert facts("nvidia-smi: 410.48\n")["driver.version"] == "410.48"
    assert "driver.version" not in facts("nvidia-smi: 11.2 is shown\n")


@pytest.mark.parametrize(
    "text",
    [
        "  Marketing Name:          AMD Radeon RX 7900 XTX\n",
        "GPU[0]\t\t: Card series: \t\tAMD Instinct MI210\n",
        "Name\nAMD Radeon RX 6700 XT\nAMD Radeon(TM) Graphics\n",
    ],
)
def test_gpus_of_another_maker(text: str) -> None:
    found = facts(text)
    assert found["pci.gpu_vendors"] == ("amd",)
    assert found["pci.nvidia_count"] == 0


def test_the_processors_graphics_beside_a_gpu() -> None:
    text = "Name\nIntel(R) UHD Graphics 770\nNVIDIA GeForce RTX 4070\n"
    found = facts(text)
    assert found["pci.gpu_vendors"] == ("nvidia", "intel")
    assert "pci.nvidia_count" not in found
    assert column(text, "gpu", "name") == ["NVIDIA GeForce RTX 4070"]


@pytest.mark.parametrize(
    ("text", "board"),
    [
        ("NVIDIA Jetson AGX Orin, L4T R35.4.1, JetPack 5.1.2\n", "NVIDIA Jetson AGX Orin"),
        ("# R36 (release), REVISION: 4.3, GCID: 38968081\n", "R36 (release), REVISION: 4.3"),
        ("JetPack 6.2, cuda 12.6\n", "JetPack 6.2"),
    ],
)
def test_a_jetson(text: str, board: str) -> None:
    assert facts(text)["host.jetson"] == board


def test_no_jetson() -> None:
    assert "host.jetson" not in facts("the Jetson of my colleague is fine; here: RTX 3090\n")


DEVIATIONS = "matmul, max abs difference to the CPU\ncuda:0: 3.8e-05\ncuda:1 nan\ncuda:2: 4.1e-05\n"


def test_results_against_a_reference() -> None:
    assert column(DEVIATIONS, "deviation", "gpu") == [0, 1, 2]
    assert column(DEVIATIONS, "deviation", "value") == [3.8e-05, 1e300, 4.1e-05]
    assert column(DEVIATIONS, "deviation", "others")[1] == pytest.approx(3.95e-05)


@pytest.mark.parametrize(
    "text",
    [
        "ECC error counts\nGPU 0: 0\nGPU 1: 4120\n",
        "CUDA error on device 0: 700\nCUDA error on device 1: 700\n",
        "max error\ncuda:0: 3.8e-05\n",
        "GPU 0: 1.5\nGPU 1: 1500.5\nerror\n",
    ],
)
def test_no_results_against_a_reference(text: str) -> None:
    assert column(text, "deviation", "gpu") == []


@pytest.mark.parametrize(
    "line",
    ["local/nvidia-open-dkms 590.48.01-1", "nvidia-lts 1:590.48.01-3", "akmod-nvidia-590.48.01-1.fc42.x86_64"],
)
def test_the_module_that_a_package_builds(line: str) -> None:
    assert facts(line + "\n")["driver.module_disk_version"] == "590.48.01"


def test_packages_that_build_no_module() -> None:
    assert "driver.module_disk_version" not in facts("nvidia-utils 590.48.01-1\nnvidia-settings 590.48.01-1\n")


def test_pip_check() -> None:
    text = (
        'torch 2.7.0 has requirement nvidia-cudnn-cu12==9.5.1.17; platform_system == "Linux",'
        " but you have nvidia-cudnn-cu12 9.3.0.75.\n"
    )
    assert facts(text)["torch.pins_unmet"] == ("nvidia-cudnn-cu12 wants 9.5.1.17, has 9.3.0.75",)


def test_a_torch_named_in_passing() -> None:
    assert facts("vllm 0.13, torch 2.9.0+cu130 on H100\n")["torch.version"] == "2.9.0+cu130"
    assert "torch.version" not in facts("torch 2.9.0+cu130 fails, torch 2.8.0+cu128 works\n")


def test_the_recovery_action_of_a_query() -> None:
    text = "index, gpu_recovery_action\n0, None\n3, Reset\n"
    assert column(text, "gpu", "recovery_action") == ["none", "reset"]


def test_torch_of_pip_and_of_conda() -> None:
    found = facts("pip torch: 2.1.2+cu121\nconda pytorch: 2.1.0 py3.10_cpu_0\n")
    assert found["torch.installs"] == ("conda 2.1.0", "pip 2.1.2")


def test_the_tag_of_a_wheel() -> None:
    text = "flash-attn: 2.5.6 (wheel cu122torch2.1cxx11abiFALSE)\n"
    assert column(text, "extension", "torch") == ["2.1"]


def test_a_form_that_names_cuinit_and_the_fabric_manager() -> None:
    found = facts("cuInit: 803\nnvidia-fabricmanager package: 550.90.07\ngpus on node: 8\n")
    assert found["cuda_driver.init_code"] == 803
    assert found["driver.fabric_manager_version"] == "550.90.07"
    assert found["gpu.count"] == 8
