"""cloud-init: valid by its own schema; its script installs and judges, and cloud-init makes of it what it should."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import needs
from tests.app.recipes.node import CAUSE, CODES, HEALTHY, SICK, UNKNOWN, Node, recipe

pytestmark = pytest.mark.full

FIRST_BOOT = "/usr/local/sbin/gpudoctor-first-boot"
_RUN = "import sys; from cloudinit import subp; subp.runparts(sys.argv[1])"
"""What cloud-init's module scripts_user does with the folder that runcmd is written to."""
_SHELLIFY = "import json, sys; from cloudinit import util; print(util.shellify(json.load(sys.stdin)), end='')"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("cloud-init.yaml", tmp_path_factory.mktemp("recipe"))


def _cloud_init(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        input=stdin,
        env={"PYTHONPATH": str(needs.cloud_init()), "PATH": "/usr/bin:/bin"},
    )


def test_cloud_init_takes_it(config: Path, tmp_path: Path) -> None:
    schema = ("-m", "cloudinit.cmd.main", "schema", "--config-file")
    assert "Valid cloud-config" in _cloud_init(*schema, str(config)).stdout
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(config.read_text().replace("packages: [", "packages: {a: [").replace("venv]", "venv]}"))
    assert _cloud_init(*schema, str(wrong)).returncode == 1


def test_its_script_is_plain_shell(config: Path) -> None:
    checker = [needs.program("shellcheck"), "-"]
    said = subprocess.run(checker, input=_script(config), check=False, capture_output=True, text=True)
    assert said.stdout == ""


@pytest.mark.parametrize("machine", [HEALTHY, SICK, UNKNOWN])
def test_the_stage_ends_as_the_machine_is_and_the_document_is_kept(node: Node, config: Path, machine: str) -> None:
    node.becomes(machine)
    ran = _first_boot(node, config, PYZ=node.pyz)
    assert ran.returncode == CODES[machine], ran.stderr
    document = _document(node)
    errors = [one["id"] for one in document["findings"] if one["severity"] == "error"]
    assert errors == ([CAUSE] if machine == SICK else [])
    assert ("ERROR" in ran.stdout) == (machine == SICK)


def test_it_installs_the_pinned_version_and_a_failure_is_one_for_cloud_init(node: Node, config: Path) -> None:
    node.becomes(SICK)
    scripts = node.root / "scripts"
    scripts.mkdir()
    (place := node.place(FIRST_BOOT)).parent.mkdir(parents=True)
    place.write_text(node.here(_script(config).replace("WAIT=600", "WAIT=0")))
    place.chmod(0o755)
    commands = yaml.safe_load(config.read_text())["runcmd"]
    runcmd = scripts / "runcmd"
    runcmd.write_text(node.here(_cloud_init("-c", _SHELLIFY, stdin=json.dumps(commands)).stdout))
    runcmd.chmod(0o700)
    ran = node.run(
        [sys.executable, "-c", _RUN, str(scripts)], {"PYTHONPATH": str(needs.cloud_init()), "PYTHONNOUSERSITE": "1"}
    )
    assert ran.returncode == 1
    assert "RuntimeError: Runparts: 1 failures (runcmd)" in ran.stderr
    assert node.place("/var/lib/gpudoctor/venv/bin/gpudoctor").exists()
    assert _document(node)["verdict"] == "broken"


@pytest.mark.parametrize(("profile", "code"), [("hgx-h100", 0), ("hgx-a100-80gb", 1), ("no-such-profile", 2)])
def test_a_machine_that_is_not_what_the_profile_says_fails_the_stage(
    node: Node, config: Path, profile: str, code: int
) -> None:
    assert _first_boot(node, config, PYZ=node.pyz, EXPECT=profile).returncode == code


def test_it_waits_for_gpus_that_need_a_while(node: Node, config: Path) -> None:
    node.becomes_after_one_check(SICK, HEALTHY)
    ran = _first_boot(node, config, PYZ=node.pyz, WAIT=600)
    assert ran.returncode == 0, ran.stderr
    assert _document(node)["verdict"] == "sound"


def test_without_an_index_the_stage_fails(node: Node, config: Path) -> None:
    ran = _first_boot(node, config, VERSION="0.0.1")
    assert ran.returncode == 1
    assert "No matching distribution found for gpudoctor==0.0.1" in ran.stderr


def _script(config: Path) -> str:
    (file,) = yaml.safe_load(config.read_text())["write_files"]
    assert (file["path"], file["permissions"]) == (FIRST_BOOT, "0755")
    return str(file["content"])


def _first_boot(node: Node, config: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    """The script with its settings as an operator would change them."""
    script = node.here(_script(config))
    for name, value in {"WAIT": 0, **settings}.items():
        script, count = re.subn(rf"^{name}=\S*", f"{name}={value}", script, flags=re.MULTILINE)
        assert count == 1
    return node.run([needs.program("sh"), "-c", script.replace("sleep 10", "sleep 0.1")])


def _document(node: Node) -> Any:
    return json.loads(node.place("/var/lib/gpudoctor/first-boot.json").read_text())
