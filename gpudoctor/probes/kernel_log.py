"""What the running kernel logged: Xids and SXids, PCIe errors, failed starts, refused modules, killed processes.

Only what still says something of today counts: of the NVIDIA driver's lines those since it was last loaded, and of
events those of the last day. A GPU that stays broken for longer shows it elsewhere (NVML, the PCI bus). The lines do
not become the group ``text``: that would let rules about programs' messages pass, which nobody has read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import FactSpec, column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, Value, known
from gpudoctor.probes import _log
from gpudoctor.probes._log import Log, read_log
from gpudoctor.probes._machine_kind import container, host_hidden
from gpudoctor.probes._reading import names, names_in, resolve_path
from gpudoctor.target import Target


def _time_columns(group: str) -> tuple[FactSpec, ...]:
    """The declarations of the columns count, time, age_s, last_time and last_age_s, which every group of events has."""
    return (
        column(
            f"{group}.count", "int", "how often in the last day, at least; Xids and SXids: since the driver was loaded"
        ),
        column(f"{group}.time", "text", "when it was logged first, by the clock, in UTC, such as 2026-11-21T13:05:11Z"),
        column(f"{group}.age_s", "int", "time since this machine's kernel logged it first", "s"),
        column(f"{group}.last_time", "text", "when it was logged last"),
        column(f"{group}.last_age_s", "int", "time since it was logged last", "s"),
    )


_LINE = "the line as the kernel printed it"

NOT_YET = "windows"
FACTS = (
    column("xid.code", "int", "Xid number"),
    column("xid.address", "text", "PCI address of the GPU it is about; absent where the line does not say"),
    column(
        "xid.instance",
        "text",
        "MIG instance it is about: the GPU instance, 5, or that and its compute instance, 1/0; absent in others",
    ),
    column("xid.line", "text", _LINE),
    column(
        "xid.unit", "text", "part of NVLink 5 that an Xid of 144 to 150 names, such as NETIR_LINK_EVT; absent in others"
    ),
    column("xid.fatal", "bool", "whether an Xid of 144 to 150 calls itself fatal; absent where the line does not say"),
    column("xid.link", "int", "NVLink that an Xid of 144 to 150 names"),
    column("xid.first", "bool", "whether it is its GPU's first that NVIDIA's catalogue treats as the GPU's own fault"),
    *_time_columns("xid"),
    column("sxid.code", "int", "SXid number: an error of an NVSwitch"),
    column("sxid.address", "text", "PCI address of the NVSwitch"),
    column("sxid.fatal", "bool", "whether the line calls it fatal"),
    column("sxid.link", "int", "the switch's link that it is about; absent where the line names none"),
    column("sxid.line", "text", _LINE),
    *_time_columns("sxid"),
    column("aer.address", "text", "PCI address of the device that reported a PCIe error (Advanced Error Reporting)"),
    column("aer.driver", "text", "its kernel driver, such as nvidia, pcieport for a bridge"),
    column("aer.severity", "text", "corrected, non-fatal or fatal"),
    column("aer.kind", "text", "layer of the error: Physical Layer, Data Link Layer, Transaction Layer"),
    column("aer.gpu", "text", "PCI address of the NVIDIA GPU whose link it is: the device, or right below the port"),
    column("aer.line", "text", _LINE),
    *_time_columns("aer"),
    column("oom.process", "text", "name of a process that the kernel killed because memory ran out"),
    column("oom.pid", "int", "its process id"),
    column("oom.scope", "text", "whose memory ran out: machine, cgroup, container, pod, Slurm step"),
    column("oom.memory_mib", "int", "memory of its own that it held", "MiB"),
    column("oom.cgroup", "text", "control group of the process: /slurm/uid_0/job_7/step_0; absent before Linux 5.0"),
    column("oom.line", "text", _LINE),
    *_time_columns("oom"),
    column("crash.process", "text", "name of a process that the kernel ended for a fault of its native code"),
    column("crash.pid", "int", "its process id"),
    column("crash.kind", "text", "segfault, invalid opcode, divide error, general protection fault"),
    column("crash.library", "text", "library or program whose code it was in; absent where the line names none"),
    column("crash.line", "text", _LINE),
    *_time_columns("crash"),
    column("mce.kind", "text", "machine check (of a CPU) or memory (a DIMM, by EDAC)"),
    column("mce.where", "text", "CPU and bank, or memory controller and DIMM"),
    column("mce.corrected", "bool", "whether the hardware corrected it"),
    column("mce.line", "text", _LINE),
    *_time_columns("mce"),
    column("link_loss.interface", "text", "network interface whose link the kernel reported down"),
    column("link_loss.line", "text", _LINE),
    *_time_columns("link_loss"),
    fact("kernel_log.sxid", "list", "SXid numbers, each once"),
    fact("kernel_log.fallen_off", "list", "PCI addresses of GPUs that the driver says have fallen off the bus"),
    fact("kernel_log.init_failures", "list", "lines in which the loaded driver says that it cannot start a GPU"),
    fact("kernel_log.uvm_fatal", "text", "line in which the loaded driver says that nvidia-uvm met a fatal error"),
    fact("kernel_log.module_refused", "text", "last line in which the kernel refuses some module for its signature"),
)

_DAY_SECONDS = 86400.0
_GPUS = "/proc/driver/nvidia/gpus"
"""PCI addresses of the GPUs that the driver has; in a container NVIDIA's runtime shows those that were handed over."""
_GROUPS = ("xid", "sxid", "aer", "oom", "crash", "mce", "link_loss")
_SCALARS = ("sxid", "fallen_off", "init_failures", "uvm_fatal", "module_refused")
_FAILED = re.compile(
    r"RmInitAdapter failed|rm_init_adapter failed|Cannot attach gpu|GPU does not have the necessary power cables"
    r"|This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is 0M|No NVIDIA GPU found"
    r"|probe routine failed for|None of the NVIDIA devices were (?:probed|initialized)"
    r"|failed to (?:load|boot|initialize) .*GSP|GSP RM heap|_kgspBootGspRm|gpu has been removed"
    r"|Cannot initialize GSP|No firmware image found|firmware load for nvidia/[\d.]+/gsp\S* failed"
    r"|is not supported by|requires use of|Legacy drivers|already bound to"
)
_REFUSED = re.compile(
    r"Loading of (?:unsigned module|module with \w+ \w+) is rejected|Lockdown: .*unsigned module loading is restricted",
    re.I,
)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups of kernel events and the ``kernel_log`` facts; all unread if no log may be read."""
    log = read_log(target)
    if isinstance(log, Unread):
        yield from ((group, log) for group in _GROUPS)
        yield from ((f"kernel_log.{name}", log) for name in _SCALARS)
        return
    yield from read(target, log)


def read(target: Target, log: Log) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the groups of kernel events and the ``kernel_log`` facts, from that log."""
    # In a container the log is the whole host's: of its GPUs only those count that were handed over.
    handed = names(target, _GPUS) if known(container(target)) else None
    own_gpus = set(handed) if isinstance(handed, list) else None
    driver = _driver_lines_today(log)
    xids = _log.xids(driver, own_gpus)
    xid_79 = [row for row in xids if row["code"] == Known(79, log.source)]
    fallen = (*_column_values(xid_79, "address"), *_log.fallen_off(driver))
    fallen = tuple(address for address in dict.fromkeys(fallen) if own_gpus is None or address in own_gpus)
    whose: Unread | None = None
    if isinstance(handed, (Absent, Unread)):
        whose = Unread(f"the log is the whole host's, and not known which GPUs are this container's: {handed.why}")
    yield "xid", whose if whose and xids else xids
    yield "kernel_log.fallen_off", whose if whose and fallen else Known(fallen, log.source)
    yield from _other_events(target, log.without_xids)


def _driver_lines_today(log: Log) -> Log:
    """The log from where the NVIDIA driver was loaded last, at most of the last day."""
    return _driver_lines(log).since(log.now - _DAY_SECONDS)


def _driver_lines(log: Log) -> Log:
    """The log from where the NVIDIA driver was loaded last; the whole log if it holds no such line.

    The driver names itself only after it has probed the GPUs, NVLink's part before that.
    """
    return log.from_last("NVRM: loading NVIDIA UNIX", since="nvidia-nvlink: Nvlink Core is being initialized")


def _other_events(target: Target, log: Log) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields all groups and facts but xid and fallen_off.

    `log` has no Xid lines, as there may be so many that searching is slow.
    """
    driver, today = _driver_lines_today(log), log.since(log.now - _DAY_SECONDS)
    switches = _log.sxids(driver)
    yield "sxid", switches
    yield "kernel_log.sxid", Known(tuple(dict.fromkeys(_column_values(switches, "code"))), log.source)
    yield "aer", _log.bus_errors(today, lambda: dict(_gpu_links(target)))
    hidden = host_hidden(target)
    whole_host = Unread(f"the log is the whole host's: {hidden}") if hidden else None
    yield "oom", whole_host or _log.oom_kills(today)
    yield "crash", whole_host or _log.crashes(today)
    yield "mce", _log.machine_checks(today)
    yield "link_loss", whole_host or _log.link_losses(today)
    failures = _init_failure_lines(_driver_lines(log))
    yield "kernel_log.init_failures", Known(failures, log.source)
    if failures:
        yield "text", tuple({"line": Known(line, log.source)} for line in failures)
    yield "kernel_log.uvm_fatal", _uvm_fatal(_driver_lines(log))
    yield "kernel_log.module_refused", _module_refused(log)


def _column_values(rows: Sequence[Row], name: str) -> list[Value]:
    """The known values of the rows' column `name`."""
    return [state.value for row in rows if (state := known(row[name]))]


def _init_failure_lines(log: Log) -> tuple[str, ...]:
    """Messages in which the NVIDIA driver reports that it cannot start a GPU, without time stamps, each once."""
    messages = dict.fromkeys(
        log.without_stamp(line) for line in log.lines_with("NVRM", "nvrm", "firmware load for nvidia/")
    )
    return tuple(line for line in messages if _FAILED.search(line))


def _uvm_fatal(log: Log) -> Fact:
    """The first message of a fatal error in the module nvidia-uvm; absent if there is none."""
    lines = log.lines_with("uvm encountered global fatal error")
    return Known(log.without_stamp(lines[0]), log.source) if lines else Absent(f"{log.source} has no such line")


def _module_refused(log: Log) -> Fact:
    """The last message in which the kernel refuses a module for its signature; absent if there is none."""
    lines = [line for line in log.lines_with("is rejected", "unsigned module loading") if _REFUSED.search(line)]
    return Known(log.without_stamp(lines[-1]), log.source) if lines else Absent(f"{log.source} has no such line")


def _gpu_links(target: Target) -> Iterator[tuple[str, str]]:
    """Yields (address, GPU's address) of each NVIDIA GPU: for its own PCI address, and for that of the port right above
    it, if there is one.
    """
    for gpu in names_in(target, _GPUS):
        yield gpu, gpu
        port = resolve_path(target, f"/sys/bus/pci/devices/{gpu}").split("/")[-2:-1]
        if port and ":" in port[0]:
            yield port[0], gpu
