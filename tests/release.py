"""What is released: ``python -m tests.release DIST`` writes wheel, sdist, ``gpudoctor.pyz``, their SBOM and checksums.

The same sources give the same bytes, whenever and wherever they are built with the same tools: those that
``python -m tests.release --pin`` has written, each with its hashes, into what ``.ci/run`` installs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpudoctor.core.about import __version__
from tests import needs
from tests.app.packaging.shelf import build

CHECKSUMS = "SHA256SUMS"
SBOM = f"gpudoctor-{__version__}.cdx.json"
"""CycloneDX, of what an installation and the one file hold beside gpudoctor itself."""
ONE_FILE_NEEDS = "tomli"
"""What the one file brings for Python 3.10, whichever Python builds it."""


def release(dist: Path) -> None:
    """Write everything that is released into the folder, which is made; needs a package index, or what pip is told."""
    dist.mkdir(parents=True)
    build(needs.REPOSITORY, dist.resolve())
    with tempfile.TemporaryDirectory(prefix="gpudoctor-release-") as scratch:
        environment = Path(scratch, "venv")
        _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        python = str(environment / "bin/python")
        wheel = next(dist.glob("*.whl"))
        _run(sys.executable, "-m", "pip", "--python", python, "install", "-q", str(wheel), ONE_FILE_NEEDS)
        _run(python, "-I", "-m", "gpudoctor", "pyz", "-o", str(dist / "gpudoctor.pyz"))
        (dist / SBOM).write_text(bill_of_materials(python), "utf-8")
    files = sorted(path for path in dist.iterdir() if path.name != CHECKSUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (dist / CHECKSUMS).write_text("".join(lines), "utf-8")


def bill_of_materials(python: str) -> str:
    """The packages of that environment as CycloneDX JSON, ours as what it is about; without times and paths."""
    maker = [needs.program("cyclonedx-py"), "environment", "--short-PURLs", "--output-reproducible", python]
    document = json.loads(_run(*maker))
    ours = next(part for part in document["components"] if part["name"] == "gpudoctor")
    document["components"].remove(ours)
    document["metadata"]["component"] = {**ours, "type": "application", "externalReferences": []}
    return json.dumps(document, indent=1) + "\n"


PINS = needs.REPOSITORY / ".ci/requirements.txt"
"""What development needs, each of one version: for Python 3.11 or newer on every system."""
_PIN = ("--extra", "test", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate")


def pin(*options: str) -> None:
    """Write `PINS`; versions that are there and still fit stay, but for ``--upgrade`` among `options` of uv."""
    os.environ["UV_CUSTOM_COMPILE_COMMAND"] = "python -m tests.release --pin"
    _run(needs.program("uv"), "pip", "compile", "-q", "pyproject.toml", *_PIN, *options, "-o", str(PINS))


def _run(*argv: str) -> str:
    """Standard output of the command; raises CalledProcessError where it fails."""
    environ = {**os.environ, "PIP_NO_COMPILE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=environ).stdout


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pin"]:
        pin(*sys.argv[2:])
    elif len(sys.argv) == 2:
        release(Path(sys.argv[1]))
    else:
        sys.exit("python -m tests.release DIST | --pin [--upgrade]")
