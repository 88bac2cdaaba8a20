"""What machines print, through the whole path: a sick output's cause comes first, a sound one draws nothing."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.readers import decode, read_text
from gpudoctor.readers._paste import Paste
from tests.corpus import BOOK, blocks, findings, pairs, sick_texts
from tests.needs import REPOSITORY
from tests.readers.reading import rows, values
from tests.sim.documents import sampled

ALL = [block for file in sorted((REPOSITORY / "tests/readers/messages").glob("*.txt")) for block in blocks(file.stem)]


@pytest.mark.parametrize("block", sampled([block for block in ALL if block[0] != "sound"], lambda block: block[0], 3))
def test_a_message_names_its_cause(block: tuple[str, str]) -> None:
    cause, text = block
    assert [finding.id for finding in diagnose(read_text(text), BOOK).findings][:1] == [cause]


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
        heard[body] = [finding.id for finding in diagnose(read_text(stamped), BOOK).findings][:1]
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


OUTPUTS = REPOSITORY / "tests/readers/outputs"
"""What sound machines print, by name: written for this test after the formats of the tools."""
XML = (OUTPUTS / "xml-with-mig.xml").read_text()
PASTED: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "quoted": lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
    "fenced": lambda text: f"```\n{text}```\n",
    "twice": lambda text: f"{text}\n{text}",
    "watched": lambda text: f"Every 2.0s: nvidia-smi        node1: Mon Apr  1 10:00:00 2024\n\n{text}",
    "coloured": lambda text: "\n".join(f"\x1b[1m{line}\x1b[0m" for line in text.split("\n")),
    "behind a prompt": lambda text: f"(base) user@node1:~$ cat output.txt\n{text}",
    "of a newer version": lambda text: f"\x1b[32m{text}\x1b[0m\nA line of a newer version  : 7\n",
    "without its beginning": lambda text: "\n".join(text.split("\n")[text.count("\n") // 3 :]),
    "without its end": lambda text: text[: len(text) * 2 // 3],
}
"""Ways in which an output comes into a paste."""


def _found(text: str) -> set[str]:
    return {finding.id for finding in _findings(text)}


def _gpus(text: str, *columns: str) -> list[tuple[object, ...]]:
    rows = listed(read_text(text).rows("gpu"))
    return [tuple(f.value if isinstance(f := row.get(name), Known) else None for name in columns) for row in rows]


@pytest.mark.parametrize(("number", "pair"), enumerate(PAIRS), ids=[pair["name"] for pair in PAIRS])
def test_a_dressed_sound_output(number: int, pair: dict[str, Any]) -> None:
    """In one of the ways: each way has several outputs."""
    dress = list(PASTED.values())[number % len(PASTED)]
    assert [finding.title for finding in _findings(dress(pair["sound"]))] == []


@pytest.mark.parametrize(("number", "path"), enumerate(sorted(OUTPUTS.iterdir())))
def test_a_sound_output_draws_nothing(number: int, path: Path) -> None:
    """As it is, and dressed in the ways that its number tells: each way has several outputs."""
    ways = list(PASTED)
    for way in ("as it is", ways[number % len(ways)], ways[(number + 3) % len(ways)]):
        assert _found(PASTED[way](path.read_text())) == set(), (path.name, way)


def test_a_log_in_xml_is_read_like_one_of_q() -> None:
    columns = ("index", "address", "name", "memory_mib", "mig", "mig_instances", "power_w", "ecc_uncorrected")
    assert _gpus(XML, *columns) == [
        (0, "0000:1a:00.0", "NVIDIA A100-SXM4-80GB", 81920, True, 1, 66, None),
        (1, "0000:1b:00.0", "NVIDIA A100-SXM4-80GB", 81920, None, None, None, 0),
    ]


@pytest.mark.parametrize(
    ("sound", "sick"),
    [
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<"),
        ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<"),
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"),
    ],
)
def test_bad_memory_in_an_xml_log_is_found(sound: str, sick: str) -> None:
    assert _found(XML.replace(sound, sick)) == {"gpu.ecc"}


def test_of_a_log_without_its_beginning_what_is_there_is_read_and_no_entity_is_expanded() -> None:
    cut = XML[XML.index("<uuid>") :]
    assert _gpus(cut, "uuid", "memory_mib") == [("GPU-aaaaaaaa-1111-2222-3333-444444444444", 81920), (None, 81920)]
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]>\n'
    log = '<nvidia_smi_log>\n<gpu id="00000000:01:00.0">\n<product_name>&a;&b;</product_name>\n'
    assert _gpus(bomb + log + "<x>\n" * 10000, "name") == [("&a;&b;",)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("GPU is lost.  Reboot the system to recover this GPU", {"gpu.fell-off-bus"}), ("Not Found", {"nvml.failed"})],
)
def test_only_gpu_is_lost_says_that_a_gpu_is_lost(words: str, expected: set[str]) -> None:
    text = f"Unable to determine the device handle for GPU 0000:1A:00.0: {words}"
    findings = diagnose(read_text(text), BOOK).findings
    assert {finding.id for finding in findings if finding.confidence == "certain"} >= expected
    assert ("gpu.fell-off-bus" in {finding.id for finding in findings}) == ("lost" in words)


def test_a_process_table_counts_no_gpus() -> None:
    text = """\
gpu_name, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
NVIDIA L40S, GPU-aaaaaaaa-1111-2222-3333-444444444444, 100, python, 300 MiB
NVIDIA L40S, GPU-aaaaaaaa-1111-2222-3333-444444444444, 101, python, 300 MiB
"""
    assert _gpus(text, "name") == []
    assert _found(text) == set()


REAL = REPOSITORY.parent / "shared" / "real"
FILES = sorted(REAL.glob("*/*"))
SICK = {"gpud.nvidia-smi-query.535.129.03.out.0.valid.a10": {"gpu.ecc"}}
"""Files of a machine that is not sound, with what is found: here a row remap waits for a reset."""

printed = pytest.mark.skipif(not FILES, reason=f"needs printed outputs of real machines ({REAL})")


def _parts(text: str) -> list[str]:
    """The text, and each section of a capture: a comment ``# idle :: query (-q)`` begins one."""
    return [text, *(part for part in re.split(r"(?m)^(?=# [\w ]+ :: )", text)[1:] if part.strip())]


def _column(snapshot: Snapshot, column: str) -> list[object]:
    return [
        state.value if isinstance(state := row.get(column), Known) else None for row in listed(snapshot.rows("gpu"))
    ]


@printed
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_sound_output_draws_no_finding_whole_or_in_parts(path: Path) -> None:
    parts = _parts(decode(path.read_bytes(), path.name))
    found = {part[:60]: ids for part in parts if (ids := _found(part) - SICK.get(path.name, set()))}
    assert found == {}


@printed
@pytest.mark.parametrize("path", [path for path in FILES if "lspci" not in path.name], ids=lambda path: path.name)
def test_a_cut_output_draws_no_finding_either(path: Path) -> None:
    lines = decode(path.read_bytes(), path.name).splitlines()
    third = len(lines) // 3
    allowed = SICK.get(path.name, set())
    assert [_found("\n".join(cut)) - allowed for cut in (lines[third:], lines[:third], lines[third : 2 * third])] == [
        set(),
        set(),
        set(),
    ]


@printed
@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".xml"], ids=lambda path: path.name)
def test_each_gpu_of_an_xml_log_is_read(path: Path) -> None:
    text = path.read_text()
    snapshot = read_text(text)
    assert _column(snapshot, "name") == re.findall(r"<product_name>(.*?)</product_name>", text)
    assert _column(snapshot, "uuid") == re.findall(r"<uuid>(GPU-.*?)</uuid>", text)
    totals = re.findall(r"(?s)^\s{2,16}<fb_memory_usage>\s*<total>(\d+) MiB", text, re.MULTILINE)
    assert str(_column(snapshot, "memory_mib")[0]) in totals
    assert snapshot.get("gpu.count") == Known(
        len(re.findall("<gpu id=", text)), getattr(snapshot.get("gpu.count"), "source", "")
    )
    if version := re.search(r"<driver_version>(.*?)<", text):
        assert getattr(snapshot.get("driver.version"), "value", None) == version[1]


@printed
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_gpu_of_a_query_and_of_a_table_is_read(path: Path) -> None:
    for part in _parts(decode(path.read_bytes(), path.name)):
        log = part.partition("NVSMI LOG")[2]
        if log and part.count("NVSMI LOG") == 1:
            snapshot = read_text(part)
            assert _column(snapshot, "name") == re.findall(r"Product Name +: (.*?)\s*$", log, re.MULTILINE)
            assert _column(snapshot, "uuid") == re.findall(r"GPU UUID +: (\S+)", log)
            totals = re.findall(r"^ {4}FB Memory Usage\n +Total +: (\d+) MiB", log, re.MULTILINE)
            assert [str(size) for size in _column(snapshot, "memory_mib")] == totals
            version = re.search(r"^(?:Driver|KMD) Version +: ([\d.]+)", log, re.MULTILINE)
            assert version
            assert getattr(snapshot.get("driver.version"), "value", None) == version[1]
        elif "| NVIDIA-SMI" in part and "NVSMI LOG" not in part:
            snapshot = read_text(part)
            first = re.split(r"MIG devices:|Processes:", part)[0]
            assert [str(size) for size in _column(snapshot, "memory_mib")] == re.findall(r"/ +(\d+)MiB \|", first)
            assert isinstance(snapshot.get("driver.version"), Known)


@printed
def test_a_mig_instances_memory_is_not_the_gpus() -> None:
    for path in FILES:
        if "mig" in path.name:
            snapshot = read_text(path.read_text())
            assert min(size for size in _column(snapshot, "memory_mib") if isinstance(size, int)) >= 40960


INJECTED = "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "command",
    [
        f'gpud inject-fault --kernel-message "{INJECTED}"',
        "$ gpud inject-fault --xid 79",
        'root@node:~# sudo gpud inject-fault "Xid 79"',
        'Run `gpud inject-fault --kernel-message "Xid 79"` on a test machine.',
        f'$ echo "{INJECTED}" | sudo tee /dev/kmsg',
        f"logger -p kern.err '{INJECTED}'",
        "$ sudo dmesg -T | grep -iE 'Xid 79|fallen off the bus|RmInitAdapter failed'",
        'journalctl -k -g "fallen off the bus"',
        'grep -rn "CUDA out of memory" train.log',
    ],
)
def test_what_a_command_searches_for_or_injects_has_not_happened(command: str) -> None:
    assert findings(command) == []
    assert [finding.id for finding in findings(f"{command}\n[ 4711.5] {INJECTED}\n")] == ["gpu.fell-off-bus"]
    flat = f"$ sudo dmesg | grep Xid [ 4711.5] {INJECTED}"
    assert [finding.id for finding in findings(flat)] == ["gpu.fell-off-bus"]


TESTS = f"""
import pytest

LINES = [{INJECTED!r}, "RuntimeError: CUDA error: no kernel image is available for execution on the device", "Xid 79"]

@pytest.mark.parametrize("line", LINES)
def test_parse(line):
    assert line.splitlines() == ["CUDA out of memory. Tried to allocate 2.00 GiB", line]

@pytest.mark.parametrize("line", LINES)
def test_named(line):
    pass
"""


@pytest.mark.parametrize("how", ["long", "line"])
def test_what_pytest_names_and_compares_has_not_happened(how: str, tmp_path: Path) -> None:
    """Of a run of pytest itself: ids and assertions are words of the tests, other errors and printed lines are real."""
    path = tmp_path / "test_log.py"

    def printed(tests: str) -> str:
        path.write_text(tests, "utf-8")
        argv = [sys.executable, "-m", "pytest", "-vv", f"--tb={how}", "-p", "no:cacheprovider", path.name]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False).stdout

    text = printed(TESTS)
    assert "3 failed, 3 passed" in text
    assert [finding.id for finding in findings(text)] == []
    error = "raise RuntimeError('CUDA error: no kernel image is available for execution on the device')"
    assert findings(printed(f"{TESTS}\ndef test_train():\n    {error}\n")) != []
    if how == "long":
        text = printed(f"def test_print():\n    print({INJECTED!r})\n    assert 0\n")
        assert [finding.id for finding in findings(text)] == ["gpu.fell-off-bus"]
