"""Process 1 of a cluster's namespaces: it lays out the hosts, collects whoever ends, and ends everything with itself.

Run as ``first.py HOST...`` in fresh mount, network, PID, UTS and IPC namespaces. It prints one JSON line, the process
that holds each host's namespaces; when its standard input ends it exits, and the kernel ends all others with it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

HEAD = "head"
_NETWORK = "10.31.0"
_WRITABLE = ("/run", "/etc/munge", "/etc/slurm", "/var/log/munge", "/var/lib/munge", "/var/spool")
"""Folders that daemons write to: the cluster, and then each host, gets empty ones of its own."""


def main(folder: str, names: list[str]) -> None:
    """Lay out the hosts and stay."""
    _run("mount", "--make-rprivate", "/")
    _empty(_WRITABLE)
    _run("mount", "--bind", f"{folder}/hosts", "/etc/hosts")
    _run("hostname", HEAD)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "br0", "type", "bridge")
    _run("ip", "addr", "add", f"{address(0)}/24", "dev", "br0")
    _run("ip", "link", "set", "br0", "up")
    holders = {name: _host(folder, name, place) for place, name in enumerate(names, 1)}
    sys.stdout.write(json.dumps({name: holder.pid for name, holder in holders.items()}) + "\n")
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    threading.Thread(target=_collect, daemon=True).start()
    sys.stdin.read()


def address(place: int) -> str:
    """The head's address (place 0), or that of the host at a place from 1 on."""
    return f"{_NETWORK}.{place or 254}"


def _host(folder: str, name: str, place: int) -> subprocess.Popen[bytes]:
    """One host: an interface eth0 on the bridge, a name, and programs of its own in /usr/local/sbin."""
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", f"port{place}", "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", f"port{place}", "master", "br0", "up")
    for words in (["link", "set", "lo", "up"], ["addr", "add", f"{address(place)}/24", "dev", "eth0"]):
        _run("ip", "-n", name, *words)
    _run("ip", "-n", name, "link", "set", "eth0", "up")
    script = f"""
        hostname {name}
        mount -t tmpfs -o mode=755 tmpfs /var/spool
        mount --bind {folder}/{name} /usr/local/sbin
        echo; exec sleep infinity
    """
    inside = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--uts", "sh", "-euc", script]
    holder = subprocess.Popen(inside, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert holder.stdout is not None
    if holder.stdout.readline() != b"\n":
        raise SystemExit(f"the host {name} did not start")
    return holder


def _empty(paths: tuple[str, ...]) -> None:
    for path in paths:
        Path(path).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _collect() -> None:
    """Wait for whatever ends: process 1 inherits every orphan."""
    while True:
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
