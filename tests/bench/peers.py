"""How fast, how large? gpudoctor and its peers side by side on one node, in one run, in turn.

python -m tests.bench.peers [--runs N] [--cache FOLDER] [--write]

The node has eight simulated healthy H100 and a real environment with torch (GPUDOCTOR_TORCH_PYTHON or .venv-torch).
Each program lives in an environment of its own, made once in the cache; torch is lent to it from the environment that
is judged. The `nvidia-smi` of the node is a script that answers what doctors ask; compilers are those of this machine.
Versions and commands of the peers are as of November 2026; who cannot be installed is named and left out. ``--write``
keeps the figures in tests/bench/figures.toml, of which the table of comparison.md is made.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import needs
from tests.bench.figures import COLLECT_ENV, FILE, OURS, PYZ, ratios, table, write
from tests.sim import scenario
from tests.sim.root import HOST, Machine, libraries_of

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


TOOLS = ("cat", "g++", "gcc", "hostname", "ldconfig", "lscpu", "ps", "uname", "which")
_MIB = 1 << 20


def node(root: Path, torch: str, cache: Path, at_once: bool = False) -> Machine:
    """The node laid out in `root`; `torch` is the environment's interpreter, `cache` holds programs to be run. NVML's
    calls take a real one's time there, or none where they answer `at_once`.
    """
    raw = json.loads((scenario.PROFILES / "hgx-h100.json").read_text("utf-8"))
    raw["machine"]["torch"] = None
    if at_once:
        raw["nvml"].update(call_ms=0, wake_ms=0)
    prefix, base, site = _places(torch)
    machine = Machine(scenario.expanded(raw), root, sorted({prefix, base, str(cache)}))
    for path in filter(None, map(shutil.which, TOOLS)):
        machine.lend_program(path)
    machine.lend(*libraries_of(*map(str, Path(site, "torch").rglob("*.so"))))
    smi = root / "usr/bin/nvidia-smi"
    smi.unlink(missing_ok=True)
    smi.write_text(nvidia_smi(raw["nvml"]))
    smi.chmod(0o755)
    return machine


def _places(python: str) -> list[str]:
    ask = "import os, sys, sysconfig; print(sys.prefix, sys.base_prefix, sysconfig.get_path('purelib'), sep='\\n')"
    said = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True, timeout=600).stdout
    return [str(Path(line)) for line in said.splitlines()]


def nvidia_smi(nvml: Mapping[str, Any]) -> str:
    """A script that answers as nvidia-smi of these GPUs: its banner, ``-L``, ``--query-gpu`` and ``-q -x``."""
    gpus = [{**nvml["every"], **own} for own in nvml["gpus"]]
    version, cuda = nvml["system"]["nvmlSystemGetDriverVersion"], nvml["system"]["nvmlSystemGetCudaDriverVersion"]
    release = f"{cuda // 1000}.{cuda % 1000 // 10}"
    banner = f"| NVIDIA-SMI {version}    Driver Version: {version}    CUDA Version: {release} |"
    listed = [f"GPU {at}: {gpu['nvmlDeviceGetName']} (UUID: {gpu['nvmlDeviceGetUUID']})" for at, gpu in enumerate(gpus)]
    return "\n".join(
        (
            "#!/bin/sh",
            f"tell() {{ cat <<'END'\n{banner}\nEND\n}}",
            "query() {",
            *(line for at, gpu in enumerate(gpus) for line in _row(at, _fields(at, gpu, version))),
            "}",
            'case "$1" in',
            '"") tell;;',
            "-L) cat <<'END'\n" + "\n".join(listed) + "\nEND\n;;",
            '--query-gpu=*) wanted=${1#*=}; case "$*" in *noheader*) ;; *) echo "$wanted";; esac; query;;',
            "-q) cat <<'END'\n" + "".join(_xml(gpus, version, release)) + "END\n;;",
            "*) exit 6;;",
            "esac\n",
        )
    )


def _fields(at: int, gpu: Mapping[str, Any], version: str) -> dict[str, str]:
    memory = gpu["nvmlDeviceGetMemoryInfo"]
    return {
        "index": str(at),
        "name": gpu["nvmlDeviceGetName"],
        "gpu_name": gpu["nvmlDeviceGetName"],
        "uuid": gpu["nvmlDeviceGetUUID"],
        "driver_version": version,
        "compute_cap": ".".join(map(str, gpu["nvmlDeviceGetCudaComputeCapability"])),
        "memory.total": f"{memory['total'] // _MIB} MiB",
        "memory.used": f"{memory.get('used', 0) // _MIB} MiB",
        "memory.free": f"{memory.get('free', memory['total']) // _MIB} MiB",
    }


def _row(at: int, fields: Mapping[str, str]) -> Iterator[str]:
    cases = " ".join(f"{name}) v='{value}';;" for name, value in fields.items())
    yield "line=; IFS=,; for field in $wanted; do"
    yield f'case $field in {cases} *) echo "Field \\"$field\\" is not a valid field to query."; exit 2;; esac'
    yield 'line="${line:+$line, }$v"; done; echo "$line"'


def _xml(gpus: list[dict[str, Any]], version: str, release: str) -> Iterator[str]:
    yield f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>{version}</driver_version>\n'
    yield f"<cuda_version>{release}</cuda_version>\n<attached_gpus>{len(gpus)}</attached_gpus>\n"
    for gpu in gpus:
        total = gpu["nvmlDeviceGetMemoryInfo"]["total"] // _MIB
        yield f"<gpu><product_name>{gpu['nvmlDeviceGetName']}</product_name><uuid>{gpu['nvmlDeviceGetUUID']}</uuid>"
        yield f"<fb_memory_usage><total>{total} MiB</total></fb_memory_usage></gpu>\n"
    yield "</nvidia_smi_log>\n"


SCREEN = ("linkify_it", "markdown_it", "mdit_py_plugins", "mdurl", "pygments", "rich", "textual", "uc_micro")
"""Folders of what only Textual brings."""


def installed(cache: Path, torch: str) -> list[Installed]:
    """Who takes part; who cannot is named on stderr."""
    words = ("check", "--level", "quick", "--json", "--python", torch)
    us = Contender(OURS, "gpudoctor", ("gpudoctor", *words), True, "torch.cpu-build")
    ours = install(cache, us, torch, wheel(cache))
    program = ours.argv[0]
    found = [ours, Installed(Contender("gpudoctor --version", "", ()), (program, "--version"))]
    packed = cache / "gpudoctor.pyz"
    if subprocess.run([program, "pyz", "-o", str(packed)], check=False, capture_output=True).returncode == 0:
        found.append(Installed(us._replace(name=PYZ), (torch, str(packed), *words), packed.stat().st_size / 1e6))
    found.append(Installed(Contender(COLLECT_ENV, "", ()), (torch, "-m", COLLECT_ENV)))
    for peer in PEERS:
        try:
            found.append(install(cache, peer, torch))
        except RuntimeError as error:
            print(f"{peer.name} cannot be installed: {error}", file=sys.stderr)
    return found


def measured(machine: Machine, contenders: list[Installed], runs: int) -> dict[str, Any]:
    """What `tests.bench.cost` says of each, run inside the machine."""
    plan = {"commands": {one.contender.name: one.argv for one in contenders}, "runs": runs, "proc": f"{HOST}/proc"}
    command = machine.command([sys.executable, "-m", "tests.bench.cost"])
    done = subprocess.run(command, check=False, input=json.dumps(plan), text=True, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"the measurement ended with {done.returncode}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def imports(machine: Machine, argv: tuple[str, ...]) -> tuple[int, float]:
    """Modules that the program's own process imports, and the milliseconds that takes."""
    python = argv if "python" in Path(argv[0]).name else (str(Path(argv[0]).with_name("python")), *argv)
    said = machine.run([python[0], "-X", "importtime", *python[1:]], timeout=600).err
    times = [int(own) for own in re.findall(r"^import time:\s+(\d+) \|", said, re.MULTILINE)]
    return len(times), sum(times) / 1e3


def figures(machine: Machine, contenders: list[Installed], runs: int) -> dict[str, Any]:
    """All that is kept: when, where, and a row a program."""
    costs = measured(machine, contenders, runs)
    rows = []
    for one in contenders:
        cost = costs[one.contender.name]
        modules, millis = imports(machine, one.argv)
        rows.append(
            {
                "name": one.contender.name,
                "seconds": round(statistics.median(cost["seconds"]), 3),
                "mib": round(cost["mib"], 1),
                "mb": round(one.mb, 1),
                "modules": modules,
                "import_ms": round(millis),
                "judges": one.contender.judges,
                "says": one.contender.said(cost["said"], cost["code"]),
            }
        )
    home = Path(contenders[0].argv[0]).parent.parent
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "runs": runs,
        "core_mb": round(weight(home, SCREEN), 1),
        "program": rows,
    }


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    return found[1] if found else platform.machine()


def main() -> None:
    """Print the table and what is promised of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="counted rounds (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / f"gpudoctor-peers-{os.getuid()}")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {FILE.name}")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled
    asked = Path(needs.torch_python())
    torch = str(asked.parent.resolve() / asked.name)  # the environment may be linked to, its interpreter always is
    cache = options.cache.resolve()
    with tempfile.TemporaryDirectory() as root:
        contenders = installed(cache, torch)
        told = figures(node(Path(root), torch, cache), contenders, options.runs)
    with tempfile.TemporaryDirectory() as root:
        cost = measured(node(Path(root), torch, cache, at_once=True), contenders[:1], options.runs)[OURS]
    told["at_once_seconds"] = round(statistics.median(cost["seconds"]), 3)
    print(table(told))
    for name, figure, limit in ratios(told):
        print(f"{figure:.2f} {name} (limit {limit:g})")
    if options.write:
        write(told)


if __name__ == "__main__":
    main()
