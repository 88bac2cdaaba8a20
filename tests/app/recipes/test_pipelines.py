"""What gates a pipeline or an image: valid by its own schema, and each step's shell does what the recipe says."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import hcl2
import pytest
import yaml

from gpudoctor.core.about import __version__
from tests import needs
from tests.app.recipes.node import CODES, HEALTHY, SICK, UNKNOWN, Node, recipe
from tests.sim import software

pytestmark = pytest.mark.full

_SCHEMAS = {
    "github-actions.yaml": ("vendor.github-workflows",),
    "github-issue.yaml": ("vendor.github-workflows",),
    "gitlab-ci.yaml": ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}
_WORKFLOWS = ("github-actions.yaml", "github-issue.yaml")
_REQUIREMENTS = "--extra-index-url https://download.pytorch.org/whl/{0}\ntorch==2.9.0+{0}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes") / ".github/workflows"
    for name in _SCHEMAS:
        recipe(name, folder)
    return folder


@pytest.mark.parametrize("name", _SCHEMAS)
def test_the_service_s_schema_accepts_it_and_would_find_a_wrong_word(folder: Path, name: str, tmp_path: Path) -> None:
    wrong = tmp_path / name
    text = (folder / name).read_text().replace("needs:", "needs: [1, {a: 2}]\n    before:")
    wrong.write_text(text.replace("issues: write", "issues: sometimes"))
    assert _valid(folder / name, _SCHEMAS[name]).returncode == 0
    assert _valid(wrong, _SCHEMAS[name]).returncode == 1


def _valid(path: Path, schema: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    checker = [needs.program("check-jsonschema"), "--builtin-schema", *schema, str(path)]
    return subprocess.run(checker, check=False, capture_output=True, text=True, timeout=600)


def test_a_stranger_s_pull_request_can_do_nothing_with_the_workflow(folder: Path) -> None:
    auditor = [needs.program("zizmor"), "--offline", "--no-progress", "--format=json", str(folder)]
    said = subprocess.run(auditor, check=False, capture_output=True, text=True, timeout=600)
    assert (said.returncode, json.loads(said.stdout)) == (0, [])
    on_own_runner = _yaml(folder / "github-actions.yaml")["jobs"]["gpu"]
    assert "head.repo.full_name == github.repository" in on_own_runner["if"]


def test_their_shell_is_plain(folder: Path) -> None:
    for shell, script in [
        *(
            ("bash", step["run"])
            for name in _WORKFLOWS
            for job in _jobs(folder, name).values()
            for step in job["steps"]
            if "run" in step
        ),
        *(("sh", "\n".join(_script(folder, name))) for name in ("would-run-in-production", "gpu-runner")),
    ]:
        assert needs.shellcheck(script, shell) == ""


def test_the_pinned_version_is_installed(node: Node, folder: Path) -> None:
    assert _github(node, folder, "requirements", steps=1) == 0
    installed = node.run([str(node.place("/tmp/runner/gpudoctor/bin/pip")), "list", "--format=freeze"])
    assert f"gpudoctor=={__version__}" in installed.stdout


@pytest.mark.parametrize(("cuda", "code"), [("cu128", 0), ("cu130", 1)])
def test_what_would_not_run_in_production_fails_without_a_gpu(node: Node, folder: Path, cuda: str, code: int) -> None:
    (node.root / "requirements.txt").write_text(_REQUIREMENTS.format(cuda))
    _installed(node)
    assert _github(node, folder, "requirements") == code
    assert _gitlab(node, folder, "would-run-in-production") == code
    summary = (node.root / "summary.md").read_text()
    assert ("torch.driver-too-old" in summary) == bool(code)


@pytest.mark.parametrize("machine", [HEALTHY, SICK, UNKNOWN])
def test_a_runner_is_taken_only_when_it_is_sound(node: Node, folder: Path, machine: str) -> None:
    node.becomes(machine)
    _installed(node)
    assert _github(node, folder, "gpu") == CODES[machine]
    summary = (node.root / "summary.md").read_text()
    assert ("Broken" in summary) == (machine == SICK)
    failures = ElementTree.parse(node.root / "gpudoctor.xml").getroot().get("failures")
    assert (failures != "0") == (machine == SICK)
    assert _gitlab(node, folder, "gpu-runner") == CODES[machine]
    assert json.loads((node.root / "gpudoctor.json").read_text())["target"]["kind"] == "local"


@pytest.mark.parametrize(
    ("body", "answered"),
    [
        ("It fails.\n```\nPyTorch version: 2.13.0+cpu\nGPU models and configuration: GPU 0: RTX 5090\n```", True),
        ("It fails.\n```\nPyTorch version: 2.9.0+cu128\nGPU models and configuration: GPU 0: RTX 5090\n```", False),
        ('`echo it` "$(touch ran)" fails on my GPU, please help', False),
    ],
    ids=["cpu-build", "sound", "prose"],
)
def test_an_issue_is_answered_where_an_error_is_proven(node: Node, folder: Path, body: str, answered: bool) -> None:
    _installed(node)
    answer = node.root / "answer"
    node.program("gh", f'[ "$1 $2 $3 $4" = "issue comment https://there/7 --body-file" ] && cp "$5" {answer}')
    (*_, step) = _jobs(folder, "github-issue.yaml")["answer"]["steps"]
    assert set(step["env"]) == {"BODY", "ISSUE", "GH_TOKEN"}
    environ = {"BODY": body, "ISSUE": "https://there/7", "RUNNER_TEMP": str(node.place("/tmp/runner"))}
    assert _codes(node, [step["run"]], environ, ("bash", "-e")) == 0
    assert answer.exists() == answered
    assert not answered or "torch.cpu-build" in answer.read_text()
    assert not (node.root / "ran").exists()


def test_pre_commit_stops_what_would_not_run(tmp_path: Path) -> None:
    """pre-commit itself clones this project, installs it, and runs the hook on the files that it is for."""
    project, work = tmp_path / "project", tmp_path / "work"
    for name in ("gpudoctor", "rules"):
        shutil.copytree(needs.REPOSITORY / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", ".hatch_build.py", ".pre-commit-hooks.yaml"):
        shutil.copy(needs.REPOSITORY / name, project)
    revision = _committed(project)
    hook = {"id": "gpudoctor", "args": ["--for", "gpu=H100 SXM,driver=570,python=3.12,os=linux,arch=x86_64"]}
    config = {"repos": [{"repo": str(project), "rev": revision, "hooks": [hook]}]}
    work.mkdir()
    (work / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (work / "notes.txt").write_text("torch==2.9.0+cu130\n")
    environ = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    for cuda, code in (("cu128", 0), ("cu130", 1)):
        (work / "requirements.txt").write_text(_REQUIREMENTS.format(cuda))
        _committed(work)
        words = [needs.program("pre-commit"), "run", "--color=never", "--all-files"]
        ran = subprocess.run(words, cwd=work, env=environ, check=False, capture_output=True, text=True, timeout=600)
        assert (ran.returncode, "torch.driver-too-old" in ran.stdout) == (code, bool(code)), ran.stdout + ran.stderr


def _committed(folder: Path) -> str:
    """All of a folder as a commit of a git repository there; its hash."""
    git = ["git", "-C", str(folder), "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "State"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_the_report_is_kept_whatever_came_out(folder: Path) -> None:
    upload = _jobs(folder)["gpu"]["steps"][-1]
    assert (upload["if"], upload["with"]["path"].split()) == ("always()", ["gpudoctor.json", "gpudoctor.xml"])
    artifacts = _yaml(folder / "gitlab-ci.yaml")[".gpudoctor"]["artifacts"]
    assert (artifacts["when"], artifacts["reports"]["junit"]) == ("always", "gpudoctor.xml")


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _jobs(folder: Path, name: str = "github-actions.yaml") -> Mapping[str, Any]:
    jobs: Mapping[str, Any] = _yaml(folder / name)["jobs"]
    return jobs


def _script(folder: Path, job: str) -> list[str]:
    """The lines of a GitLab job."""
    return [str(line) for line in _yaml(folder / "gitlab-ci.yaml")[job]["script"]]


def _installed(node: Node) -> None:
    """What the first steps do, without the time it takes: gpudoctor is there."""
    for place in ("/tmp/runner/gpudoctor", "/tmp/gpudoctor"):
        programs = node.place(place) / "bin"
        programs.mkdir(parents=True)
        (programs / "gpudoctor").symlink_to(node.programs / "gpudoctor")


def _github(node: Node, folder: Path, job: str, steps: int | None = None) -> int:
    """The first `steps` shell steps of a job, or all but the installation; GitHub's default shell is ``bash -e``."""
    variables = {
        **_yaml(folder / "github-actions.yaml")["env"],
        "RUNNER_TEMP": str(node.place("/tmp/runner")),
        "GITHUB_STEP_SUMMARY": str(node.root / "summary.md"),
    }
    scripts = [step["run"] for step in _jobs(folder)[job]["steps"] if "run" in step]
    return _codes(node, scripts[:steps] if steps else scripts[1:], variables, ("bash", "-e"))


def _gitlab(node: Node, folder: Path, job: str) -> int:
    """A job's script: GitLab gives the shell all of its lines at once, and ends it at the first that fails."""
    variables = _yaml(folder / "gitlab-ci.yaml")["variables"]
    return _codes(node, [node.here("\n".join(_script(folder, job)))], variables, ("sh", "-e"))


def _codes(node: Node, scripts: list[str], variables: Mapping[str, str], shell: tuple[str, ...]) -> int:
    """What the first script that fails ends with."""

    def codes() -> Iterator[int]:
        for script in scripts:
            yield node.run([needs.program(shell[0]), *shell[1:], "-c", script], variables).returncode

    return next((code for code in codes() if code), 0)


INDEX = "--extra-index-url https://download.pytorch.org/whl/"
FITS = "torch==2.9.0+cu128"
NEEDS_580 = "torch==2.9.0+cu130"


@pytest.fixture(scope="module")
def dockerfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("Dockerfile", tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def packer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("packer", tmp_path_factory.mktemp("recipe"))


@pytest.mark.parametrize("name", ["Dockerfile", "image.Dockerfile"])
def test_the_linter_of_dockerfiles_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    linter = [needs.program("hadolint"), "--no-color", str(recipe(name, tmp_path))]
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
    assert needs.shellcheck((packer / "gate.sh").read_text()) == ""


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
