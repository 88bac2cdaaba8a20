"""The unmodified program inside a simulated machine: a mount namespace, a root laid out from the record, then chroot.

Everything the program reads (``/proc``, ``/sys``, ``/dev``, ``/etc``, the driver's libraries, the programs on PATH) is
the record's; of the machine that runs the test only the interpreter, the libraries it needs and this repository are
there, so that a real GPU below can never be seen. Needs ``unshare`` and no privileges.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

from gpudoctor.target.local import Local
from gpudoctor.target.record import Command, Record
from gpudoctor.target.recorded import lay_out
from tests import needs
from tests.processes import Ran
from tests.sim import build
from tests.sim.software import SIMULATED

HOST = "/.host"
"""Where the real machine's root is bound inside the simulated one."""

WAKE_MS, CALL_MS = map(float, os.environ.get("GPUDOCTOR_SIM_TIMES", "500 0.3").split())
"""What a GPU without persistence mode takes to wake and what an NVML call takes, where the record says nothing else: a
GPU as fast as they come. ``GPUDOCTOR_SIM_TIMES="2600 3"`` is an HGX H100 under load.
"""

_DRIVER_LIBRARY = re.compile(r"^(?!.*/stubs/).*/(libcuda|libnvidia-ml)\.so(?:\.[\d.]+)?$")
_LOADER = "/lib64/ld-linux-x86-64.so.2"
_CHILD_OF_TORCH = "ask_torch.py"


class Machine:
    """A record laid out under `root`, in which programs run; `lent` are folders of this machine that are there, too.

    `processes`: ``/proc`` is the real one with the record's driver in it, so that programs see each other.
    """

    def __init__(self, record: Record, root: Path, lent: Sequence[str] = (), processes: bool = False) -> None:
        self.record = record
        self.root = root
        self._lent = tuple(lent)
        self._processes = processes
        self._inside = Local("quick", root=str(root))
        lay_out(record, root)
        self._put_libraries()
        self._put_programs()
        self._put_interpreter()

    def gpudoctor(self, *words: str, timeout: float = 600) -> Ran:
        """The program as this repository has it, run by the interpreter of the tests."""
        return self.run([sys.executable, "-m", "gpudoctor", *words], timeout)

    def run(self, argv: Sequence[str], timeout: float = 600) -> Ran:
        """A program in the machine."""
        done = subprocess.run(self.command(argv), check=False, capture_output=True, text=True, timeout=timeout)
        return Ran(done.returncode, done.stdout, done.stderr)

    def command(self, argv: Sequence[str], inherit: bool = False) -> list[str]:
        """What runs a program in the machine, in the machine's environment; `inherit`: in its caller's with that
        laid over it. Words put behind the command are more arguments of the program.
        """
        environ = {
            "GPUDOCTOR_HISTORY": "off",
            **self.record.environ,
            "GPUDOCTOR_SIM_ANSWERS": "/.sim/answers",
            "XDG_CACHE_HOME": HOST + os.environ["XDG_CACHE_HOME"] if "XDG_CACHE_HOME" in os.environ else "/.sim",
            "NO_COLOR": "1",
            "PYTHONPATH": "",
        }
        environ.update({name: value for name, value in os.environ.items() if name.startswith("GPUDOCTOR_SIM_TRACE")})
        script = "\n".join(self._mounts([] if inherit else ["-i"], environ))
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return [_unshare(), "--mount", *own, "/bin/sh", "-euc", script, "sh", *argv]

    def _mounts(self, clean: Sequence[str], environ: dict[str, str]) -> Iterator[str]:
        root = shlex.quote(str(self.root))
        yield f"mount --rbind / {root}{HOST}"
        for name in ("null", "zero", "urandom"):
            yield f": > {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}"
        for path, (total, _) in self.record.space.items():
            if path != "/":
                yield f"mkdir -p {root}{path}; mount -t tmpfs -o size={total} tmpfs {root}{path}"
        for path in self.record.denied:  # not to be written is as far as permissions can go against root
            yield f"mount --bind {root}{path} {root}{path}; mount -o remount,bind,ro {root}{path}"
        for folder in (*_folders(), *self._lent):
            yield f"mkdir -p {root}{folder}; mount --rbind {folder} {root}{folder}"
        if self._processes:
            yield f"mkdir -p {root}/mnt; mount -t tmpfs tmpfs {root}/mnt; cp -r {root}/proc/driver/. {root}/mnt"
            yield f"mount --rbind /proc {root}/proc; mount --move {root}/mnt {root}/proc/driver"
        words = " ".join(shlex.quote(f"{name}={value}") for name, value in environ.items())
        env = shlex.join([HOST + _tool("env"), *clean])
        yield f'cd {root}; exec {_tool("chroot")} {root} {env} {words} "$@"'

    def _put_libraries(self) -> None:
        made = build.libraries()
        for path, name in self._stands_for():
            (self.root / path[1:]).write_bytes((made / f"{name}.so.1").read_bytes())
        (self.root / ".sim").mkdir()
        nvml = self.record.nvml and {"wake_ms": WAKE_MS, "call_ms": CALL_MS, **self.record.nvml}
        build.write_answers(nvml, self.record.cuda, self.root / ".sim/answers")

    def _stands_for(self) -> Iterator[tuple[str, str]]:
        """Where a library of ours stands: at a scenario's marks, or where a real machine had the driver's own."""
        marked = {path: raw for path, raw in self.record.files.items() if raw.startswith(SIMULATED)}
        yield from ((path, raw.removeprefix(SIMULATED).decode()) for path, raw in marked.items())
        for path in (*self.record.files, *self.record.sparse) if not marked else ():
            match = _DRIVER_LIBRARY.search(path)
            if match and (self.root / path[1:]).stat().st_size:
                yield path, match[1]

    def _at(self, path: str) -> Path:
        """Where a path of the machine lies here, its folder made: links of the machine lead to places in it."""
        folder, _, name = path.rpartition("/")
        place = self._inside.path(folder)
        place.mkdir(parents=True, exist_ok=True)
        return place / name

    def _link(self, path: str, real: str) -> None:
        """Put a file of the real machine there, whatever the record has in its place."""
        place = self._at(path)
        place.unlink(missing_ok=True)
        place.symlink_to(f"{HOST}{os.path.realpath(real)}")

    def lend(self, *libraries: Path) -> None:
        """Libraries of this machine, put where the loader looks."""
        for library in libraries:
            self._link(f"/lib/x86_64-linux-gnu/{library.name}", str(library))

    def lend_program(self, path: str) -> None:
        """A program of this machine at its own path, with the libraries that it needs."""
        self._link(path, path)
        self.lend(*libraries_of(path))

    def _put_programs(self) -> None:
        """Each recorded command answers what was recorded; what it was never asked, it refuses with 127."""
        by_name: dict[str, list[Command]] = {}
        for command in self.record.commands:
            by_name.setdefault(command.argv[0], []).append(command)
        for name, commands in by_name.items():
            place = self._at(name if name.startswith("/") else f"/usr/bin/{name}")
            place.unlink(missing_ok=True)
            place.write_text(_script(commands))
            place.chmod(0o755)

    def _put_interpreter(self) -> None:
        for folder in (HOST, "/dev", "/tmp"):
            self._at(f"{folder}/").mkdir(exist_ok=True)
        self.lend(*_libraries())
        for path in (_LOADER, "/bin/sh"):
            self._link(path, path)
        threads = self._at("/proc/thread-self")  # what they lacked of a processor is no fact of the record
        threads.unlink(missing_ok=True)
        threads.symlink_to(f"{HOST}/proc/thread-self")
        if self.record.python:
            place = self._at(self.record.python)
            place.unlink(missing_ok=True)
            place.write_text(_python(self.record))
            place.chmod(0o755)


def _script(commands: Sequence[Command]) -> str:
    cases = []
    for command in commands:
        words = shlex.quote(" ".join(command.argv[1:]))
        end = f"exec {HOST}{_tool('sleep')} 600" if command.hangs else f"exit {max(command.status, 0)}"
        if command.status < 0:
            end = f"kill -{-command.status} $$"
        cases.append(
            f"{words}) printf %s {shlex.quote(command.out)}; printf %s {shlex.quote(command.err)} >&2; {end};;"
        )
    return '#!/bin/sh\ncase "$*" in\n' + "\n".join(cases) + "\n*) exit 127;;\nesac\n"


def _python(record: Record) -> str:
    """The target's interpreter: it replays what the child that imports torch printed, and runs everything else."""
    said = record.torch_child or {"out": [{"step": "start"}, {"missing": True}]}
    lines = "".join(f"@gpudoctor {json.dumps(entry)}\n" for entry in said.get("out", ()))
    status = said.get("status", 0)
    end = f"exec {HOST}{_tool('sleep')} 600" if status is None else f"exit {max(status, 0)}"
    if status is not None and status < 0:
        end = f"kill -{-status} $$"
    replay = f"printf %s {shlex.quote(lines)}; printf %s {shlex.quote(str(said.get('err', '')))} >&2; {end}"
    return f'#!/bin/sh\ncase "$*" in\n*{_CHILD_OF_TORCH}*) {replay};;\n*) exec {sys.executable} "$@";;\nesac\n'


@lru_cache(maxsize=1)
def _folders() -> tuple[str, ...]:
    """Folders of this machine that the interpreter and the program need at their own paths."""
    repository = str(needs.REPOSITORY)
    wanted = {repository, sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    wanted.add(sysconfig.get_path("purelib"))
    if "/usr" in wanted:
        wanted -= {"/usr"}
        wanted |= {sysconfig.get_path("stdlib"), "/usr/lib/python3"}
    folders = sorted(folder for folder in wanted if Path(folder).is_dir())
    return tuple(one for one in folders if not any(one.startswith(f"{other}/") for other in folders))


@lru_cache(maxsize=1)
def _libraries() -> tuple[Path, ...]:
    """System libraries that the interpreter, its extension modules and a few small programs are linked to."""
    modules = sorted(Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so"))
    programs = [sys.executable, "/bin/sh", *map(_tool, ("chroot", "env", "sleep")), *map(str, modules)]
    found = libraries_of(*programs)
    found |= {path.with_name("libgcc_s.so.1") for path in found if path.name == "libc.so.6"}  # what ends a thread
    return tuple(sorted(found))


def libraries_of(*files: str) -> set[Path]:
    """System libraries that programs and libraries are linked to."""
    said = subprocess.run([needs.program("ldd"), *files], check=False, capture_output=True, text=True, timeout=600)
    found = re.findall(r"=> (/\S+)", said.stdout)
    return {Path(path) for path in found if path.startswith(("/lib", "/usr/lib"))}


@lru_cache(maxsize=1)
def _unshare() -> str:
    tool = needs.program("unshare")
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tried = subprocess.run([tool, "--mount", *own, "true"], check=False, capture_output=True, text=True, timeout=600)
    if tried.returncode:
        needs.missing(f"mount namespaces (unshare says: {tried.stderr.strip()})")
    return tool


@cache
def _tool(name: str) -> str:
    return needs.program(name)
