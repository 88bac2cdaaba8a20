"""Kernels that misbehave, laid out beside the real child's own program: what `runner` and `Ladder` must survive."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from gpudoctor.kernels import runner
from gpudoctor.kernels.child._kernel import Spec
from gpudoctor.kernels.specs import FAMILIES, KernelEntry, program
from tests.processes import until

_KERNELS = {
    "right": "return Outcome(value=7.5, spread=0.01, right=True, differ=0, compared=16, words='as it should')",
    "right_too": "return Outcome(value=8.0, right=True)",
    "wrong": "return Outcome(value=7.0, right=False, differ=3, compared=16, words='3 of 16 values are wrong')",
    "wrong_once": """
        notes = os.environ["SICK_NOTES"] + ".once"
        right = os.path.exists(notes)
        open(notes, "a").close()
        return Outcome(value=7.0, right=right, differ=0 if right else 3, compared=16)
    """,
    "raises": "raise RuntimeError('no kernel image is available')",
    "spends": "context.spent = True; raise RuntimeError('an illegal memory access was encountered')",
    "cannot": "raise CannotRun('needs two GPUs')",
    "no_memory": "raise MemoryError",
    "hangs": "time.sleep(600)",
    "hangs_deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()",
    "crashes": "ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "leaves": "os._exit(0)",
    "exits": "raise SystemExit(3)",
    "floods": "while True: os.write(2, b'x' * 65536)",
    "forks": "started = subprocess.Popen(SLEEP, start_new_session=True); tell(started.pid); time.sleep(600)",
    "leaves_one": "started = subprocess.Popen(SLEEP); tell(started.pid); return Outcome(value=1.0)",
    "garbage": """
        _kernel.say(kernel=["right"], status="ran")
        _kernel.say(step={})
        _kernel.say(kernel="sick.nobody", status="ran", value=1)
        _kernel.say(closed="too late", failed=True)
        os.write(_kernel._out, b"\\n@gpudoctor {\\n@gpudoctor [1]\\n\\xff\\x00@gpudoctor {}\\n@gpudoctor {}\\n")
        os.write(_kernel._out, b'@gpudoctor {"kernel": "sick.garbage", "status": "ran", "value": NaN, '
                 b'"spread": true, "right": "yes", "differ": 1e999, "compared": 4, "words": ["a"], "because": 7, '
                 b'"details": {"rate": Infinity, "deep": {"er": {"still": {"more": 1}}}, "name": "a\\\\u001b[31m"}}\\n')
        time.sleep(600)
    """,
}
"""What each does, as the body of its `run`."""

_HEAD = """
import ctypes, os, signal, subprocess, sys, time
from .. import _kernel
from .._kernel import CannotRun, Outcome, Spec
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]

def tell(pid):
    with open(os.environ["SICK_NOTES"], "a") as file:
        file.write("%d\\n" % pid)

"""
_RUNG = """
import os, signal, sys, time
from .._kernel import CannotRun

class Context:
    on_cpu = True
    def description(self):
        return {"sick": True}

def opened(ask):
    notes = os.environ.get("SICK_NOTES", "")
    times = 0
    if notes:
        with open(notes + ".opened", "a+") as file:
            file.write("%s %s %s\\n" % (ask["device"], os.environ.get("OMP_NUM_THREADS"),
                                       os.environ.get("CUDA_VISIBLE_DEVICES")))
            file.seek(0)
            times = len(file.readlines())
    BODY
    return Context()
"""


_PROGRAM = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from gpudoctor.kernels import runner
runner.program = lambda: {program!r}
from gpudoctor.app.cli import run
sys.exit(run({words!r}))
"""


class Sick:
    """A child's folder with one family in it, or more; `program` is what an interpreter runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "child"
        self.program = str(self.folder / "__main__.py")
        self.notes = folder / "notes"
        real = Path(program()).parent
        self.folder.mkdir()
        for file in real.glob("*.py"):
            shutil.copy(file, self.folder / file.name)

    def family(
        self,
        family: str,
        *names: str,
        opened: str = "pass",
        seconds: float = 10,
        scope: str = "gpu",
        ids: Mapping[str, str] = MappingProxyType({}),
    ) -> list[KernelEntry]:
        """These kernels in that folder, whose rung does that when it is opened. `ids` gives them those of real ones."""
        place = self.folder / family
        place.mkdir(exist_ok=True)
        (place / "__init__.py").write_text(_RUNG.replace("BODY", opened))
        assert family in FAMILIES
        specs = {
            name: Spec(ids.get(name, f"{family}.{name}"), name, "GB/s", "", "deep", seconds, scope) for name in names
        }
        return [self._kernel(family, name, spec) for name, spec in specs.items()]

    def _kernel(self, family: str, name: str, spec: Spec) -> KernelEntry:
        body = textwrap.indent(textwrap.dedent(_KERNELS[name].replace("sick.", f"{family}.")).strip(), "    ")
        line = f"KERNELS = ({spec!r},)"
        text = f"{_HEAD}{line}\n\ndef run(context, spec):\n{body}\n"
        (self.folder / family / f"{name}.py").write_text(text)
        return KernelEntry(spec, family)

    def pids(self) -> list[int]:
        """Processes that kernels have started."""
        return [int(word) for word in self.notes.read_text().split()] if self.notes.exists() else []

    @contextmanager
    def at_work(self, words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """The program with these words over these kernels, once one of them has started a process."""
        argv = [sys.executable, "-c", _PROGRAM.format(program=self.program, words=list(words))]
        environ = {**os.environ, "SICK_NOTES": str(self.notes)}
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
        try:
            until(lambda: self.pids() or child.poll() is not None)
            yield child
        finally:
            child.kill()
            child.communicate()

    def openings(self) -> list[list[str]]:
        """Of each child: its device, OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES."""
        return [line.split() for line in self.notes.with_name("notes.opened").read_text().splitlines()]


@pytest.fixture
def sick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sick:
    made = Sick(tmp_path)
    monkeypatch.setattr(runner, "program", lambda: made.program)
    return made
