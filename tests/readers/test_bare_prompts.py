"""Prompts that show only a folder, or only the shell's name."""

from __future__ import annotations

import pytest

from gpudoctor.readers._paste import Paste


@pytest.mark.parametrize("prompt", ["(env) ~/train$", "~$", "/workspace#", "/ #", "bash-4.2$", "sh-5.1#"])
def test_a_prompt_of_a_folder_or_a_shell_stands_before_a_command(prompt: str) -> None:
    assert Paste(f"{prompt} nvidia-smi").commands == {0: "nvidia-smi"}


@pytest.mark.parametrize(
    "line", ["/usr/lib/x.so # of the driver", "~/.bashrc: sourced", "/dev/nvidia0 $HOME", "/" + "a" * 5000]
)
def test_a_path_is_no_prompt(line: str) -> None:
    assert Paste(line).commands == {}
