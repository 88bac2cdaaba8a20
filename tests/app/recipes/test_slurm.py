"""What a site changes in the Slurm scripts, on a simulated node; tests/cluster/launchers runs a real Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.app.recipes.node import CAUSE, HEALTHY, SICK, UNKNOWN, Node, recipe

PROFILE = "/etc/gpudoctor/expect.toml"
_PATH = "\nPATH="


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    for name in ("slurm-prolog.sh", "slurm-health-check.sh"):
        recipe(name, folder)
    return folder


@pytest.mark.parametrize(
    ("machine", "context", "code"),
    [(HEALTHY, "prolog_slurmd", 0), (SICK, "prolog_slurmd", 1), (SICK, "epilog_slurmd", 0), (UNKNOWN, "", 0)],
)
def test_prolog_and_epilog_drain_a_sick_node_and_the_prolog_fails(
    node: Node, folder: Path, machine: str, context: str, code: int
) -> None:
    node.becomes(machine)
    ran = _run(node, folder / "slurm-prolog.sh", SLURM_SCRIPT_CONTEXT=context)
    assert ran.returncode == code, ran.stderr
    assert _done(node, "scontrol") == ([_drain(CAUSE)] if machine == SICK else [])
    assert bool(_done(node, "logger")) == (machine == UNKNOWN)


@pytest.mark.parametrize("script", ["slurm-prolog.sh", "slurm-health-check.sh"])
def test_a_node_that_is_not_what_the_profile_says_is_drained(node: Node, folder: Path, script: str) -> None:
    _profile(node, 'profile = "ours"\n[expect]\ngpu.count = 4\n')
    _run(node, folder / script)
    assert _done(node, "scontrol") == [_drain("expect.gpu-count")]


@pytest.mark.parametrize("script", ["slurm-prolog.sh", "slurm-health-check.sh"])
def test_a_profile_that_is_broken_drains_nothing_and_is_told(node: Node, folder: Path, script: str) -> None:
    _profile(node, 'profile = "ours"\n[expect]\ngpu.no_such_fact = 4\n')
    ran = _run(node, folder / script)
    assert (ran.returncode, _done(node, "scontrol")) == (0, [])
    assert _done(node, "logger") == ["-t gpudoctor -p user.warning"]


@pytest.mark.parametrize(
    ("state", "resume", "machine", "done"),
    [
        (f"drained gpudoctor:{CAUSE}", "yes", HEALTHY, ["update nodename=node1 state=resume"]),
        (f"drained gpudoctor:{CAUSE}", "yes", SICK, []),
        (f"drained gpudoctor:{CAUSE}", "yes", UNKNOWN, []),
        (f"drained gpudoctor:{CAUSE}", "no", HEALTHY, []),
        ("draining new power supply", "yes", HEALTHY, []),
        ("idle none", "yes", HEALTHY, []),
    ],
)
def test_only_what_was_drained_for_ours_is_put_back_and_only_where_a_site_says_so(
    node: Node, folder: Path, state: str, resume: str, machine: str, done: list[str]
) -> None:
    node.becomes(machine)
    ran = _run(node, folder / "slurm-health-check.sh", state, resume)
    assert (ran.returncode, _done(node, "scontrol")) == (0, done)


def _drain(cause: str) -> str:
    return f"update nodename=node1 state=drain reason=gpudoctor:{cause}"


def _profile(node: Node, text: str) -> None:
    place = node.place(PROFILE)
    place.parent.mkdir(parents=True)
    place.write_text(text)


def _run(
    node: Node, script: Path, state: str = "idle none", resume: str = "no", **variables: str
) -> subprocess.CompletedProcess[str]:
    """The script as slurmd runs it; Slurm's programs and syslog's write down what they are asked."""
    for name in ("scontrol", "logger"):
        node.program(name, f'echo "$*" >>{node.root}/{name}')
    node.program("sinfo", f'echo "{state}"')
    text = node.here(script.read_text()).replace("RESUME=no", f"RESUME={resume}")
    assert _PATH in text
    text = text.replace(_PATH, f"{_PATH}{node.programs}:/usr/bin:/bin:")
    return node.run([needs.program("sh"), "-c", text], {"SLURMD_NODENAME": "node1", **variables})


def _done(node: Node, program: str) -> list[str]:
    place = node.root / program
    return place.read_text().splitlines() if place.exists() else []
