"""Keeps the namespaces it was started in, until its standard input ends; then ends whatever still runs in them.

Its input is a pipe of the process that runs the tests, so that nothing is left behind however that process ended.
Run as a file, by an interpreter without site packages: ``python -S -E holder.py HOSTNAME ETC``. `ETC` is a folder of
files that stand for those of ``/etc``; both may be empty.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys


def main(name: str, etc: str) -> None:
    """Set the host up, say that it is ready, wait, and end all that shares its network."""
    if name:
        socket.sethostname(name)
    for file in os.listdir(etc) if etc else ():
        subprocess.run(["mount", "--bind", f"{etc}/{file}", f"/etc/{file}"], check=True)
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=False, stderr=subprocess.DEVNULL)
    for scope in ("default", "all"):  # link-local addresses are usable at once
        with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv6/conf/{scope}/accept_dad", "w") as setting:
            setting.write("0")
    print("ready", flush=True)
    sys.stdin.read()
    for pid in others(os.readlink("/proc/self/ns/net")):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def others(network: str) -> list[int]:
    """Process ids of all others in a network namespace."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdecimal() and os.readlink(f"/proc/{entry}/ns/net") == network:
                found.append(int(entry))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


if __name__ == "__main__":
    main(*sys.argv[1:3])
