"""Whether the host is fit for GPU work: clocks, processors, memory, disk room, and processes stuck in the driver.

Numbers only: what suits one job does not suit another. Folders come last, for a network disk that hangs stops us there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, Value
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._host.stuck import stuck
from gpudoctor.probes._marks import host_hidden
from gpudoctor.probes._reading import line, names, number, real, refusal, text, there
from gpudoctor.target import Target

FACTS = (
    fact(
        "fitness.clock_source", "text", "what the kernel counts time with, such as tsc, hpet, acpi_pm, kvm-clock, xen"
    ),
    fact("fitness.clock_sources", "list", "what else it could count with"),
    fact("fitness.time_service", "text", "what keeps the clock right, such as chronyd, systemd-timesyncd, ntpd, ptp4l"),
    fact("fitness.time_synchronized", "bool", "whether that service says in its files that the clock is right"),
    fact("fitness.governors", "list", "frequency governors of the processors, each once; absent where none governs"),
    fact("fitness.cpu_mhz_limit", "int", "highest frequency that the processors may reach as set", "MHz"),
    fact("fitness.cpu_mhz_max", "int", "highest frequency that they could", "MHz"),
    fact("fitness.transparent_hugepages", "text", "always, madvise or never"),
    fact("fitness.numa_balancing", "bool", "whether the kernel moves memory between NUMA nodes by itself"),
    fact("fitness.hugepages", "int", "huge pages set aside, of the default size"),
    fact("fitness.hugepages_free", "int", "of these, free"),
    fact("fitness.swap_mib", "int", "swap space", "MiB"),
    fact("fitness.swap_used_mib", "int", "swap space in use", "MiB"),
    fact("fitness.memory_available_mib", "int", "memory that programs could still get without swapping", "MiB"),
    fact("fitness.overcommit", "text", "whether more memory may be promised than there is: heuristic, always, never"),
    fact("fitness.load", "float", "processes that ran or waited, on average over the last minute"),
    fact("fitness.memory_corrected", "int", "errors in the machine's memory that ECC repaired, since boot (EDAC)"),
    fact("fitness.memory_uncorrected", "int", "errors in the machine's memory that ECC could not repair, since boot"),
    column("stuck.pid", "int", "a process that the kernel cannot end and that is at the NVIDIA driver"),
    column("stuck.name", "text", "its name, such as nvidia-smi"),
    column("stuck.wchan", "text", "the kernel function that it waits in"),
    column("stuck.device", "text", "NVIDIA device file that it has open: /dev/nvidia0"),
    column("stuck.seconds", "int", "time since it started, which is the longest it can have been stuck", "s"),
    column("space.mount", "text", "mount point of a file system that caches of GPU work are on"),
    column("space.kind", "text", "its type, such as ext4, overlay, nfs4, lustre"),
    column("space.folder", "text", "the first of these folders: /home/ada/.cache/huggingface"),
    column("space.uses", "list", "what fills it, such as home, Hugging Face models, Triton kernels, pip wheels, ..."),
    column("space.read_only", "bool", "whether it is mounted so that nobody may write"),
    column("space.total_mib", "int", "its size", "MiB"),
    column("space.free_mib", "int", "room left for this user", "MiB"),
)

DEADLINE = 3.0
_CLOCKS = "/sys/devices/system/clocksource/clocksource0"
_POLICIES = "/sys/devices/system/cpu/cpufreq"
_EDAC = "/sys/devices/system/edac/mc"
_MOST_POLICIES = 16
"""Processors have a policy each on many machines; so many of them, evenly spread, are looked at."""

_SERVICES = (
    ("chronyd", "/run/chrony/chronyd.pid"),
    ("chronyd", "/run/chronyd.pid"),
    ("chronyd", "/run/chrony/chronyd.sock"),
    ("ptp4l", "/run/ptp4l"),
    ("ntpd", "/run/ntpd.pid"),
    ("ntpd", "/run/openntpd/ntpd.sock"),
    ("ntpd", "/run/ntpsec/ntpd.pid"),
    ("systemd-timesyncd", "/run/systemd/timesync"),
)
_OVERCOMMIT = ("heuristic", "always", "never")


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Only files of /proc and /sys, and the sizes of file systems."""
    hidden = host_hidden(target)
    held = stuck(target)
    yield "stuck", held if held or not hidden else Unread(f"none here, and {hidden}")
    yield "fitness.clock_source", _sure(line(target, f"{_CLOCKS}/current_clocksource"))
    yield "fitness.clock_sources", _words(line(target, f"{_CLOCKS}/available_clocksource"))
    yield from _time(target, hidden)
    yield from _processors(target)
    yield "fitness.transparent_hugepages", _chosen(target, "/sys/kernel/mm/transparent_hugepage/enabled")
    yield "fitness.numa_balancing", _as(number(target, "/proc/sys/kernel/numa_balancing"), bool)
    yield from _memory(target)
    yield "fitness.overcommit", _as(_sure(number(target, "/proc/sys/vm/overcommit_memory")), _overcommit)
    yield "fitness.load", _as(_sure(line(target, "/proc/loadavg")), lambda said: float(str(said).split()[0]))
    yield from _errors(target)
    yield "space", tuple(rooms(target))


def _sure(found: Fact) -> Fact:
    """Every kernel has this file: without it nothing is known."""
    return Unread(found.why) if isinstance(found, Absent) else found


def _as(found: Fact, turn: Callable[[Value], Value]) -> Fact:
    if not isinstance(found, Known):
        return found
    try:
        return Known(turn(found.value), found.source)
    except (ValueError, IndexError):
        return Unread(f"{found.source} says {str(found.value)[:20]!r}")


def _overcommit(said: object) -> str:
    return _OVERCOMMIT[int(str(said))]


def _words(found: Fact) -> Fact:
    return _as(_sure(found), lambda said: tuple(str(said).split()))


def _chosen(target: Target, path: str) -> Fact:
    """``always [madvise] never``: the one in brackets holds; without the file the kernel has no such thing."""
    found = text(target, path, 256)
    if isinstance(found, str):
        match = re.search(r"\[(\w+)\]", found)
        return Known(match[1], path) if match else Unread(f"{path} says {found[:20]!r}")
    if isinstance(found, Absent) and there(target, "/sys/kernel/mm") is not True:
        return Unread(found.why)
    return found


def _time(target: Target, hidden: str) -> Iterator[tuple[str, Fact]]:
    """Services by what they keep under /run. Only timesyncd says there that the clock is right."""
    service = next(((name, path) for name, path in _SERVICES if there(target, path) is True), None)
    if service is None:
        why = hidden or ("" if there(target, "/run/systemd") is True else "no /run/systemd to look beside")
        yield "fitness.time_service", Unread(why) if why else Absent("nothing of a time service under /run")
        yield "fitness.time_synchronized", Unread(why or "no time service is known to run")
        return
    name, path = service
    yield "fitness.time_service", Known(name, path)
    mark = there(target, f"{path}/synchronized")
    if name != "systemd-timesyncd" or isinstance(mark, Unread):
        yield "fitness.time_synchronized", Unread(f"{name} does not say in files: chronyc tracking, timedatectl")
    else:
        yield "fitness.time_synchronized", Known(mark, f"{path}/synchronized")


def _processors(target: Target) -> Iterator[tuple[str, Fact]]:
    listed = names(target, _POLICIES)
    policies = [name for name in listed if name.startswith("policy")] if isinstance(listed, list) else []
    if not policies:
        blind = isinstance(listed, Unread) or there(target, "/sys/devices/system/cpu") is not True
        why = getattr(listed, "why", f"{_POLICIES} is empty")
        for name in ("governors", "cpu_mhz_limit", "cpu_mhz_max"):
            yield f"fitness.{name}", Unread(why) if blind else Absent(f"{why}: frequencies are not the kernel's affair")
        return
    step = -(-len(policies) // _MOST_POLICIES)
    chosen = sorted(policies, key=lambda name: int(re.sub(r"\D", "", name) or 0))[::step]
    governors = [line(target, f"{_POLICIES}/{name}/scaling_governor") for name in chosen]
    found = tuple(sorted({str(one.value) for one in governors if isinstance(one, Known)}))
    yield "fitness.governors", Known(found, f"{_POLICIES}/*/scaling_governor") if found else governors[0]
    yield "fitness.cpu_mhz_limit", _highest(target, chosen, "scaling_max_freq")
    yield "fitness.cpu_mhz_max", _highest(target, chosen, "cpuinfo_max_freq")


def _highest(target: Target, policies: list[str], name: str) -> Fact:
    """The kernel counts in kHz."""
    said = [number(target, f"{_POLICIES}/{policy}/{name}") for policy in policies]
    known = [int(str(one.value)) // 1000 for one in said if isinstance(one, Known)]
    return Known(max(known), f"{_POLICIES}/*/{name}") if known else said[0]


def _memory(target: Target) -> Iterator[tuple[str, Fact]]:
    path = "/proc/meminfo"
    found = text(target, path, 1 << 16)
    fields = dict(re.findall(r"^(\w+):\s+(\d{1,15})\b", found, re.M)) if isinstance(found, str) else {}

    def said(name: str, divisor: int = 1024) -> Fact:
        if name in fields:
            return Known(int(fields[name]) // divisor, path)
        return Unread(f"{path} has no {name}" if isinstance(found, str) else found.why)

    yield "fitness.hugepages", said("HugePages_Total", 1)
    yield "fitness.hugepages_free", said("HugePages_Free", 1)
    yield "fitness.swap_mib", said("SwapTotal")
    used = said("SwapFree")
    if isinstance(used, Known) and "SwapTotal" in fields:
        used = Known((int(fields["SwapTotal"]) - int(fields["SwapFree"])) // 1024, path)
    yield "fitness.swap_used_mib", used
    yield "fitness.memory_available_mib", said("MemAvailable")


def _errors(target: Target) -> Iterator[tuple[str, Fact]]:
    """Sums over the memory controllers; a kernel without EDAC drivers for this board has none."""
    listed = names(target, _EDAC)
    controllers = [name for name in listed if re.fullmatch(r"mc\d+", name)] if isinstance(listed, list) else []
    for name, file in (("memory_corrected", "ce_count"), ("memory_uncorrected", "ue_count")):
        said = [number(target, f"{_EDAC}/{controller}/{file}") for controller in controllers]
        counts = [int(str(one.value)) for one in said if isinstance(one, Known)]
        if not said:
            unseen = isinstance(listed, Unread) or there(target, "/sys/devices/system") is not True
            why = f"no memory controller in {_EDAC}"
            yield f"fitness.{name}", Unread(why) if unseen else Absent(why)
        elif len(counts) < len(said):
            yield f"fitness.{name}", Unread(f"{_EDAC}/*/{file} cannot all be read")
        else:
            yield f"fitness.{name}", Known(sum(counts), f"{_EDAC}/*/{file}")


# ---- Room and rights in the folders that GPU work fills ----
# Caches of models, wheels and compiled kernels.

_NETWORK = pattern(r"nfs|cifs|smb|lustre|gpfs|beegfs|ceph|fuse|9p|virtiofs|wekafs|afs|panfs", re.I)


def places(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each folder and what fills it, as the programs themselves work it out."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    given = environ.get
    hugging = given("HF_HOME") or (f"{cache}/huggingface" if cache else "")
    temporary = given("TMPDIR") or "/tmp"
    for path, use in (
        (home, "home"),
        (hugging, "Hugging Face models"),
        (given("TORCH_HOME") or (f"{cache}/torch" if cache else ""), "torch models"),
        (given("TRITON_CACHE_DIR") or (f"{home}/.triton" if home else ""), "Triton kernels"),
        (given("TORCHINDUCTOR_CACHE_DIR") or temporary, "torch.compile"),
        (given("TORCH_EXTENSIONS_DIR") or (f"{cache}/torch_extensions" if cache else ""), "torch extensions"),
        (given("CUDA_CACHE_PATH") or (f"{home}/.nv/ComputeCache" if home else ""), "CUDA kernels"),
        (given("PIP_CACHE_DIR") or (f"{cache}/pip" if cache else ""), "pip wheels"),
        (temporary, "temporary files"),
    ):
        if path.startswith("/"):
            yield path.rstrip("/") or "/", use


def rooms(target: Target) -> Iterator[Row]:
    """One row per file system: its mount, which of the folders are on it, and the room left. Network ones come last."""
    table = text(target, "/proc/self/mountinfo", 1 << 18)
    mounts = _mounts(table) if isinstance(table, str) else {}
    uses: dict[str, dict[str, None]] = {}
    first: dict[str, str] = {}
    for path, use in places(target.environ):
        mount = _mount_of(real(target, path) or path, mounts) if mounts else path
        uses.setdefault(mount, {})[use] = None
        first.setdefault(mount, path)
    for mount in sorted(uses, key=lambda mount: bool(_NETWORK.match(mounts.get(mount, ("", ""))[0]))):
        kind, options = mounts.get(mount, ("", ""))
        room = _room(target, mount)
        yield {
            "mount": Known(mount, "/proc/self/mountinfo"),
            "kind": Known(kind, "/proc/self/mountinfo") if kind else Unread("/proc/self/mountinfo cannot be read"),
            "folder": Known(first[mount], "environment variables and their defaults"),
            "uses": Known(tuple(uses[mount]), "environment variables and their defaults"),
            "read_only": Known("ro" in options.split(","), "/proc/self/mountinfo") if kind else Unread("no such mount"),
            "total_mib": room if isinstance(room, Unread) else Known(room[0] >> 20, mount),
            "free_mib": room if isinstance(room, Unread) else Known(room[1] >> 20, mount),
        }


def _room(target: Target, mount: str) -> tuple[int, int] | Unread:
    try:
        return target.space(mount)
    except OSError as error:
        return refusal(mount, error)


def _mounts(table: str) -> dict[str, tuple[str, str]]:
    """Kind and options by mount point; the last one mounted there is in sight. Blanks are octal: ``\\040``."""
    found = re.findall(r"^\S+ \S+ \S+ \S+ (\S+) (\S+) .*?- (\S+) \S+ (\S+)", table, re.M)
    return {
        re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point): (kind, f"{options},{of_disk}")
        for point, options, kind, of_disk in found
    }


def _mount_of(path: str, mounts: Mapping[str, object]) -> str:
    while path not in mounts and path != "/":
        path = path.rpartition("/")[0] or "/"
    return path
