"""The simulated libraries: compiled once, told their answers in a file, and unharmed by whatever is in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests import needs
from tests.sim import build, clients


def test_answers_beside_the_library_are_read_where_no_variable_names_them(tmp_path: Path) -> None:
    env = clients.environ(tmp_path, clients.hgx(gpus=1))
    (tmp_path / "libnvidia-ml.so.1").symlink_to(build.libraries() / "libnvidia-ml.so.1")
    del env["GPUDOCTOR_SIM_ANSWERS"]
    script = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    assert clients.run(["-c", script], {**env, "LD_LIBRARY_PATH": str(tmp_path)}).stdout == "1\n"


def test_the_library_has_every_function_of_its_header() -> None:
    library = str(build.libraries() / "libnvidia-ml.so.1")
    symbols = subprocess.check_output([needs.program("nm"), "-D", library], text=True)
    exported = set(re.findall(r" [TW] (\w+)", symbols))
    header = (build.libraries() / "nvml_names.inc").read_text()
    assert exported == set(re.findall(r"STUB\((\w+)\)", header))
    assert len(exported) > 350


def test_two_processes_that_compile_at_once_get_the_same_whole_libraries(tmp_path: Path) -> None:
    needs.program("cc")
    script = "from tests.sim import build; print(build.libraries())"
    env = {**clients.environ(tmp_path, None), "TMPDIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = {each.communicate(timeout=600)[0].strip() for each in both}
    assert len(told) == 1
    made = Path(told.pop())
    assert made.parent.parent == tmp_path
    assert {path.name for path in made.iterdir()} == {
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "nvml_names.inc",
        *build.WORDS,
    }
    assert {path.name for path in made.parent.iterdir()} == {made.name, "lock"}
