"""Prompts that show only a folder, or only the shell's name."""

from __future__ import annotations

import pytest

from gpudoctor.readers._paste import Paste


@pytest.mark.parametrize(
    "line",
    [
        "~/train$ nvidia-smi",
        "(env) ~/train$ nvidia-smi",
        "~$ nvidia-smi",
        "/workspace# nvidia-smi",
        "/ # nvidia-smi",
        "/data/train$ nvidia-smi",
        "bash-4.2$ nvidia-smi",
        "sh-5.1# nvidia-smi",
    ],
)
def test_a_prompt_of_a_folder_or_a_shell_stands_before_a_command(line: str) -> None:
    assert Paste(line).commands == {0: "nvidia-smi"}


@pytest.mark.parametrize(
    "line",
    [
        "/usr/lib/libcuda.so.1 # from the driver",
        "/usr/local/cuda/lib64",
        "~/.bashrc: sourced",
        "/dev/nvidia0 $HOME",
        "/" + "a" * 5000,
    ],
)
def test_a_path_is_no_prompt(line: str) -> None:
    assert Paste(line).commands == {}
