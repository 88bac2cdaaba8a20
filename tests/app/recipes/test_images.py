"""What gates an image, Dockerfile and Packer: its lines are run in order, with pip's answers in place of an image's.

Neither Docker nor Packer is here: of a Dockerfile the linter and every RUN line are tested, of the template that it is
HCL and names what there is, and its script.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest

from gpudoctor.core.about import __version__
from tests import needs
from tests.app.recipes.node import HEALTHY, SICK, Node, recipe
from tests.sim import software

pytestmark = pytest.mark.full

INDEX = "--extra-index-url https://download.pytorch.org/whl/"
FITS = "torch==2.9.0+cu128"
NEEDS_580 = "torch==2.9.0+cu130"


@pytest.fixture(scope="module")
def dockerfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("Dockerfile", tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def packer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("packer", tmp_path_factory.mktemp("recipe"))


def test_the_linter_of_dockerfiles_has_nothing_to_say(dockerfile: Path) -> None:
    linter = [needs.program("hadolint"), "--no-color", str(dockerfile)]
    said = subprocess.run(linter, check=False, capture_output=True, text=True, timeout=600)
    assert (said.returncode, said.stdout) == (0, "")


def test_the_image_waits_for_the_judgement(dockerfile: Path) -> None:
    stages = dockerfile.read_text().split("\nFROM ")
    last, judged = stages[-1], next(stage for stage in stages if " AS judged" in stage)
    assert "COPY --from=judged /image.json" in last
    assert ">/image.json" in judged


@pytest.mark.parametrize(
    ("wanted", "installed", "machine", "code", "said"),
    [
        (FITS, FITS, "gpu=H100 SXM,driver=570", 0, "It would run there: torch 2.9.0+cu128"),
        (NEEDS_580, NEEDS_580, "gpu=H100 SXM,driver=570", 1, "ERROR"),
        (FITS, NEEDS_580, "gpu=H100 SXM,driver=570", 1, "ERROR"),
        (FITS, FITS, "gpu=GTX 1080 Ti,driver=580", 1, "ERROR"),
        (FITS, FITS, "gpu=no such one,driver=570", 3, "no table has a GPU of that name"),
        (FITS, FITS, "gpus=H100", 2, "gpus"),
    ],
    ids=["fits", "driver", "pip took another", "gpu", "unknown", "misuse"],
)
def test_the_build_ends_where_the_stack_would_not_run(
    node: Node, dockerfile: Path, wanted: str, installed: str, machine: str, code: int, said: str
) -> None:
    folder = node.place("/app")
    folder.mkdir()
    (folder / "requirements.txt").write_text(f"{INDEX}{wanted.rpartition('+')[2]}\n{wanted}\n")
    node.place("/usr/share/gpudoctor").mkdir(parents=True)
    if code:  # one installation is enough
        programs = node.place("/opt/gpudoctor/bin")
        programs.mkdir(parents=True)
        (programs / "gpudoctor").symlink_to(node.programs / "gpudoctor")
    node.program("pip", f'case $1 in freeze) echo "{installed}" ;; esac')
    try:
        done = _build(node, dockerfile, folder, machine)
    finally:
        (node.program("pip", "")).unlink()
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert node.place("/planned").exists() == (wanted == FITS and machine == "gpu=H100 SXM,driver=570")


def _build(node: Node, dockerfile: Path, folder: Path, machine: str) -> subprocess.CompletedProcess[str]:
    arguments = dict(re.findall(r"^ARG (\w+)=\"?([^\"\n]*)", dockerfile.read_text(), re.MULTILINE))
    installed = node.place("/opt/gpudoctor").exists()
    for line in list(_runs(dockerfile))[installed:]:
        done = node.run(["sh", "-c", node.here(line)], {**arguments, "MACHINE": machine}, folder)
        if done.returncode:
            break
    return done


def _runs(dockerfile: Path) -> Iterator[str]:
    whole = dockerfile.read_text().replace("\\\n", "")
    yield from re.findall(r"^RUN (.*)$", whole, re.MULTILINE)


def test_the_template_is_hcl_and_names_what_is_beside_it(packer: Path) -> None:
    template = _plain(hcl2.loads((packer / "gpudoctor.pkr.hcl").read_text()))
    (build,) = template["build"]
    ((_, shell), (_, download)) = [next(iter(one.items())) for one in build["provisioner"]]
    assert (packer / shell["script"].removeprefix("${path.root}/")).is_file()
    assert download["source"] == "/usr/share/gpudoctor/image.json"
    variables = {name: value for one in template["variable"] for name, value in one.items()}
    used = set(re.findall(r"var\.(\w+)", (packer / "gpudoctor.pkr.hcl").read_text()))
    assert used == set(variables)
    given = {word.split("=")[0] for word in shell["environment_vars"]}
    assert given == {"GPU", "PYTHON", "VERSION"}


def _plain(node: Any) -> Any:
    """What python-hcl2 gives, without the quotes that it keeps about names and texts."""
    if isinstance(node, dict):
        return {_plain(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    return node.strip('"') if isinstance(node, str) else node


def test_its_script_is_plain_shell(packer: Path) -> None:
    checker = [needs.program("shellcheck"), str(packer / "gate.sh")]
    assert subprocess.run(checker, check=False, capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize(
    ("installed", "gpu", "driver", "code"),
    [
        (FITS, "H100 SXM", "570.86.15", 0),
        (NEEDS_580, "H100 SXM", "570.86.15", 1),
        (FITS, "GTX 1080 Ti", "580.95.05", 1),
        (FITS, "H100 SXM", "", 1),
    ],
    ids=["fits", "driver", "gpu", "no driver"],
)
def test_no_image_is_made_that_would_not_run(
    node: Node, packer: Path, installed: str, gpu: str, driver: str, code: int
) -> None:
    for kernel in ("6.8.0-9-generic", "6.8.0-79-generic"):
        (node.place("/lib/modules") / kernel).mkdir(parents=True)
    built = f'[ "$2" = 6.8.0-79-generic ] && [ "$5" = nvidia ] && echo {driver}'
    node.program("modinfo", built if driver else "exit 1")
    done = _gate(node, packer, gpu, installed, pyz=bool(code))  # one installation is enough
    assert done.returncode == code, done.stderr
    if driver:
        document = json.loads(node.place("/usr/share/gpudoctor/image.json").read_text())
        assert document["verdict"] == ("broken" if code else "sound")
        assert document["facts"]["driver.version"]["value"] == driver
    else:
        assert "No nvidia module is built for kernel 6.8.0-79-generic" in done.stderr


@pytest.mark.parametrize(("machine", "code"), [(HEALTHY, 0), (SICK, 1)])
def test_a_builder_with_the_gpu_is_checked_itself(node: Node, packer: Path, machine: str, code: int) -> None:
    node.becomes(machine)
    assert _gate(node, packer, "here", FITS).returncode == code


def _gate(node: Node, packer: Path, gpu: str, installed: str, pyz: bool = True) -> subprocess.CompletedProcess[str]:
    answers = f"case $1 in -m) echo {installed} ;; *) echo 3.12.3 ;; esac"
    python = software.PYTHON if gpu == "here" else str(node.program("image-python", answers))
    script = node.here((packer / "gate.sh").read_text())
    return node.run(
        ["sh", "-c", script],
        {"GPU": gpu, "PYTHON": python, "VERSION": __version__, "PYZ": str(node.pyz) if pyz else ""},
    )
