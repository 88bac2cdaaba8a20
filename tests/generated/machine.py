"""Which machines there are: combinations that the tables say run, drawn by a seeded generator."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from random import Random

from tests.generated import tables
from tests.generated.tables import Build, Driver, Row


@dataclass(frozen=True)
class System:
    """A Linux distribution as it is installed."""

    distribution: str
    version: str
    manager: str
    kernel: str
    glibc: str
    gcc: str


SYSTEMS = (
    System("ubuntu", "20.04", "apt", "5.15.0-139-generic", "2.31", "9.4.0"),
    System("ubuntu", "22.04", "apt", "6.5.0-45-generic", "2.35", "11.4.0"),
    System("ubuntu", "24.04", "apt", "6.8.0-79-generic", "2.39", "13.3.0"),
    System("debian", "12", "apt", "6.1.0-31-amd64", "2.36", "12.2.0"),
    System("debian", "13", "apt", "6.12.41+deb13-amd64", "2.41", "14.2.0"),
    System("rhel", "8.10", "dnf", "4.18.0-553.el8_10.x86_64", "2.28", "8.5.0"),
    System("rocky", "9.6", "dnf", "5.14.0-570.12.1.el9_6.x86_64", "2.34", "11.5.0"),
    System("fedora", "42", "dnf", "6.16.4-200.fc42.x86_64", "2.41", "15.2.1"),
    System("arch", "", "pacman", "6.16.5-arch1-1", "2.42", "15.2.1"),
    System("opensuse-leap", "15.6", "zypper", "6.4.0-150600.23.60-default", "2.38", "7.5.0"),
)
BARE = ("bare", "bare", "bare")
PLACES = (*BARE, "vm", "docker", "podman", "kubernetes", "wsl", "vgpu")


@dataclass(frozen=True)
class Machine:
    """One sound environment, in the terms in which it was chosen."""

    gpu: Row
    count: int
    driver: Driver
    module: str
    build: Build
    python: str
    system: System
    place: str
    level: str
    toolkit: str | None
    companions: tuple[str, ...]
    environment: str
    mig: int
    busy: bool
    old_hardware: bool = field(default=False)

    @property
    def contained(self) -> bool:
        return self.place in ("docker", "podman", "kubernetes")

    @property
    def name(self) -> str:
        """As the driver prints it."""
        short: str = self.gpu["name"]
        if self.place == "vgpu":
            return f"GRID {short.split('-')[0]}-{max(1, self.gpu['memory_gib'] // 4)}C"
        return short if short.startswith("Tesla") or tables.numbers(self.driver.version)[0] < 470 else f"NVIDIA {short}"

    @property
    def nvswitch(self) -> bool:
        """Whether this is a board with NVSwitches: all eight GPUs on bare metal."""
        return bool(self.gpu.get("nvswitch")) and self.count == 8 and self.place not in ("vm", "vgpu")

    @property
    def datacenter(self) -> bool:
        return str(self.gpu["kind"]) == "data-center"

    def __str__(self) -> str:
        where = f"{self.place} {self.system.distribution} {self.system.version}"
        what = f"torch {self.build.version} python {self.python} toolkit {self.toolkit} mig {self.mig}"
        return f"{self.count}x {self.name}, driver {self.driver.version} {self.module}, {what}, {where}, {self.level}"


def machines(seed: int, places: tuple[str, ...] = PLACES) -> Iterator[Machine]:
    """Sound machines without end, the same for the same seed."""
    random = Random(seed)
    while True:
        machine = _drawn(random, random.choice(places))
        if machine:
            yield machine


def _drawn(random: Random, place: str) -> Machine | None:
    """A machine of that place, or None where what was drawn does not go together."""
    which, of = random.randrange(len(tables.gpus())), random.randrange(len(tables.builds()))
    gpu, build = tables.gpus()[which], tables.builds()[of]
    arch = "aarch64" if gpu["name"].startswith(("GH", "GB")) else "x86_64"
    if build.arch != arch or not _goes_with(gpu, place):
        return None
    fitting = _fitting(which, of, place == "wsl")
    system = random.choice(SYSTEMS)
    if not fitting or tables.numbers(system.glibc) < tables.numbers(build.release["glibc"]):
        return None
    driver = random.choice(fitting)
    count = _count(random, gpu, place)
    return Machine(
        gpu=gpu,
        count=count,
        driver=driver,
        module=random.choice(tables.modules(gpu, driver)),
        build=build,
        python=_python(random, build),
        system=system,
        place=place,
        level=random.choice(("quick", "standard")),
        toolkit=_toolkit(random, gpu, build, system),
        companions=tuple(name for name in ("torchvision", "torchaudio", "triton") if random.random() < 0.7),
        environment=random.choice(("venv", "venv", "conda", "system")),
        mig=_mig(random, gpu, place),
        busy=random.random() < 0.2,
        old_hardware=tables.numbers(gpu["cc"]) < (7, 5),
    )


@cache
def _fitting(which: int, of: int, windows: bool) -> tuple[Driver, ...]:
    """The drivers under which the GPU of that number runs the build of that number."""
    gpu, build = tables.gpus()[which], tables.builds()[of]
    return tuple(
        driver
        for driver in tables.drivers(windows)
        if tables.known_since(gpu, driver)
        and tables.serves(driver, build.cuda, windows)
        and tables.has_code(build.archs, gpu["cc"], driver, build.cuda)
    )


def _goes_with(gpu: Row, place: str) -> bool:
    if place == "vgpu":
        return gpu["name"] in ("A10", "A16", "A40", "L4", "L40", "L40S", "A100-PCIE-40GB") and bool(gpu["memory_gib"])
    if place == "wsl":
        return gpu["kind"] != "data-center" and tables.numbers(gpu["cc"]) >= (6, 0)
    if gpu["kind"] == "laptop":
        return place in ("bare", "docker")
    return "memory_gib" in gpu


def _count(random: Random, gpu: Row, place: str) -> int:
    if gpu["kind"] in ("laptop", "embedded") or place in ("vgpu", "wsl") or gpu["name"].startswith("GH"):
        return 1
    if gpu["name"].startswith(("GB200", "GB300")):
        return 4
    if gpu.get("nvswitch") and place != "vm":
        return 8
    return random.choice((1, 2, 4, 8) if gpu["kind"] == "data-center" else (1, 1, 2, 4))


def _python(random: Random, build: Build) -> str:
    plain = [tag for tag in build.release["pythons"].split() if not tag.endswith("t")]
    tag = random.choice(plain)
    return f"{tag[2]}.{tag[3:]}.{random.randrange(2, 14)}"


def _toolkit(random: Random, gpu: Row, build: Build, system: System) -> str | None:
    """A CUDA toolkit that builds extensions for this torch, this GPU and this compiler, if there is one."""
    major, minor = tables.numbers(gpu["cc"])
    fitting = [
        row["cuda"]
        for row in tables.table("compilers")["nvcc"]
        if row["cuda"].split(".")[0] == build.cuda.split(".")[0]
        and f"sm_{major}{minor}" in row["targets"].split()
        and int(system.gcc.split(".")[0]) <= row["gcc_max"]
    ]
    return random.choice(fitting) if fitting and random.random() < 0.5 else None


def _mig(random: Random, gpu: Row, place: str) -> int:
    """Instances that the first GPU is divided into."""
    able = gpu["name"].startswith(("A100", "A30", "H100", "H200", "B200"))
    return random.choice((2, 7)) if able and place == "bare" and random.random() < 0.15 else 0
