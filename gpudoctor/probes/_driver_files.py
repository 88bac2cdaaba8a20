"""What lies on the disk for the NVIDIA driver: modules, headers, libraries, what DKMS and akmods built; its daemons."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.fact import Absent, Fact, Known, Unread, known, text_of, value_of
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._binaries import MalformedError, opened
from gpudoctor.probes._packages import DPKG_STATUS, installed_packages
from gpudoctor.probes._reading import as_unread, names, names_in, number, path_exists, refusal, resolve_path, text
from gpudoctor.target import Target

MODULE = pattern(r"nvidia(?:-current|-tesla(?:-\d+)?|-legacy-\d+xx|-\d{3})?(?:-open)?\.ko(?:\.(?:zst|xz|gz))?")
"""The main module's file; Debian names it nvidia-current.ko and the like, and aliases it."""

_ROOTS = ("/lib/modules", "/usr/lib/modules", "/run/booted-system/kernel-modules/lib/modules")
_FOLDERS = (
    "updates/dkms",
    "updates",
    "updates/drivers/video",
    "extra",
    "extra/nvidia",
    "weak-updates/nvidia",
    "extramodules",
    "kernel/drivers/video",
    "kernel/drivers/video/nvidia",
    "misc",
)
"""Where installers put the module; asked one by one where modules.dep does not list it (depmod was not run)."""

_MOST_KERNELS = 8
"""Most kernels that are looked through for a module that the running kernel lacks."""

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/home/kubernetes/bin/nvidia/lib64",
)
_LIBRARY = pattern(r"(?:libcuda|libnvidia-ml)\.so\.(\d{2,4}\.\d+(?:\.\d+)?)")


def module_path(target: Target, kernel: str) -> Fact:
    """Path of the nvidia module's file for that kernel release; absent if there is none, unread if unreadable."""
    why: Absent | Unread = Absent(f"no {_ROOTS[0]}/{kernel}")
    for root in _ROOTS:
        folder = f"{root}/{kernel}"
        here = names(target, folder)
        if isinstance(here, Unread):
            return here
        if not isinstance(here, list):
            continue
        listed = text(target, f"{folder}/modules.dep", 8 << 20)
        if isinstance(listed, str):
            match = re.search(rf"^((?:[^:\n]*/)?{MODULE.pattern}):", listed, re.M)
            if match:
                path = match[1] if match[1].startswith("/") else f"{folder}/{match[1]}"
                if path_exists(target, path) is not False:
                    return Known(path, f"{folder}/modules.dep")
        found = _search_module(target, folder)
        if found:
            return found
        if isinstance(listed, Unread):
            return listed
        why = Absent(f"no nvidia module in {folder}")
    return why


def _search_module(target: Target, folder: str) -> Known | Unread | None:
    """The module's path in the usual folders of `folder`, for where modules.dep does not list it.

    None if there is none; unread if there is none and one of the folders could not be listed.
    """
    kernel = names(target, f"{folder}/kernel")
    more = [f"kernel/{name}" for name in kernel if name.startswith("nvidia-")] if isinstance(kernel, list) else []
    trouble = kernel if isinstance(kernel, Unread) else None
    for inside in (*_FOLDERS, *more):
        found = names(target, f"{folder}/{inside}")
        if isinstance(found, Unread):
            trouble = trouble or found
        for name in found if isinstance(found, list) else ():
            if MODULE.fullmatch(name):
                return Known(f"{folder}/{inside}/{name}", f"{folder}/{inside}")
    return trouble


def other_kernels(target: Target, running: str) -> Fact:
    """Releases among at most 8 other kernels, the last by name first, that have the nvidia module.

    Unread if /lib/modules is missing or cannot be listed.
    """
    kernels = names(target, _ROOTS[0])
    if not isinstance(kernels, list):
        return as_unread(kernels)
    others = [name for name in reversed(kernels) if name != running][:_MOST_KERNELS]
    return Known(tuple(name for name in others if known(module_path(target, name))), _ROOTS[0])


def module_version(target: Target, module: str, kernel: str) -> Fact:
    """Version text of the module's file by its section .modinfo, else by the DKMS folder that it was built in.

    Unread if neither gives it; of a compressed file .modinfo is not read.
    """
    why = f"{module} is compressed; `modinfo -F version nvidia` prints its version"
    if module.endswith(".ko"):
        version = _modinfo(target, module, "version")
        if version:
            return Known(version, f"{module}: .modinfo")
        why = f"{module} does not say its version"
    if "/dkms/" in module and (built := _dkms_version(target, kernel)):
        return built
    return Unread(why)


def _modinfo(target: Target, module: str, key: str) -> str:
    """The value of ``key=value`` in the module's section .modinfo; empty if it cannot be read."""
    try:
        with opened(target.path(module)) as elf:
            section = next((section for section in elf.sections() if section.name == ".modinfo"), None)
            section_bytes = elf.read(section.offset, min(section.size, 1 << 20)) if section else b""
    except (OSError, MalformedError):
        return ""
    match = re.search(rb"(?:^|\0)" + key.encode() + rb"=([^\0]*)", section_bytes)
    return match[1].decode("utf-8", "replace") if match else ""


def driver_libraries(target: Target) -> tuple[dict[str, str], list[str], Unread | None]:
    """Path to version of the driver's libraries, paths of empty ones, and why a folder could not be read (or None).

    In each folder the libcuda that its link names comes first.
    """
    versions: dict[str, str] = {}
    empty: list[str] = []
    trouble: Unread | None = None
    seen: set[str] = set()
    for folder in LIBRARY_FOLDERS:
        found = names(target, folder)
        if isinstance(found, Unread):
            trouble = trouble or found
        matches = [match for name in found if (match := _LIBRARY.fullmatch(name))] if isinstance(found, list) else []
        place = resolve_path(target, folder) if matches else ""
        if not matches or place in seen:
            continue
        seen.add(place)
        linked = resolve_path(target, f"{folder}/libcuda.so.1").rpartition("/")[2]
        for match in sorted(matches, key=lambda match: match[0] != linked):
            path = f"{folder}/{match[0]}"
            try:
                size = target.path(path).stat().st_size
            except OSError:
                continue
            if size:
                versions[path] = match[1]
            else:
                empty.append(path)
    return versions, empty, trouble


def kernel_headers(target: Target, kernel: str, hidden: str) -> Fact:
    """Whether headers of that kernel are installed, by the link ``build``, which dangles without them.

    `hidden`: why the host's files cannot be seen, if so; then unread where the link is not found.
    """
    tried = [f"{root}/{kernel}/build" for root in _ROOTS[:2]]
    for path in tried:
        here = path_exists(target, path)
        if isinstance(here, Unread):
            return here
        if here:
            return Known(True, path)
    return Unread(hidden) if hidden else Known(False, f"no {tried[0]}")


# ---- Modules that are built on the machine itself, by DKMS or akmods, and why a build failed ----

_DKMS = "/var/lib/dkms"
_AKMODS = "/var/cache/akmods/nvidia"
_DKMS_PACKAGE = pattern(r"nvidia(?:-(?:current|open|tesla|legacy|srv|\d+\w*))*")
"""The driver's name in DKMS; Debian says nvidia-current. nvidia-fs beside it is another module."""

_BUILD_ERROR = pattern(r"^.*(?:\berror:|\bError [1-9]|\*\*\* |No such file or directory).*$", re.M | re.I)


def _dkms_sources(target: Target) -> list[str] | Unread:
    """Paths ``/var/lib/dkms/<package>/<version>`` of each driver whose source DKMS keeps, sorted; empty without DKMS.

    Unread if a folder cannot be listed.
    """
    packages = names(target, _DKMS)
    out: list[str] = []
    for package in packages if isinstance(packages, list) else ():
        if not _DKMS_PACKAGE.fullmatch(package):
            continue
        found = names(target, f"{_DKMS}/{package}")
        if isinstance(found, Unread):
            return found
        out += [f"{_DKMS}/{package}/{name}" for name in found if name[:1].isdigit()] if isinstance(found, list) else []
    return packages if isinstance(packages, Unread) else out


def _dkms_version(target: Target, kernel: str) -> Known | None:
    """The driver version that DKMS has built for that kernel; None if it has built none."""
    found = _dkms_sources(target)
    for folder in found if isinstance(found, list) else ():
        if path_exists(target, f"{folder}/{kernel}") is True:
            return Known(folder.rpartition("/")[2], f"{folder}/{kernel}")
    return None


def dkms_builds(target: Target, kernel: str, hidden: str) -> Iterator[tuple[str, Fact]]:
    """Yields driver.dkms (installed, built or added; absent without a source) and driver.dkms_error, the first error of
    a failed build by DKMS or akmods (absent if none failed).

    Both for that kernel; unread if DKMS's folders cannot be listed, or, without a source, for the reason `hidden` (why
    the host's files cannot be seen; empty if they can).
    """
    sources = _dkms_sources(target)
    state: Fact
    error: Fact
    if isinstance(sources, Unread):
        state = error = sources
    elif hidden and not sources:
        state = error = Unread(hidden)
    else:
        state = _dkms_state(target, sources, kernel)
        failed = value_of(state) == "added"
        log = f"{sources[-1]}/build/make.log" if failed else _akmods_log(target, kernel)
        error = _first_error(target, log, kernel) if log else Absent("no build for the running kernel has failed")
    yield "driver.dkms", state
    yield "driver.dkms_error", error


def _dkms_state(target: Target, sources: list[str], kernel: str) -> Fact:
    """installed if the built module is in the kernel's folder, else built, else added; absent without a source."""
    if not sources:
        return Absent(f"no driver in {_DKMS}")
    state = Known("added", sources[-1])
    for folder in sources:
        if path_exists(target, f"{folder}/{kernel}") is True:
            marks = names(target, folder.rpartition("/")[0])
            linked = isinstance(marks, list) and any(name.startswith(f"kernel-{kernel}-") for name in marks)
            state = Known("installed" if linked else "built", f"{folder}/{kernel}")
    return state


def _akmods_log(target: Target, kernel: str) -> str:
    """Path of akmods' log of a failed build, ``<version>-for-<kernel>.failed.log``; empty if there is none."""
    logs = [name for name in names_in(target, _AKMODS) if name.endswith(f"-for-{kernel}.failed.log")]
    return f"{_AKMODS}/{logs[-1]}" if logs else ""


def _first_error(target: Target, path: str, kernel: str) -> Fact:
    """The first error line of a build's log, at most 300 characters; absent if it has none or is another kernel's.

    Absent or unread also as the file is. The first line of DKMS's log names the kernel; of akmods' log the file name
    does.
    """
    log = text(target, path, 8 << 20)
    if not isinstance(log, str):
        return log
    if kernel not in log.partition("\n")[0] and kernel not in path:
        return Absent(f"{path} is of another kernel's build")
    match = _BUILD_ERROR.search(log)
    return Known(match[0].strip()[:300], path) if match else Absent(f"{path} shows no error")


# ---- Daemons beside the driver ----

_PROGRAM_FOLDERS = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/run/current-system/sw/bin",
    "/run/nvidia/driver/usr/bin",
)
"""The last is where the GPU operator of Kubernetes mounts the driver's own container."""

_UNITS = ("/etc/systemd/system/multi-user.target.wants", "/etc/systemd/system/default.target.wants")
_MOST_PROCESSES = 4000
"""Processes whose names are read; on a machine with more we would rather not know than be slow."""

_MOST_LOG_BYTES = 1 << 18
"""Bytes of a daemon's log that are read, from its end."""


@frozen
class Daemon:
    """A daemon; `program` is its process name. `unit`, `package` and `folder` are empty if they do not matter."""

    program: str
    pid_file: str = ""
    unit: str = ""
    package: str = ""
    folder: str = ""

    def binary(self, target: Target) -> str:
        """Path of the daemon's installed program; empty if it is not installed."""
        for folder in (self.folder,) if self.folder else _PROGRAM_FOLDERS:
            if path_exists(target, f"{folder}/{self.program}") is True:
                return f"{folder}/{self.program}"
        return ""

    def state(self, target: Target) -> Fact:
        """running, stopped, failed or not installed; systemd is asked only about a daemon that is installed and does
        not run.

        Unread if it is not known whether the daemon runs.
        """
        if not self.binary(target):
            return Known("not installed", f"no {self.folder or '/usr/bin'}/{self.program}")
        alive = self.running(target)
        if process := known(alive):
            return Known("running", process.source) if process.value else self._stopped_state(target)
        return alive

    def running(self, target: Target) -> Fact:
        """Whether a process of that name runs: by its pid file, its unit's cgroup, else all process names.

        Unread if there are too many processes, or /proc hides those of other users.
        """
        pid = text_of(number(target, self.pid_file)) if self.pid_file else ""
        if pid and self._is_process(target, pid):
            return Known(True, f"{self.pid_file}: pid {pid}")
        for group in (f"/sys/fs/cgroup/{layer}system.slice/{self.unit}.service" for layer in ("", "systemd/")):
            listed = text(target, f"{group}/cgroup.procs", 4096) if self.unit else ""
            for pid in listed.split() if isinstance(listed, str) else ():
                if self._is_process(target, pid):
                    return Known(True, f"{group}: pid {pid}")
        processes = names(target, "/proc")
        if not isinstance(processes, list):
            return as_unread(processes)
        pids = [name for name in processes if name.isdigit()]
        if len(pids) > _MOST_PROCESSES:
            return Unread(f"no {self.pid_file}, and {len(pids)} processes are too many to look through")
        for pid in pids:
            if self._is_process(target, pid):
                return Known(True, f"/proc/{pid}/comm")
        hidden = "1" not in pids
        return (
            Unread("/proc hides other users' processes") if hidden else Known(False, "/proc: no process of that name")
        )

    def _is_process(self, target: Target, pid: str) -> bool:
        """True if the process with that pid has the program's name (of which the kernel keeps 15 bytes)."""
        return text(target, f"/proc/{pid}/comm", 64) == self.program[:15]

    def _stopped_state(self, target: Target) -> Fact:
        """failed if systemd says so of the unit, else stopped (also where systemctl cannot be run)."""
        argv = ("systemctl", "show", "--property=ActiveState", f"{self.unit}.service")
        if self.unit and target.which(argv[0]):
            try:
                answer = target.run(argv, timeout=2)
            except OSError as error:
                return Known("stopped", f"/proc: no process {self.program} (systemctl: {error.strerror})")
            if answer.out.strip() == "ActiveState=failed":
                return Known("failed", f"systemctl show {self.unit}")
        return Known("stopped", f"/proc: no process {self.program}")

    def enabled(self, target: Target) -> Fact:
        """Whether systemd starts its unit at boot, by the link that enabling makes; unread without systemd."""
        if path_exists(target, "/run/systemd/system") is not True:
            return Unread("systemd does not run here")
        for folder in _UNITS:
            found = names(target, folder)  # the link's goal may be out of the tree; that it is there is enough
            if isinstance(found, list) and f"{self.unit}.service" in found:
                return Known(True, folder)
        return Known(False, f"no {_UNITS[0]}/{self.unit}.service")

    def packaged_version(self, target: Target) -> Fact:
        """The driver version by the daemon's dpkg package: ``570.124.06-1`` is 570.124.06; unread without one."""
        installed = installed_packages(target, rf"{self.package}(?:-\d+)?")
        if not isinstance(installed, dict):
            return Unread(f"{installed.why}; `{self.program} --version` prints it")
        for package, version in installed.items():
            if match := re.match(r"\d+(?:\.\d+)+", version):
                return Known(match[0], f"{DPKG_STATUS}: {package}")
        return Unread(f"no package of dpkg holds it; `{self.program} --version` prints it")


PERSISTENCED = Daemon("nvidia-persistenced", "/run/nvidia-persistenced/nvidia-persistenced.pid")


def persistenced(target: Target, hidden: str) -> Fact:
    """Whether nvidia-persistenced runs; in a container by its socket, which may be handed in, else unread.

    `hidden`: why the host cannot be seen from this container; empty outside one.
    """
    if hidden:
        socket = "/run/nvidia-persistenced/socket"
        return Known(True, socket) if path_exists(target, socket) is True else Unread(hidden)
    if not PERSISTENCED.binary(target):
        return Known(False, "no /usr/bin/nvidia-persistenced")
    return PERSISTENCED.running(target)


def log_since_start(target: Target, path: str) -> str | Absent | Unread:
    """The text that a daemon logged since its last start, as far as the last 256 KiB of its log reach.

    Absent without a log, unread if it cannot be read. Fabric manager and IMEX begin with ``[Jul 23 2024 07:53:55]
    [INFO] [tid 841] Fabric Manager version 535.54.03 is running with the following configuration options``.
    """
    try:
        with target.path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_LOG_BYTES))
            log = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Absent(f"no {path}")
    except OSError as error:
        return refusal(path, error)
    return log[max(0, log.rfind("\n", 0, max(0, log.rfind(" is running with the following configuration")))) :]


def logged_errors(log: str | Absent | Unread, path: str) -> Fact:
    """The last 20 different lines marked ERROR, FATAL or CRITICAL, cut to 300 characters; absent or unread as `log`."""
    if not isinstance(log, str):
        return log
    found = [line.strip()[:300] for line in log.split("\n") if re.search(r"\[(?:ERROR|FATAL|CRITICAL)\]", line)]
    return Known(tuple(dict.fromkeys(found))[-20:], path)


def logged_version(log: str | Absent | Unread, path: str) -> Fact:
    """The daemon's version as logged at its last start; unread if the log lacks it, absent or unread as `log` is."""
    if not isinstance(log, str):
        return log
    # a build of no release calls itself 570.00
    match = re.search(r"\b[Vv]ersion (?!\d+\.00 )(\d+(?:\.\d+)+) is running with", log)
    return Known(match[1], path) if match else Unread(f"{path} does not reach back to its last start")
