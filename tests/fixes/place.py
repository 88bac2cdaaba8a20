"""Where plans are run: a real environment with journals and the real judge, and a simulated machine with one.

``python -m tests.fixes.place FOLDER apply PLAN`` or ``FOLDER undo RUN`` runs the engine in a process, to be killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.app import pipeline
from gpudoctor.core import plan as plans
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Run
from gpudoctor.fixes.apply import apply
from gpudoctor.fixes.backup.tree import STORES
from gpudoctor.fixes.permissions import RunContext
from gpudoctor.fixes.records import Journals
from gpudoctor.fixes.steps.engine import Ask
from gpudoctor.fixes.undo import undo
from gpudoctor.target.record import Record
from tests import needs
from tests.fixes import wheels
from tests.fixes.index import Index, alone
from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import Machine
from tests.sim.software import PREFIX, PYTHON

OLD, NEW = "2.9.0+cpu", "2.9.0+cu128"
CUDNN = "nvidia-cudnn-cu12"
PIN = f"{CUDNN}==9.10.2.21"


def stock(index: Index) -> Index:
    """torch for processors alone, and for CUDA 12.8 with its cuDNN; an older cuDNN besides."""
    index.add(wheels.torch(OLD), shelf="cpu")
    index.add(wheels.torch(NEW, "12.8", (PIN,)), shelf="cu128")
    for version in ("9.1.0.70", "9.10.2.21"):
        index.add(wheels.nvidia(CUDNN, version, "cudnn/lib/libcudnn.so.9"), shelf="cu128")
    return index


@dataclass
class Place:
    """One environment with an index to install from."""

    folder: Path
    index: Index

    @classmethod
    def made(cls, folder: Path, template: Path, index: Index) -> Place:
        """With a copy of that environment: an environment finds itself by where it lies."""
        place = cls(folder, index)
        shutil.copytree(template, place.venv, symlinks=True)
        return place

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def python(self) -> str:
        return str(self.venv / "bin/python")

    @property
    def environ(self) -> dict[str, str]:
        return alone(self.folder / "cache")

    @property
    def journals(self) -> Journals:
        return Journals(self.folder / "runs")

    def site(self, **environ: str) -> RunContext:
        return RunContext(self.journals.folder, self.python, self.judge, {**self.environ, **environ})

    def judge(self, environment: str | None = None) -> Diagnosis:
        """This machine as it is, by the real rules, with this environment or that one as the one meant."""
        return pipeline.check(level="quick", python=environment or self.python)

    def pip(self, *words: str) -> None:
        """Install or uninstall by hand, as its user does."""
        subprocess.run([self.python, "-m", "pip", *words], check=True, env=self.environ, capture_output=True)

    def install(self, *words: str, shelf: str = "cpu") -> None:
        self.pip("install", "--index-url", self.index.url(shelf), *words)

    def step(self, number: int, *words: str) -> PlanStep:
        """A pip of this environment."""
        argv = (self.python, "-m", "pip", *words)
        return PlanStep(str(number), " ".join(words[:2]), argv, touches="environment", cause="torch.x", way=1)

    def change(self) -> Plan:
        """From torch for processors to torch for CUDA, as the pages have it."""
        return self.plan(
            self.step(1, "uninstall", "-y", "torch"),
            self.step(2, "install", "--no-cache-dir", f"torch=={NEW}", "--index-url", self.index.url("cu128")),
        )

    def plan(self, *steps: PlanStep) -> Plan:
        return Plan("torch.x", "here", steps, environment=str(self.venv))

    def apply(self, plan: Plan, ask: Ask = lambda _: "run", **environ: str) -> Run:
        return apply(plan, self.site(**environ), lambda _: None, lambda: "go on", ask)

    def driving(self, plan: Plan) -> list[str]:
        """What applies that plan in a process of its own."""
        document = self.folder / "plan.json"
        document.write_text(json.dumps(plan.to_json()), "utf-8")
        return [sys.executable, "-m", "tests.fixes.place", str(self.folder), "apply", str(document)]

    def undo(self, run: Run) -> Run:
        return undo(run, self.site(), lambda _: None, lambda: "go on")

    def installed(self) -> set[str]:
        """``torch 2.9.0+cpu``, by the environment's own word."""
        code = "import importlib.metadata as m; print(*(f'{d.name} {d.version}' for d in m.distributions()), sep='\\n')"
        done = subprocess.run([self.python, "-I", "-B", "-c", code], check=True, capture_output=True, text=True)
        return set(done.stdout.splitlines())

    def files(self) -> dict[str, tuple[int, str]]:
        """Every name in the environment with its mode and the hash of its content, by a way of its own."""
        return files_of(self.venv)


def files_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Every name below a folder, with its mode and the hash of its content or the goal of the link."""
    found = {}
    for path, folders, names in os.walk(os.fsencode(folder)):
        folders[:] = [name for name in folders if name != STORES.encode()]
        for name in (*folders, *names):
            place = os.path.join(path, name)  # noqa: PTH118
            found[os.fsdecode(os.path.relpath(place, os.fsencode(folder)))] = _seen(place)
    return found


def _seen(place: bytes) -> tuple[int, str]:
    mode = os.lstat(place).st_mode
    if stat.S_ISLNK(mode):
        return mode, os.fsdecode(os.readlink(place))  # noqa: PTH115
    if stat.S_ISREG(mode):
        with open(place, "rb") as file:  # noqa: PTH123
            return mode, hashlib.sha256(file.read()).hexdigest()
    return mode, ""


def difference(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """The names at which two lists differ."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def stocked(folder: Path, bare: Path, index: Index) -> None:
    """Make a place in that folder, with torch for processors alone in a copy of the environment `bare`."""
    Place.made(folder, bare, index).install(f"torch=={OLD}")


def own_python(folder: Path) -> str:
    """A whole Python of its own, no venv: the library of this one by links, an empty site-packages, and pip in it."""
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / name / "site-packages").mkdir(parents=True)
    shutil.copy2(os.path.realpath(sys.executable), folder / "bin" / name)
    for item in (base / "lib" / name).iterdir():
        if item.name not in ("site-packages", "dist-packages", "EXTERNALLY-MANAGED", "__pycache__"):
            (folder / "lib" / name / item.name).symlink_to(item)
    (folder / "bin/python").hardlink_to(folder / "bin" / name)
    python = str(folder / "bin/python")
    subprocess.run([python, "-I", "-m", "ensurepip", "--default-pip"], check=True, capture_output=True, timeout=600)
    return python


JOURNALS = "/var/lib/gpudoctor"


def record(profile: str, **environ: str) -> Record:
    """The healthy machine of that profile, without torch, in which that environment is active."""
    settled = {
        "VIRTUAL_ENV": PREFIX,
        "GPUDOCTOR_STATE": JOURNALS,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_CACHE": "1",
        "UV_LINK_MODE": "copy",
    }
    return scenario.expanded({"profile": profile, "machine": {"torch": None, "environ": {**settled, **environ}}})


class Patient(Machine):
    """Runs gpudoctor, pip and uv on that machine; its environment is new, or a copy of `environment`."""

    def __init__(self, machine: Record, root: Path, environment: Path | None = None) -> None:
        super().__init__(machine, root)
        for folder in ("/opt", "/var/lib", "/tmp"):
            self._at(f"{folder}/").mkdir(exist_ok=True)
        self.prefix = root / PREFIX.lstrip("/")
        if environment:
            shutil.copytree(environment, self.prefix, symlinks=True)
        else:
            made = self.run([sys.executable, "-m", "venv", PREFIX])
            assert made.code == 0, made.err

    def put_program(self, name: str, path: str) -> None:
        """A program of the real machine, on PATH here, with the libraries that it is linked to."""
        self._link(f"/usr/bin/{name}", path)
        said = subprocess.run([needs.program("ldd"), path], capture_output=True, text=True, check=True, timeout=600)
        for library in re.findall(r"=> (/\S+)", said.stdout):
            self._link(f"/lib/x86_64-linux-gnu/{Path(library).name}", library)

    def pip(self, *words: str) -> Ran:
        """pip of the environment, which must succeed."""
        ran = self.run([PYTHON, "-m", "pip", *words], timeout=600)
        assert ran.code == 0, ran.out + ran.err
        return ran

    def distributions(self) -> dict[str, str]:
        """What is installed, by name."""
        found = json.loads(self.pip("list", "--format", "json").out)
        return {one["name"]: one["version"] for one in found}

    def files(self) -> dict[str, tuple[int, str]]:
        """Every file, folder and link of the environment: mode and digest, or where the link leads."""
        return files_of(self.prefix)

    def doctor(self, *words: str, timeout: float = 300) -> Ran:
        """The program at the level that only reads: the stubs cannot be imported as torch can."""
        return self.gpudoctor(*words, "--level", "quick", timeout=timeout)

    def found(self) -> list[str]:
        """The ids of what is found now."""
        return [finding["id"] for finding in self.doctor("check", "--json").document["findings"]]


def main(folder: str, what: str, name: str) -> None:
    """Do it in the place that lies there."""
    place = Place(Path(folder), Index(Path(folder)))
    if what == "apply":
        run = place.apply(plans.from_json(json.loads(Path(name).read_text("utf-8"))))
    else:
        run = place.undo(place.journals.load(name))
    sys.stdout.write(f"{run.id} {run.outcome} {run.why}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
