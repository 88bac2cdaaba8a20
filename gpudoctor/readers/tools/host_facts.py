"""uname, /etc/os-release, kernel strings, container and WSL marks, df, ulimit, and files that could not be written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column
from gpudoctor.core.fact import Absent, Fact, Known, Rows
from gpudoctor.readers._machine import kernel_facts, system_facts
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, phrases, table
from gpudoctor.readers._values import size_mib, works

EXACT = 6
FACTS = (
    column("write_error.path", "text", "file or folder that a program could not write"),
    column(
        "write_error.why", "text", "the system's words: No space left on device, Read-only file system, or the quota's"
    ),
    column("write_error.mount", "text", "mount point of its file system, by df"),
    column("write_error.used_percent", "int", "how full df shows that file system", "%"),
    column("write_error.inodes_percent", "int", "how many of its inodes df -i shows in use", "%"),
)

_UNAME = Pattern(r"Linux (\S+) (\d+\.\d+\.\S+) #\d+")
_LINUX_VERSION = Pattern(r"Linux version (\d+\.\d+\S*)")
_PRETTY = Pattern(r"\s*PRETTY_NAME=\"?([^\"]+)\"?")
_DESCRIPTION = Pattern(r"Description:\s+(\S.*)")
_WSL = Pattern(r"(?i)(?<![\w-])WSL ?([12])(?![\w.])")
_WSL_NAMED = Pattern(r"(?i)\bWSL\b(?! ?1)")
_IN_WSL = Pattern(r"(?<!not )(?<!also )\b(?:in|inside|within|under) (?:the |a |my )?(?:\w+ )?wsl\b(?! 1)")
"""A label that tells of WSL; that something works there, as elsewhere, may be a comparison."""
_BEFORE_WSL2 = Pattern(r"\b10\.0\.(?:1[0-7]\d{3}|18[0-2]\d{2}|183[0-5]\d)\b|\bWindows[^\n]{0,20}\b(?:1[678]0[39])\b")
"""Builds of Windows before 18362 (1903), the first that can have WSL 2."""
_PLATFORMS = frozenset(
    phrases("environment | platform | os | system | operating system | running in | running on | distro | host | where")
)
_WSL_LIST = Pattern(r"(?<!\S)\S+\s+(?:Running|Stopped)\s+([12])\s*$")
_JETSON = Pattern(
    r"\b((?:NVIDIA )?Jetson[ -](?:AGX |TX\d|Orin|Nano|Xavier|Thor)[\w -]{0,20}?)(?=[\s,.;:)|*]*(?:$|[\n,.;:)|*(]))"
    r"|\b(L4T[: ]+(?:Release:? *)?(?:R|r)?\d[\d.]*|JetPack[: ]+\d[\d.]*|R\d\d \(release\), REVISION: [\d.]+)"
)
_JETSON_PROMPT = Pattern(r"\s*\w[\w.-]*@(jetson)[\w-]*:")
_SHM = Pattern(r"(?<!\d)(\d+(?:\.\d+)?[KMGT]?)\s+(\d+(?:\.\d+)?[KMGT]?)\s+(\d+(?:\.\d+)?[KMGT]?)\s+\d+%\s+/dev/shm")
_SHM_MOUNT = Pattern(r"on /dev/shm type tmpfs \([^)]{0,300}\bsize=(\d+[kmg]?)")
_SHM_SIZE = Pattern(r"--shm-size[= ](\d+(?:\.\d+)?\s?[kmgtKMGT]?)b?")
_KERNEL_OF_WSL1 = Pattern(r"(?i)\b4\.4\.0-\d{5}-Microsoft\b")
_LOCKED = Pattern(r"max locked memory\s+\(k(?:bytes|B), -l\)\s+(\d+|unlimited)")
_FILES = Pattern(r"open files\s+\(-n\)\s+(\d+|unlimited)")
_MARKS = tuple(
    table(
        """
kubernetes: orchestrator: kubernetes | platform: kube | kubeflow | openshift | kubernetes pod | k8s pod | pod spec
    | in the pod | in a pod | inside the pod | inside pod | in pod | running pod | recreated pod | new pod | the pod's
    | runtimeclassname | kubectl exec | nvidia.com/gpu | kubelet | /kubepods | /var/run/secrets/kubernetes.io
lxc: lxc container | in lxc | inside lxc | unprivileged lxc | privileged lxc | proxmox lxc | proxmox ct | pct enter
    | lxc exec
container: task definition | ecs task | enroot | pyxis | --container-image
docker: /.dockerenv | inside a container | in a container | inside docker | in a docker container
    | the nvidia driver was not detected | devcontainer
apptainer: apptainer exec | singularity exec | apptainer run | singularity run | singularity shell
"""
    )
)
"""Words (lower case) that are printed inside a container, or say that one is meant."""
_STARTED = (
    ("docker", ("docker run", "docker exec", "docker compose", "docker args:", "--shm-size")),
    ("podman", ("podman run",)),
)
"""Words that start a container: what follows is printed inside it, unless it did not start."""
_NONE = Pattern(
    r"(?i)\b(?:no|not in an?|without(?: an?| any)?) (?:containers?|docker)(?= *(?:$|[,;.)]|: *(?:yes|true)\b))"
    r"|^\W*(?:runs? |running )?(?:on )?bare[- ]metal(?:\W*$|: *(?:yes|true)\b)"
)
"""``slurm job, no container``, ``bare metal: yes``; not ``works on bare metal, fails in docker``."""
_HOSTNAME = Pattern(r"(?:^|\s)[a-z_][\w.-]*@(?=[a-f]*\d)[0-9a-f]{12}:|^\W*(?=[a-f]*\d)[0-9a-f]{12}:\d+:\d+ \[\d+\] ")
"""The host name that Docker gives a container: twelve digits of its id, in a prompt or before a line of NCCL's log."""
_NOT_STARTED = ("nvidia-container-cli", "could not select device driver", "error response from daemon")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of the operating system, kernel, WSL, Jetson, container, shared memory and limits."""
    low = paste.lower
    for index, line in paste.having("pretty_name=", "description:\t", "description:  "):
        if match := _PRETTY.match(line) or _DESCRIPTION.match(line):
            yield from system_facts(match.group(1).strip(), paste.use(index))
    if "wsl" in low or "-microsoft" in low:
        yield from _wsl_version(paste)
    yield from _kernel_facts(paste)
    if "jetson" in low or "l4t" in low or "jetpack" in low or "(release), revision" in low:
        yield from _jetson_board(paste)
    yield from _container_kind(paste)
    yield from _shared_memory(paste)
    yield from _resource_limits(paste)
    yield from _write_errors(paste)


def _kernel_facts(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts of the running kernel from uname, ``Linux version`` or ``uname -r``."""
    for index, line in paste.having("linux "):
        if match := _UNAME.search(line):
            source = paste.use(index)
            yield from kernel_facts(match.group(2), source)
            for arch in ("x86_64", "aarch64"):
                if f" {arch}" in line:
                    yield "host.arch", Known(arch, source)
        elif match := _LINUX_VERSION.search(line):
            yield from kernel_facts(match.group(1), paste.use(index))
    for index, _ in paste.commands_starting("uname -r"):
        for after, line in paste.output(index, 1):
            if line[:1].isdecimal():
                yield from kernel_facts(line.strip(), paste.use(after))


def _wsl_version(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """host.wsl (1 or 2) from wsl's own output, labels and kernel names; the most certain signs first.

    Several may be yielded; the first holds. WSL without a number is 2 unless the text names an older Windows.
    """
    for label in paste.labels:
        if label.name.startswith(("wsl l", "wsl list")) and label.value.split()[-1:] in (["1"], ["2"]):
            yield "host.wsl", Known(int(label.value.split()[-1]), paste.use(label.index))
        if label.name == "wsl version" and label.value[:1] in ("1", "2"):
            yield "host.wsl", Known(int(label.value[0]), paste.use(label.index))
    for label in paste.labels:
        if label.name in _PLATFORMS and _WSL_NAMED.search(label.value):
            yield "host.wsl", Known(1 if _BEFORE_WSL2.search(paste.text) else 2, f"line {paste.numbers[label.index]}")
    for label in paste.labels:
        if _IN_WSL.search(label.name) and works(label.value) is not True:
            yield "host.wsl", Known(2, f"line {paste.numbers[label.index]}")
    for index, line in paste.having("wsl"):
        match = _WSL.search(line) or (_WSL_LIST.search(line) if "  " in line else None)
        if match:
            yield "host.wsl", Known(int(match.group(1)), paste.use(index))
    for index, _ in paste.having("-microsoft-standard"):
        yield "host.wsl", Known(2, f"line {paste.numbers[index]}")
    for index, line in paste.having("-microsoft"):
        if _KERNEL_OF_WSL1.search(line):
            yield "host.wsl", Known(1, f"line {paste.numbers[index]}")
    for index, line in paste.having("/usr/lib/wsl"):
        if "no such file" not in line.lower():
            yield "host.wsl", Known(2, f"line {paste.numbers[index]}")


def _jetson_board(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """host.jetson: the board's name, else its L4T or JetPack release, else the host name in a prompt."""
    matches = [(match, index) for index, line in enumerate(paste.bare) if (match := _JETSON.search(line[:400]))]
    chosen = [pair for pair in matches if pair[0].group(1)] or matches
    if chosen:
        match, index = chosen[0]
        yield "host.jetson", Known((match.group(1) or match.group(2)).strip(), f"line {paste.numbers[index]}")
        return
    for match, source in paste.matches(_JETSON_PROMPT.match, "@jetson"):
        yield "host.jetson", Known(match.group(1), source)
        return


def _container_kind(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """host.container by what containers print, commands that start one, or host names; absent where the text denies
    one.

    The commands do not count where the text shows that a container could not be started.
    """
    for index, line in paste.having("container", "bare metal", "bare-metal", "no docker"):
        if _NONE.search(line):
            yield "host.container", Absent(f"the report says so (line {paste.numbers[index]})")
            return
    marks = _MARKS if any(word in paste.lower for word in _NOT_STARTED) else _MARKS + _STARTED
    for kind, words in marks:
        present_words = [word for word in words if word in paste.lower]
        for index, line in paste.having(*present_words) if present_words else ():
            if "not in a container" not in line.lower() and "no docker" not in line.lower():
                yield (
                    "host.container",
                    Known(kind, paste.use(index) if index in paste.commands else f"line {paste.numbers[index]}"),
                )
                return
    for index, line in paste.having("@", " nccl "):
        if _HOSTNAME.search(line[:400]):
            yield "host.container", Known("docker", f"line {paste.numbers[index]}")
            return


def _shared_memory(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """limits.shm_mib and limits.shm_free_mib: size and free MiB of /dev/shm from df, mount or ``--shm-size``."""
    for index, line in paste.having("/dev/shm"):
        heading = next((above for above in reversed(paste.bare[:index]) if "Mounted on" in above), "")
        if "IUse%" in heading:
            continue
        if match := _SHM.search(line):
            source = paste.use(index)
            for name, text in (("limits.shm_mib", match.group(1)), ("limits.shm_free_mib", match.group(3))):
                size = size_mib(text if text[-1].isalpha() else f"{text}K")
                if size is not None:
                    yield name, Known(size, source)
        elif mount := _SHM_MOUNT.search(line):
            size = size_mib(mount.group(1))
            if size is not None:
                yield "limits.shm_mib", Known(size, paste.use(index))
    for index, line in paste.having("--shm-size"):
        if (match := _SHM_SIZE.search(line)) and (size := size_mib(match.group(1))) is not None:
            yield "limits.shm_mib", Known(size, paste.use(index))


def _resource_limits(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """limits.memlock_kib and limits.open_files from ``ulimit``; -1 for unlimited."""
    for name, pattern, words in (
        ("limits.memlock_kib", _LOCKED, "max locked memory"),
        ("limits.open_files", _FILES, "open files"),
    ):
        for match, source in paste.matches(pattern.search, words):
            yield name, Known(_limit_value(match.group(1)), source)
    for option, name in (("ulimit -l", "limits.memlock_kib"), ("ulimit -n", "limits.open_files")):
        for index, _ in paste.commands_starting(option):
            for after, line in paste.output(index, 1):
                if line.strip().isdecimal() or line.strip() == "unlimited":
                    yield name, Known(_limit_value(line.strip()), paste.use(index, after))


def _limit_value(text: str) -> int:
    """The limit's number; -1 for ``unlimited``."""
    return -1 if text == "unlimited" else int(text[:15])


_MOST_WRITE_ERRORS = 5
"""Rows: a full disk fails every write."""
_WHY = r"(?P<why>[Nn]o space left on device|[Rr]ead-only file system|[Dd]isk quota exceeded)"
_PYTHON = Pattern(rf"\[Errno (?:28|30|122)\] {_WHY}: (?P<quote>['\"])(?P<path>[^'\"\n]{{1,400}})(?P=quote)")
_TOOL = Pattern(
    r"\s*(?:cp|mv|tar|mkdir|touch|dd|rsync|tee|ln|install): (?:[a-z ]{3,40}) "
    rf"['\"‘](?P<path>[^'\"‘’\n]{{1,400}})['\"’]: {_WHY}\s*$"
)
_GO = Pattern(
    rf"\b(?:write|open|mkdir|mkdirat|symlink|copy_file_range:? \S{{0,90}}) (?P<path>/[^\s:]{{1,400}}): {_WHY}\s*$"
)
_GOES_ON = Pattern(r"(?i)\b(?:ignor(?:e|ing) (?:the |this )?error|continu(?:e|ing) without)\b")
"""``Will ignore error and continue``, as huggingface_hub says of a cache that it cannot write."""
_SIZE = r"[\d.,]+[KMGTPi]*\s+"
_DF = Pattern(rf"\s*\S+\s+(?:\S{{1,20}}\s+)?{_SIZE}{_SIZE}{_SIZE}(?P<used>\d{{1,3}})%\s+(?P<mount>/\S*)\s*$")
_MEMORY = re.compile(r"/(?:dev/|proc/|sys/|(?:torch|psm|sem|pymp|mp)[-_.][^/]*$)")
"""Paths that no disk holds: shared memory, devices, the kernel's own."""


def _write_errors(paste: Paste) -> Iterator[tuple[str, Rows]]:
    """Rows of ``write_error``: path, why and, where df shows it, the mount's use; at most five, each path once.

    Errors that the program says it ignores and paths in memory (/dev, /proc) do not count.
    """
    rows: dict[str, dict[str, Fact]] = {}
    for index, line in paste.having("no space left on device", "read-only file system", "disk quota exceeded"):
        if _GOES_ON.search(line):
            continue
        match = _PYTHON.search(line) or _TOOL.match(line) or _GO.search(line)
        if match and not _MEMORY.match(match["path"]) and len(rows) < _MOST_WRITE_ERRORS:
            source = paste.use(index)
            why = match["why"][0].upper() + match["why"][1:]
            rows.setdefault(match["path"], {"path": Known(match["path"], source), "why": Known(why, source)})
    if rows:
        space, inodes = _usage(paste)
        for path, row in rows.items():
            mounts = [mount for mount in {*space, *inodes} if _holds(mount, path)]
            if mounts:
                mount = max(mounts, key=len)
                row["mount"] = Known(mount, (space.get(mount) or inodes[mount])[1])
                for name, usage in (("used_percent", space), ("inodes_percent", inodes)):
                    if mount in usage:
                        row[name] = Known(*usage[mount])
        yield "write_error", tuple(rows.values())


def _holds(mount: str, path: str) -> bool:
    """Whether the path is that mount point or lies below it."""
    return path == mount or path.startswith(f"{mount.rstrip('/')}/")


def _usage(paste: Paste) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]]:
    """Percent in use by mount point, of space and of inodes, each with its source, from tables of df."""
    space: dict[str, tuple[int, str]] = {}
    inodes: dict[str, tuple[int, str]] = {}
    usage = space
    for index, line in enumerate(paste.bare):
        if "Mounted on" in line:
            usage = inodes if "IUse%" in line else space
        elif "%" in line and (match := _DF.fullmatch(line)):
            usage[match["mount"]] = (int(match["used"]), f"line {paste.numbers[index]}")
    return space, inodes
