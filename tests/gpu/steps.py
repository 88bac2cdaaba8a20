"""The steps of ``python -m tests.gpu``: what each asks of a machine with a GPU, and what must hold."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent
DEVICES = Path("/sys/bus/pci/devices")
LEVELS = ("quick", "standard", "deep")
_MOST_OUTPUT = 64 << 20
"""Bytes that a program may print until it is stopped."""


PROGRAM = ("gpudoctor.app.cli", "packaging", "platformdirs", "pynvml", "simpleeval")
"""Modules without which gpudoctor does not diagnose a machine."""
_MODULES = """
import sys, importlib.util as u
for name in sys.argv[1:]:
    try:
        found = u.find_spec(name)
    except ImportError:
        found = None
    if not found: print(name)
"""


class Missing(Exception):  # noqa: N818 - no error: the step is left out
    """What a step needs and this machine lacks."""


class TimeUp(Exception):  # noqa: N818 - no error of ours
    """A program that was stopped at the end of its step's time."""


class Failed(Exception):  # noqa: N818 - as those
    """What does not hold."""

    def __init__(self, notes: Sequence[str]) -> None:
        super().__init__(*notes)
        self.notes = notes


@dataclass(frozen=True)
class Result:
    """How a step ended."""

    name: str
    verdict: str
    seconds: float
    notes: Sequence[str]
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Done:
    """A program that came to its end; what it printed lies in two files."""

    status: int
    out: Path
    err: Path
    seconds: float

    @property
    def text(self) -> str:
        return self.out.read_text("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """The last line that it printed, of its errors if there are any; with its exit status."""
        said = self.err.read_text("utf-8", "replace").strip() or self.text.strip()
        return f"exit {self.status}: {said.splitlines()[-1][:300] if said else 'it printed nothing'}"


@dataclass
class Session:
    """The folder of results, the interpreters, and the time of the step that is running.

    `python` runs gpudoctor and its tests; `torch` is an interpreter with torch, empty where there is none.
    """

    folder: Path
    scratch: Path
    python: str
    environ: Mapping[str, str]
    torch: str = ""
    until: float = 0.0
    commands: list[str] = field(default_factory=list)
    there: set[tuple[str, str]] = field(default_factory=set)
    """Interpreters and modules that they have."""

    def begin(self, until: float) -> None:
        """Start a step that has to end at this moment of the monotonic clock."""
        self.until, self.commands = until, []

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def run(self, name: str, argv: Sequence[str], limit: float = 3600, suffix: str = "txt") -> Done:
        """Run a program with its output in NAME.SUFFIX and NAME.err; raises `Missing` and `TimeUp`."""
        seconds = min(limit, self.left)
        if seconds <= 0:
            raise TimeUp(f"no time was left for {_shown(argv)}")
        self.commands.append(_shown(argv))
        out, err = self.folder / f"{name}.{suffix}", self.folder / f"{name}.err"
        # The user's history and cache stay as they are, and no variable of CI turns a skipped test into a failure.
        environ = {**self.environ, "GPUDOCTOR_HISTORY": "off", "GPUDOCTOR_LANG": "en", "NO_COLOR": "1"}
        environ["XDG_CACHE_HOME"] = str(self.scratch / "cache")
        environ.pop("CI", None)
        if self.torch:
            environ["GPUDOCTOR_TORCH_PYTHON"] = self.torch
        started = time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=REPOSITORY,
                    env=environ,
                    start_new_session=True,
                )
            except OSError as error:
                raise Missing(f"{argv[0]} cannot be started: {error.strerror}") from None
            try:
                stopped = _wait(process, started + seconds, (out, err))
            except BaseException:
                _stop(process)
                raise
        if stopped:
            raise TimeUp(f"{_shown(argv)}: {stopped} after {time.monotonic() - started:.0f} s")
        return Done(process.returncode, out, err, time.monotonic() - started)

    def gpudoctor(self, name: str, *words: str, suffix: str = "txt", limit: float = 3600) -> Done:
        """Run the program; raises `Failed` where it ends with a traceback or by a signal."""
        self.needs(*PROGRAM)
        done = self.run(name, [self.python, "-m", "gpudoctor", *words], limit, suffix)
        if done.status not in (0, 1, 3) or "Traceback (most recent call last)" in done.err.read_text(
            "utf-8", "replace"
        ):
            raise Failed([f"gpudoctor {shlex.join(words)}: {done.last_line}"])
        return done

    def lacks(self, *modules: str) -> list[str]:
        """Those that the interpreter of gpudoctor cannot find."""
        asked = [name for name in modules if (self.python, name) not in self.there]
        if asked:
            done = self.run("modules", [self.python, "-c", _MODULES, *asked], 60)
            if done.status:
                return [done.last_line]
            self.there |= {(self.python, name) for name in set(asked) - set(done.text.split())}
        return [name for name in asked if (self.python, name) not in self.there]

    def needs(self, *modules: str) -> None:
        """Raise `Missing` where one of them is not there."""
        if missing := self.lacks(*modules):
            raise Missing(f"{self.python} lacks {', '.join(missing)}")

    def document(self, name: str) -> Any:
        """The JSON that an earlier step wrote; raises `Missing`."""
        try:
            return json.loads((self.folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            raise Missing(f"{name} was not written by an earlier step") from None


def _shown(argv: Sequence[str]) -> str:
    """The command on one line; of a script only that it is one."""
    return shlex.join(["..." if "\n" in word else word for word in argv])[:400]


Take = Callable[[Session], list[str]]


@dataclass(frozen=True)
class Step:
    """`take` gives notes for the summary; `limit` is in seconds."""

    name: str
    limit: float
    about: str
    take: Take


def _wait(process: subprocess.Popen[bytes], until: float, outputs: Sequence[Path]) -> str:
    """Wait for its end; why it was stopped, or nothing."""
    why = ""
    while not why:
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                why = "stopped"
            elif sum(path.stat().st_size for path in outputs) > _MOST_OUTPUT:
                why = "stopped for what it printed"
            continue
        return ""
    _stop(process)
    return why


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it and its group; one that sleeps in the driver cannot be ended and is left."""
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 1.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


# What is there


def gpus_on_the_bus() -> list[str]:
    """PCI addresses of NVIDIA's display and 3D devices."""
    classes = ("0x0300", "0x0302", "0x0380")
    folders = sorted(DEVICES.iterdir()) if DEVICES.is_dir() else []
    nvidia = [folder for folder in folders if _line(folder / "vendor") == "0x10de"]
    return [folder.name for folder in nvidia if _line(folder / "class")[:6] in classes]


def gpus_that_answer() -> list[str]:
    """Lines of ``nvidia-smi -L``: in WSL and some containers the bus shows no GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stdout.splitlines() if line.startswith("GPU ")]


def _line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _touchable() -> dict[str, object]:
    """What level quick must leave as it is: device files, kernel modules, sleeping GPUs."""
    modules = Path("/sys/module")
    return {
        "device files": sorted(str(path) for path in Path("/dev").glob("nvidia*")),
        "modules": sorted(path.name for path in modules.iterdir()) if modules.is_dir() else [],
        "asleep": [one for one in gpus_on_the_bus() if _line(DEVICES / one / "power/runtime_status") == "suspended"],
    }


def _quick(session: Session) -> list[str]:
    before = _touchable()
    power = {one: _line(DEVICES / one / "power/runtime_status") or "not told" for one in gpus_on_the_bus()}
    notes = [f"runtime power state before anything was asked: {power}"]
    notes += _check(session, "quick")
    after = _touchable()
    changed = [
        f"changed by level quick: {name}: {before[name]} -> {after[name]}"
        for name in before
        if before[name] != after[name]
    ]
    if changed:
        raise Failed([*changed, *notes])
    return notes


def _check(session: Session, level: str) -> list[str]:
    """Once as JSON and once as text; at level deep, which takes minutes, the text is made of the saved snapshot."""
    torch = ["--python", session.torch] if session.torch else []
    done = session.gpudoctor(f"check-{level}", "check", "--level", level, "--json", *torch, suffix="json")
    document = json.loads(done.text)
    words = ["check", "--level", level, *torch] if level != "deep" else ["read", str(done.out)]
    told = session.gpudoctor(f"check-{level}", *words)
    if not told.text.strip():
        raise Failed([f"level {level} printed no report"])
    findings = [f"{one['severity']}: {one['id']}: {one['title']}" for one in document["findings"]]
    counts = document["counts"]
    counted = f"{counts['found']} found, {counts['unjudged']} not judged, {counts['passed']} passed"
    return [f"{document['verdict']}, exit {done.status}, {done.seconds:.1f} s as JSON: {counted}", *findings]


_WAKE = """
import ctypes, json, time
nvml = ctypes.CDLL("libnvidia-ml.so.1")
def timed(call, *words):
    began = time.monotonic()
    code = call(*words)
    return [code, round(time.monotonic() - began, 4)]
count = ctypes.c_uint()
found = {"nvmlInit_v2": timed(nvml.nvmlInit_v2)}
if not found["nvmlInit_v2"][0]:
    found["nvmlDeviceGetCount_v2"] = timed(nvml.nvmlDeviceGetCount_v2, ctypes.byref(count))
    for gpu in range(count.value):
        handle = ctypes.c_void_p()
        mode = ctypes.c_uint()
        found["HandleByIndex %d" % gpu] = timed(nvml.nvmlDeviceGetHandleByIndex_v2, gpu, ctypes.byref(handle))
        found["PersistenceMode %d" % gpu] = timed(nvml.nvmlDeviceGetPersistenceMode, handle, ctypes.byref(mode))
        found["persistence mode is on %d" % gpu] = mode.value
print(json.dumps(found))
"""
"""Codes and seconds of NVML's first calls, of which the third wakes a GPU."""


def _waking(session: Session) -> list[str]:
    """How long NVML takes to open each GPU: the first time, at once again, and after some seconds of rest."""
    notes = []
    for number, rest in enumerate((0.0, 0.0, 5.0)):
        time.sleep(min(rest, max(0.0, session.left - 1)))
        done = session.run(f"waking-{number}", [sys.executable, "-c", _WAKE], 60, "json")
        if done.status:
            raise Failed([f"NVML could not be asked: {done.last_line}"])
        notes.append(f"[code, seconds] after {rest:g} s of rest: {done.text.strip()}")
    return notes


_RECORDS = {
    "nvidia-smi": ["nvidia-smi"],
    "nvidia-smi-L": ["nvidia-smi", "-L"],
    "nvidia-smi-q": ["nvidia-smi", "-q"],
    "nvidia-smi-q-x": ["nvidia-smi", "-q", "-x"],
    "nvidia-smi-topo": ["nvidia-smi", "topo", "-m"],
    "nvidia-smi-nvlink": ["nvidia-smi", "nvlink", "-s"],
    "lspci": ["lspci", "-nnk"],
    "lspci-gpu": ["lspci", "-vv", "-d", "10de:"],
    "uname": ["uname", "-a"],
    "dmesg": ["dmesg"],
    "journal": ["journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic"],
    "lsmod": ["lsmod"],
    "limits": ["/bin/sh", "-c", "ulimit -a; free -m; df -h / /dev/shm /tmp; nproc; cat /proc/driver/nvidia/version"],
}


def _machine(session: Session) -> list[str]:
    notes, bad = [], []
    for name, argv in _RECORDS.items():
        try:
            done = session.run(name, argv, 20, "xml" if argv[-1] == "-x" else "txt")
        except Missing as missing:
            notes.append(f"{name}: {missing}")
        except TimeUp as up:
            bad.append(str(up))
        else:
            notes.append(f"{name}: {done.seconds:.1f} s" + (f", {done.last_line}" if done.status else ""))
            if done.status and argv[0] == "nvidia-smi" and name in ("nvidia-smi", "nvidia-smi-L", "nvidia-smi-q"):
                bad.append(notes.pop())
    lines: list[str] = []
    for name in ("dmesg", "journal"):
        path = session.folder / f"{name}.txt"
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
        lines += [line for line in text.splitlines() if "NVRM" in line or "Xid" in line]
    (session.folder / "xid.txt").write_text("\n".join(dict.fromkeys(lines)), encoding="utf-8", errors="replace")
    notes.append(f"kernel log: {len(lines)} lines of the driver, {sum('Xid' in line for line in lines)} of them Xid")
    if bad:
        raise Failed([*bad, *notes])
    return notes


def _record(session: Session) -> list[str]:
    """The record, which must be read again to the same findings."""
    torch = ["--python", session.torch] if session.torch else []
    path = session.folder / "record.json"
    made = session.gpudoctor("record", "record", "-o", str(path), *torch)
    read = json.loads(session.gpudoctor("record-read", "read", "--json", str(path), suffix="json").text)
    here = {one["id"] for one in session.document("check-standard.json")["findings"]}
    there = {one["id"] for one in read["findings"]}
    if here != there:
        raise Failed([f"its findings differ from those of level standard: {sorted(here ^ there)}"])
    return [f"{path.stat().st_size} bytes in {made.seconds:.1f} s"]


# Facts against other readers of them

_XML: Mapping[str, str] = {
    "name": "product_name",
    "uuid": "uuid",
    "serial": "serial",
    "vbios": "vbios_version",
    "minor": "minor_number",
    "persistence": "persistence_mode",
    "display": "display_active",
    "compute_mode": "compute_mode",
    "architecture": "product_architecture",
    "memory_mib": "fb_memory_usage/total",
    "memory_reserved_mib": "fb_memory_usage/reserved",
    "bar1_mib": "bar1_memory_usage/total",
    "mig": "mig_mode/current_mig",
    "ecc": "ecc_mode/current_ecc",
    "ecc_pending": "ecc_mode/pending_ecc",
    "inforom": "inforom_version/img_version",
    "link_generation_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "link_generation_device_max": "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    "link_width_max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "clock_max_mhz": "max_clocks/sm_clock",
    "memory_clock_max_mhz": "max_clocks/mem_clock",
    "power_limit_w": "gpu_power_readings/current_power_limit power_readings/enforced_power_limit",
    "power_limit_default_w": "gpu_power_readings/default_power_limit power_readings/default_power_limit",
    "power_limit_min_w": "gpu_power_readings/min_power_limit power_readings/min_power_limit",
    "power_limit_max_w": "gpu_power_readings/max_power_limit power_readings/max_power_limit",
    "temperature_shutdown_c": "temperature/gpu_temp_max_threshold",
    "temperature_slowdown_c": "temperature/gpu_temp_slow_threshold",
    "temperature_max_c": "temperature/gpu_temp_max_gpu_threshold",
    "remapped_corrected": "remapped_rows/remapped_row_corr",
    "remapped_uncorrected": "remapped_rows/remapped_row_unc",
    "remap_pending": "remapped_rows/remapped_row_pending",
    "remap_failed": "remapped_rows/remapped_row_failure",
    "fabric_state": "fabric/state",
}
"""Columns of a GPU that stand still, and where nvidia-smi's XML has them; a second path is that of older drivers."""

_YES_NO = {"yes": True, "enabled": True, "no": False, "disabled": False}

_PYNVML = """
import json, pynvml as n
n.nvmlInit()
def ask(call, *words):
    try:
        found = call(*words)
    except n.NVMLError as error:
        return None
    return found.decode() if isinstance(found, bytes) else found
def gpu(h):
    power = ask(n.nvmlDeviceGetPowerManagementLimitConstraints, h) or (None, None)
    watts = lambda milli: None if milli is None else milli / 1000
    memory, mig, ecc = ask(n.nvmlDeviceGetMemoryInfo, h), ask(n.nvmlDeviceGetMigMode, h), ask(n.nvmlDeviceGetEccMode, h)
    return {
        "name": ask(n.nvmlDeviceGetName, h), "uuid": ask(n.nvmlDeviceGetUUID, h),
        "serial": ask(n.nvmlDeviceGetSerial, h),
        "vbios": ask(n.nvmlDeviceGetVbiosVersion, h), "minor": ask(n.nvmlDeviceGetMinorNumber, h),
        "compute_capability": ".".join(map(str, ask(n.nvmlDeviceGetCudaComputeCapability, h) or ())) or None,
        "memory_mib": memory and memory.total >> 20,
        "mig": mig and bool(mig[0]), "ecc": ecc and bool(ecc[0]), "ecc_pending": ecc and bool(ecc[1]),
        "persistence": ask(n.nvmlDeviceGetPersistenceMode, h), "display": ask(n.nvmlDeviceGetDisplayActive, h),
        "link_generation_max": ask(n.nvmlDeviceGetMaxPcieLinkGeneration, h),
        "link_width_max": ask(n.nvmlDeviceGetMaxPcieLinkWidth, h),
        "clock_max_mhz": ask(n.nvmlDeviceGetMaxClockInfo, h, 1),
        "memory_clock_max_mhz": ask(n.nvmlDeviceGetMaxClockInfo, h, 2),
        "power_limit_w": watts(ask(n.nvmlDeviceGetEnforcedPowerLimit, h)),
        "power_limit_default_w": watts(ask(n.nvmlDeviceGetPowerManagementDefaultLimit, h)),
        "power_limit_min_w": watts(power[0]), "power_limit_max_w": watts(power[1]),
    }
count = n.nvmlDeviceGetCount()
cuda = n.nvmlSystemGetCudaDriverVersion()
print(json.dumps({
    "driver.version": ask(n.nvmlSystemGetDriverVersion),
    "driver.cuda_version": "%d.%d" % (cuda // 1000, cuda % 1000 // 10),
    "nvml.library_version": ask(n.nvmlSystemGetNVMLVersion), "gpu.count": count,
    "gpu": [gpu(n.nvmlDeviceGetHandleByIndex(i)) for i in range(count)],
}))
"""


def differences(facts: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, list[str]]:
    """How many values were compared, and those that differ. What the other reader has not is not compared."""
    compared, wrong = 0, []
    rows = facts.get("gpu")
    pairs = [(name, facts.get(name), value) for name, value in other.items() if name != "gpu"]
    for index, row in enumerate(other.get("gpu", ())):
        own = rows[index] if isinstance(rows, list) and index < len(rows) else {}
        pairs += [(f"gpu {index} {name}", own.get(name), value) for name, value in row.items()]
    for name, state, value in pairs:
        if value is None:
            continue
        compared += 1
        ours = state.get("value") if isinstance(state, dict) else None
        if not _same(ours, value):
            wrong.append(f"{name}: ours is {state if ours is None else ours!r}, theirs {value!r}")
    return compared, wrong


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bool):
        return ours == (_YES_NO.get(theirs.lower()) if isinstance(theirs, str) else bool(theirs))
    if isinstance(ours, (int, float)):
        number = re.match(r"-?\d+(\.\d+)?", str(theirs))
        return number is not None and abs(float(number[0]) - ours) <= 1
    short, long = sorted((str(ours).lower(), str(theirs).lower()), key=len)
    return long.startswith(short)  # Ada and Ada Lovelace


def of_xml(text: str) -> dict[str, Any]:
    """What ``nvidia-smi -q -x`` prints, under the names of our facts; None where it has no value."""
    tree = ElementTree.fromstring(text)

    def value(node: ElementTree.Element, paths: str) -> str | None:
        texts = [(node.findtext(path) or "").strip() for path in paths.split()]
        return next((text for text in texts if text not in ("", "N/A", "[N/A]", "Unknown Error")), None)

    gpus = tree.findall("gpu")
    return {
        "driver.version": value(tree, "driver_version"),
        "driver.cuda_version": value(tree, "cuda_version"),
        "gpu.count": value(tree, "attached_gpus"),
        "gpu": [{name: value(gpu, paths) for name, paths in _XML.items()} for gpu in gpus],
    }


def _facts(session: Session) -> list[str]:
    facts = session.document("check-quick.json")["facts"]
    notes, wrong = [], []
    xml = session.folder / "nvidia-smi-q-x.xml"
    if xml.is_file() and xml.stat().st_size:
        others = {"nvidia-smi -q -x": of_xml(xml.read_text("utf-8", "replace"))}
    else:
        others = {}
        notes.append("nvidia-smi gave no XML")
    session.needs("pynvml")
    done = session.run("pynvml", [session.python, "-c", _PYNVML], 60, "json")
    if done.status:
        wrong.append(f"pynvml: {done.last_line}")
    else:
        others["pynvml"] = json.loads(done.text)
    for name, other in others.items():
        compared, bad = differences(facts, other)
        notes.append(f"{name}: {compared} values compared, {len(bad)} differ")
        wrong += [f"{name}: {one}" for one in bad]
    if wrong:
        raise Failed([*wrong, *notes])
    return notes


# Rates


def _bench(session: Session) -> list[str]:
    torch = ["--python", session.torch] if session.torch else []
    done = session.gpudoctor("bench", "bench", "--json", *torch, suffix="json")
    document = json.loads(done.text)
    runs = document["runs"]
    bad = [
        f"{run['kernel']} on GPU {run['gpu']}: {run['status']}: {run.get('because') or run.get('words')}"
        for run in runs
        if run["status"] == "failed" or run.get("right") is False
    ]
    states = {status: sum(run["status"] == status for run in runs) for status in {run["status"] for run in runs}}
    notes = [f"{document['verdict']}, exit {done.status}: {states}"]
    notes += sorted({f"not run: {run['because']}" for run in runs if run["status"] == "not-run" and run.get("because")})
    if bad or done.status == 1:
        raise Failed([*bad, *notes])
    return notes


DO_BENCH = """
import json, sys, torch
from triton.testing import do_bench

side = int(sys.argv[1])
left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
seconds = min(do_bench(lambda: torch.matmul(left, right)) for _ in range(5)) / 1e3
print(json.dumps(2 * side**3 / seconds / 1e12))
"""
"""The best of five rates in TFLOP/s, as Triton measures them: with a cold L2 cache."""


def _rates(session: Session) -> list[str]:
    """Each rate beside what rules/tables/rates.toml expects of a sound GPU, and bf16 beside Triton's benchmark."""
    document = session.document("bench.json")
    runs = document["runs"]
    units = {kernel["id"]: kernel.get("unit", "") for kernel in document["kernels"]}
    notes: list[str] = []
    wrong: list[str] = []
    for run in runs:
        if run["status"] != "ran" or run.get("value") is None:
            continue
        unit = units[run["kernel"]]
        line = f"GPU {run['gpu']} {run['kernel']}: {run['value']:.5g} {unit}"
        if not (expected := (run.get("expected") or {}).get("value")):
            notes.append(f"{line}, nothing is expected")
            continue
        share = run["value"] / expected if unit.endswith("/s") else expected / run["value"]
        (notes if share >= 1 else wrong).append(f"{line}, {share:.2f} of the {expected:.5g} expected at least")
    first = next((run for run in runs if run["kernel"] == "matmul.bf16" and run["status"] == "ran"), None)
    if not first:
        notes.append("no bf16 rate to hold against Triton's do_bench")
    elif not session.torch or session.run("triton-there", [session.torch, "-c", "import triton.testing"], 60).status:
        notes.append(f"no Triton in {session.torch or 'any interpreter'}: no do_bench")
    else:
        done = session.run("do-bench", [session.torch, "-c", DO_BENCH, str(first["details"]["side"])], 90)
        if done.status:
            wrong.append(f"do_bench: {done.last_line}")
        else:
            best = json.loads(done.text)
            line = f"bf16: ours {first['value']:g}, Triton's do_bench {best:g} TFLOP/s"
            (notes if first["value"] >= 0.95 * best else wrong).append(line)
    if not notes and not wrong:
        raise Missing("a rate: no kernel ran")
    if wrong:
        raise Failed([*wrong, *notes])
    return notes


# Tests, training, times, silence


def _marked() -> list[Path]:
    """Files with tests that need a GPU."""
    mark = "pytest.mark." + "gpu"
    return [path for path in sorted((REPOSITORY / "tests").rglob("test_*.py")) if mark in path.read_text("utf-8")]


def _tests(path: Path) -> Take:
    def take(session: Session) -> list[str]:
        session.needs(*PROGRAM, "pytest", "jsonschema_rs")
        report = session.folder / f"{path.stem}.junit.xml"
        argv = [session.python, "-m", "pytest", str(path), "-m", "gpu", "-v", "-rs", "--import-mode=importlib"]
        # None of the project's own options: they need plugins that a bare machine may lack.
        argv += ["-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = session.run(path.stem, argv)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.is_file() else []
        skipped = sorted({node.get("message") or "" for case in cases for node in case.findall("skipped")})
        bad = [
            f"{case.get('name')}: {(node.get('message') or '').strip().splitlines()[:1]}"
            for case in cases
            for node in (*case.findall("failure"), *case.findall("error"))
        ]
        notes = [f"{len(cases)} tests, {len(bad)} failed", *(f"skipped: {why[:300]}" for why in skipped)]
        if bad or done.status:
            raise Failed([*bad, *notes, done.last_line])
        if all(case.find("skipped") is not None for case in cases):
            raise Missing("; ".join(why[:300] for why in skipped))
        return notes

    return take


_TRAINING = """
import torch
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch = torch.randn(64, 256, device="cuda")
losses = []
for step in range(50):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
print("trained", losses[0], losses[-1])
"""


def _training(session: Session) -> list[str]:
    session.needs(*PROGRAM)
    if session.run("run-help", [session.python, "-m", "gpudoctor", "run", "--help"], 60).status:
        raise Missing("this gpudoctor has no command run")
    if not session.torch:
        raise Missing("no interpreter here has torch")
    program = [session.torch, "-c", _TRAINING]
    done = session.run("run", [session.python, "-m", "gpudoctor", "run", "--", *program])
    if done.status or "trained" not in done.text:
        raise Failed([done.last_line])
    return [f"50 steps in {done.seconds:.1f} s with everything around them"]


def _times(session: Session) -> list[str]:
    """What levels quick and standard take here, as figures: nothing is demanded of them."""
    torch = ["--python", session.torch] if session.torch else []
    notes = []
    for level, number in (("quick", 5), ("standard", 3)):
        seconds: list[float] = []
        while len(seconds) < number and session.left > (2 * max(seconds) if seconds else 0):
            done = session.gpudoctor(f"time-{level}", "check", "--level", level, "--json", *torch, suffix="json")
            seconds.append(done.seconds)
        shown = ", ".join(f"{one:.2f}" for one in seconds)
        notes.append(
            f"level {level}: median {statistics.median(seconds):.2f} s of {shown}"
            if seconds
            else f"level {level}: no time left"
        )
    return notes


def _silence(session: Session) -> list[str]:
    """A sound machine draws no error and no warning at any level; each that is drawn is for a person to judge."""
    drawn: list[str] = []
    notes: list[str] = []
    unjudged: list[str] = []
    levels = 0
    for level in LEVELS:
        try:
            document = session.document(f"check-{level}.json")
        except Missing as missing:
            notes.append(str(missing))
            continue
        levels += 1
        for one in document["findings"]:
            line = f"{level}: {one['severity']}: {one['id']}: {one['title']}"
            (notes if one["severity"] == "info" else drawn).append(line)
        unjudged += [f"{level}: {one['id']}: {one['because']}" for one in document["unjudged"]]
    if not levels:
        raise Missing("a diagnosis: no level gave one")
    (session.folder / "unjudged.txt").write_text("\n".join(unjudged), encoding="utf-8")
    notes.append(f"{len(unjudged)} not judged, with the reasons in unjudged.txt")
    if drawn:
        raise Failed([*drawn, *notes])
    return [f"no error and no warning at {levels} levels", *notes]


def every() -> list[Step]:
    """In order: what must see the machine as it was found comes first, what takes minutes last."""
    return list(_steps())


def _steps() -> Iterator[Step]:
    yield Step("check quick", 90, "reads only: no device file, module or sleeping GPU may change", _quick)
    yield Step("waking", 90, "seconds until NVML has opened each GPU", _waking)
    yield Step("machine", 60, "nvidia-smi, lspci, the kernel's log and the system, as they are", _machine)
    yield Step("check standard", 120, "CUDA, torch and a small kernel", lambda session: _check(session, "standard"))
    yield Step("record", 90, "the machine as a scenario, read again to the same findings", _record)
    yield Step("facts", 60, "our facts beside nvidia-smi's XML and pynvml", _facts)
    yield Step("bench", 150, "every kernel", _bench)
    yield Step("rates", 120, "what was measured beside the table of rates and Triton's do_bench", _rates)
    for path in _marked():
        yield Step(
            f"tests {path.stem.removeprefix('test_')}", 120, f"the GPU-marked tests of {path.name}", _tests(path)
        )
    yield Step("run", 60, "a small training step under gpudoctor run", _training)
    yield Step("times", 60, "what levels quick and standard take", _times)
    yield Step("check deep", 180, "every kernel under sustained load", lambda session: _check(session, "deep"))
    yield Step("silence", 10, "no error and no warning on a sound machine", _silence)
