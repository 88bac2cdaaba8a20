"""What machines print is read through the whole path: a sick output's cause comes first, a sound one draws nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.diagnosis import Finding
from gpudoctor.readers import read_text
from gpudoctor.readers._paste import Paste
from tests.corpus import BOOK, blocks, findings, pairs, sick_texts
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


PAIRS = pairs()
DRESSED = (
    lambda text: text.replace("\n", "\r\n"),
    lambda text: f"{text}\n{text}",
    lambda text: f"(base) user@node1:~$ cat output.txt\n{text}",
    lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    lambda text: f"\x1b[32m{text}\x1b[0m\nA line of a newer version  : 7\n",
    lambda text: "\n".join(text.split("\n")[: text.count("\n") // 2]),
    lambda text: "\n".join(text.split("\n")[text.count("\n") // 3 :]),
)
"""Ways in which an output comes into a paste."""


def _findings(text: str) -> list[Finding]:
    """What is found, but for what is certain and for information only."""
    snapshot = read_text(text)
    assert "report.trouble" not in snapshot.facts, snapshot.facts["report.trouble"]
    found = diagnose(snapshot, BOOK).findings
    return [finding for finding in found if finding.severity != "info" or finding.confidence == "possible"]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["name"])
def test_a_pair(pair: dict[str, Any]) -> None:
    assert [(finding.id, finding.title) for finding in _findings(pair["sound"])] == []
    for text, sick in sick_texts(pair):
        first = next(iter(_findings(text)), None)
        assert first, (sick["change"], "draws no finding")
        assert (first.id, first.confidence in ("certain", "likely")) == (sick["finds"], True), first
        assert sick["says"] in first.title, first.title


@pytest.mark.parametrize(("number", "pair"), enumerate(PAIRS), ids=[pair["name"] for pair in PAIRS])
def test_a_dressed_sound_output(number: int, pair: dict[str, Any]) -> None:
    """In one of the ways: each way has several outputs."""
    assert [finding.title for finding in _findings(DRESSED[number % len(DRESSED)](pair["sound"]))] == []
