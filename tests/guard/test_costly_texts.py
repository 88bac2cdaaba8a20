"""No text holds up whoever reads it: what costs too much is not judged, and named."""

import gzip
import json
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from gpudoctor import readers
from gpudoctor.app.pipeline import diagnose
from gpudoctor.core import pattern
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.pattern import JUDGING_SECONDS, TOO_COSTLY, Budget, TooCostlyError, check_current, slowness, within
from gpudoctor.diagnosis.judge import signs
from gpudoctor.diagnosis.rulebook.check import has_nested_repeat
from gpudoctor.readers import LARGEST_LOG_BYTES, WHOLE_FILE_BYTES, read_file, read_text
from tests.corpus import BOOK
from tests.fuzz.examine import examine
from tests.fuzz.texts import all_shapes, texts

MADE_UP = (("event_reason.active 0x", "0"), ("", "."), ("", "network:aRoCEUsin"))
"""What held 1.0.0 for 18 s: 100 lines of 4,000 characters."""
MANY = 10_000
"""Characters that are not searched without a look at the clock."""
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
SOUND = "".join(f"epoch 1 step {number} loss 2.{number} lr 0.001 of the model\n" for number in range(2000))


def judged(text: str) -> Diagnosis:
    return diagnose(read_text(text), BOOK)


@pytest.fixture(scope="module", autouse=True)
def compiled_pages() -> None:
    """The compiled copies of pages and their words are made when they are first asked for: not the text's cost."""
    judged("warm cuda")


@pytest.mark.parametrize(("lead", "unit"), MADE_UP)
def test_made_up_lines_cost_no_more_than_others(lead: str, unit: str) -> None:
    text = "\n".join([(lead + unit * 4000)[:4000]] * 100)
    assert examine(text.encode(), "report").problems == ()


@pytest.mark.full
def test_generated_texts_end_in_time() -> None:
    """The first of those that `python -m tests.fuzz.texts` makes by the thousand."""
    for text in islice(texts(all_shapes(BOOK), seed=7), 12):
        assert examine(text.encode(), "report").problems == ()


@pytest.mark.parametrize(
    ("written", "refused"),
    [
        (r"(a+)*b", True),
        (r"(?:\w+\s*)+:", True),
        (r"(\w+a)*b", True),
        (r"(?:.*x)*y", True),
        (r"(?:[ab]+c?)*d", True),
        (r"(?:a|aa)+b", True),
        (r"(?:\d\d|\d)*x", True),
        (r"(?:ab?a?)*x", True),
        (r"(?:a|ab)+c", False),
        (r"(?:error |errors )*x", False),
        (r"(?:\w+,)*b", False),
        (r"(?:[-\w]+\s+)+:", False),
        (r"(?:[ \t]+(?:SYS|PHB))*X", False),
        (r"(?:a+){0,4}b", False),
        (r"NCCL [^\n]*error", False),
    ],
)
def test_repetitions_within_repetitions_are_refused_on_a_page(written: str, refused: bool) -> None:
    assert has_nested_repeat(written) is refused


def test_a_budget_is_this_threads_processor_time() -> None:
    now = 0.0
    whole = Budget(2 / slowness(), clock=lambda: now)
    part = Budget(1 / slowness(), whole, lambda: now)
    with within(part):
        check_current(MANY)
        now = 1.5
        check_current(1)  # the clock is looked at again when there was something to search
        with pytest.raises(TooCostlyError):
            check_current(MANY)
    check_current(MANY)
    now = 9.0
    with within(whole):
        check_current(MANY)
        now = 10.1
        with pytest.raises(TooCostlyError):
            check_current(MANY)
    with within(Budget(0.1 / slowness())):
        time.sleep(0.3)
        check_current(MANY)


def test_what_the_processor_did_meanwhile_loses_no_sign() -> None:
    """Memory that is cleared of garbage and a hypervisor's pause count as this thread's time."""
    words = BOOK.word_index(read_text(XID))
    text = signs.Text(read_text(XID), words)
    sign = next(sign for rule in BOOK.rules for sign in rule.signs if text.find(sign))
    for pause in (0.4, 5.0):
        clock = iter([0.0, pause])
        now = 0.0

        def paused_once() -> float:
            nonlocal now
            now = next(clock, now)  # noqa: B023 - called in this turn of the loop alone
            return now * slowness()

        paused = signs.Text(read_text(XID), words)
        paused.budget = Budget(JUDGING_SECONDS, clock=paused_once)
        assert paused.find(sign)
        assert next(clock, None) is None, "the clock jumped within the search"
        assert paused.find(sign), "what comes after the pause has its time"


def test_a_processor_that_became_slower_has_more_time_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "measured_slowness", lambda: 3 * slowness())
    now, tries = 0.0, []

    def work() -> str:
        nonlocal now
        tries.append(now)
        now += 2 * slowness()  # twice the seconds that it has
        check_current(MANY)
        return "done"

    whole = Budget(10, clock=lambda: now)
    assert pattern.within_part(whole, 1, work) == "done"
    assert len(tries) == 2


def test_a_reader_out_of_time_gives_nothing_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    smi = "GPU 0: NVIDIA A10 (UUID: GPU-72f7d108-ffd3-52a1-a91f-ebb07ace9680)\n"
    whole = judged(smi + XID)
    assert whole.snapshot.get("report.trouble") == read_text("x").get("report.trouble"), "nothing to tell"
    assert "gpu" in whole.snapshot.groups
    monkeypatch.setattr(readers, "READING_SECONDS", -1.0)
    cut = judged(smi + XID)
    assert "gpu" not in cut.snapshot.groups
    assert any(TOO_COSTLY in note.text and "nvidia_smi_list" in note.text for note in cut.notes)
    assert [finding.id for finding in cut.findings][:1] == ["gpu.fell-off-bus"], "messages are looked for all the same"


def test_signs_out_of_time_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs, "_SECONDS_EACH", -1.0)
    cut = judged(f"{XID}\n" + "RuntimeError: CUDA error: no kernel image is available for execution on the device\n")
    because = {item.id: item.because for item in cut.unjudged}
    assert because["ext.arch"] == TOO_COSTLY
    assert "ext.arch" not in cut.passed


@pytest.mark.full
def test_a_long_log_is_read_piece_by_piece(tmp_path: Path) -> None:
    """Twice as long as what is read whole, with one line that matters near its end."""
    log = tmp_path / "train.log"
    turns = 2 * WHOLE_FILE_BYTES // len(SOUND)
    with log.open("w") as file:
        for turn in range(turns):
            file.write(SOUND if turn != turns - 2 else SOUND + XID + "\n")
    line = (turns - 1) * 2000 + 1
    with gzip.open(tmp_path / "train.log.gz", "wt", compresslevel=1) as file:
        file.write(log.read_text())
    for name in ("train.log", "train.log.gz"):
        ran = subprocess.run(
            [sys.executable, "-m", "gpudoctor", "read", "--json", str(tmp_path / name)],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20)),
        )
        (finding,) = (one for one in json.loads(ran.stdout)["findings"] if one["id"] == "gpu.fell-off-bus")
        assert finding["evidence"][0]["source"] == f"line {line}"


def test_a_sound_long_log_draws_no_finding(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with log.open("w") as file:
        for _ in range(1 + WHOLE_FILE_BYTES // len(SOUND)):
            file.write(SOUND)
    assert judged(read_file(str(log))).findings == ()


def test_what_unpacks_without_end_ends_in_a_sentence(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        for _ in range(1 + (LARGEST_LOG_BYTES >> 20)):
            file.write(b"x" * (1 << 20))
    with pytest.raises(DocumentError, match=f"larger than {LARGEST_LOG_BYTES >> 20} MB; cut it first"):
        read_file(str(bomb))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("[" * 400_000 + "]" * 400_000, "nested without end"),
        (",".join(["[]"] * 2_000_000), "values, which no document of gpudoctor has"),
        ("9" * 2_000_000, "a number of 2000000 digits"),
    ],
    ids=["deep", "wide", "long"],
)
def test_bombs_of_json_end_in_a_sentence(body: str, says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        read_text('{"schema": "gpudoctor/1", "facts": [' + body + "]}")
