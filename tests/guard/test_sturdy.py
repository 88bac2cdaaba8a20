"""Many at once, signals at any moment, a full disk, no home, few files, little memory: an answer or a clear error."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests import needs
from tests.processes import command_line, finished, left, marked

pytestmark = pytest.mark.full

MARK = "GPUDOCTOR_TEST_STURDY"
SEED = 20261124
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
REPORT = """\
NVIDIA-SMI 570.124.06 Driver Version: 570.124.06 CUDA Version: 12.8
RuntimeError: CUDA error: no kernel image is available for execution on the device
NVRM: Xid (PCI:0000:c1:00): 79, pid=1234, GPU has fallen off the bus.
"""


class Desk:
    """A folder with a home in it, and the program as it is started there."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.report = folder / "report.txt"
        self.report.write_text(REPORT)
        self.home = folder / "home"
        self.home.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        self.environ = {**kept, "HOME": str(self.home), MARK: str(folder), **environ}

    def start(self, words: Sequence[str], before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gpudoctor", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ,
            cwd=self.folder,
            start_new_session=True,
            preexec_fn=before,  # noqa: PLW1509 - limits of the child, which starts no thread before
        )

    def run(self, *words: str, before: Callable[[], None] | None = None) -> tuple[int, str, str]:
        with self.start(words, before) as child:
            out, err = child.communicate(timeout=600)
        return child.returncode, out, err

    def at_work(self) -> list[str]:
        """What still runs of all that was started here."""
        return list(map(command_line, marked(f"{MARK}={self.folder}")))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def verdict(text: str) -> tuple[str, list[tuple[str, str]], list[str]]:
    """What a document says that must not change from one reading to the next."""
    document = json.loads(text)
    said = [(finding["id"], json.dumps(finding["subject"])) for finding in document["findings"]]
    return document["verdict"], said, [item["id"] for item in document["unjudged"]]


def plain(err: str) -> None:
    """No traceback, no fault of ours: sentences, each a line."""
    assert "Traceback" not in err, err
    assert "fault of gpudoctor" not in err, err
    assert all(len(line) < 2000 for line in err.splitlines()), err


def all_at_once(desk: Desk, commands: Sequence[Sequence[str]]) -> list[tuple[int, str, str]]:
    children = [desk.start(words) for words in commands]
    try:
        told = [child.communicate(timeout=300) for child in children]
        return [(child.returncode, out, err) for child, (out, err) in zip(children, told, strict=True)]
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_twenty_checks_at_once_say_what_one_says(desk: Desk) -> None:
    """On a busy machine a probe may be stopped at its deadline: what rests on it is then unjudged for that reason."""
    check = ("check", "--level", "quick", "--json")
    code, out, _ = desk.run(*check)
    alone = verdict(out)
    for told in all_at_once(desk, [check] * 20):
        assert told[0] == code, told[2]
        assert verdict(told[1])[:2] == alone[:2]
        unjudged = {item["id"]: item.get("reason") for item in json.loads(told[1])["unjudged"]}
        assert set(alone[2]) <= set(unjudged)
        more = {reason for name, reason in unjudged.items() if name not in alone[2]}
        assert more <= {"timed_out", "needs_standard"}, told[1]
        assert "timed_out" in more or not more
        plain(told[2])
    listed = desk.run("history")
    assert (listed[0], listed[2], "(damaged)" in listed[1]) == (0, "", False)
    assert left(desk.at_work) == []


def test_eight_readers_at_once_say_what_one_says(desk: Desk) -> None:
    names = []
    for number in range(25):
        file = desk.folder / f"report-{number}.txt"
        file.write_text(REPORT.replace("c1", f"{number:02x}"))
        names.append(str(file))
    alone = desk.run("read", "--json", *names)
    assert len(alone[1].splitlines()) == 25
    assert [verdict(line)[0] for line in alone[1].splitlines()] == ["broken"] * 25
    for told in all_at_once(desk, [("read", "--json", *names)] * 8):
        assert told[0] == alone[0], told[2]
        assert [verdict(line) for line in told[1].splitlines()] == [verdict(line) for line in alone[1].splitlines()]
        plain(told[2])
    assert left(desk.at_work) == []


def test_forty_signals_at_any_moment_leave_nothing_half_done(desk: Desk) -> None:
    out = str(desk.folder / "answer.json")
    commands: list[tuple[str, ...]] = [
        ("check", "--level", "quick", "--json", "-o", out),
        ("read", "--json", str(desk.report)),
        ("record", "-o", out),
        ("history",),
        ("fix", "--dry-run", "--level", "quick", "--json"),
    ]
    dice = random.Random(SEED)
    whole: dict[tuple[str, ...], tuple[int, float]] = {}
    for words in commands:
        began = time.monotonic()
        whole[words] = (desk.run(*words)[0], time.monotonic() - began)
    ends: list[int] = []
    for number in range(40):
        words, sign = commands[number % len(commands)], dice.choice(list(SIGNALS))
        code, seconds = whole[words]
        Path(out).unlink(missing_ok=True)
        with desk.start(words) as child:
            with suppress(subprocess.TimeoutExpired):
                child.wait(seconds * dice.random())
            child.send_signal(sign)
            said, err = child.communicate(timeout=600)
        told = f"{sign.name} to {words}: {child.returncode}\n{said[-300:]}\n{err}"
        if "Traceback" in err and "/gpudoctor/" not in err:  # so early that Python itself was starting
            continue
        assert child.returncode in (code, SIGNALS[sign], -sign), told
        ends.append(child.returncode)
        assert "Traceback" not in err, told
        assert "fault of gpudoctor" not in err, told
        if os.path.lexists(out):
            json.loads(Path(out).read_text())
        assert not [item for item in desk.folder.iterdir() if item.name.startswith(".answer")], told
    assert any(end in SIGNALS.values() for end in ends)
    assert left(desk.at_work) == []
    listed = desk.run("history")
    assert (listed[0], listed[2], "(damaged)" in listed[1]) == (0, "", False)
    assert not [item for item in desk.home.rglob(".*.*") if item.is_file()], "a file was left half written"


def small_files() -> None:
    """A write beyond some bytes finds no room, as on a full disk, with an error in place of a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


@pytest.mark.parametrize("words", [("check", "--level", "quick", "--json"), ("record",), ("snapshot",)])
def test_an_answer_that_finds_no_room_is_refused_and_the_old_one_stands(desk: Desk, words: tuple[str, ...]) -> None:
    out = desk.folder / "answer.json"
    desk.run(*words)  # compiles what it imports: with so little room Python would leave byte code that is cut off
    for former in (None, "as it was"):
        if former:
            out.write_text(former)
        code, said, err = desk.run(*words, "-o", str(out), before=small_files)
        assert (code, said) == (2, ""), err
        plain(err)
        assert err.startswith(f"gpudoctor: -o {out}: File too large")
        assert len(err.splitlines()) == 1
        assert (out.read_text() if out.exists() else None) == former
        assert sorted(item.name for item in desk.folder.iterdir() if item.name.startswith(".")) == []
    assert left(desk.at_work) == []


@pytest.mark.parametrize("full", ["disk", "quota"])
def test_where_nothing_can_be_kept_the_answer_is_right_all_the_same(desk: Desk, full: str) -> None:
    code, out, _ = desk.run("check", "--level", "quick", "--json")
    shutil.rmtree(desk.home)
    desk.home.mkdir()
    words = [sys.executable, "-m", "gpudoctor", "check", "--level", "quick", "--json"]
    if full == "disk":
        script = 'mount -t tmpfs -o size=16k none "$HOME" && head -c 64k /dev/zero > "$HOME/zero"; exec "$@"'
        words = [needs.program("unshare"), "-Urm", "sh", "-c", script, "sh", *words]
    environ = {**desk.environ, "XDG_CACHE_HOME": str(desk.home / "cache"), "XDG_STATE_HOME": str(desk.home / "state")}
    before = small_files if full == "quota" else None
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        preexec_fn=before,  # noqa: PLW1509 - limits of the child
    ) as child:
        told, err = child.communicate(timeout=600)
    assert child.returncode == code, err
    assert verdict(told)[0] == verdict(out)[0]
    plain(err)
    assert len(err.splitlines()) <= 2, err
    assert [item for item in desk.home.rglob("*") if item.is_file() and item.stat().st_size == 1024] == []


@pytest.mark.parametrize("home", [None, "", "/nonexistent/home", "relative", "/dev/null"])
def test_without_a_home_the_answer_is_the_same(desk: Desk, home: str | None) -> None:
    told = {
        words: desk.run(*words) for words in (("check", "--level", "quick", "--json"), ("read", "--json", "report.txt"))
    }
    del desk.environ["HOME"]
    desk.environ.pop("XDG_CACHE_HOME", None)
    if home is not None:
        desk.environ["HOME"] = home
    desk.environ["GPUDOCTOR_HISTORY"] = "off" if os.geteuid() == 0 else "on"
    for words, (code, out, _) in told.items():
        now = desk.run(*words)
        assert now[0] == code, now[2]
        assert verdict(now[1]) == verdict(out)
        plain(now[2])
    assert not (desk.folder / "relative").exists()
    assert left(desk.at_work) == []


def test_in_a_home_that_cannot_be_written_to_the_answer_is_the_same(desk: Desk) -> None:
    """As a user who is not root, who reads what root does: this interpreter may lie in root's home."""
    if os.geteuid():
        needs.missing("root")
    desk.home.chmod(0o500)
    os.chown(desk.home, 65534, 65534)
    desk.environ.pop("XDG_CACHE_HOME", None)
    user = [needs.program("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    for words in (("check", "--level", "quick", "--json"), ("read", "--json", str(desk.report)), ("history",)):
        done = finished([*user, *reads, sys.executable, "-m", "gpudoctor", *words], env=desk.environ)
        assert done.code in (0, 1, 3), done.err
        plain(done.err)
        assert len(done.err.splitlines()) <= 2, done.err
        if "--json" in words:
            verdict(done.out)
    assert list(desk.home.iterdir()) == []


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))


@pytest.mark.parametrize("limit", [few_files, little_memory])
def test_with_few_files_or_little_memory_the_answer_is_the_same(desk: Desk, limit: Callable[[], None]) -> None:
    large = desk.folder / "large.txt"
    large.write_text("nothing of interest in this line of a log\n" * 100_000 + REPORT)
    desk.environ["MALLOC_ARENA_MAX"] = "1"  # glibc reserves 64 MiB of addresses for each thread that allocates
    for words in (("check", "--level", "quick", "--json"), ("read", "--json", str(large)), ("fix", "--dry-run")):
        code, out, _ = desk.run(*words)
        now = desk.run(*words, before=limit)
        plain(now[2])
        if "no memory is left" in now[2]:  # the address space of a thread is large, its memory is not
            assert (now[0], now[1], words[0], len(now[2].splitlines())) == (3, "", "fix", 1)
            continue
        assert now[0] == code, now[2]
        if "--json" in words:
            word, found = verdict(now[1])[:2]
            assert (word, [one for one in found if one[0] != "workload.open-files"]) == verdict(out)[:2]
    assert left(desk.at_work) == []
