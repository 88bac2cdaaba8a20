"""The shipped Slurm scripts under a real Slurm: who is drained and with which words, and which job starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import gpudoctor
from tests.cluster.launchers.hosts import HEAD
from tests.cluster.launchers.slurm import NODES, Slurm

pytestmark = pytest.mark.full

RECIPES = Path(gpudoctor.__file__).parent / "app/recipes"
_SICK = {"ecc-uncorrected-h100": "gpu.ecc", "lost-gpu-h100": "gpu.fell-off-bus"}
_BROKEN = {
    "missing": None,
    "misused": "echo 'gpudoctor: no such option' >&2; exit 2",
    "undecided": "echo '0 found, 100 not judged, 0 passed'; exit 3",
    "traceback": "echo 'Traceback (most recent call last):' >&2; echo \"No module named 'gpudoctor'\" >&2; exit 1",
    "killed": "kill -9 $$",
}
"""What stands in gpudoctor's place where it cannot tell: by rights nothing is concluded about the node."""


@pytest.fixture(scope="module")
def _with_scripts() -> Iterator[Slurm]:
    """A cluster whose slurm.conf has both scripts; the health check runs on every node, whatever its state.

    At an interval of 1 s slurmctld finds no time to hear that a node is back.
    """
    more = f"""
Prolog={RECIPES}/slurm-prolog.sh
Epilog=/usr/local/sbin/epilog
PrologFlags=Alloc
BatchStartTimeout=60
HealthCheckProgram=/usr/local/sbin/health-check
HealthCheckInterval=3
HealthCheckNodeState=ANY
"""
    slurm = Slurm(more)
    _without(slurm)
    with slurm:
        yield slurm


@pytest.fixture
def slurm(_with_scripts: Slurm) -> Iterator[Slurm]:
    """That cluster without a health check and an epilog: a test puts them there."""
    yield _with_scripts
    _without(_with_scripts)
    _with_scripts.wait_for(lambda: not _with_scripts.processes("slurm-health-check.sh"), "health checks under way")
    _with_scripts.mend()


def _without(slurm: Slurm) -> None:
    for node in NODES:
        slurm.program(node, "epilog", "exec true")
    _health_check(slurm, "true")


def _health_check(slurm: Slurm, program: str) -> None:
    """One at a time on each node: slurmd begins the next though the one before still runs, for ever more of them."""
    for node in NODES:
        slurm.program(node, "health-check", f"exec flock --nonblock {slurm.folder}/{node}.lock {program}")


def test_a_job_on_sound_nodes_starts(slurm: Slurm) -> None:
    ran = slurm.srun("hostname")
    assert (ran.code, sorted(ran.out.split())) == (0, list(NODES)), ran.err
    slurm.wait_for(lambda: set(slurm.states().values()) == {"idle"}, "the nodes")


@pytest.mark.parametrize(("machine", "cause"), _SICK.items())
def test_the_prolog_refuses_the_job_and_drains_the_sick_node_alone(slurm: Slurm, machine: str, cause: str) -> None:
    slurm.becomes("node3", machine)
    ran = slurm.srun("hostname")
    assert ran.code != 0
    assert ran.out == ""
    slurm.wait_for(lambda: slurm.states()["node3"] == "drained", "node3's drain")
    assert slurm.reason("node3") == f"gpudoctor:{cause}"
    slurm.wait_for(lambda: set(_others(slurm, "node3")) == {"idle"}, "the others")


def test_a_node_to_which_slurm_gives_no_gpu_need_have_none(slurm: Slurm) -> None:
    slurm.becomes("node3", "server-without-gpu")
    ran = slurm.srun("hostname")
    assert (ran.code, sorted(ran.out.split())) == (0, list(NODES)), ran.err
    slurm.wait_for(lambda: set(slurm.states().values()) == {"idle"}, "the nodes")


def test_a_node_that_a_job_leaves_broken_is_drained_after_it(slurm: Slurm) -> None:
    slurm.program("node4", "epilog", f"exec {RECIPES}/slurm-prolog.sh")
    broken = slurm.folder / "broken"
    waiting = f"until [ -e {broken} ]; do sleep 0.1; done; true"
    job = slurm.start(HEAD, ["srun", "--nodelist=node4", "sh", "-c", waiting])
    slurm.wait_for(lambda: slurm.states()["node4"] in {"allocated", "mixed"}, "the job")
    slurm.wait_for(lambda: slurm.processes("until [ -e") != [], "its step")
    slurm.becomes("node4", next(iter(_SICK)))
    broken.touch()
    job.communicate()
    slurm.wait_for(lambda: slurm.states()["node4"] == "drained", "node4's drain")
    assert (job.returncode, slurm.reason("node4")) == (0, "gpudoctor:gpu.ecc")


@pytest.mark.parametrize("how", _BROKEN)
def test_the_prolog_lets_the_job_start_where_gpudoctor_cannot_tell(slurm: Slurm, how: str) -> None:
    slurm.program("node2", "gpudoctor", _BROKEN[how])
    ran = slurm.srun("hostname")
    assert (ran.code, sorted(ran.out.split())) == (0, list(NODES)), ran.err
    slurm.wait_for(lambda: set(slurm.states().values()) == {"idle"}, "the nodes")


@pytest.mark.parametrize(("machine", "cause"), _SICK.items())
def test_the_health_check_drains_the_sick_node_alone(slurm: Slurm, machine: str, cause: str) -> None:
    slurm.becomes("node2", machine)
    _health_check(slurm, f"{RECIPES}/slurm-health-check.sh")
    slurm.wait_for(lambda: slurm.states()["node2"] == "drained", "node2's drain")
    assert slurm.reason("node2") == f"gpudoctor:{cause}"
    assert _others(slurm, "node2") == ["idle"] * 3


def test_the_health_check_puts_a_mended_node_back_where_a_site_says_so(slurm: Slurm) -> None:
    script = (RECIPES / "slurm-health-check.sh").read_text().replace("RESUME=no", "RESUME=yes")
    for node, reason in (("node1", "new power supply"), ("node2", "gpudoctor:gpu.ecc")):
        slurm.run(HEAD, ["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"])
        slurm.wait_for(lambda node=node: slurm.states()[node] == "drained", f"{node}'s drain")  # type: ignore[misc]
        assert slurm.run(node, ["sh", "-c", script], {"SLURMD_NODENAME": node}).code == 0
    slurm.wait_for(lambda: slurm.states()["node2"] == "idle", "node2's return")
    assert slurm.states()["node1"] == "drained"


@pytest.fixture
def unscripted(_cluster: Slurm) -> Iterator[Slurm]:
    """A cluster without the scripts, which would refuse the job before it could refuse itself."""
    yield _cluster
    _cluster.mend()


@pytest.mark.parametrize(("machine", "code", "said"), [("hgx-h100", 0, ["trains"] * 4), (next(iter(_SICK)), 1, [])])
def test_the_batch_script_starts_its_command_on_go_alone(
    unscripted: Slurm, machine: str, code: int, said: list[str]
) -> None:
    unscripted.becomes("node4", machine)
    log, script = unscripted.folder / "job.log", unscripted.folder / "job.sh"
    recipe = (RECIPES / "slurm-job.sh").read_text()
    script.write_text(recipe.replace("#SBATCH --gpus-per-node=8\n", ""))  # this Slurm has none to give
    trains = ["sh", "-c", "echo trains $GPUDOCTOR_JOB_KEY"]
    submit = ["sbatch", "--ntasks-per-node=1", "--wait", f"--output={log}", str(script), *trains]
    assert unscripted.run(HEAD, submit).code == code, log.read_text()
    started = [line.split() for line in log.read_text().splitlines() if line.startswith("trains ")]
    assert [word for word, _ in started] == said
    assert len({key for _, key in started}) == min(1, len(said))
    assert code == 0 or "node4" in log.read_text()


def _others(slurm: Slurm, node: str) -> list[str]:
    return [state for name, state in slurm.states().items() if name != node]
