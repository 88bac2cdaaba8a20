"""The program as scripts use it: exit codes, streams, files, one line for everything we cannot work with."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpudoctor.app import cli, output
from gpudoctor.app.arguments import commands_of, parser
from gpudoctor.core.errors import UsageError
from gpudoctor.core.rule import Rule
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from gpudoctor.readers import WHOLE_FILE_BYTES
from tests import needs
from tests.conftest import Program
from tests.processes import finished, marked, until
from tests.readme import REPORT


def test_every_finding_has_evidence_and_every_rule_an_answer(gpudoctor: Program) -> None:
    document = gpudoctor("--json").document
    assert all(finding["evidence"] for finding in document["findings"])
    folded = {child for finding in document["findings"] for child in finding["explains"]}
    answered = {item["id"] for key in ("findings", "unjudged") for item in document[key]}
    lines = gpudoctor("rules", "list").out.splitlines()
    listed = {line.split()[0] for line in lines if not line.endswith("[of many machines]")}
    of_a_job = {
        rule.id
        for rule in rulebook.load().rules
        if _topics(rule) & {"run", "run_gpu", "job", "rank_group", "memory_fault"}
    }
    assert answered | folded | set(document["passed"]) | {"workload.none"} | of_a_job >= listed


def _topics(rule: Rule) -> set[str]:
    """The first words of the facts that its page reads; those of a run, a job and a soak are asked by these alone."""
    return {name.partition(".")[0] for name in facts_read(rule)}


def test_several_files_give_one_document_a_line_in_the_order_given(called: Program, tmp_path: Path) -> None:
    names = []
    for name in ("b", "a", "c"):
        (tmp_path / name).write_text(f"report {name}\n")
        names.append(str(tmp_path / name))
    lines = called("read", "--json", *names).out.splitlines()
    assert [json.loads(line)["target"]["name"] for line in lines] == names


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "binary"),
        (b'{"schema": "' + b"x" * WHOLE_FILE_BYTES, "cut it first"),
        (b'{"schema": "gpudoctor/9", "target": {}, "facts": {}}', "gpudoctor/9"),
        (b'{"schema": "gpudoctor/1", "target": ', "broken JSON"),
        (b'{"schema": "gpudoctor/1", "target": {}, "facts": []}', "no facts"),
    ],
    ids=["empty", "elf", "huge", "newer schema", "cut off", "no facts"],
)
def test_what_cannot_be_read_is_one_line_and_exit_2(called: Program, tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "report"
    file.write_bytes(content)
    good = tmp_path / "good"
    good.write_text("hello")
    done = called("read", "--json", str(good), str(file))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
    assert str(file) in done.err


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_path_that_is_no_file_is_one_line_and_exit_2(called: Program, tmp_path: Path, name: str) -> None:
    done = called("read", str(tmp_path / name))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "typed",
    ["--level thorough", "read", "explain no.such", "check --format morse", "rules", "diff", "diff - -", "diff ."],
)
def test_misuse_prints_nothing_on_stdout(called: Program, typed: str) -> None:
    done = called(*typed.split())
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_128_and_its_number_and_leaves_no_child(tmp_path: Path, number: int) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    mark = f"hanging-{os.getpid()}-{number}"
    (torch / "version.py").write_text("__version__ = '2.9.0'\ncuda = '12.8'\nhip = None\n")
    begun = tmp_path / "begun"
    (torch / "__init__.py").write_text(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(300)\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} MARK={mark} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    words = [sys.executable, "-m", "gpudoctor", "check", "--python", str(python)]
    before = signal.signal(number, lambda *_: None)  # a job in the background ignores SIGINT, and its children would
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        signal.signal(number, before)
        assert until(begun.exists), "torch is being imported"
        program.send_signal(number)
        out, err = program.communicate(timeout=600)
    assert (program.returncode, out, err) == (128 + number, b"", b"")
    assert until(lambda: not marked(mark)), "no child is left"


def test_a_signal_where_python_drops_exceptions_ends_it_all_the_same() -> None:
    dropped = """
import signal, sys
from gpudoctor.__main__ import main
class Doomed:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
class Search:
    def find_spec(self, name, *_):
        if name == "gpudoctor.app.commands.rules":
            Doomed()
sys.meta_path.insert(0, Search())
sys.argv = ["gpudoctor", "rules", "test"]
sys.exit(main())
"""
    assert finished([sys.executable, "-c", dropped]) == (128 + signal.SIGTERM, "", "")


def test_control_c_while_it_is_still_imported_shows_no_traceback() -> None:
    typed = """
import signal, sys
from gpudoctor.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have it ignored
class Typed:
    def find_spec(self, name, *_):
        if name == "gpudoctor.app.arguments":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Typed())
sys.exit(main())
"""
    assert finished([sys.executable, "-c", typed]) == (130, "", "")


def test_a_page_is_about_one_machine(called: Program, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(REPORT, "utf-8")
    twice = [str(tmp_path / "report.txt")] * 2
    answer = called("read", *twice, "--format", "html")
    assert answer.code == 2
    assert "give one file, or --together" in answer.err
    answer = called("read", *twice, "--format", "html", "--together")
    assert answer.code == 1
    assert answer.out.count("<!doctype html>") == 1


@pytest.mark.parametrize(("debug", "says"), [("", "a fault of gpudoctor, or of where"), ("1", "Traceback")])
def test_what_nobody_foresaw_is_told_in_words_and_judges_no_machine(debug: str, says: str) -> None:
    broken = (
        "from gpudoctor.app import cli; from gpudoctor.app.commands import bundled; del bundled.schema;"
        " raise SystemExit(cli.run(['schema']))"
    )
    ended = finished([sys.executable, "-c", broken], env={**os.environ, "GPUDOCTOR_DEBUG": debug})
    assert says in ended.err
    assert "has no attribute 'schema'" in ended.err
    assert ("Traceback" in ended.err) == bool(debug)
    assert debug or ended.code == 3


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("chekc", "no command 'chekc'; did you mean check?"),
        ("explian driver.missing", "no command 'explian'; did you mean explain?"),
        ("zzz", "no command 'zzz'; gpudoctor --help names them all"),
        ("diagnose", "no command 'diagnose'; did you mean check?"),
        ("hang 4711", "no command 'hang'; did you mean job?"),
        ("/etc/passwd", "no command '/etc/passwd'; to read a file: gpudoctor read /etc/passwd"),
        ("check --lvel quick", "did you mean --level?"),
        ("help", "no command 'help'; did you mean --help?"),
        ("preflight python train.py", "unrecognized arguments: python train.py; what is to be run stands after --"),
    ],
)
def test_a_misspelt_word_is_told_what_it_was_meant_to_be(called: Program, typed: str, says: str) -> None:
    done = called(*typed.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"{says}\n")


def test_every_command_has_what_does_it() -> None:
    acts = {command.get_default("act") for _, command in commands_of(parser())} - {None}
    assert len(acts) > 20
    assert all(callable(cli.act_of(act)) for act in acts)


@pytest.fixture(scope="module")
def saved(gpudoctor: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of this machine."""
    place = tmp_path_factory.mktemp("saved") / "machine.json"
    done = gpudoctor("snapshot", "--level", "quick", "-o", str(place))
    assert (done.code, done.out, done.err) == (0, "", "")
    return place


def test_a_snapshot_gives_the_findings_of_the_live_run(gpudoctor: Program, saved: Path) -> None:
    live = gpudoctor("check", "--level", "quick", "--json")
    read = gpudoctor("read", "--json", str(saved))
    assert read.code == live.code
    assert read.document["target"]["kind"] == "snapshot"
    for key in ("verdict", "findings", "counts", "unjudged", "passed"):
        assert read.document[key] == live.document[key]


def test_two_snapshots_of_one_machine_do_not_differ(gpudoctor: Program, tmp_path: Path) -> None:
    """But for what happens on it meanwhile: another test may crash a process or fill its cgroup between the two."""
    first = tmp_path / "first.json"
    for _ in range(4):
        gpudoctor("snapshot", "--level", "quick", "-o", str(first))
        done = gpudoctor("diff", str(first), "-", stdin=gpudoctor("snapshot", "--level", "quick").out)
        if not done.code:
            break
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1].startswith("Nothing differs")


@pytest.mark.parametrize(
    "content",
    [
        b'{"schema": "gpudoctor/1", "target": {}, "facts": {"\\u001b[2J\\n.x": 3}}',
        b'{"schema": "gpudoctor-record/1", "host": {"files": {"/etc/',
        b'{"schema": "gpudoctor-record/1", "host": {"files": {"/etc/../../x": "\\u001b[2J"}}}',
    ],
    ids=["control characters", "record cut off", "record"],
)
def test_a_bad_file_on_either_side_is_one_line_and_exit_2(
    called: Program, saved: Path, tmp_path: Path, content: bytes
) -> None:
    bad = tmp_path / "bad\x1b[2J\n.json"
    bad.write_bytes(content)
    for words in ((str(saved), str(bad)), (str(bad), str(saved))):
        done = called("diff", *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "\x1b" not in done.err


def test_a_new_file_has_the_permissions_of_the_session(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        output.put("text", str(tmp_path / "new"))
    finally:
        os.umask(mask)
    assert (tmp_path / "new").read_text() == "text\n"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_an_old_file_keeps_its_permissions_and_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("before")
    (tmp_path / "old").chmod(0o600)
    (tmp_path / "link").symlink_to("old")
    output.put("after", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text() == "after\n"
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


def test_the_old_text_is_there_until_the_new_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        output.put("after", str(tmp_path / "old"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "before")]


@pytest.mark.parametrize(
    ("name", "says"), [(".", "Is a directory"), ("no/file", "No such file"), ("a\0b", "null byte")]
)
def test_where_nothing_can_be_written_is_said_before_and_after(tmp_path: Path, name: str, says: str) -> None:
    for act in (output.check, lambda place: output.put("text", place)):
        with pytest.raises(UsageError, match=says):
            act(str(tmp_path / name))


def test_a_device_is_written_to_and_not_replaced() -> None:
    output.check("/dev/null")
    output.put("text", "/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (None, "-"):
        output.check(name)
        output.put("text", name)
    assert capsys.readouterr().out == "text\ntext\n"


PROGRAM = (sys.executable, "-m", "gpudoctor")
COMMANDS = (
    ("check", "--json"),
    ("snapshot", "--level", "quick"),
    ("record", "--level", "quick"),
    ("fix", "--dry-run"),
    ("bench", "--device", "cpu", "--kernel", "driver.add"),
    ("expect", "--from-here"),
    ("diff", "--last"),
)


def ended(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    ran = finished(argv, cwd=folder, env={**kept, **environ})
    assert "Traceback" not in ran.err + ran.out
    assert "itself failed" not in ran.err + ran.out
    assert ran.code in {0, 1, 2, 3}, ran.err


BARE_DEV = """
mount --rbind /dev /mnt
mount -t tmpfs none /dev
for name in null zero urandom; do touch /dev/$name; mount --bind /mnt/$name /dev/$name; done
exec "$@"
"""
READ_ONLY = 'for folder in /tmp /var/tmp; do mount -t tmpfs -o ro none "$folder"; done; exec "$@"'


@pytest.mark.full
@pytest.mark.parametrize("script", [BARE_DEV, READ_ONLY], ids=["no /dev/shm", "/tmp cannot be written"])
def test_in_a_namespace_without_it(script: str) -> None:
    enter = [needs.program("unshare"), "--map-root-user", "--mount", "sh", "-euc", script, "sh"]
    if subprocess.run([*enter, "true"], check=False, capture_output=True).returncode:
        needs.missing("a user namespace in which folders can be mounted")
    for command in COMMANDS:
        ended([*enter, *PROGRAM, *command], {"HOME": "/nonexistent"}, Path("/"))


def test_a_folder_without_pages_is_refused_by_list_as_by_test(called: Program, tmp_path: Path) -> None:
    listed, tested = called("rules", "list", "--rules", str(tmp_path)), called("rules", "test", str(tmp_path))
    assert (listed.code, listed.out, listed.err) == (2, "", tested.err)
    assert "no rule page is there" in listed.err
