"""What the README says, in an environment with nothing but Python; and what wheel, sdist and image hold."""

import compileall
import email
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpudoctor.app.commands.bundled import COMPLETIONS
from gpudoctor.core.about import __version__
from gpudoctor.core.document import parse_toml
from gpudoctor.core.versions import normal
from tests import completion, needs, release
from tests.app.packaging.shelf import OWN, PYTHONS, bare, build
from tests.conftest import Program
from tests.processes import finished

pytestmark = pytest.mark.full

Installed = Callable[[str], Path]
SCREEN = ("linkify_it", "markdown_it", "mdit_py_plugins", "mdurl", "pygments", "rich", "textual", "uc_micro")
"""What only the interface needs."""
_TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_readmes_commands_work_in_a_bare_environment(version: str, installed: Installed, tmp_path: Path) -> None:
    program = installed(version) / "bin/gpudoctor"
    env = bare(tmp_path)
    report = finished([program, "check"], env=env)
    assert report.code in {0, 1, 3}
    assert report.out.startswith(f"gpudoctor {__version__}: ")
    document = finished([program, "--json"], env=env)
    assert document.document["tool"]["version"] == __version__
    assert document.code == report.code
    assert (report.err, document.err) == ("", "")


@pytest.mark.parametrize("version", list(PYTHONS)[:1])
def test_one_file_is_made_there_and_runs(version: str, installed: Installed, tmp_path: Path) -> None:
    folder = installed(version)
    file = tmp_path / "gpudoctor.pyz"
    made = finished([folder / "bin/gpudoctor", "pyz", "-o", str(file), "--without-tui"], env=bare(tmp_path))
    assert made.code == 0
    assert ("tomli is not installed here" in made.err) == (version != "3.10")
    said = finished([Path(PYTHONS[version]), "-I", "-S", str(file), "explain", "driver.missing"], env=bare(tmp_path))
    assert said.out.startswith("driver.missing")


@pytest.mark.parametrize("version", PYTHONS)
def test_shells_and_man_find_what_was_installed(version: str, installed: Installed) -> None:
    share = installed(version) / "share"
    places = {
        "bash": "bash-completion/completions/gpudoctor",
        "zsh": "zsh/site-functions/_gpudoctor",
        "fish": "fish/vendor_completions.d/gpudoctor.fish",
    }
    for shell, place in places.items():
        assert (share / place).read_bytes() == (completion.PLACE / COMPLETIONS[shell]).read_bytes()
    found = subprocess.run(
        [needs.program("man"), "-M", str(share / "man"), "-w", "gpudoctor"], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == str(share / "man/man1/gpudoctor.1")


def test_the_wheel_holds_the_package_and_nothing_else(shelf: Path) -> None:
    with zipfile.ZipFile(next(shelf.glob("gpudoctor-*.whl"))) as wheel:
        names = wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(f"gpudoctor-{__version__}.dist-info/METADATA"))
    assert {name.partition("/")[0] for name in names} == {
        "gpudoctor",
        f"gpudoctor-{__version__}.data",
        f"gpudoctor-{__version__}.dist-info",
    }
    there = {name.partition("/")[2] for name in names}
    wanted = ["py.typed", "LICENSE", "rules/rules.json", "rules/probes.json", "app/demos/index.json"]
    wanted += ["rules/tables/tables-gpus.json.z"]
    wanted += ["rules/driver/driver.missing.toml", "app/docs/rules.md", "app/recipes/slurm-prolog.sh"]
    assert {*wanted, "app/man/gpudoctor.1"} <= there
    assert [name for name in names if name.endswith((".pyc", ".orig", "~"))] == []
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "gpudoctor/LICENSE"
    assert metadata["Requires-Python"] == ">=3.10"
    classifiers = metadata.get_all("Classifier", [])
    assert [one[-4:] for one in classifiers if ":: 3." in one] == ["3.10", "3.11", "3.12", "3.13", "3.14"]


def test_the_sdist_gives_the_same_wheel(shelf: Path, tmp_path: Path) -> None:
    with tarfile.open(next(shelf.glob("gpudoctor-*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / f"gpudoctor-{__version__}", tmp_path / "again", "wheel")
    first, again = (next(folder.glob("gpudoctor-*.whl")) for folder in (shelf, tmp_path / "again"))
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(again) as other:
        crcs = [{entry.filename: entry.CRC for entry in wheel.infolist()} for wheel in (one, other)]
    assert crcs[0] == crcs[1]


@pytest.fixture(scope="module")
def releases(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two releases: of the sources here, and of a copy elsewhere, by another user's habits."""
    folder = tmp_path_factory.mktemp("releases")
    with tarfile.open(next(shelf.glob("gpudoctor-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    habits: list[tuple[Path, int, dict[str, str]]] = [
        (needs.REPOSITORY, 0o022, {}),
        (folder / f"gpudoctor-{__version__}", 0o077, {"TZ": "Asia/Shanghai", "LC_ALL": "C", "PYTHONHASHSEED": "7"}),
    ]
    for number, (place, umask, more) in enumerate(habits):
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf)}
        environ = {**os.environ, **pip, **more, "PYTHONPATH": str(place)}
        argv = [sys.executable, "-m", "tests.release", str(folder / str(number))]
        subprocess.run(argv, check=True, cwd=place, env=environ, umask=umask)
    return [folder / "0", folder / "1"]


def test_a_release_is_built_twice_with_the_same_bytes(releases: list[Path]) -> None:
    first, second = (folder / release.CHECKSUMS for folder in releases)
    assert first.read_text() == second.read_text()
    assert len(first.read_text().splitlines()) == 4
    subprocess.run(["sha256sum", "--check", "--quiet", first.name], check=True, cwd=first.parent)


def test_the_bill_of_materials_names_all_that_is_in_the_one_file(releases: list[Path]) -> None:
    document = json.loads((releases[0] / release.SBOM).read_text())
    assert (document["bomFormat"], document["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    listed = {normal(part["name"]): part["version"] for part in document["components"]}
    with zipfile.ZipFile(releases[0] / "gpudoctor.pyz") as archive:
        held = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    versions = dict(one.removesuffix(".dist-info").rsplit("-", 1) for one in held)
    assert listed == {normal(name): version for name, version in versions.items()}
    assert all(part["purl"].startswith("pkg:pypi/") and part["licenses"] for part in document["components"])


def test_each_development_tool_is_pinned_with_its_hashes() -> None:
    pins = release.PINS.read_text().replace("\\\n", " ").splitlines()
    pinned: dict[str, list[Requirement]] = {}
    for line in pins:
        if line and not line.lstrip().startswith("#"):
            words, *hashes = line.split(" --hash=")
            assert hashes
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest.strip()) for digest in hashes)
            pin = Requirement(words)
            assert str(pin.specifier).startswith("==")
            pinned.setdefault(normal(pin.name), []).append(pin)
    project = parse_toml((needs.REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(line) for line in (*project["dependencies"], *extras["test"])]
    while ours := [one for one in asked if one.name == "gpudoctor"]:
        asked = [one for one in asked if one.name != "gpudoctor"]
        asked += [Requirement(line) for one in ours for extra in one.extras for line in extras[extra]]
    for one in asked:
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            versions = [next(iter(pin.specifier)).version for pin in pinned[normal(one.name)]]
            assert any(one.specifier.contains(version) for version in versions), f"{one}: python -m tests.release --pin"


def test_it_takes_little_room(installed: Installed, tmp_path: Path) -> None:
    """Bytes of all files, byte code among them: 22 MB (20 before there was a running job, and Windows), 42 with the
    interface and its recorded machines.
    """
    site = next(installed(OWN).glob("lib/python*/site-packages"))
    packages = tmp_path / "packages"
    shutil.copytree(site, packages, ignore=lambda _, names: [one for one in names if one.startswith(_TOOLS)])
    assert compileall.compile_dir(packages, quiet=2, workers=2)
    sizes = {path.relative_to(packages): path.stat().st_size for path in packages.rglob("*") if path.is_file()}
    of_the_screen = sum(size for path, size in sizes.items() if path.parts[0].startswith(SCREEN))
    whole = sum(sizes.values())
    assert (whole - of_the_screen) / 1e6 <= 22
    assert whole / 1e6 <= 42


@pytest.fixture
def image(gpudoctor: Program, tmp_path: Path) -> Path:
    assert gpudoctor("recipe", "write", "image.Dockerfile", str(tmp_path)).code == 0
    return tmp_path / "image.Dockerfile"


def test_gpudoctor_reads_it_and_finds_nothing_wrong(image: Path, gpudoctor: Program) -> None:
    said = gpudoctor("read", str(image), "--for", "gpu=H100,driver=580", "--json")
    assert said.document["findings"] == []


def test_what_it_runs_works_as_nobody_with_nothing(
    image: Path, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    text = image.read_text("utf-8").replace("\\\n", " ")
    made = re.findall(r"&& gpudoctor (.+)", text)[0]
    file = tmp_path / "gpudoctor.pyz"
    words = [str(file) if word == "/gpudoctor.pyz" else word for word in shlex.split(made)]
    subprocess.run([installed(OWN) / "bin/gpudoctor", *words], check=True, capture_output=True, env=bare(tmp_path))
    start = json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0])
    assert start == ["python3", "-I", "/usr/local/bin/gpudoctor"]
    assert re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE) == [("65534", "65534")]
    argv = [sys.executable, "-I", str(file)]
    env = bare(Path("/proc"))
    said = subprocess.run([*argv, "--json"], check=False, capture_output=True, text=True, env=env, timeout=600)
    assert json.loads(said.stdout)["verdict"]
    assert said.stderr == ""
    report = "Nvidia driver version: 470.57.02\nGPU 0: NVIDIA GeForce RTX 5090\n"
    read = subprocess.run([*argv, "read", "-"], check=False, input=report, capture_output=True, text=True, env=env)
    assert read.returncode == 1
