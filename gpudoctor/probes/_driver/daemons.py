"""Daemons beside the driver: whether they are installed, run, start at boot, of what version, and what they logged."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.probes._reading import names, number, refusal, text, there
from gpudoctor.target import Target

_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/nvidia/driver/usr/bin")
"""The last is where the GPU operator of Kubernetes mounts the driver's own container."""

_UNITS = ("/etc/systemd/system/multi-user.target.wants", "/etc/systemd/system/default.target.wants")
_PACKAGES = "/var/lib/dpkg/status"
_MOST_PROCESSES = 4000
"""Processes whose names are read; on a machine with more we would rather not know than be slow."""

_MOST_LOG = 1 << 18
"""Bytes of a daemon's log that are read, from its end."""


@frozen
class Daemon:
    """`program` is the process's name; `unit`, `package` and `folder` are empty where they are not asked for."""

    program: str
    pid_file: str = ""
    unit: str = ""
    package: str = ""
    folder: str = ""

    def binary(self, target: Target) -> str:
        """Where the program is installed, empty where it is not."""
        for folder in (self.folder,) if self.folder else _FOLDERS:
            if there(target, f"{folder}/{self.program}") is True:
                return f"{folder}/{self.program}"
        return ""

    def state(self, target: Target) -> Fact:
        """running, stopped, failed or not installed. systemd is asked only for what is installed and does not run."""
        if not self.binary(target):
            return Known("not installed", f"no {self.folder or '/usr/bin'}/{self.program}")
        alive = self.running(target)
        if not isinstance(alive, Known):
            return alive
        return Known("running", alive.source) if alive.value else self._stopped(target)

    def running(self, target: Target) -> Fact:
        """Whether a process of that name lives: by its pid file, its unit's, else by all processes' names."""
        pid = number(target, self.pid_file) if self.pid_file else Absent("it writes no pid file")
        if isinstance(pid, Known) and self._is(target, str(pid.value)):
            return Known(True, f"{self.pid_file}: pid {pid.value}")
        for group in (f"/sys/fs/cgroup/{layer}system.slice/{self.unit}.service" for layer in ("", "systemd/")):
            listed = text(target, f"{group}/cgroup.procs", 4096) if self.unit else ""
            for one in listed.split() if isinstance(listed, str) else ():
                if self._is(target, one):
                    return Known(True, f"{group}: pid {one}")
        processes = names(target, "/proc")
        if not isinstance(processes, list):
            return Unread(processes.why)
        pids = [name for name in processes if name.isdigit()]
        if len(pids) > _MOST_PROCESSES:
            return Unread(f"no {self.pid_file}, and {len(pids)} processes are too many to look through")
        for one in pids:
            if self._is(target, one):
                return Known(True, f"/proc/{one}/comm")
        hidden = "1" not in pids
        return (
            Unread("/proc hides other users' processes") if hidden else Known(False, "/proc: no process of that name")
        )

    def _is(self, target: Target, pid: str) -> bool:
        """The kernel keeps the first 15 bytes of a process's name."""
        return text(target, f"/proc/{pid}/comm", 64) == self.program[:15]

    def _stopped(self, target: Target) -> Fact:
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
        """Whether systemd starts it at boot, by the link that enabling makes."""
        if there(target, "/run/systemd/system") is not True:
            return Unread("systemd does not run here")
        for folder in _UNITS:
            found = names(target, folder)  # the link's goal may be out of the tree; that it is there is enough
            if isinstance(found, list) and f"{self.unit}.service" in found:
                return Known(True, folder)
        return Known(False, f"no {_UNITS[0]}/{self.unit}.service")

    def packaged(self, target: Target) -> Fact:
        """From dpkg's status file: ``570.124.06-1`` names driver 570.124.06. rpm's database is no text."""
        status = text(target, _PACKAGES, 32 << 20)
        if not isinstance(status, str):
            return Unread(f"{status.why}; `{self.program} --version` prints it")
        for match in re.finditer(rf"Package: {self.package}(?:-\d+)?$", status, re.M):
            entry = status[match.start() : status.find("\n\n", match.start()) + 1 or len(status)]
            version = re.search(r"^Version: (?:\d+:)?(\d+(?:\.\d+)+)", entry, re.M)
            if version and re.search(r"^Status: .* installed$", entry, re.M):
                return Known(version[1], f"{_PACKAGES}: {match[0].partition(' ')[2]}")
        return Unread(f"no package of dpkg holds it; `{self.program} --version` prints it")


PERSISTENCED = Daemon("nvidia-persistenced", "/run/nvidia-persistenced/nvidia-persistenced.pid")


def persistenced(target: Target, hidden: str) -> Fact:
    """Its socket is handed into containers, where its process is not seen."""
    if hidden:
        socket = "/run/nvidia-persistenced/socket"
        return Known(True, socket) if there(target, socket) is True else Unread(hidden)
    if not PERSISTENCED.binary(target):
        return Known(False, "no /usr/bin/nvidia-persistenced")
    return PERSISTENCED.running(target)


def last_run(target: Target, path: str) -> str | Absent | Unread:
    """What a daemon logged since it was last started, as far as the end of its log reaches back.

    Both the fabric manager and IMEX begin with ``[Jul 23 2024 07:53:55] [INFO] [tid 841] Fabric Manager version
    535.54.03 is running with the following configuration options``.
    """
    try:
        with target.path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_LOG))
            said = file.read(_MOST_LOG).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Absent(f"no {path}")
    except OSError as error:
        return refusal(path, error)
    return said[max(0, said.rfind("\n", 0, max(0, said.rfind(" is running with the following configuration")))) :]


def errors(said: str | Absent | Unread, path: str, most: int = 20) -> Fact:
    """The lines that the daemon calls errors: the last `most` of them, each once."""
    if not isinstance(said, str):
        return said
    found = [line.strip()[:300] for line in said.split("\n") if re.search(r"\[(?:ERROR|FATAL|CRITICAL)\]", line)]
    return Known(tuple(dict.fromkeys(found))[-most:], path)


def started(said: str | Absent | Unread, path: str) -> Fact:
    """The version that the daemon said it was when it last started."""
    if not isinstance(said, str):
        return said
    # a build of no release calls itself 570.00
    match = re.search(r"\b[Vv]ersion (?!\d+\.00 )(\d+(?:\.\d+)+) is running with", said)
    return Known(match[1], path) if match else Unread(f"{path} does not reach back to its last start")
