"""Torch stacks as a solver gives them, for the few builds of the recordings, from what the tables say of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpudoctor.model.stack import GPU, Need, Reason, Remedy, Stack, Wishes
from gpudoctor.model.version import parse

INDEX = "https://download.pytorch.org/whl"
_ARCHS_126 = "50 60 70 75 80 86 90"
_ARCHS_128 = "70 75 80 86 90 100 120"
_ARCHS_13 = "75 80 86 90 100 120"


@dataclass(frozen=True, slots=True)
class Build:
    """A wheel of torch, with what belongs beside it."""

    torch: str
    cuda: str
    archs: str
    vision: str
    cudnn: str
    nccl: str
    mib: float

    @property
    def name(self) -> str:
        """``cu126``."""
        return "cu" + self.cuda.replace(".", "")

    @property
    def floor(self) -> str:
        """The oldest driver that serves its CUDA."""
        return "580.65.06" if self.cuda.startswith("13") else "525.60.13"


BUILDS = (
    Build("2.15.0", "13.2", _ARCHS_13, "0.29.2", "9.26.0.51", "2.30.7", 2290),
    Build("2.14.1", "13.2", _ARCHS_13, "0.29.1", "9.24.0.43", "2.30.7", 2270),
    Build("2.14.1", "13.0", _ARCHS_13, "0.29.1", "9.24.0.43", "2.30.7", 2260),
    Build("2.14.1", "12.6", _ARCHS_126, "0.29.1", "9.10.2.21", "2.29.3", 2840),
    Build("2.9.1", "13.0", _ARCHS_13, "0.24.1", "9.13.0.50", "2.27.7", 2250),
    Build("2.9.1", "12.8", _ARCHS_128, "0.24.1", "9.10.2.21", "2.27.5", 2950),
    Build("2.9.1", "12.6", _ARCHS_126, "0.24.1", "9.10.2.21", "2.27.5", 2810),
)
_SOURCES = (
    "file names and METADATA of the wheels (2026-11-21)",
    "NVIDIA's CUDA 13.4 Update 1 release notes, driver tables",
)


def answer(wishes: Wishes, python: str = "python") -> Stack:
    """The newest of those builds that serves these GPUs under this driver, and what is said of the others."""
    wanted = [build for build in BUILDS if not wishes.torch or build.torch.startswith(f"{wishes.torch}.")]
    reasons = list(_reasons(wishes, wanted))
    fitting = [build for build, reason in zip(wanted, reasons, strict=True) if reason.standing != "rejected"]
    releases = list(dict.fromkeys(build.torch for build in BUILDS))
    offers = {"torch": ("2.15", "2.14", "2.9")}
    heading = f"torch {wishes.torch} comes for CUDA" if wishes.torch else f"Builds of torch {', '.join(releases)}"
    if wishes.torch:
        heading += f" {', '.join(sorted(build.cuda for build in wanted))}"
    common = Stack(wishes, "", heading=heading, reasons=tuple(reasons), sources=_SOURCES, offers=offers)
    if not fitting:
        return replace(common, smallest=_smallest(wishes, wanted))
    best = fitting[0]
    packages = [("torch", f"{best.torch}+{best.name}")]
    if "torchvision" in wishes.extras:
        packages.append(("torchvision", f"{best.vision}+{best.name}"))
    return replace(
        common,
        torch=packages[0][1],
        packages=tuple(packages),
        libraries=(
            ("CUDA runtime", f"{best.cuda}  (in the wheels)"),
            ("cuDNN", best.cudnn),
            ("NCCL", best.nccl),
        ),
        needs=tuple(_needs(wishes, best)),
        commands=_commands(packages, best, python),
        files=_files(packages, best, wishes),
        remarks=_remarks(wishes, best),
        downloads_mib=best.mib,
    )


def _archs(wishes: Wishes) -> list[str]:
    return [gpu.compute_capability.replace(".", "") for gpu in wishes.gpus if gpu.compute_capability]


def _reasons(wishes: Wishes, builds: list[Build]) -> Iterator[Reason]:
    chosen = False
    for build in builds:
        name = f"{build.torch} CUDA {build.cuda}"
        missing = next((arch for arch in _archs(wishes) if arch not in build.archs.split()), "")
        driver = parse(wishes.driver)
        floor = parse(build.floor)
        if driver and floor and driver < floor:
            yield Reason(name, "rejected", f"needs driver {build.floor}; this machine runs {wishes.driver}")
        elif missing:
            yield Reason(name, "rejected", f"has no code for sm_{missing}")
        else:
            said = f"CUDA {build.cuda.partition('.')[0]}.x runs on driver {build.floor} and newer"
            yield Reason(name, "fits" if chosen else "chosen", f"fits too: {said}" if chosen else f"the newest: {said}")
            chosen = True


def _needs(wishes: Wishes, build: Build) -> Iterator[Need]:
    yield Need("driver", f"{build.floor} or newer", wishes.driver, True)
    for arch in _archs(wishes):
        yield Need(f"sm_{arch}", "compiled in", "", True)


def _commands(packages: list[tuple[str, str]], build: Build, python: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    pins = [f"{name}=={version}" for name, version in packages]
    uv = [f"{name}=={version.partition('+')[0]}" for name, version in packages]
    return {
        "pip": ((python, "-m", "pip", "install", *pins, "--index-url", f"{INDEX}/{build.name}"),),
        "uv": (("uv", "pip", "install", "--python", python, *uv, f"--torch-backend={build.name}"),),
    }


def _files(packages: list[tuple[str, str]], build: Build, wishes: Wishes) -> dict[str, str]:
    pins = "\n".join(f"{name}=={version}" for name, version in packages)
    minor = ".".join(wishes.python.split(".")[:2])
    words = pins.replace("\n", " ")
    return {
        "requirements": f"--index-url {INDEX}/{build.name}\n{pins}\n",
        "dockerfile": (
            f"# docker run --gpus all --shm-size=8g IMAGE\nFROM python:{minor}-slim\n"
            f"RUN pip install --no-cache-dir {words} --index-url {INDEX}/{build.name}\n"
        ),
    }


def _remarks(wishes: Wishes, build: Build) -> tuple[str, ...]:
    newest = BUILDS[0]
    if build is newest or wishes.torch:
        return ()
    return (f"With driver {newest.floor} or newer, torch {newest.torch} for CUDA {newest.cuda} would fit.",)


def _smallest(wishes: Wishes, builds: list[Build]) -> tuple[Remedy, ...]:
    floor = min(build.floor for build in builds)
    older = next(build for build in BUILDS if not build.cuda.startswith("13"))
    minor = ".".join(older.torch.split(".")[:2])
    return (
        Remedy("driver", "580.95.05", f"driver {floor} or newer"),
        Remedy("torch", minor, f"torch {minor}, for CUDA {older.cuda}"),
    )


def recorded(read: Wishes, python: str) -> list[Stack]:
    """Answers for that machine, for the same with a driver of branch 580, and for what one is likely to ask of it."""
    machines = [read]
    if read.driver < "580":
        machines.append(replace(read, driver="580.95.05"))
    return [
        answer(replace(machine, torch=torch, extras=extras), python)
        for machine in machines
        for torch in ("", "2.15", "2.14", "2.9")
        for extras in (("torchvision",), ())
    ]


H100 = Wishes((GPU("NVIDIA H100 80GB HBM3", "9.0", 8),), "535.183.06", "3.11.9", "linux", "x86_64")
