"""What facts are about, by the first part of their names: the order in which they are listed and compared."""

from __future__ import annotations

from collections.abc import Mapping

TOPICS: Mapping[str, tuple[str, ...]] = {
    "driver": ("driver", "nvml", "cuda_driver", "cuda_device", "node", "kernel_log", "xid", "sxid", "stuck"),
    "gpu": ("gpu", "gpu_ecc", "gpu_process", "mig", "nvlink", "fabric", "imex", "p2p", "rate", "deviation"),
    "kernels": ("measured", "rung"),
    "bus": ("pci", "aer", "gpu_path", "gpu_pair", "topology"),
    "torch": ("torch", "live", "live_gpu", "pin", "triton"),
    "libraries": ("libs", "lib", "cuda", "toolkit", "extension", "bitsandbytes", "jax", "tf"),
    "environment": ("env", "container", "service", "limits", "wsl"),
    "python": ("python", "package", "manifest", "requirement"),
    "network": ("nccl", "libnccl", "net", "interface", "setting", "rdma", "tried"),
    "cluster": (
        *("fleet", "machine", "silence", "outlier", "split", "job", "rank", "barrier", "suspect"),
        *("link", "flow", "collective"),
    ),
    "host": ("host", "package_change", "mce", "oom", "fitness", "space"),
}
"""Where a fact is shown, by the first part of its name; the most telling first."""
OTHER = "other"
"""Where all other facts are shown."""
