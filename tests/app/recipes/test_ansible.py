"""The Ansible role under the real ansible-core, on a simulated machine: first, again, with --check, sick, unknown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpudoctor.core.about import __version__
from tests import needs
from tests.app.recipes.node import CAUSE, SICK, UNKNOWN, Node, recipe

pytestmark = pytest.mark.full


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
    assert _document(node)["verdict"] == "sound"

    second = _play(node, ansible)
    assert (second.changed, second.failed) == (0, 0), second.out

    node.becomes(SICK)
    sick = _play(node, ansible, "--check")
    assert (sick.changed, sick.failed, CAUSE in sick.out) == (0, 1, True), sick.out
    assert _document(node)["findings"][0]["id"] == CAUSE


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


def _document(node: Node) -> Any:
    return json.loads(node.place("/reports/node1.json").read_text())
