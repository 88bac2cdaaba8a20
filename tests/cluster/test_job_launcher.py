"""Which rank of which job we are, by what launchers really set: the values are of real runs, with names changed."""

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
    return where.launcher, where.rank, where.world, where.local_rank, where.coordinator, where.master


ARBITRARY = variables("SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_DISTRIBUTION=arbitrary")
SCRIPT = variables("SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_GTIDS=0")


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        (TORCHRUN, ("torchrun", 3, 4, 1, False, "node1")),
        ({**SRUN, **TORCHRUN}, ("torchrun", 3, 4, 1, False, "node1")),
        (SRUN, ("srun", 3, 4, 1, False, "node1")),
        ({**SRUN, **variables("PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=3.0")}, ("srun", 3, 4, 1, False, "node1")),
        ({**SRUN, **ARBITRARY}, ("srun", 1, 4, 0, True, "node1")),
        (OPEN_MPI, ("mpirun", 3, 4, 1, False, "10.31.0.1")),
        ({**SRUN, **DAEMONS, **OPEN_MPI}, ("mpirun", 3, 4, 1, False, "10.31.0.1")),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, ("mpirun", 3, 4, 1, False, "localhost")),
        ({**HYDRA, "MASTER_ADDR": "node1"}, ("mpirun", 3, 4, 1, False, "node1")),
        ({**SRUN, **PROXY, **HYDRA}, ("mpirun", 3, 4, 1, False, "node1")),
        (BY_HAND, ("the environment", 1, 2, 0, False, "node1")),
        (
            {name: BY_HAND[name] for name in BY_HAND if name != "LOCAL_RANK"},
            ("the environment", 1, 2, 0, False, "node1"),
        ),
    ],
)
def test_what_starts_the_ranks_themselves_is_the_launcher(environ: dict[str, str], rank: tuple[object, ...]) -> None:
    assert told(place(environ)) == rank


def test_where_ranks_meet_and_on_which_host_they_are() -> None:
    where = place(TORCHRUN)
    assert (where.port, where.store) == (44349, True)
    assert 44349 not in where.ports  # its agent listens there
    assert place({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}).ports != where.ports
    by_hand = place(BY_HAND).ports
    assert (by_hand[0], len(set(by_hand))) == (29500, 4)
    where = place(SRUN)
    assert (where.host, where.node, where.switch) == ("node2", "node2", "leaf4")
    assert all(20000 <= port < 30000 for port in where.ports)
    assert place({**SRUN, "SLURM_TOPOLOGY_ADDR": "node2"}).switch == ""
    assert not place({**SRUN, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}).coordinator


@pytest.mark.parametrize(
    "environ", [{}, {"WORLD_SIZE": "8"}, SCRIPT, {"SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "node[1-2]"}]
)
def test_the_shell_of_a_batch_script_is_alone(environ: dict[str, str]) -> None:
    assert place(environ).alone


@pytest.mark.parametrize(
    ("counts", "way", "hosts"),
    [
        ("2(x2)", "block", ("node1", "node1", "node2", "node2")),
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


def test_hydra_wants_to_be_told_where_rank_0_is() -> None:
    with pytest.raises(UsageError, match="set MASTER_ADDR"):
        place(HYDRA)
