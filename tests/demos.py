"""The machines of ``gpudoctor demo``, made of the simulator's: ``python -m tests.demos --write`` makes them anew.

What their GPUs did, a minute and a half each, is made of what their records say of one moment: invented values that
swing as those of a training step do; a GPU that is held back slows down on the way."""

import gzip
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpudoctor.app import demos, pipeline
from gpudoctor.app.demos import LIVE_SCHEMA, Demo
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.document import parse_toml
from gpudoctor.core.fact import Json
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.sample import GPU, Sample, sample_of
from gpudoctor.fixes import plan as remedy
from gpudoctor.fixes.solver.install_commands import BASE
from gpudoctor.target.record import to_json
from gpudoctor.target.recorded import Recorded
from tests import demo_jobs
from tests.needs import REPOSITORY
from tests.sim import scenario

EVERY = 0.5
MOMENTS = 200
SLOWS_AT = 130
"""The moment when a GPU that is too hot begins to slow down, one of those that are told at once."""
AGAIN = 152
_EVALUATES = 48
"""Moments from one evaluation to the next, during which all GPUs do less."""
_LINK_MB_S = 148_000


def document(first: Sample, seed: int) -> dict[str, Any]:
    """The document that `gpudoctor.app.demos` plays."""
    noise = random.Random(seed)
    rows = [[_numbers(gpu, moment, noise) for gpu in first.gpus] for moment in range(MOMENTS)]
    names = {name: None for row in rows for numbers in row for name in numbers}
    return {
        "schema": LIVE_SCHEMA,
        "every": EVERY,
        "again": AGAIN,
        "first": first.to_json(),
        "series": {name: [[numbers.get(name) for numbers in row] for row in rows] for name in names},
    }


def at_work(gpu: GPU) -> bool:
    """Whether its record was made while a job ran on it."""
    return (gpu.utilization or 0) >= 90


def _numbers(gpu: GPU, moment: int, noise: random.Random) -> dict[str, float]:
    if gpu.error:
        return {}
    if not at_work(gpu):
        return _idle(gpu, noise)
    step = math.sin(2 * math.pi * (moment / 12 + 0.02 * gpu.index))
    rest = 0.45 if moment % _EVALUATES < 9 else 1.0
    held = bool(gpu.throttle_reasons)
    share = 1.0 if not held else min(1.0, max(0.0, (moment - SLOWS_AT) / 16))
    top, power, hot = gpu.clock_max_mhz or 0, gpu.power_w or 0, gpu.temperature_c or 0
    cool, full = 80.0, 655.0
    return {
        "utilization": round(min(100, 97 + 3 * step + noise.uniform(-1, 1)) * rest),
        "power_w": round(((full + (power - full) * share if held else power) + 18 * step) * (rest + 1) / 2),
        "temperature_c": round((cool + (hot - cool) * min(1, share + 0.3)) if held else hot + noise.uniform(-0.6, 0.6)),
        "clock_mhz": 15 * round((top + ((gpu.clock_mhz or top) - top) * share if held else top) / 15),
        "nvlink_send_mb_s": round(_LINK_MB_S * rest * (1 + 0.3 * step) * (0.6 if held else 1)),
        "nvlink_receive_mb_s": round(_LINK_MB_S * rest * (1 + 0.3 * step) * (0.6 if held else 1)),
        "pcie_send_mb_s": round(310 + 60 * step),
        "pcie_receive_mb_s": round(1240 + 200 * step),
    }


def _idle(gpu: GPU, noise: random.Random) -> dict[str, float]:
    return {
        "utilization": gpu.utilization or 0,
        "power_w": round((gpu.power_w or 0) + noise.uniform(-1, 1)),
        "temperature_c": gpu.temperature_c or 0,
        "clock_mhz": gpu.clock_mhz or 0,
    }


HOME = REPOSITORY / "gpudoctor/app/demos"
FOLDERS = (scenario.SICK, scenario.PROFILES)


@dataclass(frozen=True, slots=True)
class Told:
    """A machine of the simulator, by a name that is easily typed, and what one meets there before one looks."""

    name: str
    scenario: str
    host: str
    machine: str
    title: str
    meets: str


TOLD = tuple(Told(**row) for row in parse_toml(Path(__file__).with_suffix(".toml").read_text("utf-8"))["machine"])


def made() -> Iterator[tuple[Path, bytes]]:
    """Every file of the demos, and what is in it; a machine's is packed when it is written."""
    index = []
    for told in TOLD:
        path = next(path for path in (folder / f"{told.scenario}.json" for folder in FOLDERS) if path.exists())
        record = replace(scenario.load(path), title=told.title, name=told.host, expect={})
        with Recorded(record) as target:
            diagnosis = pipeline.check(target=target)
        about = {"verdict": diagnosis.verdict, "title": told.title, "meets": told.meets, "machine": told.machine}
        index.append({"name": told.name, **about})
        text = json.dumps(to_json(record), ensure_ascii=True, separators=(",", ":"))
        yield HOME / told.name / "machine.json.gz", text.encode()
        yield from made_run(HOME, told.name, diagnosis)
        gpus = sample_of(diagnosis.snapshot)
        if any(gpu.error or at_work(gpu) for gpu in gpus.gpus):
            watched = json.dumps(document(gpus, len(index)), separators=(",", ":"))
            yield HOME / told.name / "live.json.gz", watched.encode()
    for one in demo_jobs.RECORDED:
        about = {"title": one.title, "meets": one.meets, "machine": one.machine}
        demo = Demo(one.name, "unknown", one.title, one.meets, one.machine)
        index.insert(-1, {"name": one.name, "verdict": demo.diagnosis().verdict, **about})  # the sound machine is last
    yield HOME / "index.json", f"{json.dumps(index, ensure_ascii=False, indent=1)}\n".encode()


def kept(path: Path) -> bytes:
    """What is in a file of the demos, unpacked; nothing where it is missing."""
    raw = path.read_bytes() if path.exists() else b""
    return gzip.decompress(raw) if path.suffix == ".gz" and raw else raw


def write() -> None:
    """Write what is not as it should be; an unchanged machine keeps its bytes, whoever packed it."""
    for path, content in made():
        if kept(path) != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


Prints = list[tuple[float, str]]
Changes = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """What happens to an environment: what is in it, what comes in its place, and whether the disk has room."""

    before: dict[str, str]
    after: dict[str, str]
    mib: float
    full: bool = False


def _stack(torch: str, triton: str, suffix: str, cublas: str, cudnn: str, nccl: str) -> dict[str, str]:
    of = suffix or "-cu13"
    libraries = {f"nvidia-cublas{suffix}": cublas, f"nvidia-cudnn{of}": cudnn, f"nvidia-nccl{of}": nccl}
    return {"torch": torch, "triton": triton, **libraries}


_MEGABYTES = {"triton": 170.5, "nvidia-cublas": 393.1, "nvidia-cudnn": 571.0, "nvidia-nccl": 322.4}
"""About what their wheels weigh."""
_CU128 = _stack("2.9.0+cu128", "3.5.0", "-cu12", "12.8.4.1", "9.10.2.21", "2.27.5")
SCENES = {
    "torch-cu130": Scene(_stack("2.9.0+cu130", "3.5.0", "", "13.0.0.19", "9.13.0.50", "2.27.7"), _CU128, 2950),
    "rtx-5090": Scene(
        _stack("2.6.0+cu124", "3.2.0", "-cu12", "12.4.5.8", "9.1.0.70", "2.21.5"),
        _stack("2.15.0+cu132", "3.9.0", "", "13.2.1.1", "9.26.0.51", "2.30.7"),
        2290,
    ),
    "cpu-torch": Scene({"torch": "2.9.0+cpu"}, _CU128, 2950, full=True),
}


def made_run(home: Path, name: str, diagnosis: Diagnosis) -> Iterator[tuple[Path, bytes]]:
    """The files of that demo that play its run."""
    if scene := SCENES.get(name):
        recorded = _recorded(scene, remedy.plan_for(diagnosis))
        text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))
        yield home / name / "run.json", f"{text}\n".encode()


def _recorded(scene: Scene, plan: Plan) -> dict[str, Json]:
    cured = {step.cause for step in plan.chosen if _verb(step)}
    wanted = [step for step in plan.chosen if _verb(step) or (step.verify and step.cause in cured)]
    steps: list[Json] = [_step(scene, step) for step in wanted]
    python = next(step.argv[0] for step in wanted if step.argv)
    return {
        "schema": demos.RUN_SCHEMA,
        "before": [f"{name} {version}" for name, version in scene.before.items()],
        "downloads_mib": scene.mib,
        "steps": steps,
        "back": _back(scene, python),
    }


def _verb(step: PlanStep) -> str:
    """``install`` of ``PYTHON -m pip install``; empty for what is no command of pip."""
    return step.argv[3] if step.argv[1:3] == ("-m", "pip") else ""


def _step(scene: Scene, step: PlanStep) -> Json:
    if step.verify:
        return {"verify": step.verify, "seconds": 1.6}
    play = {"freeze": _freeze, "uninstall": _uninstall, "install": _install}[_verb(step)]
    prints, changes, status = play(scene, step)
    return _entry(step.argv, prints[-1][0] + 0.3, prints, changes, status)


def _entry(argv: Sequence[str], seconds: float, prints: Prints, changes: Changes, status: int = 0) -> Json:
    return {
        "argv": list(argv),
        "seconds": round(seconds, 2),
        "status": status,
        "prints": [[round(moment, 2), text] for moment, text in prints],
        "changes": [list(change) for change in changes],
    }


def _freeze(scene: Scene, _: PlanStep) -> tuple[Prints, Changes, int]:
    there = {**scene.before, "filelock": "3.20.0", "numpy": "2.3.4"}
    return [(0.5, "".join(f"{name}=={version}\n" for name, version in sorted(there.items())))], (), 0


def _uninstall(scene: Scene, step: PlanStep) -> tuple[Prints, Changes, int]:
    prints: Prints = []
    names = [name for name in step.argv[5:] if name in scene.before]
    for number, name in enumerate(names):
        what = f"{name}-{scene.before[name]}"
        prints.append((0.4 + number, f"Found existing installation: {what}\nUninstalling {what}:\n"))
        prints.append((1.1 + number, f"  Successfully uninstalled {what}\n"))
    return prints, tuple((name, scene.before[name], "") for name in names), 0


def _install(scene: Scene, step: PlanStep) -> tuple[Prints, Changes, int]:
    torch = f"torch=={scene.after['torch']}"
    assert torch in step.argv, f"the plan installs another torch than the scene: {step.argv}"
    index = f"{BASE}/{torch.partition('+')[2]}"
    prints: Prints = [(0.3, f"Looking in indexes: {index}\n")]
    at = 0.6
    for name, version in scene.after.items():
        big = name == "torch"
        where = "" if big else f" (from {torch})"
        prints.append((at, f"Collecting {name}=={version}{where}\n"))
        size = scene.mib * 0.32 if big else _MEGABYTES[name if name in _MEGABYTES else name.rpartition("-")[0]]
        at += 0.2
        for part in range(0, 11, 1 if big else 5):
            done = "━" * (part * 2) + ("╺" if part < 10 else "") + "━" * max(0, 19 - part * 2)
            prints.append((at, f"     {done[:20]}  {size * part / 10:.0f}/{size:.0f} MB  {380 + 7 * part} MB/s\r"))
            at += 0.22 if big else 0.12
        prints.append((at, "\n"))
    names = " ".join(f"{name}-{version}" for name, version in scene.after.items())
    prints.append((at + 0.2, f"Installing collected packages: {', '.join(scene.after)}\n"))
    if scene.full:
        error = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
        return [*prints, (at + 2.2, error)], _changes(scene), 1
    return [*prints, (at + 3.0, f"Successfully installed {names}\n")], _changes(scene), 0


def _changes(scene: Scene) -> Changes:
    """From what to what. pip installs what torch asks for before torch: on a full disk it gets no further."""
    came = list(scene.after.items())[scene.full :]
    changes = ((name, scene.before.get(name, ""), version) for name, version in came)
    return tuple(change for change in changes if change[1] != change[2])


def _back(scene: Scene, python: str) -> list[Json]:
    torch = scene.before["torch"]
    tag = torch.partition("+")[2]
    pins = [f"{name}=={version}" for name, version in scene.before.items()]
    came = [name for name, _, _ in _changes(scene) if name not in scene.before]
    argv = [python, "-m", "pip", "install", "--force-reinstall", *pins, "--index-url", f"{BASE}/{tag}"]
    names = " ".join(f"{name}-{version}" for name, version in scene.before.items())
    prints: Prints = [
        (0.3, f"Looking in indexes: {BASE}/{tag}\n"),
        *((0.5 + 0.2 * at, f"Collecting {pin}\n  Using cached wheel\n") for at, pin in enumerate(pins)),
        (2.4, f"Installing collected packages: {', '.join(scene.before)}\n"),
        (4.2, f"Successfully installed {names}\n"),
    ]
    steps = [] if scene.full else [_entry(argv, 4.6, prints, (("torch", scene.after["torch"], torch),))]
    if came:
        away = [python, "-m", "pip", "uninstall", "-y", *came]
        gone: Prints = [(0.6, "".join(f"  Successfully uninstalled {name}\n" for name in came))]
        changes = tuple((name, scene.after[name], "") for name in came)
        steps.append(_entry(away, 1.0, gone, changes))
    return steps


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        sys.exit("\n".join(str(path) for path, content in made() if kept(path) != content) or None)
