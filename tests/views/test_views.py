"""The text report, word for word; and what a terminal must never get."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
import time
from dataclasses import replace

import pytest

from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Replay, Replayed, Unjudged
from gpudoctor.core.difference import Change, Difference
from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.rule import Fix, Proof, Rule, Step
from gpudoctor.core.run import Began, Printed, Run
from gpudoctor.core.snapshot import Event, Snapshot, Target
from gpudoctor.views import diff, explain, fix_run, history, job, plan, text
from gpudoctor.views._terminal import Style, command, style_of, width, wrapped
from gpudoctor.views.progress import counting_on, progress_on
from tests.processes import until

FINDING = Finding(
    id="driver.version-mismatch",
    layer="driver",
    severity="error",
    role="cause",
    confidence="likely",
    title="The loaded module is 570.86, the libraries on disk are 570.124",
    why="Both must be of one version.",
    evidence=(
        Evidence("driver.module_version", Known("570.86", "/sys/module/nvidia/version")),
        Evidence("gpu.name", Known("A100", "nvml"), 3),
        Evidence("text.line", Known("Driver/library version mismatch", "line 7"), 0),
        Evidence("torch.hip", Absent("a CUDA build")),
    ),
    explains=("nvml.failed",),
    fixes=(Fix("Load the new module", (Step(("reboot",), "", ("root", "reboot", "downtime"), "system"),)),),
    confirm="cat /proc/driver/nvidia/version",
)
FACTS: dict[str, Fact] = {"driver.module_version": Known("570.86", "/sys/module/nvidia/version")}


def diagnosis(*findings: Finding) -> Diagnosis:
    snapshot = Snapshot(Target("local", "node1", "/venv/bin/python", "quick"), FACTS)
    unjudged = (Unjudged("gpu.ecc", "gpu: not asked", fact="gpu"), Unjudged("gpu.mig", "gpu: not asked", fact="gpu"))
    return Diagnosis(snapshot, "broken", findings, unjudged, ("host.no-gpu",), "1.0")


def test_a_line_is_shown_once_and_how_many_lines_were_searched_not_at_all() -> None:
    line, searched = (
        Evidence("text.line", Known("CPU runtime", "line 1"), 0),
        Evidence("text", Known(1, "number of rows")),
    )
    rendered = text.render(diagnosis(replace(FINDING, evidence=(line, searched, replace(line, index=None)))))
    assert rendered.count("    line 1: CPU runtime\n") == 1
    assert "number of rows" not in rendered


def test_a_finding_reads_from_what_is_to_what_to_type() -> None:
    assert (
        text.render(diagnosis(FINDING))
        == """\
gpudoctor 1.0: node1, level quick, /venv/bin/python
Broken: the finding below is why

ERROR  The loaded module is 570.86, the libraries on disk are 570.124
  Both must be of one version.

  How it is known (likely):
    driver.module_version = 570.86  (/sys/module/nvidia/version)
    gpu[3].name = A100  (nvml)
    line 7: Driver/library version mismatch
    torch.hip: none (a CUDA build)
  To be sure: cat /proc/driver/nvidia/version
  This explains: nvml.failed

  What to do: Load the new module
    (needs root, needs a reboot, interrupts jobs, changes the system)
    $ reboot

  [driver.version-mismatch]  more: gpudoctor explain driver.version-mismatch

Not judged (2), because
  not asked: gpu
    -> gpu.ecc, gpu.mig
  The log of a job that failed can be judged too: gpudoctor read LOG

1 found, 2 not judged, 1 passed"""
    )


def test_each_command_to_be_sure_with_is_a_line_that_can_be_copied() -> None:
    commands = (
        """python -c 'import torch, triton; print(torch.__version__, triton.__version__)'""",
        "{ python -m pip list || uv pip list; } 2>/dev/null | grep -iE '^(nvidia-|torch|jax|tensorflow)' | sort -u",
        """python -c "import importlib.util as u; print(u.find_spec(\\"torch\\").origin)\"""",
    )
    remark = "in the job's environment, on the host; " * 2 + "not in the container"
    told = replace(FINDING, confirm=f"{'; '.join(commands)}  # {remark}")
    page = text.render(diagnosis(told)).splitlines()
    first = page.index("  To be sure:") + 1
    assert page[first : first + 3] == [f"    {line}" for line in commands]
    assert " ".join(line.strip() for line in page[first + 3 : first + 5]) == f"# {remark}"


@pytest.mark.parametrize(
    "whole",
    [
        "gpudoctor setup torch --for 'gpu=RTX 5080,driver=570,python=3.12,os=linux,arch=x86_64' --want 'torch>2.4'",
        "gpudoctor read requirements.txt --for 'gpu=RTX 5090,driver=570,python=3.12'",
        "gpudoctor explain driver.too-old-for-gpu",
        "$(python -c 'import os, nvidia.cudnn as m; print(os.path.join(m.__path__[0], \"lib\"))')",
        "'is busy or unavailable'",
    ],
)
@pytest.mark.parametrize("before", range(0, 80, 7))
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_line_of_a_sentence_ends_within_a_command(whole: str, before: int, language: str) -> None:
    lead, rest = ("x " * (before // 2), "says why.") if language == "en" else ("中" * (before // 2) + " ", "说明原因。")
    lines = wrapped(f"{lead}{whole} {rest}", 2, 4)
    assert sum(whole in line for line in lines) == 1
    assert all(width(line) <= 80 or line.strip() == whole for line in lines)


def test_one_finding_about_several_gpus_is_told_once() -> None:
    said = text.render(diagnosis(FINDING, FINDING))
    assert said.count("Both must be of one version.") == 1
    assert "also: The loaded module" in said


def test_findings_of_one_rule_are_told_together_though_another_stands_between() -> None:
    other = replace(FINDING, id="gpu.ecc", title="Memory errors", why="Cells of the memory are worn.")
    said = text.render(diagnosis(FINDING, other, replace(FINDING, title="The same of GPU 2", subjects=({"gpu": 2},))))
    assert said.count("Both must be of one version.") == 1
    assert said.index("also: The same of GPU 2") < said.index("Memory errors\n")


def test_the_first_cause_to_act_on_is_the_first_finding_of_its_rule() -> None:
    other = replace(FINDING, id="gpu.ecc", fixes=(Fix("Replace the GPU", ()),))
    said = text.render(diagnosis(FINDING, other, replace(FINDING, subjects=({"gpu": 1},))))
    assert "  1. Load the new module  [driver.version-mismatch]\n  2. Replace the GPU  [gpu.ecc]" in said


def test_what_is_the_same_of_several_gpus_is_one_line() -> None:
    same = [replace(FINDING, subjects=({"gpu": gpu, "name": "B200"},)) for gpu in range(4)]
    said = text.render(diagnosis(*same))
    assert "the same of gpu 1, gpu 2, gpu 3" in said
    assert "Broken: the finding below is why" in said
    assert "also:" not in said


def test_colour_is_only_decoration() -> None:
    coloured = text.render(diagnosis(FINDING), Style(colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text.render(diagnosis(FINDING))

    kept = Replay("", (Replayed("a.json", "node1", "2026-11-20T10:00:00Z", True, (("gpu.ecc", "bad memory"),)),))
    coloured = history.replay(kept, Style(colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == history.replay(kept)


def test_why_most_was_not_read_is_the_first_of_equally_common_reasons() -> None:
    whole = diagnosis(FINDING)
    unread = tuple(Change(f"env.V{at}", "", Unread(f"reason {at}"), Known(1, "x")) for at in range(30))
    said = diff.render(Difference(whole, whole, (), {}, unread, (), ()), ("a", "b"))
    assert "most because: reason 0" in " ".join(said.split())


def test_a_page_numbers_its_proofs_only_where_there_are_several() -> None:
    proofs = (Proof(when=("present(torch.version)",)), Proof(when=("gpu.count > 0",)))
    rule = Rule("torch.none", "torch", "None", "error", "cause", "None", "It is.", "None", (), proofs=proofs)
    several, one = (explain.rule_page(page, ()) for page in (rule, replace(rule, proofs=proofs[:1])))
    assert re.findall("Proof.*", several) == [f"Proof {number}:" for number in (1, 2)]
    assert re.findall("Proof.*", one) == ["Proof, all of which must hold:"]


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("my report.txt", "'my report.txt'"),
        ("-", "REPORT"),
        ("a.txt, b.txt", "REPORT"),
    ],
)
def test_what_more_would_help_is_read_with_the_file_that_was_read(name: str, again: str) -> None:
    pasted = replace(diagnosis(FINDING), snapshot=Snapshot(Target("report", name), FACTS))
    assert f"      $ gpudoctor read --together {again} OUTPUT" in text.render(pasted).splitlines()


@pytest.mark.parametrize(("mib", "words"), [(0, "memory: under 1 MiB"), (3, "memory: 3 MiB at most")])
def test_a_run_that_took_less_than_a_mib_took_not_none(mib: int, words: str) -> None:
    facts: dict[str, Fact] = {"run.memory_peak_mib": Known(mib, "/proc"), "run.seconds": Known(1.0, "gpudoctor run")}
    ended = replace(diagnosis(), snapshot=Snapshot(Target("local", "node1"), facts))
    assert f"  {words}" in job.render_account(ended).splitlines()


def test_a_job_says_what_was_not_judged() -> None:
    assert "Not judged (2), because" in job.render(diagnosis()).splitlines()


def test_a_pipe_gets_no_colour() -> None:
    assert not style_of(io.StringIO()).colour


def test_a_command_with_what_is_no_text_is_one_line_that_bash_takes() -> None:
    argv = ["printf", "%s", "it's\t\\x\n\x1b[31m $HOME"]
    assert command(argv) == r"printf %s $'it\'s\t\\x\n\x1b[31m $HOME'"
    raw = os.fsdecode(b"not \xff UTF-8 \x80")
    for word in (argv[2], "soft\xadhyphen \x85", "zero\u200bwidth", "tag\U000e0041", raw):
        line = command(["printf", "%s", word])
        assert line.isascii()
        done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"})
        assert done.stdout == os.fsencode(word)
    assert command(["nvidia-smi", "-q", "two words"]) == "nvidia-smi -q 'two words'"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_names_what_still_runs_and_leaves_a_clean_line() -> None:
    terminal = Terminal()
    with progress_on(terminal) as note:
        note(Event("nvml", "started"))
        note(Event("host", "started"))
        note(Event("host", "done"))
        assert until(lambda: re.search(r"asking nvml \d+\.\d", terminal.getvalue()))
    assert terminal.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize("columns", [30, 80, 132])
def test_what_runs_takes_one_line_of_the_terminal_however_much_that_is(columns: int) -> None:
    install = Plan("x", "node1", (PlanStep("1", "install", ("pip",)),))
    run = Run.of(install, "run-1", "2026-11-21T03:12:00Z").after(Began("1")).after(Printed("1", "下载 " * 100))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        with progress_on(terminal) as note:
            for number in range(40):
                note(Event(f"source{number}", "started"))
            drawn = status_line(ours, "asking")
        assert columns - 2 <= width(drawn) < columns
        with fix_run.printing_run(terminal) as tell:
            tell(run)
            drawn = status_line(ours, " s  下载")
        assert columns - 2 <= width(drawn) < columns
    os.close(ours)


def status_line(terminal: int, words: str) -> str:
    """The line that has these words, as soon as it has been drawn whole and begins to be drawn again."""
    said = b""
    while not (found := re.search(rf"\r\x1b\[2K([^\r]*{words}[^\r]*)\r\x1b\[2K", said.decode("utf-8", "ignore"))):
        said += os.read(terminal, 1 << 16)
    return found[1]


def test_progress_says_which_gpu_is_waking() -> None:
    terminal = Terminal()
    with progress_on(terminal) as note:
        note(Event("nvml", "started"))
        note(Event("nvml", "working", "GPU 3 of 8 is waking, 7 s"))
        assert until(lambda: "GPU 3 of 8 is waking, 7 s" in terminal.getvalue())
        note(Event("nvml", "working", ""))
        assert until(lambda: "asking nvml" in terminal.getvalue() and terminal.getvalue().rstrip().endswith(" s"))


def test_progress_counts_the_hosts_that_answered() -> None:
    terminal = Terminal()
    with counting_on(terminal, lambda: 3, 8):
        assert until(lambda: re.search(r"\x1b\[2K3 of 8 hosts answered; \d+ s", terminal.getvalue()))


def test_the_interface_says_which_gpu_is_waking() -> None:
    from gpudoctor.views.tui.words import diagnosis, summary
    from gpudoctor.views.tui.work import Reading

    reading = Reading().after(Event("nvml", "started")).after(Event("nvml", "working", "GPU 3 of 8 is waking, 7 s"))
    assert summary.status_line(None, reading)[0].plain.endswith("0 of 1 sources · GPU 3 of 8 is waking, 7 s")
    assert any("GPU 3 of 8 is waking, 7 s" in str(block.text) for block in diagnosis.waiting(reading))
    assert "waking" not in summary.status_line(None, reading.after(Event("nvml", "done")))[0].plain


def test_a_plan_of_many_steps_and_a_list_of_runs_keep_their_columns() -> None:
    steps = tuple(PlanStep(str(number), f"step {number}") for number in range(1, 12))
    said = plan.render(Plan("x", "node1", steps))
    assert "\n  9. step 9\n" in said
    assert "\n  10. step 10\n" in said
    runs = [(Run.of(Plan(title, "node1", ()), "run", "2026-11-21T03:12:00Z"), "note") for title in ("更新驱动", "x")]
    lines = fix_run.run_list(runs).splitlines()
    assert len({width(line.partition("note")[0]) for line in lines}) == 1


def test_progress_is_silent_where_nobody_watches() -> None:
    pipe = io.StringIO()
    with progress_on(pipe) as note:
        note(Event("nvml", "started"))
        time.sleep(0.3)
    assert pipe.getvalue() == ""
