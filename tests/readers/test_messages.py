"""What machines print is read through the whole path, behind stamps and prompts: its cause comes first."""

from __future__ import annotations

import re

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.readers import read_text
from gpudoctor.readers._paste import Paste
from tests.corpus import BOOK, blocks, findings
from tests.needs import REPOSITORY
from tests.readers.reading import rows, values
from tests.sim.documents import sampled

ALL = [block for file in sorted((REPOSITORY / "tests/readers/messages").glob("*.txt")) for block in blocks(file.stem)]


@pytest.mark.parametrize("block", sampled([block for block in ALL if block[0] != "sound"], lambda block: block[0], 3))
def test_a_message_names_its_cause(block: tuple[str, str]) -> None:
    cause, text = block
    assert [finding.id for finding in findings(text)][:1] == [cause]


@pytest.mark.parametrize("text", [text for head, text in ALL if head == "sound"])
def test_a_sound_text_gives_no_error(text: str) -> None:
    assert [finding.id for finding in findings(text) if finding.severity == "error"] == []


BLOCKS = blocks("high")
STAMPS = (
    "[rank0]: ",
    "(EngineCore_0 pid=12) ERROR 02-10 17:06:29 [core.py:396] ",
    "2024-05-01T10:00:00.123Z ",
    "app-1  | ",
    "Nov 21 10:00:00 host train[77]: ",
)
PROMPT = re.compile(r"^(\S* ?\S+[@:~]\S*\$|\$|>>>|\s*[|+])", re.MULTILINE)


@pytest.mark.full
def test_what_a_logger_puts_before_each_line_hides_no_message() -> None:
    """Every message that needs no prompt and no drawn table is heard behind a logger's stamp, each in its turn."""
    plain = [(head, body) for head, body in BLOCKS if head != "sound" and not PROMPT.search(body)]
    heard = {}
    for number, (_, body) in enumerate(plain):
        stamped = "".join(STAMPS[number % len(STAMPS)] + line for line in body.splitlines(keepends=True))
        heard[body] = [finding.id for finding in findings(stamped)][:1]
    assert {body: heard[body] for head, body in plain if heard[body] != [head]} == {}
    assert len(plain) > 200


@pytest.mark.parametrize(
    ("line", "name", "capability"),
    [
        ("Device: cuda:0 NVIDIA GeForce RTX 5080 : cudaMallocAsync", "NVIDIA GeForce RTX 5080", "12.0"),
        ("Ultralytics 8.3.40 Python-3.11.9 torch-2.4.1+cu121 CUDA:0 (Tesla T4, 15102MiB)", "Tesla T4", "7.5"),
        (
            'msg="inference compute" id=GPU-1 library=cuda variant=v12 compute=8.9 driver=12.4 name="NVIDIA L4"',
            "NVIDIA L4",
            "8.9",
        ),
    ],
)
def test_programs_announce_their_gpu(line: str, name: str, capability: str) -> None:
    told = rows(diagnose(read_text(f"starting\n{line}\nready\n"), BOOK).snapshot)
    assert [(row["name"], row["compute_capability"]) for row in told] == [(name, capability)]


def test_the_torch_that_answers_is_the_one_meant() -> None:
    """The version printed beside the file of the module is the one imported, whatever the lists of packages show."""
    text = "torch      2.2.1+cu121\n1.12.1+cu102 /home/a/.local/lib/python3.10/site-packages/torch/__init__.py\n"
    assert values(text)["torch.version"] == "1.12.1+cu102"


@pytest.mark.parametrize("prompt", ["(env) ~/train$", "~$", "/workspace#", "/ #", "bash-4.2$", "sh-5.1#"])
def test_a_prompt_of_a_folder_or_a_shell_stands_before_a_command(prompt: str) -> None:
    assert Paste(f"{prompt} nvidia-smi").commands == {0: "nvidia-smi"}


@pytest.mark.parametrize(
    "line", ["/usr/lib/x.so # of the driver", "~/.bashrc: sourced", "/dev/nvidia0 $HOME", "/" + "a" * 5000]
)
def test_a_path_is_no_prompt(line: str) -> None:
    assert Paste(line).commands == {}
