"""The oracle's rules of what goes beside torch: every version of every package, tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from tests.fixes.solver.oracle_tables import (
    BESIDE,
    RELEASES,
    TORCH,
    Numbers,
    Place,
    Row,
    how,
    inside,
    minor_of,
    numbers,
    tag,
)

ORDER = ("vllm", "torchvision", "torchaudio", "triton", "xformers", "flash-attn", "bitsandbytes", "tensorflow", "jax")
ROWS: dict[tuple[str, str], Row] = {(row["torch"], row["build"]): row for row in TORCH["build"]}
Version = tuple[str, bool]
"""A version, and whether it must be compiled."""


@cache
def released(name: str, torch: str, build: str, place: Place) -> list[Version]:
    """Every version of a package that goes with the build there."""
    row = ROWS[torch, build]
    if not allowed(name, row, place):
        return []
    if name in ("torchvision", "torchaudio", "triton"):
        return [(RELEASES[torch][name], False)] if name in RELEASES[torch] else []
    if name == "flash-attn":
        return [*flash_attn(row, place), *compiled(row, place)]
    return [(version, False) for one in BESIDE[name] for version in named(name, one) if goes(name, one, row, place)]


def agree(picked: Mapping[str, Version]) -> bool:
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


def flash_attn(row: Row, place: Place) -> Iterator[Version]:
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


def compiled(row: Row, place: Place) -> Iterator[Version]:
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
