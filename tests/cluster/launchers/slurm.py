"""A real Slurm on this one machine: munged, slurmctld and a slurmd on each of four simulated nodes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests import needs
from tests.cluster.launchers.hosts import HEAD, SOUND, Hosts
from tests.processes import Ran

NODES = ("node1", "node2", "node3", "node4")
_READY_S = 300.0

_CONF = """\
ClusterName=gpudoctor
SlurmctldHost={head}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=0
SlurmdTimeout=15
KillWait=2
NodeName={nodes} CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
{more}
"""


class Slurm(Hosts):
    """A cluster of four nodes under Slurm; `more` is laid behind its slurm.conf."""

    shared = ("scontrol", "sinfo", "squeue", "srun")

    def __init__(self, more: str = "") -> None:
        super().__init__(NODES)
        self._more = more

    def __enter__(self) -> Slurm:
        for tool in ("munged", "slurmctld", "slurmd", "srun"):
            needs.program(tool)
        super().__enter__()
        try:
            self._configure()
            self._daemon(HEAD, ["munged", "--foreground"])
            self.wait_for(lambda: self.run(HEAD, ["munge", "-n"]).code == 0, "munged")
            self._daemon(HEAD, ["slurmctld", "-D"])
            for node in NODES:
                self._daemon(node, ["slurmd", "-D"])
            self.wait_for(lambda: self.states() == dict.fromkeys(NODES, "idle"), "the nodes")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def srun(self, *words: str, environ: dict[str, str] | None = None, timeout: float = 60) -> Ran:
        """A job step on all four nodes, unless the words say otherwise; it waits for nothing for ever."""
        return self.run(HEAD, ["srun", *_all_nodes(words), *words], environ, timeout)

    def states(self) -> dict[str, str]:
        """What sinfo calls the state of each node: idle, drained, ..."""
        said = self.run(HEAD, ["sinfo", "--Node", "--noheader", "--format", "%N %T"])
        return dict(line.split(maxsplit=1) for line in said.out.splitlines())

    def reason(self, node: str) -> str:
        """Why a node is drained, as whoever drained it said."""
        said = self.run(HEAD, ["sinfo", "--noheader", "--nodes", node, "--format", "%E"])
        return said.out.strip()

    def mend(self) -> None:
        """Every machine sound, every job ended, every node in service again."""
        for node in NODES:
            self.becomes(node, SOUND)
        self.run(HEAD, ["scancel", "--signal=KILL", "--user=root"])
        self.run(HEAD, ["scancel", "--user=root"])
        self.wait_for(lambda: not self.run(HEAD, ["squeue", "--noheader"]).out, "the jobs' end")
        self.wait_for(self._all_in_service, "the nodes")

    def _all_in_service(self) -> bool:
        """Put back who is drained: a health check that was under way may drain a node after all was mended."""
        states = self.states()
        for node, state in states.items():
            if state.startswith("drain"):
                self.run(HEAD, ["scontrol", "update", f"nodename={node}", "state=undrain"])
        return states == dict.fromkeys(NODES, "idle")

    def wait_for(self, holds: Callable[[], bool], what: str, seconds: float = _READY_S) -> None:
        """Wait until something holds; raises `TimeoutError` with what the daemons logged."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                logs = "".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
                raise TimeoutError(f"waited {seconds:.0f} s for {what}; sinfo says {self.states()}\n{logs}")
            time.sleep(0.1)

    def _configure(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        conf = self.folder / "slurm.conf"
        head = f"{HEAD}({self.address(HEAD)})"
        conf.write_text(_CONF.format(head=head, nodes=",".join(NODES), more=self._more))
        script = f"""
            install -m 600 {key} /etc/munge/munge.key
            mkdir -m 755 /run/munge /var/spool/slurmctld
            install -m 644 {conf} /etc/slurm/slurm.conf
        """
        done = self.run(HEAD, ["sh", "-euc", script])
        if done.code:
            raise RuntimeError(done.err)

    def _daemon(self, name: str, argv: Sequence[str]) -> None:
        """Start one that ends with the cluster; what it says goes to a file of the cluster's folder."""
        with Path(self.folder, f"{argv[0]}-{name}.log").open("wb") as log:
            environ = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
            command = self.command(name, argv)
            self.daemons.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
            )


def _all_nodes(words: Sequence[str]) -> list[str]:
    return [] if any(word.startswith("-N") for word in words) else ["-N4"]
