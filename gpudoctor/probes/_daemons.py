"""Daemons beside the driver: whether they are installed, run, start at boot, of what version, and what they logged."""

from __future__ import annotations

import re

from gpudoctor.core.fact import Absent, Fact, Known, Unread, known, text_of
from gpudoctor.core.frozen import frozen
from gpudoctor.probes._packages import DPKG_STATUS, installed_packages
from gpudoctor.probes._reading import as_unread, names, number, path_exists, refusal, text
from gpudoctor.target import Target

_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/nvidia/driver/usr/bin")
"""The last is where the GPU operator of Kubernetes mounts the driver's own container."""

_UNITS = ("/etc/systemd/system/multi-user.target.wants", "/etc/systemd/system/default.target.wants")
_MOST_PROCESSES = 4000
"""Processes whose names are read; on a machine with more we would rather not know than be slow."""

_MOST_LOG = 1 << 18
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
        """Path of the installed program; empty if it is not installed."""
        for folder in (self.folder,) if self.folder else _FOLDERS:
            if path_exists(target, f"{folder}/{self.program}") is True:
                return f"{folder}/{self.program}"
        return ""

    def state(self, target: Target) -> Fact:
        """running, stopped, failed or not installed; systemd is asked only if it is installed and does not run."""
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
        """failed if systemd says so, else stopped."""
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
        """Whether systemd starts it at boot, by the link that enabling makes; unread without systemd."""
        if path_exists(target, "/run/systemd/system") is not True:
            return Unread("systemd does not run here")
        for folder in _UNITS:
            found = names(target, folder)  # the link's goal may be out of the tree; that it is there is enough
            if isinstance(found, list) and f"{self.unit}.service" in found:
                return Known(True, folder)
        return Known(False, f"no {_UNITS[0]}/{self.unit}.service")

    def packaged(self, target: Target) -> Fact:
        """The driver version in its package's version, by dpkg: ``570.124.06-1`` is 570.124.06; unread without one."""
        installed = installed_packages(target, rf"{self.package}(?:-\d+)?")
        if not isinstance(installed, dict):
            return Unread(f"{installed.why}; `{self.program} --version` prints it")
        for package, version in installed.items():
            if match := re.match(r"\d+(?:\.\d+)+", version):
                return Known(match[0], f"{DPKG_STATUS}: {package}")
        return Unread(f"no package of dpkg holds it; `{self.program} --version` prints it")


PERSISTENCED = Daemon("nvidia-persistenced", "/run/nvidia-persistenced/nvidia-persistenced.pid")


def persistenced(target: Target, hidden: str) -> Fact:
    """Whether nvidia-persistenced runs; in a container (`hidden`) by its socket, which may be handed in."""
    if hidden:
        socket = "/run/nvidia-persistenced/socket"
        return Known(True, socket) if path_exists(target, socket) is True else Unread(hidden)
    if not PERSISTENCED.binary(target):
        return Known(False, "no /usr/bin/nvidia-persistenced")
    return PERSISTENCED.running(target)


def last_run(target: Target, path: str) -> str | Absent | Unread:
    """The text that a daemon logged since its last start, as far as the end of its log reaches; absent without a log.

    Both the fabric manager and IMEX begin with ``[Jul 23 2024 07:53:55] [INFO] [tid 841] Fabric Manager version
    535.54.03 is running with the following configuration options``.
    """
    try:
        with target.path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_LOG))
            log = file.read(_MOST_LOG).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Absent(f"no {path}")
    except OSError as error:
        return refusal(path, error)
    return log[max(0, log.rfind("\n", 0, max(0, log.rfind(" is running with the following configuration")))) :]


def logged_errors(log: str | Absent | Unread, path: str, most: int = 20) -> Fact:
    """The last `most` lines marked as errors, each once; absent or unread as the log is."""
    if not isinstance(log, str):
        return log
    found = [line.strip()[:300] for line in log.split("\n") if re.search(r"\[(?:ERROR|FATAL|CRITICAL)\]", line)]
    return Known(tuple(dict.fromkeys(found))[-most:], path)


def logged_version(log: str | Absent | Unread, path: str) -> Fact:
    """The version that the daemon logged at its last start; unread if the log does not reach back to it."""
    if not isinstance(log, str):
        return log
    # a build of no release calls itself 570.00
    match = re.search(r"\b[Vv]ersion (?!\d+\.00 )(\d+(?:\.\d+)+) is running with", log)
    return Known(match[1], path) if match else Unread(f"{path} does not reach back to its last start")
