"""Whether the host is fit for GPU work: clocks, processors, memory, disk room.

Numbers only: what suits one job does not suit another. Folders come last, for a network disk that hangs stops us there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, Value, known, value_of
from gpudoctor.probes._machine_kind import host_hidden
from gpudoctor.probes._reading import (
    Mount,
    as_unread,
    line,
    list_length,
    mount_in,
    names,
    number,
    path_exists,
    refusal,
    resolve_path,
    text,
)
from gpudoctor.target import Target

NOT_YET = "windows"
FACTS = (
    fact(
        "fitness.clock_source", "text", "what the kernel counts time with, such as tsc, hpet, acpi_pm, kvm-clock, xen"
    ),
    fact("fitness.clock_sources", "list", "what else it could count with"),
    fact("fitness.time_service", "text", "what keeps the clock right, such as chronyd, systemd-timesyncd, ntpd, ptp4l"),
    fact("fitness.time_synchronized", "bool", "whether that service says in its files that the clock is right"),
    fact("fitness.governors", "list", "frequency governors of the processors, each once; absent where none governs"),
    fact("fitness.cpu_driver", "text", "kernel driver of their frequencies, such as intel_pstate, amd-pstate-epp"),
    fact("fitness.cpu_mhz_limit", "int", "highest frequency that the processors may reach as set", "MHz"),
    fact("fitness.cpu_mhz_max", "int", "highest frequency that they could", "MHz"),
    fact("fitness.cpus_present", "int", "logical processors that the machine has"),
    fact("fitness.cpus_online", "int", "of these, the ones that the kernel schedules on"),
    fact("fitness.smt", "text", "threads of a core: on, off, forceoff, notsupported or notimplemented"),
    fact("fitness.transparent_hugepages", "text", "always, madvise or never"),
    fact("fitness.numa_balancing", "bool", "whether the kernel moves memory between NUMA nodes by itself"),
    fact("fitness.hugepages", "int", "huge pages set aside, of the default size"),
    fact("fitness.hugepages_free", "int", "of these, free"),
    fact("fitness.hugepages_unused_mib", "int", "memory set aside as huge pages of any size that nobody uses", "MiB"),
    fact("fitness.swap_mib", "int", "swap space", "MiB"),
    fact("fitness.swap_used_mib", "int", "swap space in use", "MiB"),
    fact("fitness.memory_available_mib", "int", "memory that programs could still get without swapping", "MiB"),
    fact("fitness.overcommit", "text", "whether more memory may be promised than there is: heuristic, always, never"),
    fact("fitness.load", "float", "processes that ran or waited, on average over the last minute"),
    fact("fitness.memory_corrected", "int", "errors in the machine's memory that ECC repaired, since boot (EDAC)"),
    fact("fitness.memory_uncorrected", "int", "errors in the machine's memory that ECC could not repair, since boot"),
    column("space.mount", "text", "mount point of a file system that caches of GPU work are on"),
    column("space.kind", "text", "its type, such as ext4, overlay, nfs4, lustre"),
    column("space.folder", "text", "the first of these folders: /home/ada/.cache/huggingface"),
    column("space.uses", "list", "what fills it, such as home, Hugging Face models, Triton kernels, pip wheels, ..."),
    column("space.read_only", "bool", "whether it is mounted so that nobody may write"),
    column("space.total_mib", "int", "its size", "MiB"),
    column("space.free_mib", "int", "room left for this user", "MiB"),
    column("space.inodes_percent", "int", "inodes in use; absent where it makes them as needed", "%"),
)

DEADLINE = 3.0
_CLOCKS = "/sys/devices/system/clocksource/clocksource0"
_POLICIES = "/sys/devices/system/cpu/cpufreq"
_EDAC = "/sys/devices/system/edac/mc"
_HUGEPAGES = "/sys/kernel/mm/hugepages"
_HUGEPAGES_OF = re.compile(r"hugepages-(\d{1,9})kB")
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
    """Yields the ``fitness`` facts and the group ``space``, from /proc, /sys and the file systems."""
    yield "fitness.clock_source", _absent_as_unread(line(target, f"{_CLOCKS}/current_clocksource"))
    sources = _absent_as_unread(line(target, f"{_CLOCKS}/available_clocksource"))
    yield "fitness.clock_sources", _convert(sources, lambda raw: tuple(str(raw).split()))
    yield from _time_facts(target, host_hidden(target))
    yield from _cpu_frequency_facts(target)
    for name in ("present", "online"):
        listed = _absent_as_unread(line(target, f"/sys/devices/system/cpu/{name}"))
        yield f"fitness.cpus_{name}", _convert(listed, lambda raw: list_length(str(raw)))
    yield "fitness.smt", line(target, "/sys/devices/system/cpu/smt/control")
    yield "fitness.transparent_hugepages", _bracketed_option(target, "/sys/kernel/mm/transparent_hugepage/enabled")
    yield "fitness.numa_balancing", _convert(number(target, "/proc/sys/kernel/numa_balancing"), bool)
    yield from _memory_facts(target)
    overcommit = _absent_as_unread(number(target, "/proc/sys/vm/overcommit_memory"))
    yield "fitness.overcommit", _convert(overcommit, lambda raw: _OVERCOMMIT[int(str(raw))])
    load = _absent_as_unread(line(target, "/proc/loadavg"))
    yield "fitness.load", _convert(load, lambda raw: float(str(raw).split()[0]))
    yield from _edac_facts(target)
    yield "space", tuple(_space_rows(target))


def _absent_as_unread(state: Fact) -> Fact:
    """Absent becomes unread, for a file that every kernel has; other facts unchanged."""
    return as_unread(state) if isinstance(state, Absent) else state


def _convert(state: Fact, convert: Callable[[Value], Value]) -> Fact:
    """A known fact with its value converted; unread if that raises `ValueError` or `IndexError`; others unchanged."""
    if not isinstance(state, Known):
        return state
    try:
        return Known(convert(state.value), state.source)
    except (ValueError, IndexError):
        return Unread(f"{state.source} says {str(state.value)[:20]!r}")


def _bracketed_option(target: Target, path: str) -> Fact:
    """The option in brackets of a file such as ``always [madvise] never``; absent if the kernel lacks the file."""
    found = text(target, path, 256)
    if isinstance(found, str):
        match = re.search(r"\[(\w+)\]", found)
        return Known(match[1], path) if match else Unread(f"{path} says {found[:20]!r}")
    if isinstance(found, Absent) and path_exists(target, "/sys/kernel/mm") is not True:
        return as_unread(found)
    return found


def _time_facts(target: Target, hidden: str) -> Iterator[tuple[str, Fact]]:
    """Yields fitness.time_service and time_synchronized, by the services' files under /run.

    The service is absent if there is none; only systemd-timesyncd's files tell whether time is synchronized. `hidden`:
    why the host cannot be seen from this container, then unread.
    """
    service = next(((name, path) for name, path in _SERVICES if path_exists(target, path) is True), None)
    if service is None:
        why = hidden or ("" if path_exists(target, "/run/systemd") is True else "no /run/systemd to look beside")
        yield "fitness.time_service", Unread(why) if why else Absent("nothing of a time service under /run")
        yield "fitness.time_synchronized", Unread(why or "no time service is known to run")
        return
    name, path = service
    yield "fitness.time_service", Known(name, path)
    mark = path_exists(target, f"{path}/synchronized")
    if name != "systemd-timesyncd" or isinstance(mark, Unread):
        yield "fitness.time_synchronized", Unread(f"{name} does not say in files: chronyc tracking, timedatectl")
    else:
        yield "fitness.time_synchronized", Known(mark, f"{path}/synchronized")


def _cpu_frequency_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields fitness.governors, cpu_driver, cpu_mhz_limit and cpu_mhz_max, from up to 16 cpufreq policies.

    Absent if there are none, unread if /sys cannot be read.
    """
    listed = names(target, _POLICIES)
    policies = [name for name in listed if name.startswith("policy")] if isinstance(listed, list) else []
    if not policies:
        blind = isinstance(listed, Unread) or path_exists(target, "/sys/devices/system/cpu") is not True
        why = getattr(listed, "why", f"{_POLICIES} is empty")
        for name in ("governors", "cpu_driver", "cpu_mhz_limit", "cpu_mhz_max"):
            yield f"fitness.{name}", Unread(why) if blind else Absent(f"{why}: frequencies are not the kernel's affair")
        return
    step = -(-len(policies) // _MOST_POLICIES)
    chosen = sorted(policies, key=lambda name: int(re.sub(r"\D", "", name) or 0))[::step]
    governors = [line(target, f"{_POLICIES}/{name}/scaling_governor") for name in chosen]
    found = tuple(sorted({str(fact.value) for governor in governors if (fact := known(governor))}))
    yield "fitness.governors", Known(found, f"{_POLICIES}/*/scaling_governor") if found else governors[0]
    yield "fitness.cpu_driver", line(target, f"{_POLICIES}/{chosen[0]}/scaling_driver")
    yield "fitness.cpu_mhz_limit", _highest_mhz(target, chosen, "scaling_max_freq")
    yield "fitness.cpu_mhz_max", _highest_mhz(target, chosen, "cpuinfo_max_freq")


def _highest_mhz(target: Target, policies: list[str], name: str) -> Fact:
    """The highest value of a cpufreq file (kHz) over the policies, as MHz; if none is known, the first one's state."""
    facts = [number(target, f"{_POLICIES}/{policy}/{name}") for policy in policies]
    khz = [limit for fact in facts if isinstance(limit := value_of(fact), int)]
    return Known(max(khz) // 1000, f"{_POLICIES}/*/{name}") if khz else facts[0]


def _memory_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields the fitness facts on huge pages (counts, unused MiB), swap and available memory in MiB."""
    path = "/proc/meminfo"
    found = text(target, path, 1 << 16)
    fields = dict(re.findall(r"^(\w+):\s+(\d{1,15})\b", found, re.M)) if isinstance(found, str) else {}

    def field_fact(name: str, divisor: int = 1024) -> Fact:
        """The field's value divided by `divisor` (kB to MiB by default); unread if the file lacks it."""
        if name in fields:
            return Known(int(fields[name]) // divisor, path)
        return Unread(f"{path} has no {name}" if isinstance(found, str) else found.why)

    yield "fitness.hugepages", field_fact("HugePages_Total", 1)
    yield "fitness.hugepages_free", field_fact("HugePages_Free", 1)
    yield "fitness.hugepages_unused_mib", _unused_hugepages(target)
    yield "fitness.swap_mib", field_fact("SwapTotal")
    used = field_fact("SwapFree")
    if known(used) and "SwapTotal" in fields:
        used = Known((int(fields["SwapTotal"]) - int(fields["SwapFree"])) // 1024, path)
    yield "fitness.swap_used_mib", used
    yield "fitness.memory_available_mib", field_fact("MemAvailable")


def _unused_hugepages(target: Target) -> Fact:
    """MiB of huge pages of all sizes that are free and not promised; absent if the kernel has none, else unread."""
    sizes = names(target, _HUGEPAGES)
    if not isinstance(sizes, list):
        return sizes
    total = 0
    for kib, folder in ((int(match[1]), match[0]) for size in sizes if (match := _HUGEPAGES_OF.fullmatch(size))):
        counts = [number(target, f"{_HUGEPAGES}/{folder}/{name}_hugepages") for name in ("free", "resv")]
        free, promised = (value_of(count) for count in counts)
        if not isinstance(free, int) or not isinstance(promised, int):
            return next(as_unread(count) for count in counts if not isinstance(count, Known))
        total += max(0, free - promised) * kib
    return Known(total // 1024, _HUGEPAGES)


def _edac_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields fitness.memory_corrected and memory_uncorrected: main memory's ECC errors over all EDAC controllers.

    Absent if there is no controller, unread if a count cannot be read.
    """
    listed = names(target, _EDAC)
    controllers = [name for name in listed if re.fullmatch(r"mc\d+", name)] if isinstance(listed, list) else []
    for name, file in (("memory_corrected", "ce_count"), ("memory_uncorrected", "ue_count")):
        raw = [number(target, f"{_EDAC}/{controller}/{file}") for controller in controllers]
        counts = [count for fact in raw if isinstance(count := value_of(fact), int)]
        if not raw:
            unseen = isinstance(listed, Unread) or path_exists(target, "/sys/devices/system") is not True
            why = f"no memory controller in {_EDAC}"
            yield f"fitness.{name}", Unread(why) if unseen else Absent(why)
        elif len(counts) < len(raw):
            yield f"fitness.{name}", Unread(f"{_EDAC}/*/{file} cannot all be read")
        else:
            yield f"fitness.{name}", Known(sum(counts), f"{_EDAC}/*/{file}")


# ---- Room and rights in the folders that GPU work fills ----
# Caches of models, wheels and compiled kernels.

_MOUNTS = "/proc/self/mountinfo"


def _filled_folders(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields (folder, use) for caches and temporary files of GPU work, by variables, else the programs' defaults."""
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


def _space_rows(target: Target) -> Iterator[Row]:
    """Yields a row per file system with caches of GPU work: mount, kind, folder, uses, read_only, total_mib, free_mib.

    Also inodes_percent. Network file systems come last. Room is unread if it cannot be asked for.
    """
    table = text(target, _MOUNTS, 1 << 18)
    listed = table if isinstance(table, str) else ""
    mounts: dict[str, Mount] = {}
    uses: dict[str, dict[str, None]] = {}
    first: dict[str, str] = {}
    for path, use in _filled_folders(target.environ):
        found = mount_in(listed, resolve_path(target, path) or path)
        point = found.point if found else "/" if listed else path
        if found:
            mounts[point] = found
        uses.setdefault(point, {})[use] = None
        first.setdefault(point, path)
    for point in sorted(uses, key=lambda point: point in mounts and mounts[point].remote):
        mount = mounts.get(point)
        room = _space_of(target, point)
        yield {
            "mount": Known(point, _MOUNTS),
            "kind": Known(mount.kind, _MOUNTS) if mount else Unread(f"{_MOUNTS} cannot be read"),
            "folder": Known(first[point], "environment variables and their defaults"),
            "uses": Known(tuple(uses[point]), "environment variables and their defaults"),
            "read_only": Known(mount.read_only, _MOUNTS) if mount else Unread("no such mount"),
            "total_mib": room if isinstance(room, Unread) else Known(room[0] >> 20, point),
            "free_mib": room if isinstance(room, Unread) else Known(room[1] >> 20, point),
            "inodes_percent": room if isinstance(room, Unread) else _inodes_percent(target, point),
        }


def _space_of(target: Target, mount: str) -> tuple[int, int] | Unread:
    """Total and free bytes of the file system mounted there; `Unread` if it cannot be asked."""
    try:
        return target.space(mount)
    except OSError as error:
        return refusal(mount, error)


def _inodes_percent(target: Target, mount: str) -> Fact:
    """Percent of the inodes in use of the file system mounted there, rounded down.

    Absent if it has no fixed number of inodes, unread if it cannot be asked.
    """
    try:
        total, free = target.inodes(mount)
    except OSError as error:
        return refusal(mount, error)
    return Known(100 * (total - free) // total, mount) if total else Absent(f"{mount} makes inodes as needed")
