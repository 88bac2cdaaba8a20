"""What the command prints arrives byte for byte, through pipes, files and both at once; and its end is read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from gpudoctor.core.shipped import own_command
from tests.app.beside.running import beside, document, python, run

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
