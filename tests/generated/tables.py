"""What runs on what, read from the tables' rows by logic of its own: it is the look-ups that are put to the test.

The drivers are written down by hand, with the CUDA that nvidia-smi prints under each: a second source.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Row = Mapping[str, Any]

LINUX = """
418.226.00 10.1, 440.100 10.2, 450.248.02 11.0, 460.106.00 11.2, 465.31 11.3, 470.161.03 11.4, 470.256.02
11.4, 495.46 11.5, 510.108.03 11.6, 515.105.01 11.7, 520.61.05 11.8, 525.60.13 12.0, 525.147.05 12.0,
530.30.02 12.1, 535.54.03 12.2, 535.183.01 12.2, 535.247.01 12.2, 545.23.08 12.3, 550.54.15 12.4, 550.90.07
12.4, 550.163.01 12.4, 555.42.06 12.5, 560.35.03 12.6, 565.57.01 12.7, 570.86.15 12.8, 570.124.06 12.8,
570.195.03 12.8, 575.57.08 12.9, 575.64.03 12.9, 580.65.06 13.0, 580.82.07 13.0, 580.95.05 13.0, 580.105.08
13.0, 590.44.01 13.1, 590.48.01 13.1, 595.45.04 13.2, 595.71.05 13.2, 610.43.02 13.3
"""
WINDOWS = """
472.50 11.4, 512.95 11.6, 516.94 11.7, 522.25 11.8, 528.49 12.0, 531.79 12.1, 537.58 12.2, 546.33 12.3, 551.86
12.4, 552.44 12.4, 555.99 12.5, 560.94 12.6, 566.36 12.7, 572.83 12.8, 576.88 12.9, 580.88 13.0, 581.57 13.0,
591.59 13.1
"""


class Driver(NamedTuple):
    """A driver that was released, and the newest CUDA that it serves."""

    version: str
    cuda: str


class Build(NamedTuple):
    """A wheel of torch: the rows of its release and of its CUDA build, and the architectures on this platform."""

    release: Row
    build: Row
    archs: tuple[str, ...]
    arch: str

    @property
    def version(self) -> str:
        return f"{self.release['version']}+{self.build['build']}"

    @property
    def cuda(self) -> str:
        return str(self.build["cuda"])


def numbers(version: str) -> tuple[int, ...]:
    """570.124.06 as numbers that compare."""
    return tuple(int(part) for part in version.split("."))


@lru_cache
def table(name: str) -> Row:
    path = Path(__file__).parents[2] / "rules" / "tables" / f"{name}.toml"
    loaded: Row = tomllib.loads(path.read_text("utf-8"))
    return loaded


@lru_cache
def drivers(windows: bool = False) -> tuple[Driver, ...]:
    return tuple(Driver(*entry.split()) for entry in (WINDOWS if windows else LINUX).split(","))


@lru_cache
def gpus() -> tuple[Row, ...]:
    """Discrete GPUs that any CUDA build of torch since 1.8 has code for, one row a name."""
    rows = {row["name"]: row for row in table("gpus")["gpu"] if not row.get("rare")}
    return tuple(row for row in rows.values() if numbers(row["cc"]) >= (3, 7))


@lru_cache
def builds() -> tuple[Build, ...]:
    return tuple(_builds())


def _builds() -> Iterator[Build]:
    releases = {row["version"]: row for row in table("torch")["release"]}
    for row in table("torch")["build"]:
        for column, arch in (("archs", "x86_64"), ("aarch64", "aarch64")):
            if column in row and row["torch"] in releases:
                yield Build(releases[row["torch"]], row, tuple(row[column].split()), arch)


def generation(cc: str) -> Row:
    return next(row for row in table("gpus")["generation"] if row["cc"] == cc)


def known_since(gpu: Row, driver: Driver) -> bool:
    """Whether the driver knows the GPU and still serves it."""
    own, floor = numbers(driver.version), numbers(str(gpu.get("first") or generation(gpu["cc"])["floor"]))
    ceiling = generation(gpu["cc"]).get("ceiling")
    branch = own[0] - own[0] % 5  # Windows counts on inside a branch: 581.57 is of 580
    return own >= floor and (ceiling is None or branch <= int(ceiling))


def has_code(archs: tuple[str, ...], cc: str, driver: Driver, cuda: str) -> bool:
    """Whether a build has machine code for the GPU, or PTX that the driver may compile."""
    major, minor = numbers(cc)
    for arch in archs:
        kind, _, digits = arch.partition("_")
        code = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and code[0] == major and code[1] <= minor:
            return True
        if kind == "compute" and code <= (major, minor) and numbers(driver.cuda) >= numbers(cuda):
            return True
    return False


def serves(driver: Driver, cuda: str, windows: bool = False) -> bool:
    """Whether the driver runs that CUDA: one of its major release since 11, its own or an older one before."""
    wanted, own = numbers(cuda), numbers(driver.cuda)
    floors = {11: "452.39" if windows else "450.80.02", 12: "527.41" if windows else "525.60.13", 13: "580.65.06"}
    if own >= wanted:
        return True
    return wanted[0] in floors and numbers(driver.version) >= numbers(floors[wanted[0]])


def modules(gpu: Row, driver: Driver) -> tuple[str, ...]:
    """The kinds of kernel modules that drive this GPU with that driver."""
    kind = gpu.get("module") or generation(gpu["cc"])["module"]
    if kind == "required":
        return ("open",)
    if kind == "unsupported" or numbers(driver.version)[0] < 515:
        return ("proprietary",)
    return ("open", "proprietary")
