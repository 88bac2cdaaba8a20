"""What the engine does not run: another environment, the distribution's own, two runs at once, a command unknown."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.errors import DoctorError, DocumentError, UsageError
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.backup import environment
from gpudoctor.fixes.backup.environment import Environment
from gpudoctor.fixes.permissions import RunContext, journals_folder
from gpudoctor.fixes.records import Journals
from gpudoctor.fixes.steps import commands, guard
from tests.fixes.place import NEW, Place, difference, own_python
from tests.processes import gone, until

VENV = Environment("/srv/v/bin/python", "/srv/v", "3.12.1", True, False, "/srv/v/lib", "/srv/v/lib", "/srv/v/bin")
CONDA = replace(VENV, venv=False, conda=True)
PY = ("/srv/v/bin/python", "-m", "pip")
UV = ("uv", "pip", "install", "--python")


@pytest.mark.parametrize(
    "argv",
    [
        (*PY, "install", "torch==2.9.0", "--index-url", "https://x/cu128"),
        (*PY, "install", "--pre", "-U", "torch"),
        (*PY, "install", "--root-user-action=ignore", "torch"),
        ("/srv/v/bin/python3.12", "-m", "pip", "uninstall", "-y", "torch"),
        ("env", "-u", "LD_LIBRARY_PATH", "MAX_JOBS=4", *PY, "install", "x"),
        (*UV, "/srv/v/bin/python", "torch"),
        (*UV, "/srv/v", "torch"),
        ("uv", "pip", "install", "-p/srv/v/bin/python", "torch"),
        ("/opt/bin/uv", "pip", "uninstall", "--python=/srv/v/bin/python", "torch"),
        ("env", "-u", "PYTHONPATH", *PY, "install", "torch"),
        ("/srv/v/bin/python", "-m", "pip", "check"),
    ],
)
def test_a_command_that_acts_on_the_target_is_run(argv: tuple[str, ...]) -> None:
    if argv[-1] != "check":
        assert guard.refusal(argv, VENV) == ""
    assert guard.changes_packages(PlanStep("1", "x", argv)) == (argv[-1] != "check")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("pip", "install", "torch"), "neither the target's Python"),
        (("sudo", *PY, "install", "torch"), "neither the target's Python"),
        (("python", "-m", "pip", "install", "torch"), "not the Python of"),
        (("/usr/bin/python3", "-m", "pip", "install", "torch"), "not the Python of"),
        (("/srv/v/bin/../../w/bin/python", "-m", "pip", "install", "torch"), "not the Python of"),
        ((*PY, "install", "--target", "/tmp/x", "torch"), "--target leads"),
        ((*PY, "install", "--targ=/tmp/x", "torch"), "--targ leads"),
        ((*PY, "install", "-t", "/tmp/x", "torch"), "-t leads"),
        ((*PY, "install", "-Ut/tmp/x", "torch"), "-Ut/tmp/x leads"),
        ((*PY, "install", "--user", "torch"), "--user leads"),
        ((*PY, "install", "--prefix=/opt", "torch"), "--prefix leads"),
        ((*PY, "install", "--break-system-packages", "torch"), "--break-system-packages leads"),
        ((*PY, "--python", "/usr/bin/python3", "install", "torch"), "no command"),
        (("env", "PIP_TARGET=/tmp", *PY, "install", "x"), "it sets PIP_TARGET"),
        (("uv", "pip", "install", "torch"), "does not name"),
        ((*UV, "/srv/w/bin/python", "torch"), "does not name"),
        ((*UV, "/srv/v/bin/python", "-p", "/usr/bin/python3", "torch"), "does not name"),
        ((*UV, "/srv/v/bin/python", "--system", "torch"), "--system leads"),
        (("uv", "sync"), "neither the target's Python"),
        (("conda", "install", "--yes", "torch"), "no environment of conda's"),
        (("docker", "run", "x"), "neither the target's Python"),
        (("sh", "-c", "pip install torch"), "neither the target's Python"),
    ],
)
def test_a_command_that_acts_elsewhere_is_refused(argv: tuple[str, ...], words: str) -> None:
    assert words in guard.refusal(argv, VENV)


def test_conda_acts_on_the_target_by_its_prefix_and_never_by_a_name() -> None:
    install = ("conda", "install", "--yes", "-c", "conda-forge", "cudnn")
    assert guard.refusal(install, CONDA) == ""
    assert guard.clean({"CONDA_PREFIX": "/opt/conda"}, CONDA)[0]["CONDA_PREFIX"] == "/srv/v"
    assert guard.refusal((*install, "-p", "/srv/v"), CONDA) == ""
    assert "does not name" in guard.refusal((*install, "--prefix", "/opt/conda"), CONDA)
    assert "-n leads" in guard.refusal((*install, "-n", "base"), CONDA)
    assert "--pref leads" in guard.refusal((*install, "--pref=/opt/conda"), CONDA)


def test_a_new_environment_may_be_filled_by_the_plan_that_makes_it(tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    assert guard.refusal(("python3", "-m", "venv", new), VENV) == ""
    assert guard.refusal((f"{new}/bin/python", "-m", "pip", "install", "x"), VENV, [new]) == ""
    assert "not the Python" in guard.refusal((f"{new}/bin/python", "-m", "pip", "install", "x"), VENV)
    assert guard.refusal(("uv", "venv", "--python", "3.12", new), VENV) == ""
    made = guard.created_environment(("uv", "venv", "-p", "3.12", new))
    assert guard.refusal((*UV, f"{new}/bin/python", "x"), VENV, [made]) == ""
    (tmp_path / "new").mkdir()
    assert guard.refusal(("uv", "venv", "--seed", new), VENV) == f"{new} is there already"


@pytest.mark.full
def test_what_diverts_pip_is_left_out_of_its_environment(place: Place) -> None:
    elsewhere = place.folder / "elsewhere"
    run = place.apply(place.change(), PIP_TARGET=str(elsewhere), PYTHONPATH="/nowhere", PIP_USER="1")
    assert run.outcome == "done"
    assert f"torch {NEW}" in place.installed()
    assert not elsewhere.exists()
    assert "Left out of its environment: PYTHONPATH, PIP_TARGET, PIP_USER" in "\n".join(run.steps[0].output.lines)


def test_nothing_begins_where_a_step_would_act_elsewhere(place: Place) -> None:
    before = place.files()
    other = PlanStep("2", "other", (sys.executable, "-m", "pip", "install", "torch"), touches="environment")
    with pytest.raises(UsageError, match=r"step 2 .*Nothing was run"):
        place.apply(place.plan(place.change().steps[0], other))
    assert place.journals.list() == ()
    assert difference(before, place.files()) == []


def test_by_hand_is_not_run(place: Place) -> None:
    with pytest.raises(UsageError, match="by hand"):
        place.apply(place.plan(PlanStep("1", "enrol the key", text="in the firmware", hindrance="by hand: a person")))
    with pytest.raises(UsageError, match="needs root"):
        place.apply(place.plan(PlanStep("1", "x", ("true",), hindrance="needs root, which this is not")))


def test_a_step_for_root_fails_without_root(place: Place) -> None:
    site = replace(place.site(), root=False)
    plan = place.plan(PlanStep("1", "x", ("true",), needs=("root",), touches="hardware"))
    run = apply(plan, site, lambda _: None, lambda: "go on")
    assert (run.steps[0].state, run.why) == ("failed", "needs root, which this is not")


def test_two_runs_at_once_are_refused_and_the_holder_is_named(place: Place) -> None:
    wait = PlanStep("1", "wait", (sys.executable, "-c", "import time; time.sleep(60)"))
    with driven(place, wait) as child:
        assert until(
            lambda: any(entry.run and entry.run.steps[0].state == "running" for entry in place.journals.list())
        )
        with pytest.raises(DoctorError, match=f"another run is under way on this machine: .* process {child.pid}"):
            place.apply(place.change())
        elsewhere = replace(place.site(), journals=place.folder / "other-user")
        apply(place.plan(replace(wait, argv=("true",))), elsewhere, lambda _: None, lambda: "go on")
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM
    run = place.journals.list()[0].run
    assert run
    assert (run.over, run.steps[0].state, run.why) == (True, "stopped", "step 1 was ended by you")


def test_a_pip_conf_that_leads_elsewhere_is_refused(place: Place) -> None:
    conf = place.folder / "pip.conf"
    conf.write_text(f"[install]\ntarget = {place.folder}/elsewhere\n")
    before = place.files()
    run = place.apply(place.change(), PIP_CONFIG_FILE=str(conf))
    setting = f"pip's settings have install.target='{place.folder}/elsewhere'"
    assert run.why == f"{setting}, which leads it to another place: pip config unset install.target"
    assert run.steps[0].state == "failed"
    assert difference(before, place.files()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_and_is_on_record(place: Place, number: signal.Signals) -> None:
    pid = place.folder / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    step = PlanStep("1", "wait", (sys.executable, "-c", code))
    before = signal.signal(number, lambda *_: None)  # a job in the background ignores SIGINT, and its children would
    try:
        with driven(place, step) as child:
            assert until(lambda: pid.exists() and bool(pid.read_text()))
            child.send_signal(number)
            child.wait(30)
    finally:
        signal.signal(number, before)
    run = place.journals.list()[0].run
    assert run
    assert (run.over, run.steps[0].state) == (True, "stopped")
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_a_command_of_the_system_goes_on_when_we_are_killed_and_the_next_run_waits(place: Place) -> None:
    wait = PlanStep("1", "wait", (sys.executable, "-c", "import time; time.sleep(60)"), touches="system")
    with driven(place, wait) as child:
        assert until(lambda: any(True for _ in place.journals.folder.glob("*/child.json")))
        child.kill()
    record = json.loads(next(place.journals.folder.glob("*/child.json")).read_text())
    try:
        with pytest.raises(DoctorError, match=f"still at work.*process {record['pid']}"):
            place.apply(place.change())
    finally:
        os.kill(record["pid"], signal.SIGKILL)
    assert gone(record["pid"])
    commands.refuse_while_one_is_at_work(place.journals)


def driven(place: Place, step: PlanStep) -> subprocess.Popen[bytes]:
    """The engine at work on that step, in a process of its own."""
    silent = subprocess.DEVNULL
    return subprocess.Popen(place.driving(place.plan(step)), stdout=silent, stderr=silent, start_new_session=True)


def test_journals_of_others_and_broken_ones_are_listed_as_such(tmp_path: Path) -> None:
    journals = Journals(tmp_path / "runs")
    assert journals.list() == ()
    first, second = journals.begin(), journals.begin()
    assert first.id != second.id
    (second.folder / "run.json").write_text('{"schema": "gpudoctor-run/1"')
    (journals.folder / "20200101-000000").mkdir()
    (journals.folder / "20200101-000000/run.json").symlink_to("/dev/zero")
    (journals.folder / "README").write_text("not a run")
    entries = journals.list()
    assert [entry.id for entry in entries] == [second.id, first.id, "20200101-000000"]
    assert all(entry.run is None and entry.trouble for entry in entries)
    with pytest.raises(DocumentError, match="no JSON"):
        journals.load(second.id)
    with pytest.raises(UsageError, match="the last one is"):
        journals.load("../../etc")


def test_old_journals_go_save_those_that_are_needed(tmp_path: Path) -> None:
    journals = Journals(tmp_path / "runs")
    begun = [journals.begin().id for _ in range(4)]
    (journals.folder / "00-of-a-person").mkdir()
    journals.prune(lambda journal: journal.id == begun[0], most=2)
    assert [entry.id for entry in journals.list()] == [begun[3], begun[2], begun[0], "00-of-a-person"]


def test_the_folder_of_journals_can_be_named(tmp_path: Path) -> None:
    assert journals_folder({"GPUDOCTOR_STATE": str(tmp_path)}) == tmp_path
    assert journals_folder({}).parts[-2:] == ("gpudoctor", "runs")


def test_a_folder_that_takes_no_journal_keeps_the_run_from_beginning(place: Place) -> None:
    (place.folder / "file").write_text("")
    site = replace(place.site(), journals=place.folder / "file/runs")
    with pytest.raises(DoctorError, match="nothing was run"):
        apply(place.change(), site, lambda _: None, lambda: "go on")


@pytest.mark.full
def test_the_distributions_own_python_is_refused(tmp_path: Path, place: Place) -> None:
    python = own_python(tmp_path / "usr")
    (Path(environment.query_environment(python).purelib).parent / "EXTERNALLY-MANAGED").write_text(
        "[externally-managed]\nError=no\n"
    )
    step = PlanStep("1", "x", (python, "-m", "pip", "install", "torch"), touches="environment")
    site = RunContext(place.journals.folder, python, place.judge, place.environ)
    new = PlanStep("0", "venv", (python, "-m", "venv", str(tmp_path / "new")), touches="environment")
    for steps in ((step,), (new, step)):
        with pytest.raises(UsageError, match=r"step 1 .*EXTERNALLY-MANAGED.*python3 -m venv"):
            apply(Plan("x", "here", steps), site, lambda _: None, lambda: "go on")
    fill = replace(step, argv=(str(tmp_path / "new/bin/python"), *step.argv[1:4], "--help"))
    run = apply(Plan("x", "here", (new, fill)), site, lambda _: None, lambda: "go on")
    assert ([one.state for one in run.steps], run.changed) == (
        ["done", "done"],
        (f"{tmp_path}/new not there → a new environment",),
    )


def test_an_interpreter_that_does_not_answer_is_named(place: Place, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'cannot load' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match=f"{broken} does not say where its packages lie: cannot load"):
        environment.query_environment(str(broken))
    with pytest.raises(UsageError, match="cannot be started"):
        environment.query_environment("/nowhere/python")
