"""A real torch, read by us without importing it and asked by importing it."""

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Fact, Rows
from gpudoctor.probes import cuda_libs, python_env, torch_build
from gpudoctor.probes._binaries import DefinedSymbols, opened, undefined_symbols
from gpudoctor.target.local import Local
from tests.environments import column, value

pytestmark = pytest.mark.full

ASK = """
import json, platform, sys, torch
maps = {line.split()[-1] for line in open("/proc/self/maps")}
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "git": torch.version.git_version,
    "path": torch.__path__[0], "python": platform.python_version(), "prefix": sys.prefix, "loaded": sorted(maps),
    "archs": torch._C._cuda_getArchFlags() if torch.version.cuda else None}))
"""


@pytest.fixture(scope="module")
def told(python: str) -> Mapping[str, object]:
    done = subprocess.run([python, "-c", ASK], check=True, capture_output=True, text=True, timeout=600)
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def read(python: str) -> Mapping[str, Fact | Rows]:
    target = Local("quick", python)
    return {name: fact for probe in (python_env, torch_build, cuda_libs) for name, fact in probe.probe(target)}


def test_the_build_is_what_torch_says_of_itself(told: Mapping[str, object], read: Mapping[str, Fact | Rows]) -> None:
    assert value(read, "torch.version") == told["version"]
    assert value(read, "torch.path") == told["path"]
    assert value(read, "torch.git") == told["git"]
    assert value(read, "python.version") == told["python"]
    assert value(read, "python.prefix") == told["prefix"]
    assert (value(read, "torch.cuda") if told["cuda"] else None) == told["cuda"]
    if told["cuda"]:
        assert value(read, "torch.archs") == tuple(str(told["archs"]).split())
    else:
        assert isinstance(read["torch.archs"], Absent)


def test_a_sound_environment_gives_no_false_alarm(read: Mapping[str, Fact | Rows]) -> None:
    for name in ("duplicates", "leftovers", "damaged", "overwritten"):
        assert value(read, f"python.{name}") == ()
    for name in ("pins_unmet", "companions_unmet", "companions_broken"):
        assert value(read, f"torch.{name}") == ()
    for name in ("shadowing", "missing", "clashes"):
        assert value(read, f"libs.{name}") == ()


def test_the_libraries_chosen_are_those_it_loaded(told: Mapping[str, object], read: Mapping[str, Fact | Rows]) -> None:
    taken = zip(column(read, "lib", "path"), column(read, "lib", "chosen"), strict=True)
    ours = {path for path, chosen in taken if chosen and "libcuda.so" not in str(path)}
    listed = set(column(read, "lib", "path"))
    loaded = told["loaded"]
    assert isinstance(loaded, list)
    assert ours == {path for path in loaded if path in listed and "libcuda.so" not in path}


def test_torch_defines_every_name_that_its_own_module_wants(told: Mapping[str, object]) -> None:
    folder = Path(str(told["path"])) / "lib"
    with ExitStack() as open_files:
        paths = [path for path in folder.glob("lib*.so") if path.name != "libtorch_global_deps.so"]
        defined = [DefinedSymbols(open_files.enter_context(opened(path))) for path in paths]
        asked = list(undefined_symbols(open_files.enter_context(opened(folder / "libtorch_python.so"))))
        assert len(asked) > 1000
        assert [name for name in asked if not any(name in names for names in defined)] == []
