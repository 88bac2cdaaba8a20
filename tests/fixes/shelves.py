"""The shelves of a package index as PyTorch's and NVIDIA's stand there, of stubs that gpudoctor reads as the real ones.

torch has its ``version.py``, pins of NVIDIA's wheels, and a library with fat binaries for the architectures of that
build; NVIDIA's wheels have the files whose names clash between CUDA majors.
"""

import sys

from tests.environments import CUBIN, container, elf, entry
from tests.fixes.index import Index
from tests.fixes.wheels import Wheel, nvidia

TAG = "cp{0}{1}-cp{0}{1}-manylinux_2_28_x86_64".format(*sys.version_info)
CUDNN, NCCL = "cudnn/lib/libcudnn.so.9", "nccl/lib/libnccl.so.2"


def torch(version: str, cuda: str, archs: tuple[int, ...], pins: tuple[str, ...]) -> Wheel:
    """torch of that version, ``2.9.0+cu128``; `cuda` empty for one without it."""
    text = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda or None!r}\nhip = None\ngit_version = 'a8d6afb'\n"
    fat = container(*(entry(CUBIN, arch) for arch in archs)) * 40
    library = {"torch/lib/libtorch_cuda.so": elf({".nv_fatbin": fat})} if cuda else {"torch/lib/libtorch_cpu.so": b"x"}
    files = {"torch/__init__.py": b"def main():\n    pass\n", "torch/version.py": text.encode(), **library}
    return Wheel("torch", version, pins, files, {"torchrun": "torch:main"}, tag=TAG)


def companion(name: str, version: str, of: str) -> Wheel:
    """torchvision or torchaudio for that release of torch."""
    return Wheel(name, version, (f"torch=={of}",), {f"{name}/version.py": f"{version!r}\n".encode()}, tag=TAG)


def family(
    release: str, build: str, cuda: str, archs: tuple[int, ...], vision: str, audio: str, *pins: str
) -> list[Wheel]:
    """torch and its companions in one build; `pins` are of NVIDIA's wheels and of triton."""
    end = f"+{build}"
    return [
        torch(f"{release}{end}", cuda, archs, pins),
        companion("torchvision", f"{vision}{end}", release),
        companion("torchaudio", audio, release),
    ]


_12 = ("nvidia-cudnn-cu12==9.10.2.21", "nvidia-nccl-cu12==2.27.5", "triton==3.5.0")
_13 = ("nvidia-cudnn-cu13==9.26.0.51", "nvidia-nccl-cu13==2.30.7", "triton==3.9.0")
LIBRARIES = (
    nvidia("nvidia-cudnn-cu12", "9.10.2.21", CUDNN),
    nvidia("nvidia-cudnn-cu12", "9.1.0.70", CUDNN),
    nvidia("nvidia-cudnn-cu11", "9.1.0.70", CUDNN),
    nvidia("nvidia-nccl-cu12", "2.27.5", NCCL),
    nvidia("nvidia-cudnn-cu13", "9.26.0.51", CUDNN),
    nvidia("nvidia-nccl-cu13", "2.30.7", NCCL),
    Wheel("triton", "3.5.0", tag=TAG),
    Wheel("triton", "3.9.0", tag=TAG),
)


def stock(index: Index) -> Index:
    """A shelf for each build, and one for everything else; without the build cu130."""
    index.add(*family("2.9.0", "cpu", "", (), "0.24.0", "2.9.0+cpu"), shelf="cpu")
    turing = (70, 75, 80, 86, 90, 100, 120)
    index.add(*family("2.9.0", "cu128", "12.8", turing, "0.24.0", "2.9.0+cu128", *_12), *LIBRARIES, shelf="cu128")
    index.add(companion("torchvision", "0.23.0+cu128", "2.8.0"), shelf="cu128")
    newest = (75, 80, 86, 90, 100, 120)
    index.add(*family("2.15.0", "cu132", "13.2", newest, "0.29.2", "2.11.0", *_13), *LIBRARIES, shelf="cu132")
    return index.add(companion("torchaudio", "2.11.0", "2.15.0"), *LIBRARIES)
