"""Everything a machine with a GPU can show, in one command and one folder of results.

python -m tests.gpu [--out FOLDER] [--budget SECONDS] [--install] [--only STEP]... [--list]

For a Linux machine with an NVIDIA GPU, its driver and Python 3.10 or newer. This file needs the standard library alone;
gpudoctor and its tests run in the interpreter that runs this, or, with --install, in an environment made for the
occasion. What a step needs and does not find is named, and the step left out. Nothing on the machine is set: no clock,
no limit, no mode. Every step has a limit, and the whole ends within the budget.

Exit code: 0 every step passed or was left out for something that is missing, 1 a step failed or was stopped, 2 misuse,
3 no GPU. Read summary.md in the folder first.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.gpu import steps
from tests.gpu.steps import REPOSITORY, Failed, Missing, Result, Session, Step

MOST_BYTES = 15 << 20
_MOST_PART = 1 << 20
"""Bytes from which on a file is compressed, and to which a text is cut that stays too large."""
_CLOSING = 8.0
"""Seconds of the budget that are kept for the last summary."""
_SHORTEST = 3.0
_PASSED, _FAILED, _STOPPED, _LEFT_OUT = "passed", "FAILED", "STOPPED", "left out"
_TORCH = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('torch') else 1)"
_CUDA = "import torch, sys; sys.exit(0 if torch.version.cuda else 1)"


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    if options.list:
        sys.stdout.write("".join(f"{step.name:<24} {step.limit:>4.0f} s  {step.about}\n" for step in steps.every()))
        return 0
    if not steps.gpus_on_the_bus() and not steps.gpus_that_answer():
        sys.stderr.write("No NVIDIA GPU: none on the PCI bus, and nvidia-smi lists none. Nothing was run.\n")
        return 3
    folder: Path = options.out
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        sys.stderr.write(f"{folder} is there and not empty: name another folder with --out\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="gpudoctor-gpu-", ignore_cleanup_errors=True) as scratch:
        results = _run(options, folder.resolve(), Path(scratch))
    bad = [result.name for result in results if result.verdict in (_FAILED, _STOPPED)]
    sys.stderr.write(f"{folder / 'summary.md'}: {_counted(results)}\n")
    return 1 if bad else 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    usage, _, about = (__doc__ or "").partition("\n\npython -m")[2].partition("\n\n")
    parser = argparse.ArgumentParser(
        "python -m tests.gpu", f"python -m{usage}", epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), metavar="FOLDER")
    parser.add_argument("--budget", type=float, default=600, metavar="SECONDS", help="for the whole (default: 600)")
    parser.add_argument("--install", action="store_true", help="pip-install gpudoctor[gpu-test] into a new environment")
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="steps whose names begin so")
    parser.add_argument("--list", action="store_true", help="name the steps and their limits, and run none")
    options = parser.parse_args(words)
    names = [step.name for step in steps.every()]
    if unknown := [only for only in options.only if not any(name.startswith(only) for name in names)]:
        parser.error(f"no step {unknown[0]}; there are: {', '.join(names)}")
    return options


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _run(options: argparse.Namespace, folder: Path, scratch: Path) -> list[Result]:
    """Every step in turn; the summary is written anew after each, so that an end from outside leaves it, too."""
    deadline = time.monotonic() + options.budget - _CLOSING
    session = Session(folder, scratch, sys.executable, os.environ)
    results: list[Result] = []
    interrupted = False
    chosen = [one for one in steps.every() if not options.only or one.name.startswith(tuple(options.only))]
    environment = Step("environment", 180, "an interpreter for gpudoctor, and one with torch", _environment(options))
    for step in [environment, *chosen]:
        if interrupted:
            results.append(Result(step.name, _STOPPED, 0.0, ["not begun: interrupted"]))
            continue
        sys.stderr.write(f"{step.name} ...\n")
        try:
            result = _one(session, step, deadline)
        except KeyboardInterrupt:
            interrupted = True
            result = Result(step.name, _STOPPED, 0.0, ["interrupted"])
        results.append(result)
        sys.stderr.write(f"{step.name}: {result.verdict}, {result.seconds:.1f} s\n")
        _write(folder, session, results)
    _fit(folder)
    _write(folder, session, results)
    return results


def _one(session: Session, step: Step, deadline: float) -> Result:
    started = time.monotonic()
    if deadline - started < _SHORTEST:
        return Result(step.name, _STOPPED, 0.0, ["not begun: the budget is spent"])
    session.begin(min(started + step.limit, deadline))
    try:
        notes = step.take(session)
        verdict = _PASSED
    except Missing as missing:
        verdict, notes = _LEFT_OUT, [str(missing)]
    except Failed as failed:
        verdict, notes = _FAILED, list(failed.notes)
    except steps.TimeUp as up:
        verdict, notes = _STOPPED, [str(up)]
    except Exception as error:  # one step's mistake must not cost the others
        verdict, notes = _FAILED, [f"the step itself broke: {type(error).__name__}: {error}"]
    return Result(step.name, verdict, time.monotonic() - started, notes, list(session.commands))


def _environment(options: argparse.Namespace) -> steps.Take:
    def take(session: Session) -> list[str]:
        notes = [f"this interpreter: {sys.executable}, Python {platform.python_version()}"]
        session.torch = _torch_python(session, notes)
        if options.install:
            session.python = _made(session, ["-m", "venv", "--system-site-packages"])
            pip = [session.python, "-m", "pip", "install", "-q", "-e", f"{REPOSITORY}[gpu-test]"]
            if (done := session.run("pip", pip)).status:
                session.python = sys.executable
                raise Failed([*notes, f"pip could not install it: {done.last_line}"])
        elif os.environ.get("PYTHONPATH"):
            # Tests run with PYTHONPATH unset: what it names is put into an environment of its own.
            session.python = _made(session, ["-m", "venv", "--without-pip", "--system-site-packages"])
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            paths = [os.path.abspath(path) for path in os.environ["PYTHONPATH"].split(os.pathsep) if path]  # noqa: PTH100
            site = Path(session.python).parent.parent / f"lib/python{version}/site-packages"
            (site / "carried.pth").write_text("\n".join(paths))
        notes.append(f"gpudoctor runs in {session.python}")
        if missing := session.lacks(*steps.PROGRAM):
            raise Failed([f"it lacks {', '.join(missing)}: no step of gpudoctor can run; try --install", *notes])
        return notes

    return take


def _made(session: Session, words: Sequence[str]) -> str:
    folder = session.scratch / "environment"
    done = session.run("venv", [sys.executable, *words, str(folder)])
    if done.status:
        raise Failed([f"no environment could be made: {done.last_line}"])
    return str(folder / "bin/python")


def _torch_python(session: Session, notes: list[str]) -> str:
    """An interpreter with a CUDA build of torch, else one with any torch; empty where none has it.

    GPUDOCTOR_TORCH_PYTHON is the only one that is looked at where it is set.
    """
    named: list[str | None] = [str(REPOSITORY / ".venv-torch/bin/python"), sys.executable]
    named += [f"{os.environ[name]}/bin/python" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    named += [shutil.which("python3"), shutil.which("python"), "/opt/conda/bin/python", "/usr/bin/python3"]
    named += ["/opt/venv/bin/python", "/usr/local/bin/python3"]
    if chosen := os.environ.get("GPUDOCTOR_TORCH_PYTHON"):
        named = [chosen]
    having: list[str] = []
    for python in dict.fromkeys(path for path in named if path and os.access(path, os.X_OK)):
        if session.run("torch-there", [python, "-c", _TORCH], 20).status == 0:
            having.append(python)
            if session.run("torch-cuda", [python, "-c", _CUDA], 60).status == 0:
                notes.append(f"a CUDA build of torch is in {python}")
                return python
    notes.append(f"torch without CUDA is in {having[0]}" if having else "no interpreter here has torch")
    return having[0] if having else ""


def _write(folder: Path, session: Session, results: Sequence[Result]) -> None:
    """summary.md: a table of the steps, then each step's notes and commands."""
    lines = [
        "# gpudoctor on a machine with a GPU",
        "",
        f"{_counted(results)}; {sum(result.seconds for result in results):.0f} s in all. {time.strftime('%F %T %z')}",
        "",
        f"{platform.platform()}, {os.cpu_count()} CPUs, {'root' if os.geteuid() == 0 else 'a user'}; {_revision()}",
        "",
        "| step | verdict | seconds | first note |",
        "|---|---|---:|---|",
    ]
    for result in results:
        first = result.notes[0].replace("|", "\\|")[:160] if result.notes else ""
        lines.append(f"| {result.name} | {result.verdict} | {result.seconds:.1f} | {first} |")
    for result in results:
        lines += ["", f"## {result.name}: {result.verdict}", "", *(f"- {note}" for note in result.notes)]
        lines += ["", *(f"    {command}" for command in result.commands)] if result.commands else []
    lines += ["", "## Files", "", *(f"- {path.name}, {path.stat().st_size} bytes" for path in _files(folder)), ""]
    (folder / "summary.md").write_text("\n".join(lines), encoding="utf-8", errors="replace")


def _counted(results: Sequence[Result]) -> str:
    counts: Mapping[str, int] = {
        verdict: sum(result.verdict == verdict for result in results)
        for verdict in (_PASSED, _FAILED, _STOPPED, _LEFT_OUT)
    }
    return ", ".join(f"{count} {verdict.lower()}" for verdict, count in counts.items() if count)


def _revision() -> str:
    asked = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    return f"revision {found}" if found else "revision not known"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _fit(folder: Path) -> None:
    """Drop empty files, compress large ones, and cut the largest in its middle until all of it fits."""
    for path in _files(folder):
        if not path.stat().st_size:
            path.unlink()
        elif path.stat().st_size > _MOST_PART:
            with path.open("rb") as raw, gzip.open(f"{path}.gz", "wb") as packed:
                shutil.copyfileobj(raw, packed)
            path.unlink()
    while sum(path.stat().st_size for path in _files(folder)) > MOST_BYTES:
        largest = max(_files(folder), key=lambda path: path.stat().st_size)
        half = min(_MOST_PART, largest.stat().st_size) // 4
        content = gzip.decompress(largest.read_bytes()) if largest.suffix == ".gz" else largest.read_bytes()
        largest.unlink()
        cut = largest.with_name(largest.name.removesuffix(".gz") + ".cut")
        cut.write_bytes(content[:half] + b"\n[cut here]\n" + content[-half:])


if __name__ == "__main__":
    sys.exit(main())
