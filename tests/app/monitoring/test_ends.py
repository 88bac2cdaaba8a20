"""gpudoctor ends as the command ended, and what that printed is what arrives; behind ``--gate`` it runs on go alone."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoctor.core.shipped import own_command
from tests.app.monitoring.running import PATIENCE, beside, document, python, run
from tests.processes import free_port, gone
from tests.sim import scenario
from tests.sim.root import Machine

PROGRAMS = {
    "an exception": "raise RuntimeError('no such layer')",
    "words as its exit": "import sys; sys.exit('bad config')",
    "binary output": "import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'\\0\\xff\\n')",
    "no end of line": "import os; os.write(1, b'half a line'); os._exit(4)",
    "stdout closed": "import os, time; os.close(1); time.sleep(0.2); os._exit(5)",
    "stderr closed": "import os, time; os.close(2); time.sleep(0.2); os._exit(6)",
    "both closed": "import os, time; os.closerange(0, 3); time.sleep(0.2); os._exit(7)",
    "stdin is read": "import sys; sys.stdout.write(sys.stdin.read().upper())",
    "a child dies": "import os; p = os.fork(); p or os.kill(os.getpid(), 9); os._exit(os.waitpid(p, 0)[1] & 127)",
    "its group is killed": "import os, signal; os.setpgid(0, 0); os.killpg(0, signal.SIGTERM)",
    "a session of its own": "import os; os.setsid(); print(os.getsid(0) == os.getpid())",
    "signals are as given": "import signal; print([signal.getsignal(n) for n in (1, 10, 13, 15, 17, 25)],"
    " signal.pthread_sigmask(signal.SIG_BLOCK, ()))",
    "open files": "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])",
    "the environment": "import os; print(sorted(os.environ.items()))",
    "the folder and the group": "import os; print(os.getcwd(), os.getpgrp() == os.getpgid(os.getppid()))",
    "limits and priority": "import os, resource; print([resource.getrlimit(n) for n in range(10)])\n"
    "print(os.nice(0), oct(os.umask(0)), os.sched_getaffinity(0))",
    "both streams at once": "import os\nfor n in range(200): os.write(1 + n % 2, b'%d\\n' % n)",
    "the processor's time is over": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 2))\nwhile True: pass",
}


def same(argv: list[str], stdin: bytes = b"") -> None:
    """Run it bare and with the doctor, and compare: the end, stdout, and what stderr begins with."""
    bare, ours = run(argv, stdin), run([*beside("--quiet"), *argv], stdin)
    assert (ours.code, ours.out) == (bare.code, bare.out)
    assert ours.err.startswith(bare.err)


@pytest.mark.parametrize("code", [0, 3, 137, 255])
def test_an_exit_code(code: int) -> None:
    same(["sh", "-c", f"echo out; echo err >&2; exit {code}"])


def test_an_exit_code_where_whoever_starts_us_has_the_ends_of_children_ignored() -> None:
    """As daemons do that never wait: the kernel then drops the status of each child."""
    end = run([*beside("--quiet"), "false"], preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert end.code == 1


@pytest.mark.full
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGSEGV", "SIGKILL", "SIGPIPE", "SIGXCPU", "SIGRTMIN"])
def test_a_signal(name: str) -> None:
    same(
        python(
            f"import os, signal; signal.signal(signal.{name}, 0) if '{name}' != 'SIGKILL' else 0;"
            f" print('before', flush=True); os.kill(os.getpid(), signal.{name})"
        )
    )


@pytest.mark.full
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program(what: str) -> None:
    same(python(PROGRAMS[what]), stdin=b"what comes in\n" * 5)


@pytest.mark.parametrize(
    ("name", "code", "says"), [("no-such-program", 127, "no such command"), ("/", 126, "a folder")]
)
def test_what_cannot_be_run(name: str, code: int, says: str) -> None:
    end = run([*beside(), name])
    assert end.code == code
    assert says in end.err.decode()


def test_a_file_that_is_not_executable_and_scripts(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo it runs; exit 9\n")
    assert run([*beside(), str(script)]).code == 126
    script.chmod(0o755)
    assert run([*beside("--quiet"), str(script)])[:2] == (9, b"it runs\n")  # as shells and execvp(3) do
    script.write_text("#!/no/such/interpreter\n")
    assert run([*beside(), str(script)]).code == 127


def test_misuse_starts_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for options in (["-o", "-"], ["-o", str(tmp_path)], ["--rules", str(tmp_path / "none")], ["--nonsense"]):
        assert run([*beside(*options), "touch", str(mark)]).code == 2, options
    assert run(beside()).code == 2
    assert not mark.exists()


def test_a_reader_that_goes_away_ends_it_as_it_would() -> None:
    """``yes | head``: the writer gets SIGPIPE, not an error of ours."""
    with subprocess.Popen([*beside("--quiet"), "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ran:
        assert ran.stdout
        assert ran.stdout.read(4) == b"y\ny\n"
        ran.stdout.close()
        assert ran.wait(60) == -signal.SIGPIPE


def test_what_it_leaves_running_goes_on_writing(tmp_path: Path) -> None:
    """A daemon that holds its output: gpudoctor ends with the command, the output comes to its end."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); time.sleep(3); os.write(1, b'later\\n'); os._exit(0)\n"
        "print('now', flush=True)"
    )
    end = run([*beside("--quiet"), *python(code)])
    assert (end.code, end.out) == (0, b"now\nlater\n")


def test_a_killed_doctor_takes_the_command_along(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with subprocess.Popen([*beside(), *python(code)]) as ran:
        while not mark.exists() or not mark.read_text():
            time.sleep(0.02)
        os.kill(ran.pid, signal.SIGKILL)
        assert ran.wait(60) == -signal.SIGKILL
    assert gone(int(mark.read_text()))


PAGE = """
id = "site.no"
title = "A machine that this site has not"
severity = "error"
when = ["host.memory_mib < 999999999"]
finding = "This site's machines have much memory, this one {host.memory_mib} MiB"
why = "For the test."
misses = "Nothing."
sources = ["the test, 2026-11"]

[[case]]
name = "too few"
facts = { "host.memory_mib" = 8 }
finds = "This site's machines have much memory, this one 8 MiB"

[[case]]
name = "enough"
facts = { "host.memory_mib" = 999999999 }
passes = true

[[case]]
name = "unread"
facts = { "host.memory_mib" = { unread = "no /proc" } }
unjudged = "no /proc"
"""


def gated(machine: Machine, *options: str) -> tuple[int, str, str]:
    """The exit code and what is printed of a command behind the gate on that machine."""
    ran = machine.run([*own_command(), "run", "--gate", *options, "--", sys.executable, "-c", "print('trained')"])
    return ran.code, ran.out, ran.err


@pytest.mark.full
def test_the_command_runs_on_go(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.PROFILES / "hgx-h100.json"), tmp_path / "root")
    code, out, err = gated(machine)
    assert (code, out) == (0, "trained\n"), err
    assert "GO: " in err
    assert "exit 0 after" in err
    assert gated(machine, "--quiet") == (0, "trained\n", "")


@pytest.mark.full
def test_it_does_not_on_no_go(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.SICK / "lost-gpu-h100.json"), tmp_path / "root")
    for options in ((), ("--quiet",)):
        code, out, err = gated(machine, *options)
        assert (code, out) == (1, ""), err
        assert "NO-GO: " in err
        assert "[gpu.fell-off-bus]" in err
        assert "exit " not in err


def test_no_rank_starts_where_one_may_not(tmp_path: Path) -> None:
    """The ranks meet before any of them starts, and a profile that no machine has here is a no-go for both."""
    mark = tmp_path / "mark"
    pages = tmp_path / "pages"
    (pages / "host").mkdir(parents=True)
    (pages / "host/site.no.toml").write_text(PAGE)
    environ = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [*beside("--gate", "--rules", str(pages)), "touch", str(mark)],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "TMPDIR": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], printed
    assert "This site's machines have much memory" in printed[0]
    assert printed[1] == ""
    assert not mark.exists()


NOISE = (
    "import os, random; r = random.Random(7)\n"
    "for n in range(2000): os.write(1, r.randbytes(r.choice((1, 80, 4096, 70000))))"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
)


def test_bytes_of_all_sizes() -> None:
    assert run([*beside("--quiet"), *python(NOISE)]).out == run(python(NOISE)).out


@pytest.mark.full
def test_a_hundred_megabytes() -> None:
    """At full speed, which moves pages, with a trickle before and after it."""
    code = (
        "import os\n"
        "os.write(1, b'begin\\n')\n"
        "for n in range(1600): os.write(1, bytes([n % 251]) * 65536)\n"
        "os.write(1, b'end\\n'); os._exit(3)"
    )
    ends = []
    for front in ([], beside("--quiet")):
        with subprocess.Popen([*front, *python(code)], stdout=subprocess.PIPE) as ran:
            assert ran.stdout
            digest, size = hashlib.sha256(), 0
            while piece := ran.stdout.read(1 << 16):
                digest.update(piece)
                size += len(piece)
            ends.append((ran.wait(), size, digest.hexdigest()))
    assert ends[0] == ends[1]
    assert ends[0][1] > 100_000_000


def test_files_and_one_pipe_for_both(tmp_path: Path) -> None:
    code = "import os\nfor n in range(500): os.write(1 + n % 2, b'%d\\n' % n)"
    expected = b"".join(b"%d\n" % n for n in range(500))
    both = subprocess.run(
        [*beside("--quiet"), *python(code)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert both.stdout == expected
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before\n")
        log.flush()
        subprocess.run([*beside("--quiet"), *python(code)], stdout=log, stderr=log, check=True)
        log.write(b"after\n")
    assert (tmp_path / "log").read_bytes() == b"before\n" + expected + b"after\n"


@pytest.mark.parametrize("where", ["pipe", "file", "appended"])
def test_the_end_of_it_is_read(where: str, tmp_path: Path) -> None:
    out, log = tmp_path / "run.json", tmp_path / "log"
    log.write_text("CUDA error: no kernel image is available for execution on the device\n")  # of another program
    argv = [*beside("--quiet", "-o", str(out)), *python(f"import os, sys; print('x' * 200000); sys.exit({OOM!r})")]
    if where == "pipe":
        err = run(argv).err.decode()
    else:
        with log.open("ab" if where == "appended" else "r+b") as file:
            file.seek(0, os.SEEK_END)
            subprocess.run(argv, stdout=file, stderr=file, check=False)
        err = log.read_text()
    assert "[workload.oom]" in err
    assert err.count("no kernel image") == (where != "pipe")
    assert '"workload.oom"' in out.read_text()


def test_a_flood_does_not_hide_what_comes_after_it(tmp_path: Path) -> None:
    code = (
        f"import os, sys; [os.write(1, b'y' * 65536) for _ in range(400)]; os.write(1, {OOM!r}.encode()); os._exit(1)"
    )
    whole, end = document(python(code), tmp_path)
    assert [finding["id"] for finding in whole["findings"]] == ["workload.oom"]
    assert len(end.out) == 400 * 65536 + len(OOM)


def test_lines_that_a_progress_bar_writes_over_are_lines(tmp_path: Path) -> None:
    bar = "for n in range(1000): os.write(2, b'\\r%5d/1000 [00:01<00:10]' % n)"
    code = f"import os\n{bar}\nos.write(2, {OOM!r}.encode()); os._exit(1)"
    whole, _ = document(python(code), tmp_path)
    assert [finding["id"] for finding in whole["findings"]] == ["workload.oom"]


def test_a_program_that_just_fails_is_no_finding(tmp_path: Path) -> None:
    whole, end = document(["sh", "-c", "echo epoch 1; echo 'cannot go on' >&2; exit 1"], tmp_path)
    assert whole["findings"] == []
    assert whole["facts"]["run.exit_code"]["value"] == 1
    assert b"exit 1 after" in end.err
    assert run([*beside("--quiet"), "false"]).err == b""


def test_what_a_sound_run_printed_is_no_finding(tmp_path: Path) -> None:
    whole, end = document(python(f"print({OOM!r})"), tmp_path)
    assert (whole["findings"], whole["verdict"]) == ([], "sound")
    assert b"exit 0 after" in end.err
    assert b"nothing found" in end.err


def test_nothing_is_kept_of_what_is_left_untouched(tmp_path: Path) -> None:
    end = run([*beside("--untouched"), *python(f"import sys; sys.exit({OOM!r})")])
    assert b"its output was not kept" in end.err
    assert b"workload.oom" not in end.err


def test_secrets_of_the_command_line_are_not_written(tmp_path: Path) -> None:
    whole, _ = document(["true", "--token", "hf_abcdefghijklmnopqrstuvwxyz012345"], tmp_path)
    assert "hf_abc" not in str(whole)


def test_history_lists_it_and_counts_it_for_no_check(tmp_path: Path) -> None:
    env = dict(os.environ, GPUDOCTOR_HISTORY="on", GPUDOCTOR_STATE=str(tmp_path))
    run([*beside("--quiet"), *python(f"import sys; sys.exit({OOM!r})")], env=env)
    listed = run([*own_command(), "history", "--json"], env=env).out
    (kept,) = json.loads(listed)["runs"]
    assert (kept["level"], [one["id"] for one in kept["findings"]]) == ("quick", ["workload.oom"])
    assert kept["command"].endswith("79.11 GiB')")
    assert "run       " in run([*own_command(), "history"], env=env).out.decode()
    assert b"no check of this machine is kept" in run([*own_command(), "diff", "--last-good"], env=env).err
