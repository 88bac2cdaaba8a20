"""torch imported by a real interpreter: stub packages that succeed, fail, crash, hang and shout; and the real torch."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Fact, Row, Rows, Unread, value_of
from gpudoctor.probes import torch_live
from gpudoctor.target import Answer
from gpudoctor.target.local import Local
from tests import needs
from tests.probes.nvml_machine import known, rows
from tests.processes import finished
from tests.sim import build, scenario

Facts = dict[str, "Fact | Rows"]
Import = Callable[..., Facts]

HEALTHY = r'''
import warnings
__version__ = "2.7.1+cu128"

class T:
    """A tensor that remembers what was done to it; GPU 1 forgets something."""
    def __init__(self, *done): self.done = done
    def reshape(self, *sides): return T(self, sides)
    def __mod__(self, by): return T(self, "%", by)
    def __add__(self, other): return T(self, "+", other)
    def __matmul__(self, other): return T(self, "@", other)
    def float(self): return self
    def long(self): return self
    def cpu(self): return self
    def to(self, place): return place.take(self)
    def __eq__(self, other): return isinstance(other, T) and self.done == other.done

class device:
    def __init__(self, kind, index): self.index = index
    def take(self, tensor):
        if self.index == 1: return T("wrong")
        if self.index == 2: raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        if self.index == 3:
            import os, signal
            os.kill(os.getpid(), signal.SIGSEGV)
        return tensor

def arange(count): return T(count)
def equal(one, other): return one == other

class version: cuda = "12.8"; hip = None
class backends:
    class cudnn:
        version = staticmethod(lambda: 90701)
class cuda:
    GPUS = 1
    init = is_initialized = staticmethod(lambda: None)
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: cuda.GPUS)
    get_arch_list = staticmethod(lambda: ["sm_80", "sm_90", "compute_90"])
    get_device_name = staticmethod(lambda index: "NVIDIA H100 \x1b[31m")
    get_device_capability = staticmethod(lambda index: (9, 0))
    class nccl:
        version = staticmethod(lambda: (2, 26, 2))
'''

BLIND = r"""
def _blind():
    warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).")
    return False
def _refuse(): raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).")
def _none():
    warnings.warn("Can't initialize NVML")
    return 0
cuda.is_available = _blind
cuda.init = _refuse
cuda.device_count = _none
cuda.get_arch_list = lambda: []
"""


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Run the probe with an interpreter that finds this source as its torch."""
    for name in ("IMPORT_SECONDS", "CUDA_SECONDS", "STILL_SECONDS"):
        monkeypatch.setattr(torch_live, name, 120.0)

    def run(source: str | None, greeting: str = "", **variables: str) -> Facts:
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        if source is not None:
            (site / "torch").mkdir()
            (site / "torch/__init__.py").write_text(source)
        python = tmp_path / "python"
        python.write_text(
            f'#!/bin/sh\n[ "$1" = -I ] || printf "{greeting}"\nPYTHONPATH="{site}" exec "{sys.executable}" -S "$@"\n'
        )
        python.chmod(0o755)
        return dict(torch_live.probe(Local(python=str(python), environ={**os.environ, **variables})))

    return run


def text(facts: Mapping[str, Fact | Rows]) -> str:
    return "\n".join(str(known(row["line"])) for row in rows(facts, "text")) if "text" in facts else ""


def gpus(facts: Mapping[str, Fact | Rows]) -> tuple[Row, ...]:
    return rows(facts, "live_gpu")


def test_a_healthy_gpu_ends_with_a_checked_kernel(live: Import, tmp_path: Path) -> None:
    facts = live(HEALTHY)
    assert known(facts["live.import_outcome"]) == "ok"
    assert known(facts["live.last_step"]) == "done"
    assert known(facts["live.outcome"]) == "done"
    assert known(facts["live.cuda_available"]) is True
    assert isinstance(facts["live.cuda_error"], Absent)
    assert known(facts["live.arch_list"]) == ("sm_80", "sm_90", "compute_90")
    assert known(facts["live.cudnn"]) == "9.7.1"
    assert known(facts["live.nccl"]) == "2.26.2"
    (row,) = gpus(facts)
    assert known(row["name"]) == "NVIDIA H100 \\x1b[31m"
    assert known(row["compute_capability"]) == "9.0"
    assert known(row["kernel"]) == "ok"
    assert isinstance(row["error"], Absent)
    assert "text" not in facts
    assert sorted(path.name for path in (tmp_path / "site").rglob("*")) == ["__init__.py", "torch"], "none written"


def test_kernels_are_judged_gpu_by_gpu_up_to_a_crash(live: Import) -> None:
    facts = live(HEALTHY + "\ncuda.GPUS = 5\n")
    assert [known(row["kernel"]) for row in gpus(facts)] == ["ok", "wrong", "error", "error", "not run"]
    assert known(gpus(facts)[2]["error"]) == (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    )
    assert known(gpus(facts)[3]["error"]) == "`kernel on GPU 3` crashed: killed by SIGSEGV"
    assert isinstance(gpus(facts)[4]["name"], Unread)
    assert known(facts["live.import_outcome"]) == "ok"
    assert known(facts["live.last_step"]) == "kernel on GPU 3"
    assert known(facts["live.outcome"]) == "crashed"
    assert "no kernel image" in text(facts)


def test_the_warning_of_is_available_is_kept_with_the_error(live: Import) -> None:
    facts = live(HEALTHY + BLIND, PYTHONWARNINGS="ignore")
    assert known(facts["live.cuda_available"]) is False
    assert str(known(facts["live.cuda_error"])).startswith("UserWarning: CUDA initialization: The NVIDIA driver")
    assert known(facts["live.arch_list"]) == ()
    assert facts["live_gpu"] == Absent("torch sees no CUDA device")
    assert known(facts["live.outcome"]) == "done"
    assert "RuntimeError: The NVIDIA driver on your system is too old" in text(facts)
    assert "ask_torch.py" not in text(facts)


def test_a_missing_torch_is_knowledge(live: Import, tmp_path: Path) -> None:
    facts = live(None)
    for name in ("live.import_outcome", "live.cuda_available", "live_gpu"):
        assert facts[name] == Absent(f"torch is not installed in {tmp_path}/python")


def test_a_torch_folder_without_its_package_is_an_error(live: Import, tmp_path: Path) -> None:
    (tmp_path / "site/torch/lib").mkdir(parents=True)
    facts = live(None)
    assert known(facts["live.import_outcome"]) == "error"
    assert "without __init__.py" in str(known(facts["live.import_error"]))


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "raise OSError('libcudart.so.13: cannot open shared object file: No such file or directory')",
            "OSError: libcudart.so.13: cannot open shared object file: No such file or directory",
        ),
        ("import torch._C", "ModuleNotFoundError: No module named 'torch._C'"),
        ("raise ImportError('\\n\\nIMPORTANT: PLEASE READ THIS')", "ImportError: IMPORTANT: PLEASE READ THIS"),
        ("raise MemoryError", "MemoryError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("1 +", "SyntaxError: invalid syntax"),
    ],
)
def test_an_import_that_raises_is_an_error_with_its_words(live: Import, source: str, error: str) -> None:
    facts = live(source)
    assert known(facts["live.import_outcome"]) == "error"
    assert known(facts["live.import_error"]) == error
    assert known(facts["live.last_step"]) == "import torch"
    assert isinstance(facts["live.cuda_available"], Unread)
    assert isinstance(facts["live_gpu"], Unread)
    assert error.partition(":")[0] in text(facts)


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("import ctypes; ctypes.string_at(0)", "crashed: killed by SIGSEGV"),
        ("import os; os.abort()", "crashed: killed by SIGABRT"),
        ("import os; os._exit(0)", "ended the process: exit 0"),
    ],
)
def test_an_import_that_ends_the_process_is_a_crash(live: Import, source: str, end: str) -> None:
    facts = live(source)
    assert known(facts["live.import_outcome"]) == "crashed"
    assert known(facts["live.import_error"]) == f"`import torch` {end}"
    assert known(facts["live.last_step"]) == "import torch"
    assert facts["live.cuda_available"] == Unread(f"`import torch` {end}")


HANGS = {
    "holds the GIL": "import ctypes; ctypes.PyDLL(None).pause()",
    "ignores signals": "import signal, time\nfor number in 1, 2, 14, 15: signal.signal(number, 1)\ntime.sleep(600)",
}


@pytest.mark.parametrize("source", HANGS.values(), ids=HANGS)
def test_an_import_without_a_sign_of_work_is_given_up_and_not_judged(
    live: Import, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(torch_live, "STILL_SECONDS", 3.0)
    facts = live(source)
    assert known(facts["live.import_outcome"]) == known(facts["live.outcome"]) == "not finished"
    why = facts["live.import_error"]
    assert isinstance(why, Unread)
    assert why.why.startswith("`import torch` was given up after ")
    assert why.why.endswith("the last 3 s without a sign of work")
    assert facts["live.cuda_available"] == facts["live_gpu"] == why
    assert known(facts["live.last_step"]) == "import torch"
    assert "torch/__init__.py" in text(facts), "it prints where it is"


@pytest.mark.full
def test_an_import_that_computes_for_ever_is_given_up_in_the_end(live: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_live, "IMPORT_SECONDS", 4.0)
    facts = live("while True: pass")
    assert known(facts["live.import_outcome"]) == "not finished"
    assert isinstance(facts["live.import_error"], Unread)
    assert facts["live.import_error"].why.endswith("still at work")
    assert "torch/__init__.py" in text(facts)


def test_a_driver_that_does_not_start_is_no_failed_import(live: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_live, "STILL_SECONDS", 3.0)
    facts = live(HEALTHY + "\nimport time\ncuda.is_available = lambda: time.sleep(600)\n")
    assert known(facts["live.import_outcome"]) == "ok"
    assert known(facts["live.last_step"]) == "cuda init"
    assert known(facts["live.outcome"]) == "not finished"
    assert isinstance(facts["live.cuda_error"], Unread)
    assert facts["live.cuda_available"] == facts["live.cuda_error"]
    assert facts["live.cuda_error"].why.startswith("`cuda init` was given up after ")


def test_a_kernel_that_does_not_return_is_not_judged(live: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_live, "STILL_SECONDS", 3.0)
    waits = "\nimport time\ndef _take(self, tensor): time.sleep(600 * self.index); return tensor\ndevice.take = _take\n"
    facts = live(HEALTHY + waits + "cuda.GPUS = 3\n")
    first, second, third = gpus(facts)
    assert known(first["kernel"]) == "ok"
    assert isinstance(second["kernel"], Unread)
    assert second["kernel"].why.startswith("`kernel on GPU 1` was given up after ")
    assert known(third["kernel"]) == "not run"


def driver(folder: Path, mode: int = 0, free_mib: int = 20_000) -> dict[str, str]:
    """Variables that make a simulated driver of one A10 the system's."""
    record = scenario.expanded({"profile": "a10"})
    cuda, nvml = json.loads(json.dumps([record.cuda, record.nvml]))
    cuda["every"] = {**cuda.get("every", {}), "cuDeviceGetAttribute(20)": mode}
    memory = {"total": 24 << 30, "free": free_mib << 20, "used": (24 << 30) - (free_mib << 20)}
    nvml["every"] = {**nvml.get("every", {}), "nvmlDeviceGetMemoryInfo": memory}
    for section in (cuda, nvml):
        for own in section["gpus"]:
            own.pop("cuDeviceGetAttribute(20)", None)
            own.pop("nvmlDeviceGetMemoryInfo", None)
    build.write_answers(nvml, cuda, folder / "answers")
    return {
        "LD_LIBRARY_PATH": str(build.libraries()),
        "GPUDOCTOR_SIM_ANSWERS": str(folder / "answers"),
        "GPUDOCTOR_SIM_TRACE": str(folder / "trace"),
    }


TOUCHED = "\nimport os\ndef _take(self, tensor): open(os.environ['TOUCHED'], 'w'); return tensor\ndevice.take = _take\n"


@pytest.mark.parametrize(
    ("mode", "name"), [(1, "Exclusive_Thread"), (2, "Prohibited"), (3, "Exclusive_Process")], ids=str
)
def test_a_gpu_for_one_process_is_left_alone(live: Import, tmp_path: Path, mode: int, name: str) -> None:
    facts = live(HEALTHY + TOUCHED, TOUCHED=str(tmp_path / "touched"), **driver(tmp_path, mode))
    (row,) = gpus(facts)
    assert known(row["kernel"]) == "not run"
    assert isinstance(row["error"], Unread)
    assert name in row["error"].why
    assert known(row["compute_capability"]) == "9.0"
    assert known(facts["live.outcome"]) == "done"
    assert not (tmp_path / "touched").exists()
    assert "Ctx" not in (tmp_path / "trace").read_text()


@pytest.mark.parametrize(
    ("free_mib", "kernel", "error"),
    [(20_000, "ok", None), (100, "not run", "out of memory before it began: 100 MiB are free, too few for a context")],
)
def test_a_shared_gpu_is_tried_where_it_has_room(
    live: Import, tmp_path: Path, free_mib: int, kernel: str, error: str | None
) -> None:
    facts = live(HEALTHY + TOUCHED, TOUCHED=str(tmp_path / "touched"), **driver(tmp_path, free_mib=free_mib))
    (row,) = gpus(facts)
    assert known(row["kernel"]) == kernel
    assert value_of(row["error"]) == error
    assert (tmp_path / "touched").exists() is (kernel == "ok")


def test_a_process_that_cannot_be_ended_is_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{"step": "start"}, {"step": "import torch"}, {"name": "import", "value": "x"}, {"step": "cuda init"}]
    out = "".join(f"@gpudoctor {json.dumps(line)}\n" for line in lines)
    answer = Answer(("python",), None, out, "", 90.0, stuck=4242)
    monkeypatch.setattr(Local, "run", lambda *_, **__: answer)
    facts = dict(torch_live.probe(Local(python=sys.executable)))
    assert known(facts["live.outcome"]) == "hung"
    assert known(facts["live.cuda_error"]) == (
        "`cuda init` was given up after 90 s; could not be stopped (pid 4242 is left behind)"
    )


def test_noise_on_standard_output_changes_nothing(live: Import) -> None:
    noise = "import os\nprint('@gpudoctor {\"missing\": true}')\nos.write(1, bytes(range(256)))\n"
    facts = live(noise + HEALTHY, greeting="welcome to node 7: ")
    assert known(facts["live.import_outcome"]) == "ok"
    assert known(facts["live.last_step"]) == "done"


def test_a_flood_is_stopped_and_kept_short(live: Import) -> None:
    facts = live("while True: print('x' * 1000)")
    assert isinstance(facts["live.import_outcome"], Unread)
    assert "printed more than" in facts["live.import_outcome"].why
    assert len(rows(facts, "text")) <= 200


def test_an_interpreter_that_cannot_run_the_child_is_no_sick_torch(live: Import, tmp_path: Path) -> None:
    live(HEALTHY)
    (tmp_path / "python").write_text("#!/bin/sh\n[ $1 = -I ] && echo True || { echo SyntaxError >&2; exit 1; }\n")
    facts = dict(torch_live.probe(Local(python=str(tmp_path / "python"))))
    assert facts["live.import_outcome"] == Unread("the child that imports torch did not start: exit 1 SyntaxError")
    assert facts["live_gpu"] == facts["live.import_outcome"]
    assert "text" not in facts


def test_the_real_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_live, "IMPORT_SECONDS", 240.0)
    facts = dict(torch_live.probe(Local(python=needs.torch_python())))
    assert known(facts["live.import_outcome"]) == "ok"
    assert known(facts["live.last_step"]) == "done"
    assert isinstance(known(facts["live.cuda_available"]), bool)


def test_the_kernel_agrees_with_the_real_torch() -> None:
    children = Path(torch_live.__file__).with_name("children")
    code = "import ask_torch, torch; ask_torch.send(kernel=ask_torch.check_kernel(torch, torch.device('cpu')))"
    environ = {**os.environ, "PYTHONPATH": str(children), "PYTHONDONTWRITEBYTECODE": "1"}
    done = finished([needs.torch_python(), "-c", code], env=environ)
    assert '{"kernel": "ok"}' in done.out, done.err
