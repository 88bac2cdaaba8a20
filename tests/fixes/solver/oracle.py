"""The rules of what runs where, stated a second time and tried by brute force over the tables as they are written.

Of what goes beside torch every version of every package is tried. Nothing of the solver or of the knowledge room is
called: an error there must not be repeated here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpudoctor.diagnosis.page_cache import home, toml

Row = Mapping[str, Any]
Numbers = tuple[int, ...]
TORCH, BESIDE, DRIVERS, GPUS, COMPILERS = (
    toml(home() / "tables" / f"{name}.toml") for name in ("torch", "companions", "drivers", "gpus", "compilers")
)
RELEASES: dict[str, Row] = {row["version"]: row for row in TORCH["release"]}
ON_CHIP = {(5, 3), (6, 2), (7, 2), (8, 7)}


class Place(NamedTuple):
    """The wheels, the Python, the C library and the GPUs of a machine."""

    column: str
    python: str
    libc: str
    capabilities: tuple[Numbers, ...]


@cache
def numbers(text: str) -> Numbers:
    """(12, 8) of ``12.8``."""
    return tuple(int(part) for part in text.split("."))


BUILDS: list[Row] = sorted(TORCH["build"], key=lambda row: (numbers(row["torch"]), numbers(row["cuda"])), reverse=True)


@cache
def inside(specifier: str, version: str) -> bool:
    """Whether the version is one of those."""
    return SpecifierSet(specifier).contains(version, prereleases=True)


@cache
def tag(python: str) -> str:
    """``cp313t`` of ``3.13t``."""
    bare = python.rstrip("t").split(".")
    return f"cp{bare[0]}{bare[1]}{'t' if python.endswith('t') else ''}" if python else ""


@cache
def minor_of(python: str) -> Numbers:
    """(3, 12) of ``3.12.4``."""
    return numbers(".".join(python.rstrip("t").split(".")[:2]))


@cache
def how(codes: str, capability: Numbers) -> str:
    """``sm`` where machine code in the list runs on the GPU, ``compute`` where only PTX would; else empty."""
    best = ""
    for code in codes.split():
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)", code)
        assert match
        made = int(match[2]), int(match[3])
        same_chip = made == capability or not {made, capability} & ON_CHIP
        if match[1] == "sm" and made[0] == capability[0] and made <= capability and same_chip:
            return "sm"
        if match[1] == "compute" and made <= capability:
            best = "compute"
    return best


ORDER = ("vllm", "torchvision", "torchaudio", "triton", "xformers", "flash-attn", "bitsandbytes", "tensorflow", "jax")
ROWS: dict[tuple[str, str], Row] = {(row["torch"], row["build"]): row for row in TORCH["build"]}
Offer = tuple[str, bool]
"""A version, and whether it must be compiled."""


@cache
def released(name: str, torch: str, build: str, place: Place) -> list[Offer]:
    """Every version of a package that goes with the build there."""
    row = ROWS[torch, build]
    if not allowed(name, row, place):
        return []
    if name in ("torchvision", "torchaudio", "triton"):
        return [(RELEASES[torch][name], False)] if name in RELEASES[torch] else []
    if name == "flash-attn":
        return [*flash_attn(row, place), *compiled(row, place)]
    return [(version, False) for one in BESIDE[name] for version in named(name, one) if goes(name, one, row, place)]


def agree(picked: Mapping[str, Offer]) -> bool:
    """Whether none pins another to a version that was not picked."""
    if "vllm" not in picked:
        return True
    pins = next(one for one in BESIDE["vllm"] if one["version"] == picked["vllm"][0])
    return all(pins.get(name, version) == version for name, (version, _) in picked.items() if name != "vllm")


def allowed(name: str, row: Row, place: Place) -> bool:
    """Whether the package serves the system, the kind of Python and every GPU at all."""
    asks: Row = next((one for one in BESIDE["support"] if one["name"] == name), {})
    floor = asks.get(f"cc_{row['cuda'].split('.')[0]}", asks.get("cc", "0.0"))
    return (
        place.column in asks.get("systems", "linux aarch64 windows").split()
        and all(capability >= numbers(floor) for capability in place.capabilities)
        and not (place.python.endswith("t") and asks.get("free_threaded") is False)
    )


def named(name: str, one: Row) -> list[str]:
    """The versions that a row stands for: both ends of a range are tried."""
    return sorted({one["first"], one["last"]}) if name == "bitsandbytes" else [one["version"]]


def goes(name: str, one: Row, row: Row, place: Place) -> bool:
    """Whether the release of that row goes with the build of torch, on that place."""
    cuda, usual = numbers(row["cuda"]), int(RELEASES[row["torch"]]["linux"][2:-1])
    if not python_fits(one.get("requires_python", ""), place):
        return False
    if place.column not in one.get("machines", place.column).split() or not libc_fits(one, place):
        return False
    if name == "vllm":
        return bool(one["torch"] == row["torch"]) and cuda[0] == usual
    if name == "xformers":
        same = one["torch"] == row["torch"] if "torch" in one else inside(one["needs"], row["torch"])
        return bool(same) and (row["build"] in one["builds"].split() if "builds" in one else cuda[0] == usual)
    if name == "bitsandbytes":
        has = any(numbers(each)[:2] == cuda for each in one["cuda"].split())
        return has and inside(one["torch"], row["torch"])
    if name == "tensorflow":
        native = place.column != "windows" or numbers(one["version"])[:2] <= (2, 10)
        python = not place.python or minor_of(place.python) in ranges(one["python"])
        same = numbers(one["cuda"])[0] == cuda[0]
        return native and python and same and libraries_fit(one.get("needs", {}), row)
    return bool(one["cuda_major"] == cuda[0]) and libraries_fit(one, row)


def flash_attn(row: Row, place: Place) -> Iterator[Offer]:
    """Its wheels, by torch, CUDA major, Python, C++ ABI, code and C library."""
    abi = str(row.get("cxx11", RELEASES[row["torch"]]["cxx11"]) is True).upper()
    for one in BESIDE["flash_attn"]:
        if (
            ".".join(row["torch"].split(".")[:2]) in one["torch"].split()
            and one["wheel"][2:4] == row["cuda"].split(".")[0]
            and abi in one["abis"].split()
            and (not place.python or tag(place.python) in one["pythons"].split())
            and place.column in one.get("machines", "linux").split()
            and all(how(one["archs"], capability) == "sm" for capability in place.capabilities)
            and libc_fits(one, place)
        ):
            yield one["version"], False


def compiled(row: Row, place: Place) -> Iterator[Offer]:
    """What nvcc can make of its source."""
    source = next(one for one in BESIDE["source_builds"] if one["name"] == "flash-attn")
    fits = inside(source["torch"], row["torch"]) and inside(source["cuda"], row["cuda"])
    if fits and python_fits(source["requires_python"], place):
        yield from ((version, True) for version in source["versions"].split())


def libraries_fit(needs: Row, row: Row) -> bool:
    """Whether the cuDNN, NCCL and cuBLAS that the build pins are what a package asks for; unknown ones are taken to."""
    cublas = [one.get("cublas") for one in TORCH["toolkit"] if one["cuda"] == row.get("toolkit")]
    have = {"cudnn": row.get("cudnn"), "nccl": row.get("nccl"), "cublas": (cublas or [None])[0]}
    for name, version in have.items():
        if version and name in needs:
            asked = needs[name] if needs[name][0] in "<>=!~" else f"=={needs[name]}"
            if not inside(asked, version):
                return False
    return True


def python_fits(requires: str, place: Place) -> bool:
    """Whether ``requires_python`` takes the machine's."""
    return not requires or not place.python or inside(requires, ".".join(map(str, minor_of(place.python))))


def libc_fits(one: Row, place: Place) -> bool:
    """Whether the wheel's own floor is met."""
    if "glibc" not in one or not place.libc:
        return True
    return place.libc != "musl" and numbers(place.libc) >= numbers(one["glibc"])


@cache
def ranges(written: str) -> set[Numbers]:
    """The Pythons of ``2.7, 3.5-3.8``."""
    found: set[Numbers] = set()
    for part in written.split(", "):
        first, last = numbers(part.split("-")[0]), numbers(part.split("-")[-1])
        found |= {(first[0], minor) for minor in range(first[1], last[1] + 1)}
    return found


@dataclass(frozen=True)
class Machine:
    """A machine in plain texts; empty is not known. `gpus` are names with compute capabilities, () where unknown."""

    gpus: tuple[tuple[str, Numbers], ...]
    driver: str
    python: str
    os: str
    arch: str
    libc: str

    @cached_property
    def column(self) -> str:
        """Whose wheels it takes; empty where there are none."""
        if self.os == "windows":
            return "windows" if self.arch in ("x86_64", "") else ""
        return {"x86_64": "linux", "": "linux", "aarch64": "aarch64"}.get(self.arch, "")

    @property
    def floors(self) -> str:
        """The column of driver versions that count."""
        return "windows" if self.os in ("windows", "wsl") else "linux"

    @cached_property
    def capabilities(self) -> tuple[Numbers, ...]:
        """Those that are known."""
        return tuple(dict.fromkeys(capability for _, capability in self.gpus if capability))

    @cached_property
    def place(self) -> Place:
        """What counts for packages beside torch."""
        return Place(self.column, self.python, self.libc if self.os != "windows" else "", self.capabilities)


@cache
def branch(major: int) -> int:
    """The nearest branch of the tables at or below that number, twelve away at most; 0 where there is none."""
    near = [int(row["branch"]) for row in DRIVERS["branch"] if 0 <= major - int(row["branch"]) <= 12]
    return max(near, default=0)


@cache
def reaches(driver: str, floor: str) -> bool:
    """Whether a driver is at least that one; a bare number is the newest driver of its branch."""
    own, other = branch(numbers(driver)[0]), branch(numbers(floor)[0])
    if "." not in driver and own and other:
        return own >= other
    width = max(len(numbers(driver)), len(numbers(floor)))
    have, least = ((*numbers(one), *[0] * width)[:width] for one in (driver, floor))
    return have >= least


@cache
def cuda_floor(cuda: str, column: str) -> str:
    """The oldest driver for a CUDA: that of its family, or from CUDA 10 back that of the toolkit itself."""
    own = [row[column] for row in DRIVERS["toolkit"] if numbers(row["cuda"])[:2] == numbers(cuda) and column in row]
    for family in DRIVERS["family"]:
        if family["major"] == numbers(cuda)[0]:
            return str(min([family[column], *own[-1:]], key=numbers))
    return str(own[-1])


@cache
def newest_cuda(driver: str) -> Numbers:
    """The newest CUDA that a driver serves in full; empty where the tables do not say."""
    major = numbers(driver)[0]
    cudas = [row.get("cuda", "") for row in DRIVERS["branch"] if int(row["branch"]) == branch(major)]
    if not cudas and major > max(int(one["branch"]) for one in DRIVERS["branch"]):
        return (99, 0)
    return numbers(cudas[0]) if cudas and cudas[0] else ()


def driver_takes_gpus(machine: Machine) -> bool:
    """Whether the driver's branch serves every generation, and one kind of kernel modules drives them all."""
    kinds = set()
    for row in GPUS["generation"]:
        if numbers(row["cc"]) not in machine.capabilities or row.get("soc"):
            continue
        kinds.add(row.get("module"))
        if machine.driver and "floor" in row and not reaches(machine.driver, row["floor"]):
            return False
        if machine.driver and "ceiling" in row:
            major = numbers(machine.driver)[0]
            if (branch(major) or major) > int(row["ceiling"]):
                return False
    return machine.os != "linux" or not {"required", "unsupported"} <= kinds


@cache
def listed(torch: str, build: str, column: str) -> str | None:
    """The code in a wheel as the tables have it, or as the newest release before it has it; None: no such wheel."""
    row = next(row for row in TORCH["build"] if (row["torch"], row["build"]) == (torch, build))
    if column == "windows":
        if row.get("windows_wheel") is False:
            return None
        if "windows" in row:
            return str(row["windows"])
        linux = listed(torch, build, "linux") or ""
        return " ".join(code for code in linux.split() if code.startswith("sm"))
    if column == "aarch64" and "aarch64" not in row and RELEASES[torch]["aarch64"] != build:
        return None
    key = "archs" if column == "linux" else column
    same = [one for one in TORCH["build"] if one["build"] == build and key in one]
    older = [one for one in same if numbers(one["torch"]) <= numbers(torch)]
    return str(max(older, key=lambda one: numbers(one["torch"]))[key])


@cache
def own_list(torch: str, build: str, column: str) -> bool:
    """Whether that code stands on the build's own row."""
    row = next(row for row in TORCH["build"] if (row["torch"], row["build"]) == (torch, build))
    return {"linux": "archs" in row, "aarch64": "aarch64" in row, "windows": "windows" in row or "archs" in row}[column]


@cache
def cuda_knows(cuda: str, capability: Numbers) -> bool:
    """Whether the compiler of that CUDA makes any machine code that runs on the GPU."""
    row = next(row for row in COMPILERS["nvcc"] if row["cuda"] == cuda)
    plain = re.sub(r"\w+[af]\b", "", row["targets"]).replace("sm_101", "sm_110")
    return how(" ".join(plain.split()), capability) == "sm"


@cache
def served(torch: str, build: str, cuda: str, column: str, capability: Numbers) -> str:
    """How a build serves a GPU: ``sm``, ``compute``, or not at all."""
    way = how(listed(torch, build, column) or "", capability)
    return "" if way == "compute" and not cuda_knows(cuda, capability) else way


@cache
def tags(torch: str, column: str) -> list[str]:
    """The Pythons that a release has wheels for."""
    row = RELEASES[torch]
    return list(row.get(f"{column}_pythons", row["pythons"]).split())


def torch_fits(row: Row, machine: Machine, place: Place) -> bool:
    """Whether a build of torch runs on the machine, whatever goes beside it."""
    torch, build, cuda = row["torch"], row["build"], row["cuda"]
    if not place.column or listed(torch, build, place.column) is None or not tags(torch, place.column):
        return False
    if place.python and tag(place.python) not in tags(torch, place.column):
        return False
    if place.libc and (
        place.libc == "musl" or numbers(place.libc) < numbers(row.get("glibc", RELEASES[torch]["glibc"]))
    ):
        return False
    if machine.driver and not reaches(machine.driver, cuda_floor(cuda, machine.floors)):
        return False
    ways = {served(torch, build, cuda, place.column, capability) for capability in place.capabilities}
    jits = not machine.driver or newest_cuda(machine.driver) >= numbers(cuda)
    return "" not in ways and ("compute" not in ways or jits)


@dataclass(frozen=True)
class Found:
    """A build that fits, with versions beside it."""

    torch: str
    build: str
    beside: tuple[tuple[str, str], ...]
    compiled: bool


@cache
def specifiers(wants: tuple[str, ...]) -> dict[str, SpecifierSet]:
    """What is wanted of each package."""
    found: dict[str, SpecifierSet] = {}
    for text in wants:
        requirement = Requirement(text)
        found[requirement.name] = found.get(requirement.name, SpecifierSet()) & requirement.specifier
    return found


def everything(machine: Machine, wants: Iterable[str]) -> Iterator[Found]:
    """All that fits."""
    asked = {name: str(specifier) for name, specifier in specifiers(tuple(wants)).items()}
    torch, place = asked.pop("torch", ""), machine.place
    if driver_takes_gpus(machine):
        for row in of_version(torch):
            if torch_fits(row, machine, place):
                yield from best_beside(row, place, asked)


@cache
def of_version(torch: str) -> list[Row]:
    """The builds that a specifier of torch takes."""
    return [row for row in BUILDS if inside(torch, f"{row['torch']}+{row['build']}")]


def best_beside(row: Row, place: Place, asked: Mapping[str, str]) -> Iterator[Found]:
    """The build with the newest versions beside it: of the packages in their order, ready wheels first."""
    names = [name for name in ORDER if name in asked]
    choices = [
        [one for one in released(name, row["torch"], row["build"], place) if inside(asked[name], one[0])]
        for name in names
    ]
    good = [several for several in product(*choices) if agree(dict(zip(names, several, strict=True)))]
    if good:
        best = max(good, key=lambda several: [(not compiled, Version(version)) for version, compiled in several])
        found = tuple((name, version) for name, (version, _) in zip(names, best, strict=True))
        yield Found(row["torch"], row["build"], found, any(compiled for _, compiled in best))


def best(machine: Machine, wants: Iterable[str]) -> tuple[Found | None, set[tuple[str, str]]]:
    """The best of all that fits, and which builds do."""
    found = list(everything(machine, wants))
    rows = {(row["torch"], row["build"]): row for row in BUILDS}

    def merit(one: Found) -> tuple[Any, ...]:
        row = rows[one.torch, one.build]
        column, cuda, release = machine.column, numbers(row["cuda"]), RELEASES[one.torch]
        ways = [served(one.torch, one.build, row["cuda"], column, each) for each in machine.capabilities]
        return (
            not one.compiled,
            numbers(one.torch),
            not machine.gpus or own_list(one.torch, one.build, column),
            "compute" not in ways,
            cuda[0] >= int(release["linux"][2:-1]),
            not machine.driver or newest_cuda(machine.driver) >= cuda,
            column != "windows" and release[column] == one.build,
            cuda,
        )

    return max(found, key=merit, default=None), {(one.torch, one.build) for one in found}
