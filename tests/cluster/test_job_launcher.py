"""Which rank of which job we are, by what launchers really set: the values are of real runs, with names changed."""

from __future__ import annotations

import pytest

from gpudoctor.cluster.preflight.launcher import Place, place_from_environment
from gpudoctor.core.errors import UsageError

NODES = {"node[1-2]": ["node1", "node2"], "node[1-3]": ["node1", "node2", "node3"], "node1": ["node1"]}


def variables(text: str) -> dict[str, str]:
    """The environment of these words."""
    return dict(one.split("=", 1) for one in text.split())


TORCHRUN = variables("""
GROUP_RANK=1 GROUP_WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 RANK=3 WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=44349
TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=7 TORCHELASTIC_RESTART_COUNT=0
""")
SRUN = variables("""
SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_GTIDS=2,3 SLURMD_NODENAME=node2 SLURM_STEP_ID=0 SLURM_JOB_ID=3
SLURM_TOPOLOGY_ADDR=core.leaf4.node2 SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4
SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_JOB_NODELIST=node[1-3] SLURM_NTASKS=6
""")
OPEN_MPI = variables("""
OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_MCA_orte_hnp_uri=1263271936.0;tcp://10.31.0.1,172.17.0.1:51427 PMIX_NAMESPACE=1263271937 PMIX_RANK=3
""")
HYDRA = variables("PMI_RANK=3 PMI_SIZE=4 PMI_FD=13 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1")
BY_HAND = variables("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=node1 MASTER_PORT=29500")
DAEMONS = variables("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=node[1-2]")
PROXY = variables("SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2")


def place(environ: dict[str, str]) -> Place:
    return place_from_environment(environ, lambda short: NODES.get(short, []))


def told(where: Place) -> tuple[str, int, int, int, bool, str]:
    return where.launcher, where.rank, where.world, where.local_rank, where.hub, where.master


def test_torchrun() -> None:
    where = place(TORCHRUN)
    assert told(where) == ("torchrun", 3, 4, 1, False, "node1")
    assert (where.port, where.store) == (44349, True)
    assert 44349 not in where.ports  # its agent listens there


def test_torchrun_again_after_a_failure_is_another_job() -> None:
    assert place({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}).ports != place(TORCHRUN).ports


def test_srun() -> None:
    where = place(SRUN)
    assert told(where) == ("srun", 3, 4, 1, False, "node1")
    assert (where.host, where.node, where.switch) == ("node2", "node2", "leaf4")
    assert where.hosts == ("node1", "node1", "node2", "node2")
    assert all(20000 <= port < 30000 for port in where.ports)


def test_srun_without_a_topology_has_no_switch() -> None:
    assert place({**SRUN, "SLURM_TOPOLOGY_ADDR": "node2"}).switch == ""


@pytest.mark.parametrize(
    ("counts", "way", "hosts"),
    [
        ("3,1", "block", ("node1", "node1", "node1", "node2")),
        ("3,1", "cyclic", ("node1", "node2", "node1", "node1")),
        ("2(x2)", "cyclic:block", ("node1", "node2", "node1", "node2")),
        ("3,1", "plane=2", ()),
        ("1,3", "arbitrary", ()),
        ("2(x3)", "block", ()),
    ],
)
def test_where_slurms_ranks_are(counts: str, way: str, hosts: tuple[str, ...]) -> None:
    spread = {"SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_DISTRIBUTION": way}
    assert place({**SRUN, **spread}).hosts == hosts


def test_the_first_task_of_the_first_node_is_the_hub_whatever_its_rank() -> None:
    arbitrary = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_DISTRIBUTION": "arbitrary"}
    assert told(place({**SRUN, **arbitrary})) == ("srun", 1, 4, 0, True, "node1")
    assert not place({**SRUN, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}).hub


def test_the_shell_of_a_batch_script_is_alone() -> None:
    script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0"}
    assert place(script).alone
    assert place({"SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "node[1-2]"}).alone


@pytest.mark.parametrize(
    ("environ", "launcher", "master"),
    [
        ({**SRUN, **TORCHRUN}, "torchrun", "node1"),
        (OPEN_MPI, "mpirun", "10.31.0.1"),
        ({**SRUN, **DAEMONS, **OPEN_MPI}, "mpirun", "10.31.0.1"),
        ({**HYDRA, "MASTER_ADDR": "node1"}, "mpirun", "node1"),
        ({**SRUN, **PROXY, **HYDRA}, "mpirun", "node1"),
    ],
    ids=["torchrun by srun", "Open MPI", "Open MPI in an allocation", "Hydra", "Hydra by srun"],
)
def test_what_starts_the_ranks_themselves_is_the_launcher(environ: dict[str, str], launcher: str, master: str) -> None:
    assert told(place(environ)) == (launcher, 3, 4, 1, False, master)


def test_open_mpi_with_all_ranks_on_one_machine() -> None:
    assert place({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}).master == "localhost"


def test_hydra_wants_to_be_told_where_rank_0_is() -> None:
    with pytest.raises(UsageError, match="set MASTER_ADDR"):
        place(HYDRA)


def test_srun_with_pmi2_is_srun() -> None:
    assert told(place({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4", "PMI_JOBID": "3.0"})) == told(place(SRUN))


def test_by_hand() -> None:
    where = place(BY_HAND)
    assert told(where) == ("the environment", 1, 2, 0, False, "node1")
    assert where.ports[0] == 29500
    assert len(set(where.ports)) == 4


def test_by_hand_without_a_local_rank_each_speaks_for_its_machine() -> None:
    environ = {name: value for name, value in BY_HAND.items() if name != "LOCAL_RANK"}
    assert place(environ).local_rank == 0


def test_nobody_else() -> None:
    assert place({}).alone
    assert place({"WORLD_SIZE": "8"}).alone


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"RANK": "-1"}, "rank -1 of 2"),
        ({"RANK": "one"}, "RANK='one' is no number"),
        ({"WORLD_SIZE": "2.0"}, "WORLD_SIZE='2.0' is no number"),
        ({"MASTER_PORT": "70000"}, "port 70000"),
        ({"MASTER_ADDR": ""}, "does not tell where rank 0 is"),
    ],
)
def test_what_contradicts_itself_is_refused(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        place({**BY_HAND, **wrong})
