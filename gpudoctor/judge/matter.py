"""Whether a text speaks of what our pages are about at all, so that one of them may be near to it."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Known
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot

_OURS = pattern(
    r"gpu|cuda|nvidia|nv(?:ml|rm|link|cc|enc|api)|nccl|gloo|cudnn|cublas|torch|(?<!safe)tensor|\bjax|driver|v-?ram\b"
    r"|rocm|\bhip|graphic|\b[rg]tx|geforce|tesla|quadro|\bxid|pci|infiniband|\bib\b|mlx5|rdma|\brank|distribut|dkms"
    r"|modprobe|secure boot|\bmok\b|nouveau|\bwsl|triton|device|kernel|docker|container|\bpod\b|\.dll|\.so\b|显卡|驱动",
    re.IGNORECASE,
)
"""What a text on GPU software speaks of somewhere. One that does not is, say, of a refused download."""
_ANOTHER_VENDORS = pattern(
    r"\b(?:ROCm|rocm-?smi|rocminfo|amd-?smi|amdgpu|HIP_VISIBLE_DEVICES|gfx\d{3,4}|mlx(?:\.core|_lm)?|Vulkan backend)\b",
    re.IGNORECASE,
)
_NVIDIAS = pattern(
    r"nvidia|nvrm|nouveau|cuda|cudnn|nccl|nvlink|nvml|geforce|quadro|tesla|\b[rg]tx ?\d|\b[ABHLV]\d{2,3}\b"
    r"|rccl|infiniband|\broce|\bibv_|\bmlx5",
    re.IGNORECASE,
)
"""NVIDIA's own, and the networks that other vendors' GPUs use as well."""


def is_on_our_matter(snapshot: Snapshot) -> bool:
    """Whether some line names GPU software, and not that of another vendor alone."""
    rows = snapshot.rows("text")
    states = [row.get("line") for row in rows] if isinstance(rows, tuple) else []
    lines = [str(state.value) for state in states if isinstance(state, Known)]
    if any(map(_NVIDIAS.search, lines)):
        return True
    return any(map(_OURS.search, lines)) and not any(map(_ANOTHER_VENDORS.search, lines))
