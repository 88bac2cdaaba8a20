"""A machine that a recipe is run on: its ``gpudoctor`` diagnoses a simulated machine, everything else is this one's.

A recipe names places such as /opt/gpudoctor; its text is taken to a scratch folder with them, and is otherwise run as
it is shipped, by the shell that would run it. Where it installs gpudoctor, a real pip takes it from an index in a
folder: the wheel there has the pinned name and version, and its ``gpudoctor`` is that of the simulated machine.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor.app import cli
from gpudoctor.core.about import __version__
from tests import needs
from tests.sim import scenario
from tests.sim.root import HOST, Machine

HEALTHY, SICK, UNKNOWN = "hgx-h100", "ecc-uncorrected-h100", "odd-jetson"
CAUSE = "gpu.ecc"
"""What the sick one has."""
CODES = {HEALTHY: 0, SICK: 1, UNKNOWN: 3}
_PLACES = re.compile(r"(?<![\w./$}{*])/(?=(?:app|etc|image|lib/modules|opt|planned|tmp|usr/local|usr/share|var)\b)")
_WITH_VALUES = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}


class Node:
    """A machine under `folder`, sound until told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self._machines = folder / "machines"
        self.programs = folder / "programs"
        """What is first on its PATH."""
        self._index = folder / "index"
        self._known: dict[str, Machine] = {}
        for place in (self.root / "tmp", self._machines, self.programs, self._index):
            place.mkdir(parents=True)
        self._write_wheel()
        self.becomes(HEALTHY)

    @property
    def environ(self) -> dict[str, str]:
        """What a program on it has: its own programs before those of this machine, and an index without a network."""
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        cache = {name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ}
        return {**_WITH_VALUES, **cache, "PIP_FIND_LINKS": str(self._index), "PATH": path, "HOME": str(self.root)}

    def becomes(self, name: str) -> None:
        """From now on its GPUs, driver and kernel are those of that profile or scenario of tests/sim."""
        if name not in self._known:
            root = self._machines / name
            root.mkdir()
            folder = scenario.PROFILES if name in scenario.names(scenario.PROFILES) else scenario.SICK
            self._known[name] = Machine(scenario.load(folder / f"{name}.json"), root)
        self.program("gpudoctor", self._doctor(name))

    def becomes_after_one_check(self, name: str, then: str) -> None:
        """It is as the first until it has been checked once."""
        self.becomes(name)
        self.becomes(then)
        marks = self.root / "checked"
        once = f"if [ $1 = check ] && ! [ -e {marks} ]; then\n: >{marks}\n{self._doctor(name)}\nfi\n"
        self.program("gpudoctor", once + self._doctor(then))

    @property
    def pyz(self) -> Path:
        """What stands for gpudoctor.pyz: a file that Python runs."""
        place = self.programs / "gpudoctor.pyz"
        program = str(self.programs / "gpudoctor")
        place.write_text(f"import os, sys\nos.execv({program!r}, [{program!r}, *sys.argv[1:]])\n")
        return place

    def _doctor(self, name: str) -> str:
        """A shell script: ``check`` in the simulated machine, which has our files below HOST; the rest here.

        The simulated kernels of level standard take seconds: where no level is said, it is quick.
        """
        enter = shlex.join(self._known[name].command([sys.executable, "-m", "gpudoctor"], inherit=True))
        here = shlex.join([sys.executable, "-m", "gpudoctor"])
        return f"""\
case $1 in check) ;; *) exec {here} "$@" ;; esac
for word; do
    shift
    case $word in {self.root}/*) word={HOST}$word ;; esac
    set -- "$@" "$word"
done
case $* in *--level*) ;; *) set -- "$@" --level quick ;; esac
exec {enter} "$@\""""

    def program(self, name: str, script: str) -> Path:
        """Put a shell script on its PATH."""
        place = self.programs / name
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
        return place

    def here(self, text: str) -> str:
        """A recipe's text, its places those of this machine's root."""
        return _PLACES.sub(f"{self.root}/", text)

    def place(self, path: str) -> Path:
        """Where that absolute path of a recipe lies."""
        return self.root / path.lstrip("/")

    def run(
        self, argv: Sequence[str], environ: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A program on it, to its end."""
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
            cwd=folder or self.root,
            env={**self.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
        )

    def shell(
        self, script: str, environ: Mapping[str, str] | None = None, shell: Sequence[str] = ("sh", "-e")
    ) -> subprocess.CompletedProcess[str]:
        """A shell script of a recipe on it."""
        return self.run([needs.program(shell[0]), *shell[1:], "-c", self.here(script)], environ)

    def _write_wheel(self) -> None:
        """A wheel with the name and version that recipes pin, and one script."""
        info = f"gpudoctor-{__version__}.dist-info"
        files = {
            f"gpudoctor-{__version__}.data/scripts/gpudoctor": f'#!/bin/sh\nexec {self.programs}/gpudoctor "$@"\n',
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: gpudoctor\nVersion: {__version__}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
        with zipfile.ZipFile(self._index / f"gpudoctor-{__version__}-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
                wheel.writestr(entry, text)


def recipe(name: str, folder: Path) -> Path:
    """A recipe as ``gpudoctor recipe write`` writes it into that folder."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.run(["recipe", "write", name, str(folder)]) == 0
    return folder / name
