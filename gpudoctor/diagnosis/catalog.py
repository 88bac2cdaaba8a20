"""The one dictionary of facts, gathered from those who declare them; those of jobs are declared here.

``run.*`` is of a command that ran under ``gpudoctor run``, ``rank.*`` and ``job.*`` of one that runs. The rows
``rank`` and ``rank_group`` of a running job share columns with those of a job's check, in `core.fleet`.
"""

from __future__ import annotations

from functools import lru_cache

from gpudoctor import probes
from gpudoctor.core import fleet
from gpudoctor.core.catalog import Catalog, FactSpec, Kind, column, fact
from gpudoctor.core.shipped import modules_of
from gpudoctor.kernels import facts
from gpudoctor.readers import readers_by_exactness
from gpudoctor.readers.files import formats

_OF_THE_FIRST: tuple[tuple[str, Kind, str], ...] = (
    ("place", "text", "function, file and line of the program that it is in: train (train.py:41)"),
    ("collective", "text", "function of torch in which it waits for other ranks; absent where in none"),
    ("waits_in", "text", "what it waits for: sleep, lock, file, socket, pipe, events, child, device"),
    ("what", "text", "the file that it waits for, or the address of the peer"),
    ("mount", "text", "mount point of that file"),
    ("mount_kind", "text", "kind of its file system, such as nfs4"),
    ("mount_source", "text", "what is mounted there, such as server:/export"),
    ("mount_remote", "bool", "whether another machine or a program of this one serves it"),
    ("kernel_state", "text", "state of its main thread: R, S, D (cannot be interrupted), T (stopped)"),
    ("kernel_function", "text", "function of the kernel that it sleeps in"),
    ("unseen", "text", "why its stack is not known; absent where it is"),
    ("worker", "int", "number of its DataLoader's worker that does not come on, from 0; absent without"),
    ("worker_pid", "int", "process id of that worker"),
    ("worker_place", "text", "function, file and line that it is in"),
    ("worker_waits_in", "text", "what it waits for, as waits_in"),
    ("worker_state", "text", "state of its main thread, as kernel_state"),
    ("worker_what", "text", "the file or peer that it waits for"),
    ("worker_mount", "text", "mount point of that file"),
    ("worker_mount_kind", "text", "kind of its file system"),
    ("worker_mount_source", "text", "what is mounted there"),
    ("worker_mount_remote", "bool", "whether another machine or a program of this one serves it"),
)
"""Columns that ranks have, and groups of them, too."""

FACTS = (
    fact("run.command", "text", "the command, without secrets"),
    fact("run.pid", "int", "its process id"),
    fact("run.exit_code", "int", "its exit code; absent where a signal ended it, unread where Python hides it"),
    fact("run.signal", "text", "the signal that ended it, such as SIGKILL; absent where it exited"),
    fact(
        "run.died_of",
        "text",
        "the signal that ended it or, by its exit code of 128 and more, the process that it waited for; absent else",
    ),
    fact("run.core", "bool", "whether the kernel wrote a core file of it"),
    fact("run.began", "text", "when it was started, in UTC, such as 2026-11-21T13:05:11Z"),
    fact("run.seconds", "float", "how long it ran", "s"),
    fact("run.cpu_seconds", "float", "processor time of it and of the processes that it waited for", "s"),
    fact("run.signalled", "list", "signals that came meanwhile, and from whom: SIGTERM from slurmstepd (pid 812)"),
    fact("run.memory_peak_mib", "int", "the most memory of their own that its processes held together", "MiB"),
    fact("run.memory_limit_mib", "int", "the least memory limit of its cgroup and the parents; absent without", "MiB"),
    fact("run.memory_limit_at", "text", "the cgroup that has this limit"),
    fact("run.cgroup_peak_mib", "int", "the most memory that this cgroup was seen to hold meanwhile", "MiB"),
    fact("run.limit_reached", "int", "how often the cgroup was at its limit meanwhile"),
    fact(
        "run.memory_high_mib",
        "int",
        "the least memory.high of its cgroup and the parents, above which the kernel slows processes; absent without",
        "MiB",
    ),
    fact("run.memory_throttled", "int", "how often the kernel held processes of the cgroup back for that meanwhile"),
    fact("run.oom_kills", "int", "processes of its cgroup that the kernel killed for their memory meanwhile"),
    fact("run.forks_refused", "int", "new processes and threads that the cgroup's limit refused meanwhile"),
    fact("run.machine_low_mib", "int", "the least memory that was available on the machine meanwhile", "MiB"),
    fact("run.shm_mib", "int", "size of /dev/shm", "MiB"),
    fact("run.shm_low_mib", "int", "the least free space of /dev/shm meanwhile", "MiB"),
    fact("run.disk", "text", "mount point of the working folder; absent where it is on a network file system"),
    fact("run.disk_low_mib", "int", "the least free space there meanwhile", "MiB"),
    fact("run.processes", "int", "the most processes that it had at a time"),
    fact("run.host", "text", "the host that it ran on, by Slurm's name where Slurm started it"),
    fact("run.rank", "int", "its rank in the job that torchrun, srun or mpirun started it in; absent outside of one"),
    fact("run.local_rank", "int", "its number among the ranks of its host"),
    fact("run.world_size", "int", "ranks of that job"),
    fact("run.first_rank", "int", "the rank of this host that failed first and not by another's end; absent without"),
    fact("run.first_end", "text", "how that rank ended: exit code 1, SIGKILL"),
    fact("run.first_seconds", "float", "how long before this rank that one had ended", "s"),
    fact("run.processors", "float", "processors that it may use, by its affinity and the quota of its cgroups"),
    fact("run.loader_workers", "int", "the most workers of torch's DataLoader at a time"),
    fact("run.loader_seconds", "float", "how long such workers were seen; absent without", "s"),
    fact("run.loader_busy", "float", "time for which each of them ran or waited for a processor", "%"),
    fact("run.loader_processors", "float", "processors that they kept busy together"),
    fact("run.loader_fed_busy", "float", "the same of the process that they feed", "%"),
    fact("run.gpu_busy", "float", "how busy its GPUs were from the first to the last moment that they worked", "%"),
    fact("run.gpu_memory_share", "float", "the most of a GPU's memory that was in use, of its GPUs the fullest", "%"),
    fact("run.output_from", "list", "what the end of its output was kept from: file, pipe, terminal; empty: not kept"),
    column("run_process.pid", "int", "process id of a process of the command"),
    column("run_process.name", "text", "its name"),
    column("run_process.memory_mib", "int", "the most memory of its own that it held", "MiB"),
    column("run_process.last_mib", "int", "what it held when it was last seen", "MiB"),
    column("run_process.cpu_seconds", "float", "processor time that it has used", "s"),
    column("run_process.busy", "float", "its share of one processor since it was first seen", "%"),
    column("run_process.outlived", "bool", "whether it was still there when the command had ended"),
    column("run_gpu.index", "int", "NVML's number of a GPU"),
    column("run_gpu.name", "text", "its name"),
    column("run_gpu.uuid", "text", "its UUID"),
    column("run_gpu.address", "text", "its PCI address"),
    column("run_gpu.used", "bool", "whether a process of the command was seen on it"),
    column("run_gpu.utilization", "float", "how busy it was, on the average", "%"),
    column("run_gpu.memory_mib", "int", "its memory", "MiB"),
    column("run_gpu.memory_peak_mib", "int", "the most of it that was in use", "MiB"),
    column("run_gpu.others_mib", "int", "the most that processes which are not the command's held", "MiB"),
    column("run_gpu.others", "list", "those processes: python (pid 812)"),
    column("run_gpu.power_w", "float", "power drawn, on the average", "W"),
    column("run_gpu.energy_wh", "float", "energy used", "Wh"),
    column("run_gpu.temperature_c", "float", "the highest temperature", "degrees C"),
    column("run_gpu.held_down", "list", "what held its clocks down in at least a tenth of the looks"),
    column("run_gpu.slowed_by", "list", "those of these reasons that protect the GPU: heat, a power brake"),
    column("run_gpu.slowed_seconds", "float", "how long such a reason was in force", "s"),
    column("run_gpu.clock_mhz", "float", "its clock while it worked, on the average", "MHz"),
    column(
        "run_gpu.clock_share", "float", "this clock, of the median of the GPUs of its name that the command used", "%"
    ),
    column("run_gpu.ecc_corrected", "int", "memory errors that ECC repaired meanwhile"),
    column("run_gpu.ecc_uncorrected", "int", "memory errors that ECC could not repair meanwhile"),
    column("run_gpu.pcie_replays", "int", "PCIe packets sent again meanwhile"),
    column("run_gpu.nvlink_crc", "int", "packets with CRC errors on its NVLinks meanwhile"),
    column("run_gpu.nvlink_replays", "int", "packets sent again on its NVLinks meanwhile"),
    column("run_gpu.nvlink_failures", "int", "times that NVLinks were trained again or passed errors on meanwhile"),
    column("run_gpu.error", "text", "why it did not answer at the end; absent where it did"),
    fact("job.looked_s", "float", "how long a running job was looked at", "s"),
    fact("job.ranks", "int", "ranks of a running job that were looked at"),
    fact("job.unseen", "list", "its ranks of which it cannot be told what they do, and why"),
    fact("job.still", "bool", "whether a rank of it waited for others all the time, or stands still without them"),
    fact("job.waiting", "text", "ranks that wait for others, all the time: ranks 0-6; absent where none does"),
    fact("job.waiting_count", "int", "how many they are"),
    fact("job.waiting_in", "text", "what most of them wait in, such as all_reduce"),
    fact("job.differing", "bool", "whether all wait for each other, and not in the same function"),
    fact("job.ras", "text", "where NCCL's RAS was asked"),
    fact("job.records", "int", "dumps of torch's flight recorder that were read"),
    column("job_host.host", "text", "a machine on which the job's ranks were looked at"),
    column("job_host.sent_mb_s", "float", "what its network interfaces sent meanwhile, all programs together", "MB/s"),
    column("job_host.received_mb_s", "float", "what they received", "MB/s"),
    column("job_host.resent", "int", "TCP segments that it sent again meanwhile"),
    column("job_host.rdma_sent_mb_s", "float", "what its RDMA ports sent", "MB/s"),
    column("job_host.rdma_received_mb_s", "float", "what they received", "MB/s"),
    column("rank.pid", "int", "process id of a rank of a running job"),
    column("rank.process", "text", "program of its process, and what that runs: python3 train.py"),
    column("rank.gpu", "int", "NVML's number of the first GPU that its processes use; absent where they use none"),
    column("rank.gpus", "list", "all of them"),
    column("rank.gpu_busy", "int", "how busy the first of them is", "%"),
    column("rank.gpu_memory_mib", "int", "memory that its processes hold on GPUs", "MiB"),
    column("rank.awaited", "bool", "whether the others wait for it"),
    column("rank.still", "bool", "whether its stack stayed the same, and it neither computed nor read nor wrote"),
    column("rank.cpu", "float", "processors that it and its processes kept busy", "%"),
    column("rank.blocked", "text", "the kernel's line about its process or a worker, which is blocked for long"),
    column("rank.enqueued", "int", "collectives of all ranks that it has called, by torch's flight recorder"),
    column("rank.completed", "int", "how many of them it has completed"),
    column("rank.call_numbers", "list", "the numbers of its latest of these collectives"),
    column("rank.calls", "list", "which they are, such as all_reduce of [[4096]]"),
    column("rank.call_types", "list", "the types of their inputs, where these must be alike"),
    column("rank.exit", "text", "how it ended: exit code 3, SIGKILL; absent where it has not, or nobody tells"),
    column("rank.stack", "list", "functions of its main thread, the innermost first"),
    *(column(f"rank.{name}", kind, about) for name, kind, about in _OF_THE_FIRST),
    column("rank_group.name", "text", "ranks that do the same: Rank 7, Ranks 0-6"),
    column("rank_group.ranks", "list", "their numbers, or process ids where nobody numbers them"),
    column("rank_group.count", "int", "how many they are"),
    column(
        "rank_group.who",
        "text",
        "process, host and GPU of the first of them: pid 812 on node3, GPU 2; unnumbered: python3 train.py on node3",
    ),
    column("rank_group.hosts", "list", "their machines"),
    column("rank_group.state", "text", "what they do, as rank.state"),
    column("rank_group.does", "text", "function that they wait in, else the place in the program"),
    column("rank_group.awaited", "bool", "whether the others wait for them"),
    column("rank_group.first", "int", "row of the first of them in the group rank"),
    column("rank_group.rank", "int", "number of the first of them"),
    column("rank_group.host", "text", "machine of the first of them"),
    column("rank_group.blocked", "text", "the kernel's line about its process or a worker, which is blocked for long"),
    column("rank_group.pid", "int", "its process id"),
    column("rank_group.gpu", "int", "its GPU, by NVML's number"),
    *(column(f"rank_group.{name}", kind, f"{about}, of the first of them") for name, kind, about in _OF_THE_FIRST),
)


_TRIED = (
    "p2p_off iommu_off ib_off gid_index gdr_off cross_nic_off peermem memlock cumem_off custom_all_reduce_off"
    " shm_larger interface host_network firewall_off ipv6_off mask_off library_path_off one_gpu several_gpus one_node"
)
RETIRED: tuple[FactSpec, ...] = (
    *(fact(f"tried.{name}", "text", "not read since 1.1: whether a change cured the job") for name in _TRIED.split()),
    fact("container.host_smi", "bool", "not read since 1.1: whether nvidia-smi works on the host"),
    fact("container.inside_smi", "bool", "not read since 1.1: whether nvidia-smi works in the container"),
    fact("container.host_cuda", "version", "not read since 1.1: the driver's CUDA on the host"),
    fact("container.inside_cuda", "version", "not read since 1.1: the driver's CUDA in the container"),
    fact("container.others_work", "bool", "not read since 1.1: whether another container has GPUs"),
    fact("container.restart_cures", "bool", "not read since 1.1: whether a restart brings the GPUs back"),
    fact("live.computes", "bool", "not read since 1.1: whether torch's operations run on the GPU"),
    fact("driver.works_as_root", "bool", "not read since 1.1: whether root alone can use the GPU"),
    column("text.listed", "bool", "not read since 1.1: whether it is of a listing of state that was understood"),
)
"""Facts of 1.0 that rested on people's prose, or served to guess from it. They stay declared, so that a page of a
site's own that names one still loads; its condition is unread.
"""


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """Catalog of every fact that a probe, reader, file format, kernel, `core.fleet` or this module declares, and of
    those of 1.0 that nothing gives any more; cached.
    """
    declared = (
        spec
        for module in (*modules_of(probes), *readers_by_exactness(), *formats(), facts, fleet)
        for spec in getattr(module, "FACTS", ())
    )
    return Catalog((*declared, *FACTS, *RETIRED))
