"""A launcher's short form of host names, written out: ``node[1-4,7]``."""

from __future__ import annotations

import shutil
import subprocess


def expanded(short: str) -> list[str]:
    """Each name; of Slurm's own program where it is there, else ClusterShell's; empty where nobody can tell."""
    if not short:
        return []
    if "[" not in short:
        return short.split(",")
    return _of_slurm(short) or _of_clustershell(short)


def _of_slurm(short: str) -> list[str]:
    scontrol = shutil.which("scontrol")
    if not scontrol:
        return []
    try:
        done = subprocess.run(
            [scontrol, "show", "hostnames", short], check=False, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def _of_clustershell(short: str) -> list[str]:
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
    except ImportError:
        return []
    try:
        return [str(name) for name in NodeSet(short)]
    except NodeSetException:
        return []
