"""A folder of a child's own is gone when the child is, however it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpudoctor.kernels import runner
from gpudoctor.kernels.child import _scratch
from gpudoctor.target.child import MARK, run_child
from tests.processes import until

CODE = f"""
import sys, time
sys.path.insert(0, {str(Path(runner.program()).parent.parent)!r})
from child import _scratch
folder = _scratch.Folder({{where!r}})
open(folder.path + "/kernel.so", "w").close()
print("made", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_it_goes_with_its_process(tmp_path: Path, by: signal.Signals) -> None:
    code = CODE.replace("{where!r}", repr(str(tmp_path)))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"made\n"
        assert list(tmp_path.glob("gpudoctor-*/kernel.so"))
        child.send_signal(by)
    assert until(lambda: not list(tmp_path.iterdir()))


def test_it_goes_when_the_child_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = CODE.replace("{where!r}", repr(str(tmp_path)))
    env = {**os.environ, MARK: "scratch"}
    run_child([sys.executable, "-c", code], 30.0, env, watch=lambda line: line != "made")
    assert until(lambda: not list(tmp_path.iterdir()))


def test_it_goes_at_the_end_of_with(tmp_path: Path) -> None:
    with _scratch.Folder(str(tmp_path)) as folder:
        (Path(folder) / "store").touch()
    assert list(tmp_path.iterdir()) == []


def test_where_libraries_may_be_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _scratch.allows_executables(str(tmp_path))
    assert not _scratch.allows_executables(str(tmp_path / "missing"))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    assert not _scratch.allows_executables(str(tmp_path))


WRITER = """
import itertools, sys
for number in itertools.count():
    open(sys.argv[1] + "/kernel.%d" % number, "w").close()
"""


def test_it_goes_though_a_compiler_still_writes(tmp_path: Path) -> None:
    """What the killed process has started goes on writing until its folder is gone."""
    code = CODE.replace("{where!r}", repr(str(tmp_path))).replace(
        "print(", f"import subprocess; subprocess.Popen([sys.executable, '-c', {WRITER!r}, folder.path])\nprint("
    )
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        assert child.stdout.readline() == b"made\n"
        child.send_signal(signal.SIGKILL)
    assert until(lambda: not list(tmp_path.iterdir()))
