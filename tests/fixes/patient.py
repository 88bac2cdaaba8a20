"""A simulated machine with GPUs and, in it, a real virtual environment, which real installers change."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from gpudoctor.target.record import Record
from tests import needs
from tests.fixes.place import files_of
from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import Machine
from tests.sim.software import PREFIX, PYTHON

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
