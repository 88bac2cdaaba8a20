"""What some tests need beside Python: missing, it skips them by name; where CI=true it fails them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).parent.parent


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI, because `what` is not there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"needs {what}, which CI must provide")
    pytest.skip(f"needs {what}")


def program(name: str) -> str:
    """The path of a program on PATH, or beside our own interpreter: some come as wheels."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name) or shutil.which(name, path=beside) or missing(f"the program {name}")


def shellcheck(script: str, shell: str = "sh") -> str:
    """What ShellCheck has to say of a script; nothing where it is plain."""
    checker = [program("shellcheck"), f"--shell={shell}", "-"]
    done = subprocess.run(checker, input=script, check=False, capture_output=True, text=True, timeout=600)
    return done.stdout + done.stderr


def torch_python() -> str:
    """An interpreter that has torch: GPUDOCTOR_TORCH_PYTHON, or .venv-torch of this repository."""
    python = os.environ.get("GPUDOCTOR_TORCH_PYTHON") or str(REPOSITORY / ".venv-torch/bin/python")
    return python if os.access(python, os.X_OK) else missing(f"an interpreter with torch ({python})")


def triton_python() -> str:
    """The interpreter with torch, where it has Triton, and numpy for Triton's interpreter, too."""
    python = torch_python()
    code = "import importlib.util as of; raise SystemExit(not (of.find_spec('triton') and of.find_spec('numpy')))"
    there = subprocess.run([python, "-c", code], check=False, timeout=600).returncode == 0
    return python if there else missing(f"triton and numpy in {python}")


def framework_python(name: str) -> str:
    """An interpreter with jax (GPUDOCTOR_JAX_PYTHON) or tensorflow (GPUDOCTOR_TENSORFLOW_PYTHON): nowhere a must."""
    python = os.environ.get(f"GPUDOCTOR_{name.upper()}_PYTHON", "")
    if not os.access(python, os.X_OK):
        pytest.skip(f"needs an interpreter with {name} (GPUDOCTOR_{name.upper()}_PYTHON)")
    return python


def cloud_init() -> Path:
    """The folder to import cloud-init from: its package unpacked, never installed, for it would set up the machine."""
    folder = REPOSITORY / ".cloud-init/usr/lib/python3/dist-packages"
    return folder if (folder / "cloudinit").is_dir() else missing(f"Debian's package cloud-init, unpacked ({folder})")


def trials(count: int) -> int:
    """How often a test draws by chance: `count`, times GPUDOCTOR_TRIALS for a longer search by hand."""
    return count * int(os.environ.get("GPUDOCTOR_TRIALS", "1"))


def nvidia_driver() -> Path:
    """The folder of NVIDIA's own driver libraries: Debian's packages unpacked, never installed."""
    found = sorted((REPOSITORY / ".nvidia-driver").rglob("libcuda.so.1"))
    return found[0].parent if found else missing("NVIDIA's driver libraries, unpacked (.nvidia-driver)")


def labelled_reports() -> Path:
    """The folder with score.py and cases/: GPUDOCTOR_CASES, or ``shared`` beside this repository."""
    folder = Path(os.environ.get("GPUDOCTOR_CASES") or REPOSITORY.parent / "shared")
    return folder if (folder / "score.py").is_file() else missing(f"labelled reports ({folder}/score.py)")
