"""What provisions hosts: cloud-init's schema and stages, and the Ansible role under the real ansible-core."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gpudoctor.core.about import __version__
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
    assert needs.shellcheck(_script(config)) == ""


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


class Play(NamedTuple):
    """What a play came to."""

    changed: int
    failed: int
    out: str


@pytest.fixture(scope="module")
def ansible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("ansible", tmp_path_factory.mktemp("recipe"))


def test_the_first_run_installs_the_second_changes_nothing_and_a_sick_host_fails(node: Node, ansible: Path) -> None:
    assert _play(node, ansible, "--check").failed == 0
    assert not node.place("/opt/gpudoctor").exists()

    first = _play(node, ansible)
    assert (first.changed, first.failed) == (4, 0), first.out
    assert node.place("/usr/local/bin/gpudoctor").resolve() == node.place(f"/opt/gpudoctor/{__version__}/bin/gpudoctor")
    assert _report(node)["verdict"] == "sound"

    second = _play(node, ansible)
    assert (second.changed, second.failed) == (0, 0), second.out

    node.becomes(SICK)
    sick = _play(node, ansible, "--check")
    assert (sick.changed, sick.failed, CAUSE in sick.out) == (0, 1, True), sick.out
    assert _report(node)["findings"][0]["id"] == CAUSE


def test_one_file_is_enough_and_a_site_may_only_want_to_know(node: Node, ansible: Path) -> None:
    (profile := node.root / "ours.toml").write_text('profile = "ours"\n[expect]\ngpu.count = 4\n')
    kept = node.place("/etc/gpudoctor/expect.toml")
    expected = {"gpudoctor_expect": str(profile), "gpudoctor_expect_path": str(kept)}
    node.becomes(SICK)
    played = _play(node, ansible, gpudoctor_pyz=str(node.pyz), gpudoctor_fail_on=[], **expected)
    assert played.failed == 0, played.out
    assert f'"{CAUSE}: ' in played.out
    assert '"expect.gpu-count: ' in played.out
    assert kept.read_text() == profile.read_text()
    assert not node.place(f"/opt/gpudoctor/{__version__}").exists()


def test_a_host_that_nobody_could_judge_fails(node: Node, ansible: Path) -> None:
    node.becomes(UNKNOWN)
    played = _play(node, ansible, gpudoctor_pyz=str(node.pyz))
    assert (played.failed, '"unknown"' in played.out) == (1, True), played.out


def test_a_gpudoctor_that_crashes_or_gives_no_document_fails_a_host_that_is_not_only_reported(
    node: Node, ansible: Path
) -> None:
    broken = node.root / "broken.pyz"
    for code in ("import os; os.kill(os.getpid(), 9)", "raise SystemExit('no module named json')"):
        broken.write_text(code)
        played = _play(node, ansible, gpudoctor_pyz=str(broken))
        assert (played.failed, "from_json" in played.out) == (1, False), played.out
        assert _play(node, ansible, gpudoctor_pyz=str(broken), gpudoctor_fail_on=[]).failed == 0
    assert "exit code 1: no module named json" in played.out


def test_what_cannot_be_meant_is_refused_before_anything_is_done(node: Node, ansible: Path) -> None:
    played = _play(node, ansible, gpudoctor_level="thorough")
    assert (played.changed, played.failed) == (0, 1)
    assert "value of gpudoctor_level must be one of" in played.out


def test_ansible_s_own_linter_finds_it_fit_for_production(node: Node, ansible: Path) -> None:
    linter = [needs.program("ansible-lint"), "--offline", "--profile=production", "--nocolor"]
    said = node.run(linter, folder=ansible)
    assert said.returncode == 0, said.stdout


def _play(node: Node, ansible: Path, *words: str, **variables: object) -> Play:
    """Run the playbook on this machine, its places below the node's root."""
    own = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "gpudoctor_prefix": str(node.place("/opt/gpudoctor")),
        "gpudoctor_link": str(node.place("/usr/local/bin/gpudoctor")),
        "gpudoctor_reports": str(node.place("/reports")),
    }
    node.place("/usr/local/bin").mkdir(parents=True, exist_ok=True)
    inventory = node.root / "hosts.yaml"
    inventory.write_text(json.dumps({"gpus": {"hosts": {"node1": own}}}))
    play = [needs.program("ansible-playbook"), f"--inventory={inventory}", str(ansible / "site.yaml"), *words]
    play += ["--extra-vars", json.dumps(variables)]
    ran = node.run(play, _ENVIRON, ansible)
    recap = re.search(r"changed=(\d+) +unreachable=0 +failed=(\d+)", ran.stdout)
    assert recap, ran.stdout + ran.stderr
    return Play(int(recap[1]), int(recap[2]), ran.stdout)


_ENVIRON: Mapping[str, str] = {
    "LC_ALL": "C.UTF-8",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    "ANSIBLE_PIPELINING": "1",
}


def _report(node: Node) -> Any:
    return json.loads(node.place("/reports/node1.json").read_text())
