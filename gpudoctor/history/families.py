"""Which packages may have changed what a fact tells: the driver's packages what ``driver.*`` says, and so on.

Names of packages are those of Ubuntu, Debian, RHEL and Fedora (NVIDIA's repositories and RPM Fusion), SUSE, Arch, PyPI
and conda, as of November 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from gpudoctor.model.frozen import field, frozen


@frozen
class Family:
    """Packages of one thing, called `what`.

    `facts` are the beginnings of the names of facts that rest on them, `packages` a regular expression of their whole
    names. Those that `main` matches have the version of the whole thing; it is empty where each package is told by
    itself. `versions` are facts that hold versions, and what each is called. `revision`: what packagers add to a
    version is a part of it. `inside`: they are of the target's Python environment, not of the machine.
    """

    what: str
    facts: tuple[str, ...]
    packages: str
    main: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    revision: bool = False
    inside: bool = False

    def has(self, package: str) -> bool:
        """Whether it is one of them."""
        return re.fullmatch(self.packages, package) is not None

    def leads(self, package: str) -> bool:
        """Whether that one's version is the version of the whole."""
        return bool(self.main) and re.fullmatch(self.main, package) is not None


_DRIVER = (
    r"(?:lib)?nvidia-(?:driver|kernel|dkms|compute|utils|headless|firmware|open|lts|gl|cfg|decode|encode|extra|fbc|common"
    r"|persistenced|settings|ml|ptxjitcompiler|nvvm|cuda-mps|libcuda|modprobe|legacy|video)(?:$|[-_.\d].*)|nvidia|libcuda1"
    r"|(?:kmod|akmod)-nvidia.*|linux-modules-nvidia.*|(?:xorg-x11-drv|xserver-xorg-video)-nvidia.*|cuda-drivers.*"
)
_DRIVER_MAIN = (
    r"nvidia-(?:driver|kernel|dkms|utils|open|compute|headless)(?:$|[-_.\d].*)|libnvidia-compute.*|libcuda1|nvidia"
    r"|(?:kmod|akmod)-nvidia.*|xorg-x11-drv-nvidia(?:-cuda)?|cuda-drivers.*"
)

FAMILIES = (
    Family(
        "driver",
        ("driver.", "nvml.", "cuda_driver.", "cuda_device.", "node.", "kernel_log.", "xid.", "libs.libcuda"),
        _DRIVER,
        _DRIVER_MAIN,
        {"driver.library_version": "driver", "driver.version": "loaded driver"},
    ),
    Family(
        "kernel",
        (
            "host.kernel",
            "host.secure_boot",
            "host.module_signatures",
            "driver.module",
            "driver.headers",
            "driver.nouveau",
        ),
        r"linux(?:$|-(?!modules-nvidia).*)|kernel(?:$|-.*)|dkms|shim-signed|mokutil",
        r"linux-image-.*|linux(?:$|-(?:lts|zen|hardened))|kernel(?:$|-(?:core|default|longterm|uek))",
        {"host.kernel": "running kernel"},
        revision=True,
    ),
    Family(
        "fabric manager",
        ("fabric.", "imex.", "driver.fabric_manager", "driver.nvswitch", "gpu.fabric"),
        r"(?:cuda-drivers-|nvidia-)fabric-?manager.*|nvlsm|nvidia-imex.*",
        r"(?:cuda-drivers-|nvidia-)fabric-?manager.*|nvidia-imex.*",
        {"fabric.installed_version": "fabric manager", "imex.version": "IMEX"},
    ),
    Family(
        "container toolkit",
        ("container.",),
        r"(?:lib)?nvidia-container.*|docker.*|containerd.*|podman.*|cri-o.*|runc",
        versions={"container.toolkit_version": "NVIDIA Container Toolkit"},
    ),
    Family(
        "torch",
        (
            "torch.",
            "live.",
            "live_gpu.",
            "pin.",
            "python.",
            "package.",
            "triton.",
            "extension.",
            "libs.",
            "lib.",
            "nccl.",
            "libnccl.",
        ),
        r"(?:py)?torch(?:-.*|vision|audio)?|(?:pytorch-)?triton.*|nvidia-.*-cu\d\d|nvidia-(?:cublas|cudnn|nccl|cuda-).*"
        r"|flash-attn|xformers|vllm|cudatoolkit|libtorch",
        r"(?:py)?torch",
        {"torch.version": "torch", "python.version": "Python"},
        inside=True,
    ),
    Family(
        "CUDA toolkit",
        ("cuda.", "toolkit."),
        r"cuda(?!-drivers)(?:$|-.*)|libcu.*|libnv(?:jpeg|jitlink|rtc).*|nvidia-cuda-toolkit",
        r"cuda(?:-toolkit.*)?|nvidia-cuda-toolkit",
        {"cuda.nvcc_version": "nvcc"},
    ),
    Family(
        "NCCL",
        ("nccl.", "libnccl."),
        r"libnccl.*|nccl",
        r"libnccl2?|nccl",
        {"libnccl.version": "NCCL"},
    ),
    Family(
        "RDMA packages",
        ("rdma.", "interface."),
        r"rdma-core|libibverbs.*|mlnx.*|ofed.*|doca.*|ucx.*",
    ),
)


def of_facts(names: Iterable[str]) -> Iterator[Family]:
    """The families whose packages those facts rest on, each once."""
    told = tuple(names)
    for family in FAMILIES:
        if any(name.startswith(family.facts) for name in told):
            yield family
