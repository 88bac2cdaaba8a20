"""Where the kernel shows the control group of this process, in both versions of cgroups."""

from __future__ import annotations

import re

CGROUPS = "/sys/fs/cgroup"
NO_LIMIT = 1 << 60
"""Version 1 of cgroups writes "no limit" as the largest whole number of pages."""


def folders(cgroup_file: str, controller: str) -> list[str]:
    """The cgroup folders that may hold this process's limits, its own first, then each parent.

    `cgroup_file`: text of /proc/self/cgroup: ``0::/user.slice`` in version 2, ``4:memory:/docker/ab12`` in version 1.
    In a container the path may be the host's, which is not mounted here: the last folder, the mount, is then its own.
    """
    version1 = re.search(rf"^\d+:(?:[^:\n]*,)?{controller}(?:,[^:\n]*)?:(/.*)$", cgroup_file, re.M)
    version2 = re.search(r"^0::(/.*)$", cgroup_file, re.M)
    out: list[str] = []
    for match, mount in ((version1, f"{CGROUPS}/{controller}"), (version2, CGROUPS)):
        inside = match[1].rstrip("/") if match else None
        while inside:
            out.append(mount + inside)
            inside = inside.rpartition("/")[0]
        out += [mount] if match else []
    return out
