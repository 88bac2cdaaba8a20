"""Which unmet lines are mere consequences of a cause that was found: these are folded under it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.expect.profile import FactLine, Line
from gpudoctor.model.diagnosis import Finding

_GPUS = (
    r"gpu\.|gpu_\w+\.|nvlink\.|mig\.|p2p\.|cuda_driver\.|cuda_device\.|live\.|live_gpu\.|measured\.|nvml\.|topology\."
)
_DRIVER = r"driver\.|fabric\.|imex\.|container\.lacks"
_NONE = rf"(?:{_GPUS}|{_DRIVER}|pci\.)"
_CONSEQUENCES: Mapping[str, str] = {
    "host.no-gpu": _NONE,
    "host.other-vendor": _NONE,
    **dict.fromkeys(
        (
            "driver.missing",
            "driver.module-not-built",
            "driver.module-not-loaded",
            "driver.nouveau",
            "driver.secure-boot",
            "driver.version-mismatch",
            "driver.init-failed",
            "driver.gpu-dropped",
            "driver.too-old-for-gpu",
            "driver.open-module-required",
            "driver.device-nodes",
            "nvml.failed",
            "container.no-gpu",
            "container.capabilities",
            "container.cgroup-lost",
            "container.driver-in-image",
            "wsl.libcuda",
            "wsl.linux-driver",
        ),
        rf"(?:{_GPUS}|{_DRIVER})",
    ),
    "gpu.fell-off-bus": rf"(?:{_GPUS}|driver\.bound_count|pci\.)",
    "gpu.reset-required": rf"(?:{_GPUS})",
    "gpu.nvlink-down": r"(?:nvlink\.|gpu\.links|gpu\.fabric_|p2p\.|measured\.)",
    "driver.fabric-manager": r"(?:fabric\.|driver\.fabric_|gpu\.fabric_|nvlink\.|gpu\.links|live|measured\.|cuda_d)",
    "driver.fabric-pending": r"gpu\.fabric_",
    "driver.imex": r"imex\.",
    "driver.cuda-failed": r"(?:cuda_driver\.|cuda_device\.|live|measured\.)",
    "driver.uvm": r"(?:driver\.uvm|cuda_driver\.|cuda_device\.|live|measured\.)",
    "gpu.mig": r"(?:gpu\.mig|mig\.|cuda_d|live|measured\.)",
    "gpu.mig-pending": r"gpu\.mig",
    "gpu.compute-mode": r"gpu\.compute_mode",
    "gpu.ecc": r"gpu\.(?:ecc_|remap|retired|sram|recovery)",
    "gpu.throttled": r"(?:gpu\.(?:throttle|clock_mhz|power)|measured\.)",
    "gpu.slow": r"measured\.",
    "gpu.copies-slow": r"measured\.",
    "gpu.pcie-degraded": r"(?:gpu\.link_|pci\.link_|measured\.)",
    "gpu.pcie-switch": r"(?:pci\.uplink|measured\.)",
    "nccl.infiniband": r"rdma\.",
    "nccl.slow": r"measured\.",
    "nccl.failed": r"measured\.",
    "container.shm": r"limits\.shm",
    "container.shm-small": r"limits\.shm",
    "torch.missing": r"(?:torch\.|live)",
    "torch.cpu-build": r"(?:torch\.|live)",
    "torch.rocm-build": r"(?:torch\.|live)",
    "torch.import-failed": r"live",
    "torch.import-broken": r"live",
    "torch.cuda-unavailable": r"live",
    "torch.driver-too-old": r"live",
    "env.visible-devices": r"(?:cuda_d|live|env\.CUDA_VISIBLE)",
    "env.visible-devices-partial": r"(?:cuda_d|live|env\.CUDA_VISIBLE)",
}
"""The facts, by the beginning of their names, that are not as they should be because of a cause."""


def explains(cause: Finding, line: Line, unmet: Finding) -> bool:
    """Whether the line is unmet because of that cause, as far as the facts it rests on tell.

    What is wrong with one GPU does not explain what is wrong with another; a guess explains nothing.
    """
    if cause.confidence == "possible" or cause.severity == "info":
        return False
    if cause.about and unmet.about and not unmet.about <= cause.about:
        return False
    pattern = _CONSEQUENCES.get(cause.id)
    facts = [line.fact] if isinstance(line, FactLine) else [_dotted(item.fact) for item in unmet.evidence]
    return bool(pattern and facts) and all(re.match(pattern or "", fact) for fact in facts)


def _dotted(name: str) -> str:
    """A fact's name; of a whole group, such as ``gpu``, its beginning."""
    return name if "." in name else f"{name}."
