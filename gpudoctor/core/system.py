"""What POSIX and Windows call differently for our own process: its user, its files, its signals, its streams.

What the machine that is diagnosed is, only a target knows. On Windows nobody is root: an administrator's rights are
asked of each program, and who may change a file is a matter of lists (ACLs) that are not read here.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import PurePath, PureWindowsPath
from typing import NamedTuple


class Account(NamedTuple):
    """A user of this machine, as its password database has it."""

    name: str
    uid: int
    gid: int
    home: str


if sys.platform == "win32":
    import msvcrt

    ENDING_SIGNALS = (signal.SIGTERM, signal.SIGBREAK)
    """Signals by which a process is asked to end, besides Ctrl-C."""
    READ = os.O_RDONLY | os.O_BINARY
    """Flags of `os.open` that read a file's bytes as they are."""
    READ_WRITE = os.O_RDWR | os.O_BINARY
    NO_FOLLOW = NON_BLOCKING = 0
    NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
    """The errors of what is not there, also of a name that nothing can have."""
    ENCODES_BY_CODE_PAGE = True
    """Whether files and pipes have an encoding that depends on the machine."""
    CLOCK_TICKS = 100
    """Ticks in a second of the times in /proc, which machines of this kind do not have."""

    def user_id() -> int:
        """-1, for users have no numbers on Windows."""
        return -1

    def file_name(name: str) -> str:
        """The name under which a POSIX file is kept on Windows: characters that Windows forbids as ``%3A``."""
        return re.sub(r'[%<>:"\\|?*\x00-\x1f]', lambda found: f"%{ord(found[0]):02X}", name)

    def original_name(name: str) -> str:
        """The inverse of `file_name`: ``%3A`` is a colon again."""
        return re.sub(r"%([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), name)

    def long_path(folder: str) -> str:
        r"""The absolute path behind ``\\?\``: so it may have more than 260 characters and end with any name."""
        return folder if folder.startswith("\\\\?\\") else f"\\\\?\\{folder}"

    HAS_LINKS = False
    """Whether every user may make symbolic links."""

    def account(uid: int) -> Account:
        """Raises `KeyError`: Windows has no users by number."""
        raise KeyError(uid)

    ACCESS_IS_LISTED = True
    """Whether lists (ACLs) instead of modes say who may change a file."""

    def group(gid: int) -> tuple[str, frozenset[str]]:
        """Raises `KeyError`: Windows has no groups by number."""
        raise KeyError(gid)

    def extended_attributes(place: str) -> list[str]:
        """Always empty: none are read on Windows."""
        return []

    def device_numbers(status: os.stat_result) -> str:
        """Always ``0:0``: Windows has no device numbers."""
        return "0:0"

    def groups_of(user: str, gid: int) -> list[int]:
        """Always empty: Windows has no groups by number."""
        return []

    def node_name() -> str:
        """Name of this machine by ``COMPUTERNAME``; empty where that is not set."""
        return os.environ.get("COMPUTERNAME", "")

    def machine_name() -> str:
        """Architecture of the machine, not of this program: ``aarch64``, ``x86``, else ``x86_64``."""
        import ctypes  # here and below: a library that most commands do without

        process, native = ctypes.c_ushort(), ctypes.c_ushort()
        ctypes.windll.kernel32.IsWow64Process2(ctypes.c_void_p(-1), ctypes.byref(process), ctypes.byref(native))
        return {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "x86"}.get(native.value, "x86_64")

    def usable_cores() -> int:
        """Number of logical processors of the machine, 1 where unknown."""
        return os.cpu_count() or 1

    def read_at(handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes of a file descriptor from that offset; unlike `os.pread` it moves the position."""
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)

    def write_at(handle: int, data: bytes, offset: int) -> None:
        """Write the bytes to the file descriptor at that offset, which moves its position; raises `OSError`."""
        os.lseek(handle, offset, os.SEEK_SET)
        os.write(handle, data)

    def sync_folder(folder: str | os.PathLike[str]) -> None:
        """Does nothing: NTFS journals its folders."""

    def sync_all() -> None:
        """Does nothing: only an administrator may flush a volume."""

    def set_blocking(handle: int) -> None:
        """Does nothing: reading waits."""

    def disk_space(path: str | os.PathLike[str]) -> tuple[int, int]:
        """Total bytes, and bytes this user may still write, of the volume with the folder or its nearest parent.

        Raises `OSError`.
        """
        import ctypes

        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        folder = os.fspath(path)
        while not os.path.isdir(folder) and (above := os.path.dirname(folder)) != folder:  # noqa: PTH112, PTH120
            folder = above
        if not ctypes.windll.kernel32.GetDiskFreeSpaceExW(folder, ctypes.byref(free), ctypes.byref(total), None):
            raise ctypes.WinError()
        return total.value, free.value

    def inodes(path: str | os.PathLike[str]) -> tuple[int, int]:
        """Always (0, 0), no limit: NTFS makes its file records as needed."""
        return 0, 0

    def is_read_only(path: str | os.PathLike[str]) -> bool:
        """Always False: not asked on Windows."""
        return False

    def give_to(place: str | os.PathLike[str], uid: int, gid: int) -> None:
        """Does nothing: what is made here is its maker's, as lists (ACLs) have it."""

    def clone(source: int, goal: int) -> None:
        """Raises `OSError`: NTFS has no copy-on-write clones."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    _GENERIC_WRITE, _SHARE_ALL, _OPEN_EXISTING = 0x40000000, 7, 3
    _SHARING_VIOLATION = 32
    _REPLACE_SECONDS = 1.0
    """How long a file may be held by who only looks at it, as virus scanners do with each new one."""

    def replace(source: str | os.PathLike[str], goal: str | os.PathLike[str]) -> None:
        """Rename the file to `goal` in the place of what is there.

        Tries for a second while a program holds that, then raises `PermissionError`.
        """
        end = time.monotonic() + _REPLACE_SECONDS
        while True:
            try:
                return os.replace(source, goal)  # noqa: PTH105
            except PermissionError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.02)

    def is_held(place: str | os.PathLike[str]) -> bool:
        """Whether a program has the file loaded or open, so that it cannot be written to; False for any other error."""
        import ctypes

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = ctypes.c_void_p
        handle = kernel.CreateFileW(os.fspath(place), _GENERIC_WRITE, _SHARE_ALL, None, _OPEN_EXISTING, 0, None)
        if handle == ctypes.c_void_p(-1).value:
            return ctypes.get_last_error() == _SHARING_VIOLATION
        kernel.CloseHandle(ctypes.c_void_p(handle))
        return False

    def reason(error: OSError) -> str:
        """Why it failed, in a few words: that a program has the file open, else the system's message."""
        place = error.filename2 or error.filename
        held = isinstance(error, PermissionError) and isinstance(place, str) and is_held(place)
        return "a program has it open: end that" if held else error.strerror or str(error)

    _LOCKED = 1 << 30
    """Where the locked byte lies: behind all text, which others can then read while the lock is held."""

    def lock(handle: int, shared: bool = False) -> None:
        """Lock the file for us alone, even if `shared`, until it is closed; `BlockingIOError` if another holds it."""
        os.lseek(handle, _LOCKED, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, error.strerror) from None

else:
    import fcntl
    import grp
    import pwd

    _FICLONE = 0x40049409  # linux/fs.h

    ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
    """Signals by which a process is asked to end, besides Ctrl-C."""
    READ = os.O_RDONLY
    """Flags of `os.open` that read a file's bytes as they are."""
    READ_WRITE = os.O_RDWR
    NO_FOLLOW, NON_BLOCKING = os.O_NOFOLLOW, os.O_NONBLOCK
    NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
    """The errors of what is not there, also of a name that nothing can have."""
    ENCODES_BY_CODE_PAGE = False
    """Whether files and pipes have an encoding that depends on the machine."""
    CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
    """Ticks in a second of the times in /proc."""

    def user_id() -> int:
        """Effective id of the user that this process runs as; -1 on Windows."""
        return os.geteuid()

    def file_name(name: str) -> str:
        """The name under which a file of another system is kept on this one: unchanged, but for Windows."""
        return name

    original_name = file_name
    """The inverse of `file_name`."""

    def long_path(folder: str) -> str:
        """The path unchanged; on Windows the form that may be longer than 260 characters."""
        return folder

    HAS_LINKS = True
    """Whether every user may make symbolic links."""

    def account(uid: int) -> Account:
        """The user with that id; raises `KeyError` for none."""
        found = pwd.getpwuid(uid)
        return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)

    ACCESS_IS_LISTED = False
    """Whether lists (ACLs) instead of modes say who may change a file."""

    def group(gid: int) -> tuple[str, frozenset[str]]:
        """Name and members of the group with that id; raises `KeyError` for none."""
        found = grp.getgrgid(gid)
        return found.gr_name, frozenset(found.gr_mem)

    def extended_attributes(place: str) -> list[str]:
        """Names of the file's extended attributes, links not followed; raises `OSError` where there are none."""
        return os.listxattr(place, follow_symlinks=False)

    def device_numbers(status: os.stat_result) -> str:
        """Major and minor number of a device, as ``195:0``."""
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"

    groups_of = os.getgrouplist
    """Ids of all groups that the user is in."""

    def node_name() -> str:
        """Name of this machine on the network, as ``uname -n`` prints it."""
        return os.uname().nodename

    def machine_name() -> str:
        """Architecture of this machine: ``x86_64``, ``aarch64``."""
        return os.uname().machine

    def usable_cores() -> int:
        """Number of logical processors that this process may run on."""
        return len(os.sched_getaffinity(0))

    read_at = os.pread
    """Up to `size` bytes at that offset."""

    def write_at(handle: int, data: bytes, offset: int) -> None:
        """Write the bytes to the file descriptor at that offset, its position unchanged; raises `OSError`."""
        os.pwrite(handle, data, offset)

    def sync_folder(folder: str | os.PathLike[str]) -> None:
        """Flushes the folder's entries to disk (fsync); raises `OSError`."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    sync_all = os.sync
    """Flushes all that was written to disk."""

    def set_blocking(handle: int) -> None:
        """Has reading wait again, where the file was opened with `NON_BLOCKING`."""
        os.set_blocking(handle, True)

    def disk_space(path: str | os.PathLike[str]) -> tuple[int, int]:
        """Total bytes, and bytes that an unprivileged user may still write, of the file system that holds `path`."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def inodes(path: str | os.PathLike[str]) -> tuple[int, int]:
        """Total and free inodes of the file system that holds `path`; (0, 0) where it makes them as needed."""
        status = os.statvfs(path)
        return status.f_files, status.f_favail

    def is_read_only(path: str | os.PathLike[str]) -> bool:
        """Whether the file system that holds `path` is mounted read-only."""
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def give_to(place: str | os.PathLike[str], uid: int, gid: int) -> None:
        """Change the owner and the group of a file or link; -1 leaves either as it is."""
        os.chown(place, uid, gid, follow_symlinks=False)

    def clone(source: int, goal: int) -> None:
        """Make the open file `goal` a copy-on-write clone of `source`; raises `OSError` where there are none."""
        fcntl.ioctl(goal, _FICLONE, source)

    replace = os.replace
    """Rename the file to `goal` in the place of what is there."""

    def is_held(place: str | os.PathLike[str]) -> bool:
        """Whether a program has the file loaded or open, so that it cannot be written to: never so on POSIX."""
        return False

    def reason(error: OSError) -> str:
        """The system's message for the error, without number and path."""
        return error.strerror or str(error)

    def lock(handle: int, shared: bool = False) -> None:
        """Lock the file, `shared` or for us alone, until it is closed; `BlockingIOError` if another holds it."""
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def is_root() -> bool:
    """Whether this process runs as root; never on Windows."""
    return user_id() == 0


_SIGNALS = """
HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ
VTALRM PROF WINCH IO PWR SYS
"""
"""The signals of Linux on x86 and Arm, from number 1 on (signal(7))."""


def signal_name(number: int) -> str:
    """Name of a signal of Linux, ``SIGKILL``, whatever system this runs on; ``signal 40`` for one without a name."""
    names = _SIGNALS.split()
    return f"SIG{names[number - 1]}" if 0 < number <= len(names) else f"signal {number}"


# ---- A command as one line to type ----

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PLAIN = re.compile(r"[\w%+=:./\\~-][\w@%+=:./\\~-]*")
"""Words that PowerShell takes as they are; a comma would make a list of one, a ``>`` a file."""


def shell_line(argv: Sequence[str]) -> str:
    """The words quoted and joined; as PowerShell takes them where the command is one of Windows.

    ``& "C:\\Program Files\\py\\python.exe" -m pip install "torch>=2"``: a quoted program is called by ``&``.
    """
    if not is_of_windows(argv):
        return shlex.join(argv)
    line = " ".join(word if _PLAIN.fullmatch(word) else _quoted(word) for word in argv)
    return f"& {line}" if line.startswith('"') else line


_WINDOWS_PROGRAM = re.compile(r"(?:[A-Za-z]:)?(?:.*[\\/])?([^\\/]+)\.(?:exe|bat|cmd)", re.I)


def is_of_windows(argv: Sequence[str]) -> bool:
    """Whether the command is for Windows: by a drive's path, an ``.exe``, ``.bat`` or ``.cmd``, or winget or wsl."""
    known = any(_DRIVE.match(word) or _WINDOWS_PROGRAM.fullmatch(word) for word in argv)
    return known or any(program_name(word) in ("winget", "wsl") for word in argv[:1])


def program_name(word: str) -> str:
    """Last part of a program's path; for Windows lower case without suffix: ``python`` of ``C:\\py\\Python.exe``."""
    program = _WINDOWS_PROGRAM.fullmatch(word)
    if program:
        return program[1].lower()
    of_windows = _DRIVE.match(word) or word.startswith("\\\\")  # a drive or a share, on whatever system this runs
    return (PureWindowsPath if of_windows else PurePath)(word).name


def _quoted(word: str) -> str:
    """The word in double quotes for PowerShell: backticks, dollars and double quotes, typographic ones too, escaped."""
    return '"' + re.sub(r'([`$"\u201c-\u201e])', r"`\1", word) + '"'


# ---- Standard streams: what they lead to, made fit to write to; and the end of the process ----

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def on_a_terminal() -> bool:
    """Whether the interface can be shown: all standard streams are terminals (not dumb), or it runs in a browser."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    seen = all(stream and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"
    return seen or in_a_browser()


def in_a_browser() -> bool:
    """Whether the interface is drawn for a browser (``--serve``), by ``TEXTUAL_DRIVER`` in the environment."""
    return "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "")


def restore_child_statuses() -> None:
    """Undo that whoever started us has SIGCHLD ignored: the kernel would drop how each child ends, as if all went well.

    What we start then has the default, too.
    """
    if sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def prepare_streams() -> None:
    """Open closed standard streams on the null device, buffer a raw stdout, and escape what stdout cannot encode.

    On Windows the streams are UTF-8 as well.
    A closed descriptor would be the next file that anybody opens; an unbuffered stream drops the rest of a short write.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_null_device(number, name)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and isinstance(out.buffer, io.RawIOBase):
        sys.stdout = out = open(out.fileno(), "w", buffering=1, encoding=out.encoding, closefd=False)  # noqa: SIM115
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # a terminal that cannot print a name still gets the report
    if ENCODES_BY_CODE_PAGE:
        _use_utf8()


def _use_utf8() -> None:
    """Have standard streams that are no terminals read and write UTF-8, and write lines that end with LF."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            if stream is sys.stdin:
                stream.reconfigure(encoding="utf-8", errors="replace")
            else:
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _open_null_device(number: int, name: str) -> None:
    """Opens the null device as that standard stream; does nothing where it cannot."""
    try:
        place = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return
    if place == number:
        os.set_inheritable(place, True)
    mode = "w" if number else "r"
    setattr(sys, name, open(place, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


_UNINTERRUPTED = 0.2
"""Seconds that one wait for a thread may take on Windows, where no signal ends it early."""


def join_until(thread: threading.Thread, deadline: float) -> None:
    """Wait for the thread to end, at most until that time of `time.monotonic`; Ctrl-C interrupts the wait on each
    system.
    """
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(min(left, _UNINTERRUPTED) if ENCODES_BY_CODE_PAGE else left)


def is_reader_gone(error: Exception) -> bool:
    """Whether writing output failed because nobody reads it any more: Windows' C library calls that EINVAL."""
    if not ENCODES_BY_CODE_PAGE or not isinstance(error, OSError):
        return isinstance(error, BrokenPipeError)
    return error.errno in (errno.EPIPE, errno.EINVAL) and error.filename is None


def is_disk_full(error: OSError) -> bool:
    """Whether writing output failed for lack of space (or an I/O error) on the output stream itself."""
    return error.errno in _NO_ROOM and error.filename is None


def finish_process(code: int) -> int:
    """The exit code, returned if no daemon thread is left; else the process ends here with it and nothing is returned.

    Before that it waits for the threads that are no daemons and runs the exit handlers. CPython before 3.14 can crash
    on daemon threads (gh-87135).
    """
    if not any(thread.daemon for thread in threading.enumerate()):
        return code
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 (what os._exit leaves out: children are ended, what was unpacked is removed)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
