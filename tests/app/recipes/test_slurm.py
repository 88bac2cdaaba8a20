"""What a site changes in the Slurm scripts, on a simulated node; tests/cluster/launchers runs a real Slurm."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.app.recipes.node import CAUSE, HEALTHY, SICK, UNKNOWN, Node, recipe
from tests.processes import is_alive, until

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


# ---- The soak of idle nodes ----


SOAK = "slurm-soak.sh"
_REPORT = "ERROR  a stuck bit\n  [gpu.memory-cells]  more: gpudoctor explain gpu.memory-cells"
_SOAKED = 'echo "$*" >>{root}/soaked; while [ "$1" != -o ]; do shift; done; echo "{report}" >"$2"; exit {code}'
"""In place of a soak: it writes down that it was asked, and its report."""


@pytest.mark.parametrize(
    ("code", "report", "drained"),
    [(0, "0 found", False), (1, _REPORT, True), (1, "Traceback", False), (3, "0 found, 100 not judged", False)],
)
def test_an_idle_node_is_soaked_once_a_day_and_drained_where_an_error_is_found(
    node: Node, code: int, report: str, drained: bool
) -> None:
    node.program("gpudoctor", _SOAKED.format(root=node.root, report=report, code=code))
    assert _soak(node, "idle").returncode == 0
    assert until(lambda: _is_over(node))
    assert until(lambda: bool(_done(node, "logger")) == (code != 0))
    assert until(lambda: bool(_done(node, "scontrol")) == drained)
    assert _soak(node, "idle").returncode == 0
    assert len(_done(node, "soaked")) == 1
    assert _done(node, "scontrol") == ([_drain("gpu.memory-cells")] if drained else [])
    assert bool(_done(node, "logger")) == (code != 0)


def test_a_job_that_wants_the_node_ends_the_soak_and_it_is_tried_again(node: Node) -> None:
    words = f"{needs.program('env')} PYTHONPATH={needs.REPOSITORY} {sys.executable} -m gpudoctor"
    node.program("gpudoctor", f'exec {words} "$@" --device cpu --minutes 600')
    assert _soak(node, "idle").returncode == 0
    running = node.place("/var/lib/gpudoctor/soak.pid")
    assert until(lambda: running.exists() and running.read_text().strip())
    pid = int(running.read_text())
    assert _soak(node, "allocated", SLURM_SCRIPT_CONTEXT="prolog_slurmd").returncode == 0
    assert not is_alive(pid)
    assert until(lambda: _is_over(node) and not node.place("/var/lib/gpudoctor/soak.last").exists())
    assert (_done(node, "scontrol"), _done(node, "logger")) == ([], [])


def test_a_soak_that_is_just_being_started_is_ended(node: Node) -> None:
    """Between two programs that one process becomes it has no command line, on a busy machine for long."""
    running = node.place("/var/lib/gpudoctor/soak.pid")
    running.parent.mkdir(parents=True)
    with subprocess.Popen([""], executable=needs.program("cat"), stdin=subprocess.PIPE) as starting:
        running.write_text(f"{starting.pid}\n")
        assert _soak(node, "allocated", SLURM_SCRIPT_CONTEXT="prolog_slurmd").returncode == 0
        assert starting.poll() == -signal.SIGTERM


def test_a_process_that_has_the_number_of_a_former_soak_is_left_alone(node: Node) -> None:
    """As after a power failure: the file is still there, and its number is somebody's."""
    running = node.place("/var/lib/gpudoctor/soak.pid")
    running.parent.mkdir(parents=True)
    with subprocess.Popen(["soaking", "600"], executable=needs.program("sleep")) as other:
        running.write_text(f"{other.pid}\n")
        assert _soak(node, "allocated", SLURM_SCRIPT_CONTEXT="prolog_slurmd").returncode == 0
        assert is_alive(other.pid)
        other.kill()


def test_a_node_that_got_a_job_meanwhile_is_not_soaked(node: Node) -> None:
    node.program("gpudoctor", "exec sleep 600")
    assert _soak(node, "allocated").returncode == 0
    assert until(lambda: _is_over(node))
    assert _done(node, "scontrol") == []


def _soak(node: Node, state: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script as slurmd runs it, from a file, since it starts itself."""
    script = node.root / SOAK
    text = _on_node(node, (needs.REPOSITORY / "gpudoctor/app/recipes" / SOAK).read_text(), state)
    script.write_text(text.replace("/usr/bin/python3", needs.torch_python()))
    return node.run([needs.program("sh"), str(script)], {"SLURMD_NODENAME": "node1", **variables})


def _is_over(node: Node) -> bool:
    """Whether a soak was under way, which asks Slurm for the node's state, and is not any more."""
    return bool(_done(node, "sinfo")) and not node.place("/var/lib/gpudoctor/soak.pid").exists()


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
    text = _on_node(node, script.read_text(), state).replace("RESUME=no", f"RESUME={resume}")
    return node.run([needs.program("sh"), "-c", text], {"SLURMD_NODENAME": "node1", **variables})


def _on_node(node: Node, text: str, state: str) -> str:
    """The script's text with places and programs of the node, which is in that state."""
    for name in ("scontrol", "logger"):
        node.program(name, f'echo "$*" >>{node.root}/{name}')
    node.program("sinfo", f'echo "$*" >>{node.root}/sinfo; echo "{state}"')
    text = node.here(text)
    assert _PATH in text
    return text.replace(_PATH, f"{_PATH}{node.programs}:/usr/bin:/bin:")


def _done(node: Node, program: str) -> list[str]:
    place = node.root / program
    return place.read_text().splitlines() if place.exists() else []
