"""What the comparison knows of facts by name: how rows are matched, what is about what, and what always differs."""

from __future__ import annotations

import re
from collections.abc import Mapping

KEYS: Mapping[str, tuple[str, ...]] = {
    "aer": ("address", "severity", "kind"),
    "cuda_device": ("index",),
    "extension": ("name",),
    "gpu": ("index",),
    "gpu_ecc": ("gpu", "kind", "since", "location"),
    "gpu_pair": ("a", "b"),
    "gpu_path": ("address",),
    "gpu_process": ("gpu", "pid"),
    "interface": ("name",),
    "lib": ("name", "path"),
    "mce": ("kind", "where"),
    "mig": ("gpu", "profile"),
    "node": ("path",),
    "nvlink": ("gpu", "link"),
    "oom": ("process", "scope"),
    "p2p": ("gpu", "peer"),
    "package": ("name",),
    "pci": ("address",),
    "pin": ("name",),
    "deviation": ("gpu",),
    "rate": ("gpu", "unit"),
    "rdma": ("device", "port"),
    "setting": ("name",),
    "space": ("mount",),
    "stuck": ("name", "device"),
    "sxid": ("address", "code"),
    "text": ("line",),
    "toolkit": ("path",),
    "xid": ("address", "code"),
}
"""The columns by which rows of a group are matched; rows of other groups are matched by their place."""

MOVING = re.compile(
    r"gpu\.(?:temperature(?:_memory|_margin)?_c|memory_used_mib|bar1_used_mib|memory_free_mib|power_w|pstate|fan\w*"
    r"|(?:\w+_)?clock_mhz|(?:\w+_)?utilization|throttle_reasons|link_generation|link_replays)"
    r"|pci\.(?:link_speed|power_state)"  # an idle GPU lets its link and itself sleep
    r"|nvlink\.(?:crc|replay|recovery)_errors"
    r"|gpu\.processes|gpu_process(?:\..*)?|stuck\.(?:pid|seconds)"
    r"|host\.uptime_s|limits\.shm_free_mib|space\.free_mib"
    r"|fitness\.(?:load|memory_available_mib|hugepages_free|swap_used_mib|cpu_mhz)"
    r"|(?:xid|sxid|aer|mce|oom)\.(?:line|count|pid|(?:last_)?(?:time|age_s))"
    r"|[\w.]*\b(?:uuid|serial|address|remote_address|fabric_cluster|cluster_uuid|hostname|minor|pid|boot_id)"
    r"|interface\.(?:addresses|index)|net\.(?:\w+_address(?:es)?|gloo_why|host_foreign|master_\w+|port(?:_taken)?)"
    r"|env\.(?:RANK|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|SLURM_\w+|HOSTNAME)"
)
"""Facts that differ between any two machines, or any two moments on one."""

TEXT = re.compile(r"text(?:\..*)?|report\..*")
"""What was printed, and how much of it: facts about the text, not about the machine."""


SHARED_ONLY = ("pci", "gpu_path", "gpu_pair", "xid", "sxid", "aer")
"""Groups whose keys are those of one machine: where the sides share few, their rows are matched by place."""
