"""Who is measured beside gpudoctor: what torch ships, and the public doctors and monitors that install from PyPI.

Each has a virtual environment of its own, made once in a cache folder; torch is lent to it from the environment that
is judged, for a doctor of torch imports it. Versions and commands as of November 2026.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import needs

UNNAMED = "does not name it"


class Contender(NamedTuple):
    """A program: its name, what to install, its words, and whether it judges what it reads."""

    name: str
    dist: str
    words: tuple[str, ...]
    judges: bool = False
    names: str = ""
    """What it prints, by a pattern, where it names what is wrong: torch is built for the CPU on a node of 8 GPUs."""

    def said(self, out: str, code: int) -> str:
        """What it makes of the node, in a word or two."""
        crashed = code < 0 or "Traceback (most recent call last)" in out
        if not self.judges:
            return "ends early" if crashed else "no verdict"  # of /proc the node has only the record's processes
        if crashed:
            return "crashes"
        return "names it" if self.names and re.search(self.names, out) else UNNAMED


PEERS = (
    Contender("cuda-doctor", "cuda-doctor==0.2.0", ("cuda-doctor", "diagnose", "--format", "json"), True, "CPU_ONLY"),
    Contender("env-doctor", "env-doctor==0.3.5", ("env-doctor", "check", "--json"), True, "(?i)cpu.only"),
    Contender("gpu-doctor", "gpu-doctor==1.0.0", ("gpu-doctor", "--json")),
    Contender("gpumedic", "gpumedic[nvidia]==0.1.0", ("gpumedic", "scan"), True),
    Contender("gpustat", "gpustat==1.1.1", ("gpustat",)),
    Contender("mlenvdoctor", "mlenvdoctor==0.1.6", ("mlenvdoctor", "doctor", "--json"), True, "(?i)cpu.only"),
    Contender("nvitop -1", "nvitop==1.7.2", ("nvitop", "-1")),
    Contender("rigsolve check", "rigsolve==1.0.0", ("rigsolve", "check"), True, "(?i)cpu"),
)


class Installed(NamedTuple):
    """A contender in its environment: the words that run it, and the bytes that installing it brought."""

    contender: Contender
    argv: tuple[str, ...]
    mb: float = 0.0


def install(cache: Path, one: Contender, torch: str, source: str = "") -> Installed:
    """Into its environment below `cache`, which is kept; raises `RuntimeError` with what the installer says.

    `source` is installed instead of what the contender names: a wheel of ours.
    """
    home = cache / re.sub(r"\W+", "-", one.name)
    python = home / "bin/python"
    if source or not (home / one.words[0]).exists():
        _uv("venv", "--clear", "--python", torch, str(home))
        _uv("pip", "install", "--compile-bytecode", "--python", str(python), source or one.dist)
        (home / one.words[0]).touch()
    mb = weight(home)
    for site in home.glob("lib/python*/site-packages"):
        (site / "torch-is-lent.pth").write_text(f"{_site_of(torch)}\n", "utf-8")
    return Installed(one, (str(home / "bin" / one.words[0]), *one.words[1:]), mb)


def wheel(cache: Path) -> str:
    """gpudoctor as it is in this repository, built."""
    (folder := cache / "wheel").mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.whl"):
        stale.unlink()
    _uv("build", "--wheel", "--out-dir", str(folder), str(needs.REPOSITORY))
    return str(next(folder.glob("*.whl")))


def weight(home: Path, without: Sequence[str] = ()) -> float:
    """MB that an environment's distributions take, compiled; `without` names folders that are not counted."""
    return sum(path.lstat().st_size for path in _files(home) if not set(without) & set(path.parts)) / 1e6


def _files(home: Path) -> Iterator[Path]:
    for site in home.glob("lib/python*/site-packages"):
        yield from (path for path in site.rglob("*") if path.is_file() and "_virtualenv" not in path.name)


def _site_of(python: str) -> str:
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(ask, check=True, capture_output=True, text=True, timeout=600).stdout.strip()


def _uv(*words: str) -> None:
    done = subprocess.run([needs.program("uv"), "-q", *words], check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
