"""Every table is whole: each row has what it must, versions are text that parses, nothing stands twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core import versions
from gpudoctor.diagnosis import pages
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.diagnosis.knowledge.archs import codes_of_list
from gpudoctor.diagnosis.knowledge.gpus import gpu_capability

FOLDER = pages.home() / "tables"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))

COLUMNS = {
    "drivers": {
        "family": "major linux windows",
        "toolkit": "cuda* linux",
        "branch": "branch*",
        "shipped": "distribution release branches",
    },
    "compilers": {"nvcc": "cuda* gcc_max targets source"},
    "gpus": {"generation": "cc* arch", "family": "match* cc", "gpu": "name* cc kind", "device": "from* to chip"},
    "torch": {
        "early": "version* linux newest pythons",
        "release": "version* linux aarch64 pythons requires_python glibc cxx11 torchvision torchaudio",
        "build": "torch* build* cuda",
        "toolkit": "cuda nvrtc runtime",
        "glibc": "glibc distributions",
    },
    "companions": {
        "xformers": "version",
        "vllm": "version torch",
        "tensorflow": "version cuda cudnn",
        "jax": "version cuda_major",
        "bitsandbytes": "first last cuda",
        "flash_attn": "version torch wheel pythons abis archs",
        "source_builds": "name versions torch cuda",
        "sdists": "name source",
        "support": "name cc systems source",
    },
    "images": {
        "distribution": "image* release* tags python glibc",
        "ngc": "release* cuda torch python",
        "made_for_gpus": "image*",
    },
    "nccl": {
        "path": "name meaning",
        "ib_status": "code name",
        "variable": "name",
        "renamed": "name now source",
        "risk": "name match says source",
        "factor": "collective factor",
        "busbw": "platform collective",
        "line_rate": "link rate",
    },
    "xid": {"action": "name text", "xid": "code* name class", "sxid": "code* name fatal"},
    "codes": {"nvml": "code name", "cuda": "code name", "nccl": "code name", "clock_event": "bit name"},
    "rates": {
        "product": "cc",
        "reached": "kernels share source",
        "lane": "generation* rate",
        "nvlink": "version* rate",
    },
    "symbols": {"symbol": "match* says"},
}
"""Columns that each row must have; no two rows have the same in those with an asterisk."""
VERSIONS = re.compile(
    r"cuda|linux|windows|branch|cc|version|torch|torchvision|torchaudio|triton|cudnn|nccl|floor|ceiling|first|last|glibc"
)


def rows(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for group, entries in table(name).items():
        if isinstance(entries, list) and entries and isinstance(entries[0], dict):
            for row in entries:
                yield group, row


@pytest.mark.parametrize("name", NAMES)
def test_each_row_has_what_it_must(name: str) -> None:
    assert set(COLUMNS[name]) == {group for group, _ in rows(name)}
    for group, row in rows(name):
        must = COLUMNS[name][group].split()
        assert {column.rstrip("*") for column in must} <= set(row), f"{name}.{group}: {row}"
    for group, columns in COLUMNS[name].items():
        keys = [column[:-1] for column in columns.split() if column.endswith("*")]
        seen = Counter(tuple(row[key] for key in keys) for found, row in rows(name) if keys and found == group)
        assert [key for key, times in seen.items() if times > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_each_table_says_whence_and_when(name: str) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", table(name)["checked"])
    assert all(isinstance(source, str) and source.strip() for source in table(name)["source"])
    assert all(row.get("source", "-").strip() for _, row in rows(name))


@pytest.mark.parametrize("name", NAMES)
def test_versions_are_text_that_parses(name: str) -> None:
    """A bare 12.10 would be 12.1."""
    for group, row in rows(name):
        for column, value in row.items():
            assert not isinstance(value, float) or column in ("rate", "bandwidth", "nvlink", "share", "transfers"), (
                f"{name}.{group}.{column} {value}"
            )
            if (
                VERSIONS.fullmatch(column)
                and value
                and (name, column) not in {("torch", "linux"), ("torch", "windows")}
            ):
                assert isinstance(value, str), f"{name}.{group}.{column} {value!r}"
                for part in value.split():
                    assert versions.parse(part.lstrip("<>=~")), f"{name}.{group}.{column} {part!r}"


def test_architecture_lists_are_architectures() -> None:
    for _, row in rows("torch"):
        for column in ("archs", "windows", "aarch64"):
            if "build" in row and column in row:
                assert codes_of_list(row[column])
    for _, row in rows("compilers"):
        assert codes_of_list(row["targets"])


def test_tables_agree_with_each_other() -> None:
    generations = {row["cc"] for row in table("gpus")["generation"]}
    for _, row in rows("gpus"):
        if "cc" in row:
            assert set(row["cc"].split()) <= generations, row
    releases = {row["version"] for row in table("torch")["release"]}
    assert {row["torch"] for row in table("torch")["build"]} == releases
    built = {(row["torch"], row["build"]) for row in table("torch")["build"]}
    for release in table("torch")["release"]:
        for default in (release["linux"], release["aarch64"]):
            assert default == "cpu" or (release["version"], default) in built
    for row in table("torch")["build"]:
        assert row["build"] == "cu" + row["cuda"].replace(".", "")


def test_every_product_is_of_the_family_its_name_says() -> None:
    """The name patterns, tried on the names whose capability is published, never contradict it."""
    families = table("gpus")["family"]
    for row in table("gpus")["gpu"]:
        family = next((one for one in families if re.match(one["match"], row["name"], re.IGNORECASE)), None)
        assert family is None or row["cc"] in family["cc"].split(), f"{row['name']}: {family}"
        if family and "nvlink" in family:
            assert family["nvlink"] == ("nvlink" in row), row["name"]


def test_device_ranges_are_apart_and_agree_with_the_products_in_them() -> None:
    ranges = [(int(row["from"], 16), int(row["to"], 16), row["chip"]) for row in table("gpus")["device"]]
    assert all(first <= last for first, last, _ in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    for row in table("gpus")["gpu"]:
        for number in (int(device, 16) for device in row.get("pci", "").split()):
            chip = next((chip for first, last, chip in ranges if first <= number <= last), None)
            assert chip is None or gpu_capability(chip) == row["cc"], f"{row['name']} {number:04x} {chip}"


def test_branches_fall_and_their_cuda_with_them() -> None:
    branches = [row for row in table("drivers")["branch"] if "cuda" in row]
    for newer, older in pairwise(branches):
        assert int(newer["branch"]) > int(older["branch"])
        assert versions.parse(newer["cuda"]) >= versions.parse(older["cuda"])  # type: ignore[operator]


def test_a_warm_start_parses_no_toml(tmp_path: Path) -> None:
    ask = (
        "import sys; from gpudoctor.diagnosis.knowledge.gpus import gpu_capability as ask; ask('Tesla T4');"
        " print(*sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def modules() -> set[str]:
        done = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True, env=environment)
        return set(done.stdout.split())

    parsers = {"tomllib", "tomli"}
    assert parsers & modules()
    assert not parsers & modules()
