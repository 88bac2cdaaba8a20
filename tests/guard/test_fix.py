"""Nothing that a package, a report or another user wrote becomes an option, a path or a run of ``fix``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app.commands import rules
from gpudoctor.core.errors import DoctorError, DocumentError
from gpudoctor.core.fact import Known
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Run
from gpudoctor.diagnosis.judge import cures
from gpudoctor.fixes import plan, records
from gpudoctor.fixes.backup import environment, store
from gpudoctor.fixes.records import Journals
from tests import needs
from tests.fixes.index import Index
from tests.fixes.place import Place, difference
from tests.fixes.specimens import cases, diagnosed
from tests.guard.strangers import STRANGER, stranger
from tests.processes import until

HOSTILE = (
    "--index-url",
    "--index-url=http://evil/",
    "-r/etc/passwd",
    "foo; rm -rf /",
    "foo @ http://evil/foo.whl",
    "http://evil/foo.whl",
    "../x",
    "/etc/passwd",
    "foo\nbar",
    "foo\0bar",
    "$(reboot)",
    "foo\u202eoof",
    "foo bar",
    "",
)


def extension(name: str) -> Plan:
    """The plan for an extension of that name, which was built for another torch."""
    case = next(case for case in cases("ext.abi") if case.name == "the wheel's tag names another torch")
    snapshot = rules.snapshot_of(case)
    rows: Any = tuple({**row, "name": Known(name, "its metadata")} for row in snapshot.rows("extension"))  # type: ignore[union-attr]
    return plan.plan_for(diagnosed(replace(snapshot, groups={**snapshot.groups, "extension": rows})), ("ext.abi",))


def commands_of(made: Plan) -> list[tuple[str, ...]]:
    return [step.argv for step in made.steps if "--no-binary" in step.argv]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_a_hostile_package_is_no_word_of_a_command(name: str) -> None:
    made = extension(name)
    assert commands_of(made) == []
    refused = [step for step in made.steps if step.text.startswith("Not run: ")]
    assert len(refused) == 2
    assert all(step.argv == () and step.hindrance for step in refused)
    assert not any(name and name in step.argv for step in made.steps)


@pytest.mark.parametrize("name", ["flash-attn", "flash_attn", "xformers2", "a"])
def test_the_name_of_a_sound_package_is(name: str) -> None:
    pip, uv = commands_of(extension(name))
    assert (pip[-1], uv[-1]) == (name, name)


def _filled(value: str) -> Callable[[str], str]:
    return lambda template: template.replace("{x}", value)


@pytest.mark.parametrize(
    ("argv", "sound", "hostile"),
    [
        (
            ("nvidia-smi", "-i", "{x}", "--gpu-reset"),
            ("0", "00000000:C1:00.0", "GPU-1a-2b"),
            ("0 --reset", "-r", "a;b"),
        ),
        (("nvidia-smi", "-pl", "{x}"), ("300", "300.5"), ("-1", "3 -r", "0x10", "")),
        (("systemctl", "restart", "{x}"), ("nvidia-imex", "a@b.service"), ("-H evil", "--force", "a b", "../a")),
        (("modprobe", "{x}"), ("nvidia", "nvidia-uvm"), ("-r", "nvidia uvm", "/tmp/x.ko", "../x")),
        (("sysctl", "-w", "vm.{x}"), ("overcommit_memory=1",), ("a b", "x;y", "x\ny")),
        (("apt-get", "install", "-y", "{x}"), ("libcuda1:amd64", "a=1:2.0~b-1"), ("-o=x", "a b", "./a.deb", "/a.deb")),
        (("dnf", "install", "-y", "pkg-{x}"), ("570.1-1.el9",), ("1 --nogpgcheck", "1;x", "1/../x")),
        (
            ("{x}", "-m", "pip", "check"),
            ("/opt/v/bin/python", "C:\\v\\python.exe"),
            ("./python", "../python", "-c", "a/b"),
        ),
        (
            ("uv", "pip", "install", "--python", "{x}", "a"),
            ("/opt/my env/bin/python",),
            ("--system", "v/bin/python", "/a/../b"),
        ),
        (("pip", "install", "torch=={x}"), ("2.9.0+cu128", "2.*"), ("2 --pre", "2 @ http://evil", "2;x", "2\n3")),
        (
            ("pip", "install", "{x}"),
            ("jax[cuda12]", "torch>=2,<3", "torch~=2.9"),
            ("-e.", "git+https://evil", "a[b", "a=="),
        ),
        (("curl", "https://host/{x}/a"), ("rhel9",), ("../a", "a b", "a?b", "a\nb")),
        (("nvidia-ctk", "cdi", "generate", "--output={x}"), ("/etc/cdi/nvidia.yaml",), ("/etc/../x", "a b", "x\0")),
        (("ls", "-l", "/dev/{x}"), ("nvidia0",), ("../etc/shadow", "a\nb")),
        (("ssh", "{x}", "true"), ("node-1", "fe80::1"), ("-oProxyCommand=x", "a b", "a;b")),
        (("sh", "-c", "lspci -s {x} | head"), ("0000:c1:00.0",), ("a; reboot", "$(x)", "`x`", "a b", "a'b")),
        (("env", "A=1", "-u", "B", "{x}", "-c", "1"), ("/opt/v/bin/python",), ("--split-string=x", "./python")),
    ],
)
def test_a_fact_fits_its_place_in_a_command(
    argv: tuple[str, ...], sound: tuple[str, ...], hostile: tuple[str, ...]
) -> None:
    def fault(value: str) -> str:
        return cures.command_fault(argv, tuple(map(_filled(value), argv)), _filled(value))

    assert [fault(value) for value in sound] == [""] * len(sound)
    assert [value for value in hostile if not fault(value)] == []


def test_the_pages_own_words_may_be_options() -> None:
    template = "{'-open' if open else '' | -open}"
    assert cures.command_fault(("install", template), ("install", "-open"), lambda _: "-open") == ""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing in it, of a Python that every user can start."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    python = Path(os.path.realpath(sys.executable))
    hidden = any(not item.stat().st_mode & 0o001 for item in (python, *python.parents))
    subprocess.run(
        ["/usr/bin/python3" if hidden else str(python), "-m", "venv", "--without-pip", str(folder)],
        check=True,
        timeout=600,
    )
    return folder


@pytest.fixture
def place(bare: Path) -> Iterator[Place]:
    """It in a folder that every user can look into."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        with Index(folder) as index:
            yield Place.made(folder, bare, index)


def changing(place: Place, code: str = "", name: str = "added") -> Plan:
    """A step that adds a file to the environment."""
    own = f"open({str(place.venv / name)!r}, 'w').write('x'); {code}"
    return place.plan(PlanStep("1", "change", (place.python, "-c", own), touches="environment", cause="x", way=1))


def changed(place: Place) -> Run:
    run = place.apply(changing(place))
    assert (run.outcome, (place.venv / "added").exists()) == ("done", True)
    return run


def journal_of(place: Place, run: Run) -> Path:
    return place.journals.folder / run.id


def refused(place: Place, run: Run, words: str) -> None:
    """Undo says why not, and nothing is put back or removed."""
    before = place.files()
    with pytest.raises(DoctorError, match=words):
        place.undo(place.journals.load(run.id))
    assert difference(before, place.files()) == []


def test_a_run_of_ones_own_is_taken_back(place: Place) -> None:
    before = place.files()
    run = changed(place)
    folder = journal_of(place, run)
    assert {item.stat().st_mode & 0o077 for item in (folder, *folder.iterdir())} == {0}
    assert place.undo(place.journals.load(run.id)).outcome == "undone"
    assert difference(before, place.files()) == []


@pytest.mark.parametrize("name", ["run.json", "kept.json"])
@pytest.mark.parametrize("how", ["changed", "cut", "without digest", "of another run"])
def test_a_changed_journal_is_refused(place: Place, name: str, how: str) -> None:
    run = changed(place)
    file = journal_of(place, run) / name
    document = json.loads(file.read_text())
    if how == "changed":
        document["files" if name == "kept.json" else "why"] = 7 if name == "kept.json" else "mine"
    elif how == "without digest":
        del document["digest"]
    text = json.dumps(document)
    if how == "of another run":
        text = (journal_of(place, place.apply(changing(place))) / name).read_text()
    file.write_text(text[: len(text) // 2] if how == "cut" else text)
    refused(place, run, "changed since it was written|no JSON")
    listed = {entry.id: entry for entry in place.journals.list()}[run.id]
    assert bool(listed.trouble) == (name == "run.json")


def _owned(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)


def _linked(file: Path) -> None:
    copy = file.with_name("copy")
    file.rename(copy)
    file.symlink_to(copy)


@pytest.mark.parametrize("name", ["run.json", "kept.json", "."])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_owned, "belongs to user"),
        (
            lambda file: file.chmod(0o777 if file.is_dir() else 0o666),
            "others can write|can be written to by every user",
        ),
        (_linked, "symbolic links|Too many levels"),
    ],
)
def test_a_planted_or_linked_journal_is_refused(
    place: Place, name: str, spoil: Callable[[Path], None], words: str
) -> None:
    stranger()
    if name == "." and spoil is _linked:
        return  # a link of ours to a folder of ours is as good as the folder
    run = changed(place)
    spoil(journal_of(place, run) / name)
    refused(place, run, words)


@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("", _owned, "belongs to user"),
        ("manifest", _owned, "belongs to user"),
        ("small", _linked, "is a link"),
        ("small", lambda file: file.chmod(0o666), "can be written to by others"),
        ("manifest", lambda file: file.write_bytes(file.read_bytes()[:-1]), "changed since it was written"),
        ("", lambda file: (file.rename(file.with_name("x")), file.symlink_to("x")), "is a link"),
    ],
)
def test_kept_copies_of_others_are_not_put_back(
    place: Place, name: str, spoil: Callable[[Path], object], words: str
) -> None:
    stranger()
    run = changed(place)
    spoil(place.venv / ".gpudoctor-kept" / run.id / name)
    refused(place, run, words)


def test_a_kept_content_that_was_changed_is_not_put_back(place: Place) -> None:
    run = changed(place)
    (place.venv / "pyvenv.cfg").write_text("spoilt")
    small = place.venv / ".gpudoctor-kept" / run.id / "small"
    small.write_bytes(bytes(small.stat().st_size))
    back = place.undo(run)
    assert back.outcome == "stopped"
    assert "was changed since" in back.why
    assert (place.venv / "pyvenv.cfg").read_text() == "spoilt"


def rewritten(place: Place, run: Run, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """A journal by somebody who knows how its digest is made."""
    journal = place.journals.journal(run.id)
    document = journal.document(name)
    change(document)
    journal.put(name, document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kept: kept["parts"][0].update(root="/etc"), "outside"),
        (lambda kept: kept["parts"][0].update(store="/etc/x"), "outside"),
        (lambda kept: kept["parts"][0].update(root="/", loose=True), "outside"),
        (lambda kept: kept["environment"].update(prefix="/usr"), "of another environment"),
        (lambda kept: kept.update(run="20200101-000000"), "of another environment"),
    ],
)
def test_a_journal_that_leads_out_of_its_environment_is_refused(
    place: Place, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    run = changed(place)
    store = place.venv / ".gpudoctor-kept" / run.id
    shutil.copytree(store, store.with_name(f"{run.id}-loose"))
    rewritten(place, run, "kept.json", change)
    if words == "outside" and not Path("/etc/x").exists():
        words = "outside|is gone"
    refused(place, run, words)


def test_a_list_of_kept_files_that_climbs_out_is_refused(place: Place) -> None:
    run = changed(place)
    file = place.venv / ".gpudoctor-kept" / run.id / "manifest"
    held = store.load_manifest(file)
    entry = held.entries["pyvenv.cfg"]
    replace(held, entries={**held.entries, "../../outside": entry}).save(file)
    rewritten(place, run, "kept.json", lambda kept: kept["parts"][0].update(digest=store.digest_of(file)))
    refused(place, run, "outside")


def test_only_what_a_step_of_the_run_made_is_removed(place: Place) -> None:
    precious = place.folder / "precious"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(precious)], check=True, timeout=600)
    run = changed(place)
    place.journals.journal(run.id).put("made.json", {"folders": [str(precious)]})
    refused(place, run, "which no step of it made")
    assert (precious / "pyvenv.cfg").is_file()


def test_root_takes_nothing_back_in_anothers_environment(place: Place) -> None:
    stranger()
    run = changed(place)
    os.chown(place.venv, STRANGER, STRANGER)
    refused(place, run, "belongs to user .*: undo it as that user")


def test_nothing_is_recorded_in_a_folder_of_others(place: Place) -> None:
    place.journals.folder.mkdir()
    place.journals.folder.chmod(0o777)
    with pytest.raises(DoctorError, match="can be written to by every user"):
        place.apply(changing(place))
    assert not (place.venv / "added").exists()


def as_user(uid: int) -> list[str]:
    """A real user, who reads what root does, for this interpreter may lie in root's home, and writes nothing of it."""
    stranger()
    if not uid:
        return []
    words = [needs.program("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [*words, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def shared(place: Place) -> None:
    """Every user may change the environment."""
    for item in (place.venv, *place.venv.rglob("*")):
        if not item.is_symlink():
            item.chmod(item.stat().st_mode | (0o777 if item.is_dir() else 0o666))
    for uid in (0, STRANGER):
        (place.folder / str(uid)).mkdir()
        os.chown(place.folder / str(uid), uid, uid)


_RUN = """
import json, sys
from gpudoctor.app import pipeline
from gpudoctor.core import plan
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.permissions import RunContext
from gpudoctor.target import rights
from pathlib import Path
rights.consent = "trust"  # as --trust-python: everybody can write to this environment
folder, python, text = sys.argv[1:]
context = RunContext(Path(folder), python, lambda _: pipeline.check(level="quick", python=python))
try:
    run = apply(plan.from_json(json.loads(text)), context, lambda _: None, lambda: "go on")
    print(run.outcome)
except Exception as error:
    print(type(error).__name__, error)
"""


def running(place: Place, uid: int, made: Plan) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _RUN, str(place.folder / str(uid)), place.python, json.dumps(made.to_json())]
    return subprocess.Popen(
        [*as_user(uid), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=place.environ
    )


@pytest.mark.parametrize(("first", "second"), [(0, STRANGER), (STRANGER, 0)])
def test_two_users_do_not_change_one_environment_at_once(place: Place, first: int, second: int) -> None:
    shared(place)
    flag, go = place.venv / "added", place.folder / "go"
    waiting = changing(place, f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)")
    with running(place, first, waiting) as one:
        assert until(flag.exists)
        with running(place, second, changing(place, name="theirs")) as two:
            out, err = two.communicate(timeout=600)
        go.touch()
        assert one.communicate(timeout=600)[0] == "done\n"
    name = "root" if first == 0 else "nobody"
    assert out.startswith(f"DoctorError another run is under way in {place.venv}: "), out + err
    assert f"user {name}, process {one.pid};" in out
    began = time.time()
    assert until(lambda: time.time() > began + 1)  # runs of two users have the second in common, and nothing else
    with running(place, second, changing(place, name="theirs")) as two:  # the first is over
        out, err = two.communicate(timeout=600)
    assert (out, err) == ("done\n", "")


@pytest.mark.parametrize(("first", "second"), [(0, STRANGER), (STRANGER, 0)])
def test_the_lock_of_a_killed_run_does_not_hold_and_is_told(place: Place, first: int, second: int) -> None:
    shared(place)
    waiting = changing(place, "import time; time.sleep(600)")
    with running(place, first, waiting) as one:
        assert until((place.venv / "added").exists)
        one.kill()
    began = time.time()
    assert until(lambda: time.time() > began + 1)  # runs of two users have the second in common, and nothing else
    with running(place, second, changing(place, name="theirs")) as two:
        out, err = two.communicate(timeout=600)
    name = "root" if first == 0 else "nobody"
    assert out == "done\n", out + err
    assert f"a run was cut off in {place.venv}: " in err
    assert f"user {name}, process {one.pid}; gpudoctor fix --undo last, as that user, takes it back" in err


def test_a_lock_that_is_a_link_or_a_pipe_is_refused(place: Place) -> None:
    lock = records.environment_lock(environment.query_environment(place.python))
    victim = place.folder / "victim"
    victim.write_text("precious")
    lock.symlink_to(victim)
    with pytest.raises(DoctorError, match="nothing was run"):
        place.apply(changing(place))
    assert victim.read_text() == "precious"
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(DoctorError, match="no plain file; nothing was run"):
        place.apply(changing(place))
    lock.unlink()
    assert place.apply(changing(place)).outcome == "done"


def fixing(place: Place, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The whole program."""
    argv = [sys.executable, "-m", "gpudoctor", *words]
    surroundings = {**place.environ, "GPUDOCTOR_STATE": str(place.journals.folder), **environ}
    return subprocess.run(argv, capture_output=True, text=True, env=surroundings, timeout=300, check=False)


@pytest.mark.parametrize("words", [("fix", "--level", "quick"), ("setup", "torch", "--offline", "--apply")])
def test_a_run_that_was_cut_off_is_taken_back_at_the_next_start(place: Place, words: tuple[str, ...]) -> None:
    before = place.files()
    driver = place.driving(changing(place, "import time; time.sleep(600)"))
    with subprocess.Popen(driver, cwd=needs.REPOSITORY, env=place.environ) as child:
        assert until((place.venv / "added").exists)
        child.send_signal(signal.SIGKILL)
    (entry,) = place.journals.list()
    assert entry.run
    assert not entry.run.over
    left = place.files()
    assert "added" in left
    told = fixing(place, *words, "--python", place.python)
    assert f"run {entry.id} was ended from outside in step 1" in told.stderr
    assert difference(left, place.files()) == []
    ran = fixing(place, *words, "--yes", "--python", place.python)
    assert f"run {entry.id} was taken back, by run " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert difference(before, place.files()) == [] or words[0] == "setup"
    again = fixing(place, "fix", "--undo", entry.id, "--yes")
    assert (again.returncode, "was taken back already" in again.stderr) == (2, True)


def test_a_run_that_was_cut_off_in_an_environment_that_is_gone_hinders_nobody(place: Place) -> None:
    with subprocess.Popen(
        place.driving(changing(place, "import time; time.sleep(600)")), cwd=needs.REPOSITORY, env=place.environ
    ) as child:
        assert until((place.venv / "added").exists)
        child.send_signal(signal.SIGKILL)
    assert records.unfinished(place.journals)
    shutil.rmtree(place.venv)
    ran = fixing(place, "fix", "torch.cpu-build", "--yes", "--level", "quick")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "torch.cpu-build: not found here" in ran.stdout


def test_journals_are_of_their_folder(tmp_path: Path) -> None:
    journal = Journals(tmp_path / "runs").begin()
    journal.put("a.json", {"x": [1, "é", "\udc80"]})
    assert journal.document("a.json") == {"x": [1, "é", "\udc80"]}
    shutil.copy(journal.folder / "a.json", journal.folder / "b.json")
    with pytest.raises(DocumentError, match="changed since"):
        journal.document("b.json")
