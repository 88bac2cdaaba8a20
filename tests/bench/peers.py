"""How fast, how large? gpudoctor and its peers side by side on one node, in one run, in turn.

python -m tests.bench.peers [--runs N] [--cache FOLDER] [--write]

The node has eight simulated healthy H100 and a real environment with torch (GPUDOCTOR_TORCH_PYTHON or .venv-torch).
Each program lives in an environment of its own, made once in the cache. ``--write`` keeps the figures in
tests/bench/figures.toml, of which the table of comparison.md is made. What cannot be installed is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import needs
from tests.bench.contenders import PEERS, Contender, Installed, install, weight, wheel
from tests.bench.figures import COLLECT_ENV, FILE, OURS, PYZ, ratios, table, write
from tests.bench.node import node
from tests.sim.root import HOST, Machine

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
    print(table(told))
    for name, figure, limit in ratios(told):
        print(f"{figure:.2f} {name} (limit {limit:g})")
    if options.write:
        write(told)


if __name__ == "__main__":
    main()
