"""Memory that ran out: the GPU's, by what torch and vLLM print, and the host's, by who killed processes for it.

Of the GPU's memory it is reckoned how much others hold. Of the host's tell the kernel, systemd-oomd, Slurm, Kubernetes,
Docker and Ray.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Row, Rows
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import size_mib

EXACT = 8

FACTS = (
    fact("oom.total_mib", "int", "memory of the GPU, by torch's out-of-memory message or vLLM's refusal", "MiB"),
    fact("oom.own_mib", "int", "what the process holds that ran out of it, its CUDA context left out", "MiB"),
    fact("oom.others_mib", "int", "what neither it nor the free rest explains", "MiB"),
    column("oom.place", "text", "the cgroup, Slurm step or container whose memory ran out"),
    column("oom.limit_mib", "int", "how much memory that may use", "MiB"),
)

_SIZE = r"([\d.]+ (?:[KMG]iB|bytes))"
_OLD = Pattern(
    rf"Tried to allocate [\d.]+ \w+ \(GPU \d+; {_SIZE} total capacity; {_SIZE} already allocated; {_SIZE} free;"
    rf" {_SIZE} (reserved|cached)"
)
_NEW = Pattern(
    rf"has a total capacity of {_SIZE} of which {_SIZE} is free\.(?:[^\n]*?this process has {_SIZE} memory in use)?"
    rf"(?:[^\n]*?Of the allocated memory {_SIZE} is allocated by PyTorch, and {_SIZE} is reserved)?"
)
_START = Pattern(
    r"Free memory on device(?: \S{1,10})? \((?P<free>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) GiB\) on startup is less"
)


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of GPU memory by torch and vLLM, and rows of ``oom``: processes killed because host memory ran out."""
    yield from _gpu_memory(paste)
    yield from _killed_processes(paste)


def _gpu_memory(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """oom.total_mib, oom.own_mib (held by the process) and oom.others_mib by the first message of torch or vLLM.

    vLLM asks before it has taken anything but its CUDA context, which counts as others'.
    """
    for match, source in paste.matches(_START.search, "free memory on device"):
        total, free = (round(float(match[name][:12]) * 1024) for name in ("total", "free"))
        yield "oom.total_mib", Known(total, source)
        yield "oom.own_mib", Known(0, source)
        yield "oom.others_mib", Known(max(0, total - free), source)
        return
    for index, line in paste.having("total capacity"):
        sizes = _sizes_before_2_1(line) or _sizes_since_2_1(line)
        if sizes:
            total, free, own_memory = sizes
            source = paste.use(index)
            yield "oom.total_mib", Known(total, source)
            yield "oom.own_mib", Known(own_memory, source)
            yield "oom.others_mib", Known(max(0, total - free - own_memory), source)
            return


def _sizes_before_2_1(line: str) -> tuple[int, int, int] | None:
    """Total, free and own MiB from messages up to torch 2.0; None for other lines.

    Before 1.4 the cached memory came on top of the allocated.
    """
    match = _OLD.search(line)
    if not match:
        return None
    total, allocated, free, reserved = (size_mib(size) or 0 for size in match.groups()[:4])
    return total, free, max(allocated, reserved) if match.group(5) == "reserved" else allocated + reserved


def _sizes_since_2_1(line: str) -> tuple[int, int, int] | None:
    """Total, free and own MiB from messages of torch 2.1 and newer; None for other lines, and for those that do not
    give the process's own memory.
    """
    match = _NEW.search(line)
    if not match:
        return None
    total, free, process, allocated, reserved = (size_mib(size) or 0 if size else 0 for size in match.groups())
    own_memory = process or allocated + reserved
    return (total, free, own_memory) if own_memory else None


_MOST_ROWS = 20
"""Rows of one kind: a log may hold thousands of kills."""
_KILL = Pattern(
    r"\b(?P<whose>Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<pid>\d{1,9})(?:, UID \d+,)? "
    r"\((?P<process>[^()\n]{1,64})\)"
)
_RESIDENT = Pattern(
    r"\bKilled process (?P<pid>\d{1,9})\b[^\n]{0,90}?\btotal-vm:\d+kB, anon-rss:(?P<held>\d{1,12})kB"
    r"(?:, file-rss:\d+kB)?(?:, shmem-rss:(?P<shared>\d{1,12})kB)?"
)
_GROUP = Pattern(
    r"\boom-kill:constraint=CONSTRAINT_MEMCG\b[^\n]*?,oom_memcg=(?P<group>[^,\s]+),[^\n]*?,pid=(?P<pid>\d+)"
)
_LIMIT = Pattern(r"\bmemory: usage \d+kB, limit (?P<limit>\d{1,12})kB, failcnt \d+")
"""Of a cgroup; no limit has 16 digits."""
_STEP = Pattern(
    r"\bDetected (?P<count>\d+) oom[-_]kill events?(?:\(s\))? in (?:StepId=|step )"
    r"(?P<step>\d[\w.+-]{0,40}?)(?=[.,]? |\.?$)"
)
_RULE = Pattern(r"(?:-{3,} )+-{3,}\s*$")
"""The line below the heading of a table of sacct, as wide as its columns."""
_JOB = Pattern(r"\d{1,10}(?:[_+]\d{1,10})?(?P<step>\.[\w+]{1,20})?$")
_RAY = Pattern(
    r"\bMemory on the node \(IP: [^()\n]{3,120}\) where the task \([^\n]{0,200}?\bname=(?P<process>[^\n]{1,120}?), "
    r"pid=(?P<pid>\d{1,9}), memory used=(?P<held>\d{1,6}(?:\.\d+)?)GB\) was running was "
    r"[\d.]+GB / [\d.]+GB \([\d.]+\), which exceeds the memory usage threshold"
)
_PRESSURE = Pattern(
    r"\bsystemd-oomd\[\d+\]: Killed (?P<group>/\S{1,300}) due to memory "
    r"(?:pressure for /\S{1,300} being [\d.]+% > [\d.]+%|used \(\d+\) / total \(\d+\) and swap used)"
)
_EVICTED = Pattern(r"\bpod/(?P<pod>[a-z0-9.-]{1,253})\b[^\n]*\bThe node was low on resource: memory\b")
_INSPECTED = Pattern(r'\s*"OOMKilled": (?P<answer>true|false),?\s*$')
_EVENTS = Pattern(r"\s*oom_kill (?P<count>\d{1,12})\s*$")
_REASON = Pattern(r'\s*"?[Rr]eason"?:\s*"?(?P<reason>OOMKilled|Completed)"?,?\s*$')
_EXIT = Pattern(r'\s*"?[Ee]xit ?[Cc]ode"?:\s*(?P<code>\d{1,3}),?\s*$')
_POD = Pattern(r"(?:[a-z0-9-]+\s+)?(?P<pod>[a-z0-9][a-z0-9.-]{0,250})\s+\d+/\d+\s+OOMKilled\s+\d+")
_CONTAINER = Pattern(r"\s+(?P<name>[a-z0-9][a-z0-9-]{0,62}):\s*$")
_MEMORY = Pattern(r"\s*memory:\s+(?P<number>\d{1,15})(?P<unit>[KMGT]i?)?\s*$")
_BYTES = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}


def _killed_processes(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``oom``; an empty group if a counter or a container's end shows that nothing was killed."""
    asked = False
    rows: list[Row] = []
    for of_source in (_kernel_kills, _slurm_kills, _sacct_kills, _cgroup_kills, _pod_kills, _service_kills, _ray_kills):
        answered, found = of_source(paste)
        asked = asked or answered
        rows += found[:_MOST_ROWS]
    if rows or asked:
        yield "oom", tuple(rows)


def _kernel_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(False, a row of ``oom`` per process that the kernel's log says was killed for memory).

    With scope (machine, cgroup) and, where logged, its memory and the cgroup's limit and path.
    """
    kills: dict[str, dict[str, Fact]] = {}
    groups: dict[str, Fact] = {}
    limit: Fact | None = None
    for index, line in paste.having("killed process ", "kill process ", "oom-kill:", "memory: usage "):
        source = f"line {paste.numbers[index]}"
        if match := _LIMIT.search(line):
            limit = Known(int(match["limit"]) >> 10, source)
        if match := _GROUP.search(line):
            groups[match["pid"]] = Known(match["group"], source)
        if match := _KILL.search(line):
            row = kills.setdefault(
                match["pid"],
                {"process": Known(match["process"], source), "pid": Known(int(match["pid"]), paste.use(index))},
            )
            of_machine = match["whose"] == "Out"
            row["scope"] = Known("machine" if of_machine else "cgroup", source)
            row["line"] = Known(line.strip()[:500], source)
            if not of_machine and limit:
                row["limit_mib"] = limit
            if not of_machine and match["pid"] in groups:
                row["place"] = groups[match["pid"]]
            limit = None
        if (match := _RESIDENT.search(line)) and match["pid"] in kills:
            held = int(match["held"]) + int(match["shared"] or 0)
            kills[match["pid"]]["memory_mib"] = Known(held >> 10, paste.use(index))
    return False, list(kills.values())


def _slurm_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(whether slurmstepd reported a count, a row of ``oom`` per step in which it counted a kill)."""
    asked = False
    rows: dict[str, Row] = {}
    for index, line in paste.having("oom_kill event", "oom-kill event"):
        if match := _STEP.search(line):
            asked = True
            if int(match["count"]):
                rows[match["step"]] = _row("Slurm step", match["step"], line, paste.use(index))
    return asked, list(rows.values())


def _sacct_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(whether sacct's table is shown, a row of ``oom`` per step, or job without one, in state OUT_OF_MEMORY)."""
    asked = False
    rows: dict[str, Row] = {}
    for index, _ in paste.having("jobid"):
        rule = paste.bare[index + 1] if index + 1 < len(paste.bare) else ""
        columns = _columns(paste.bare[index], rule)
        if "JobID" not in columns or "State" not in columns:
            continue
        for after in range(index + 2, len(paste.bare)):
            job, state = (paste.bare[after][columns[name]].strip() for name in ("JobID", "State"))
            match = _JOB.fullmatch(job)
            if not match:
                break
            asked = True
            if state.startswith("OUT_OF_ME"):
                scope = "Slurm step" if match["step"] else "Slurm job"
                rows[job] = _row(scope, job, paste.lines[after], paste.use(after))
    steps = {job.partition(".")[0] for job in rows if "." in job}
    return asked, [row for job, row in rows.items() if job not in steps]


def _columns(heading: str, rule: str) -> dict[str, slice]:
    """The slice of each of the heading's columns, by name, from the line of dashes below it; empty without one."""
    if not _RULE.fullmatch(rule):
        return {}
    columns: dict[str, slice] = {}
    start = 0
    for dashes in rule.split():
        columns[heading[start : start + len(dashes)].strip()] = slice(start, start + len(dashes))
        start += len(dashes) + 1
    return columns


def _service_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(whether docker inspect is shown, a row of ``oom`` each for what systemd-oomd, the kubelet or docker killed)."""
    asked = False
    rows: dict[str, Row] = {}
    for index, line in paste.having("systemd-oomd[", "low on resource: memory", '"oomkilled": '):
        if match := _PRESSURE.search(line):
            rows[match["group"]] = _row("cgroup", match["group"], line, paste.use(index))
        elif match := _EVICTED.search(line):
            rows[match["pod"]] = _row("pod", match["pod"], line, paste.use(index))
        elif match := _INSPECTED.fullmatch(line):
            asked = True
            if match["answer"] == "true":
                rows["container"] = _row("container", "", line, paste.use(index))
    return asked, list(rows.values())


def _ray_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(False, a row of ``oom`` per task that Ray killed because its node ran low on memory); Ray's GB are GiB."""
    rows: dict[str, Row] = {}
    for index, line in paste.having("memory on the node (ip: "):
        if match := _RAY.search(line[:1000]):
            source = paste.use(index)
            rows[match["pid"]] = {
                **_row("machine", "", line, source),
                "process": Known(match["process"], source),
                "pid": Known(int(match["pid"]), source),
                "memory_mib": Known(round(float(match["held"]) * 1024), source),
            }
    return False, list(rows.values())


def _cgroup_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(whether a cgroup's memory.events is shown, a row of ``oom`` per one that counts kills)."""
    asked = False
    rows: list[Row] = []
    for index, line in paste.having("oom_kill "):
        if (match := _EVENTS.fullmatch(line)) and index and paste.lines[index - 1].strip().startswith("oom "):
            asked = True
            if int(match["count"]):
                rows.append(_row("cgroup", "", line, paste.use(index)))
    return asked, rows


def _pod_kills(paste: Paste) -> tuple[bool, list[Row]]:
    """(whether the reason of a container's end is shown, a row of ``oom`` per container, or pod of a list, that ended
    as OOMKilled).
    """
    asked = False
    rows: dict[str, Row] = {}
    for index, line in paste.having("oomkilled", "reason:", 'reason":'):
        if match := _REASON.fullmatch(line):
            asked = True
            if match["reason"] == "OOMKilled" and _exit_code(paste, index) in {None, 137}:
                name = _container_name(paste, index)
                row = _row("container", name, line, paste.use(index))
                limit = _container_limit(paste, index)
                rows[name] = {**row, "limit_mib": limit} if limit else row
        elif match := _POD.match(line):
            rows[match["pod"]] = _row("pod", match["pod"], line, paste.use(index))
    return asked, list(rows.values())


def _row(scope: str, place: str, line: str, source: str) -> Row:
    """A row of ``oom`` without a process; `place` is its cgroup or container, or empty."""
    row: dict[str, Fact] = {"scope": Known(scope, source), "line": Known(line.strip()[:500], source)}
    return {**row, "place": Known(place, source)} if place else row


def _exit_code(paste: Paste, index: int) -> int | None:
    """The exit code within three lines of the reason in line `index`; None where there is none."""
    for line in paste.lines[max(0, index - 3) : index + 4]:
        if match := _EXIT.fullmatch(line):
            return int(match["code"])
    return None


def _container_name(paste: Paste, index: int) -> str:
    """Name of the container that ``kubectl describe pod`` describes at line `index`; empty where it is not seen."""
    for at in range(index, max(0, index - 40), -1):
        if paste.lines[at].strip().startswith("Container ID:"):
            match = _CONTAINER.fullmatch(paste.lines[at - 1]) if at else None
            return match["name"] if match else ""
    return ""


def _container_limit(paste: Paste, index: int) -> Fact | None:
    """Memory limit in MiB of the container that ``kubectl describe pod`` describes at `index`; None without one."""
    limits = False
    for at in range(index + 1, min(len(paste.lines), index + 25)):
        head = paste.lines[at].strip()
        if head in {"Requests:", "Mounts:", "Environment:", "Conditions:"} or head.startswith("Container ID:"):
            return None
        limits = limits or head == "Limits:"
        if limits and (match := _MEMORY.fullmatch(paste.lines[at])):
            return Known(int(match["number"]) * _BYTES[match["unit"] or ""] >> 20, paste.use(at))
    return None
