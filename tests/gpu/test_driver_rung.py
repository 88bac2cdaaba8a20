"""The driver's kernels on a real GPU: right, and as if they had never been there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gpudoctor.kernels import specs
from gpudoctor.kernels.child.driver._ptx import programs, text
from tests import needs
from tests.conftest import Program

pytestmark = pytest.mark.gpu

_FREE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from gpudoctor.kernels.child.driver._cuda import Machine
machine = Machine(0)
print(json.dumps(machine.memory_info()))
"""


def free() -> int:
    """Bytes of the first GPU that nobody holds, by a process that holds none itself."""
    argv = [sys.executable, "-c", _FREE, str(needs.REPOSITORY)]
    return int(json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout)[0])


def test_every_kernel_is_right_and_leaves_the_memory_as_it_was(gpudoctor: Program) -> None:
    before = free()
    ran = gpudoctor("bench", "--kernel", "driver", "--device", "cuda:0", "--json", timeout=300)
    assert ran.code == 0, ran.out
    found = {run["kernel"]: run for run in ran.document["runs"]}
    assert set(found) == {one.spec.id for one in specs.select_kernels(["driver"])}
    assert {run["status"] for run in found.values()} == {"ran"}
    assert all(run["right"] for name, run in found.items() if name != "driver.launch")
    assert found["driver.memory.all"]["details"]["bytes"] > before * 0.4
    assert found["driver.memory.all"]["details"]["bytes"] <= before * 0.5
    assert abs(free() - before) < 64 << 20


def test_memory_that_another_process_holds_is_not_touched(gpudoctor: Program) -> None:
    """It holds a pattern of its own all the while, and finds it again."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(needs.REPOSITORY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    assert holder.stdout.readline() == "holding\n"
    ran = gpudoctor("bench", "--kernel", "driver.memory", "--device", "cuda:0", "--json", timeout=300)
    said, _ = holder.communicate("look\n", timeout=60)
    assert said == "untouched\n"
    assert ran.code == 0, ran.out


_HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from gpudoctor.kernels.child.driver._cuda import Machine
machine = Machine(0)
pattern = bytes(range(256)) * (256 << 10)
address = machine.allocate(len(pattern))
machine.write(address, pattern)
print("holding", flush=True)
sys.stdin.readline()
print("untouched" if machine.read(address, len(pattern)) == pattern else "changed")
"""


def test_the_drivers_own_compiler_takes_every_program() -> None:
    """In a process of its own, as all that loads the driver."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from gpudoctor.kernels.child.driver import _cuda, _ptx\n"
        "machine = _cuda.Machine(0)\n"
        "print(sum(len(machine.load(_ptx.text(name))) for name in _ptx.programs()))"
    )
    argv = [sys.executable, "-c", script, str(needs.REPOSITORY)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    assert int(done.stdout) == sum(text(name).count(".entry") for name in programs())


def test_what_the_compiler_refuses_is_told_in_its_words() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from gpudoctor.kernels.child.driver import _cuda\n"
        "_cuda.Machine(0).load('.version 6.0\\n.target sm_35\\n.address_size 64\\n.entry x() { nonsense; }')"
    )
    argv = [sys.executable, "-c", script, str(needs.REPOSITORY)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert "CUDA_ERROR_INVALID_PTX" in done.stderr
    assert "its compiler says: ptxas application ptx input, line 4" in done.stderr


def test_check_at_level_standard_measures_every_gpu(gpudoctor: Program) -> None:
    facts: dict[str, Any] = gpudoctor("--json", timeout=120).document["facts"]
    assert {row["right"].get("value") for row in facts["measured"]} == {True}
    assert {row["gpu"]["value"] for row in facts["measured"]} == set(range(facts["cuda_driver.count"]["value"]))
