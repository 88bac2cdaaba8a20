"""Triton and torch.compile: kernels that are compiled on this machine.

The rung: torch on one device, and compilers whose files go to a folder of their own; how a Triton kernel is launched,
checked and timed; and where compiling fails, why.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
import tempfile
import time
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Tuple

from .. import _scratch, eager
from .._kernel import Broken, CannotRun, Outcome
from ..eager._check import Case, run_cases

MIN_CAPABILITY = (7, 0)
"""Compute capability: Triton 2.0's README, 2023-03. On older GPUs LLVM may end the whole process."""


class Context(eager.Context):
    """torch's context with our Triton kernels, a folder for compiled files, and the environment as it was before."""

    cache: Optional[_scratch.Folder] = None
    before: Mapping[str, str] = {}
    """The environment as it was given."""

    @property
    def kernels(self) -> Any:
        """The module of our Triton kernels, imported; raises `CannotRun` where Triton or what it needs is missing.

        An import that fails otherwise raises what `classify_error` makes of its error.
        """
        require_triton()
        if not self.on_cpu and self.capability() < MIN_CAPABILITY:
            raise CannotRun("Triton supports GPUs of compute capability %d.%d and newer" % MIN_CAPABILITY)
        if self.on_cpu and importlib.util.find_spec("numpy") is None:
            raise CannotRun("Triton's interpreter for the CPU needs numpy, which is not installed")
        try:
            from . import _kernels
        except Exception as error:
            raise classify_error(error, self.on_cpu) from error
        return _kernels


def require_triton() -> None:
    """Raise `CannotRun` where Triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        raise CannotRun("triton is not installed in this interpreter")


def opened(ask: Mapping[str, Any]) -> Context:
    """The context of the device, with compilers' caches in a new folder; compiles nothing; raises as `eager.opened`."""
    before = dict(os.environ, TMPDIR=tempfile.gettempdir())
    cache = prepare(on_cpu=ask["device"] == "cpu")
    eager_context = eager.opened(ask)  # on the current device, where Triton launches
    context = Context(eager_context.torch, str(eager_context.device), eager_context.seed, eager_context.devices)
    context.cache, context.before = cache, before
    return context


def prepare(on_cpu: bool) -> _scratch.Folder:
    """Redirect the caches of Triton and inductor, and TMPDIR, to a new folder by environment variables; returns it.

    On a CPU Triton is set to interpret its kernels.
    """
    folders = [tempfile.gettempdir(), "/var/tmp", "/dev/shm", os.path.expanduser("~")]
    cache = _scratch.Folder(next(filter(_scratch.allows_executables, folders), None))
    os.environ["TRITON_CACHE_DIR"] = os.path.join(cache.path, "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache.path, "inductor")
    os.environ["TMPDIR"] = tempfile.tempdir = cache.path  # inductor's precompiled headers heed no other
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else a pool of processes
    if on_cpu:
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    return cache


# ---- A Triton kernel with its inputs: how it is launched, checked and timed ----


class Launch(NamedTuple):
    """A Triton kernel with its inputs; `blank` gives a buffer of wrong values, `into` runs the kernel on one."""

    blank: Callable[[], Any]
    into: Callable[[Any], Any]

    def once(self) -> Any:
        """The kernel's output in a new buffer."""
        out = self.blank()
        self.into(out)
        return out

    def again(self) -> Callable[[], None]:
        """A function that launches the kernel on one buffer at each call."""
        out = self.blank()
        return lambda: self.into(out)


def check_and_time(
    context: Context, cases: List[Case], work: Callable[[], Any], value: Callable[[float], float]
) -> Outcome:
    """Compile by calling `work`, check the cases and time it; `value(seconds per call)` is the outcome's value.

    An error of the first call is raised as `classify_error` has it.
    """
    began = time.perf_counter()
    try:
        work()
        context.synchronize()
    except CannotRun:
        raise
    except Exception as error:
        raise classify_error(error, context.on_cpu) from error
    first = time.perf_counter() - began
    check = run_cases(context, cases)
    check["details"]["first_call_s"] = round(first, 3)
    once, spread = eager.median_and_spread(context.seconds(work))
    return Outcome(value=value(once), spread=spread, **check)


# ---- Why compiling failed on this machine: what Triton and inductor report, told by its cause ----


class Machine(NamedTuple):
    """Facts of this machine that explain compile errors."""

    headers: bool
    """Whether Python.h is there."""
    python: str
    """``3.11``"""
    cache: str
    """The folder for compiled kernels."""

    @staticmethod
    def here() -> Machine:
        """The facts of this machine and Python, and the folder in TRITON_CACHE_DIR."""
        include = sysconfig.get_paths().get("include") or ""
        headers = os.path.exists(os.path.join(include, "Python.h"))
        return Machine(headers, "%d.%d" % sys.version_info[:2], os.environ.get("TRITON_CACHE_DIR", ""))


def classify_error(error: BaseException, on_cpu: bool) -> BaseException:
    """`Broken` or `CannotRun` for an error whose cause is known; else the error itself."""
    text = _chain_text(error)
    if on_cpu and re.search(r"InvalidCxxCompiler|No working C\+\+ compiler", text):
        return CannotRun("inductor compiles for the CPU with g++ or clang++, and there is none")
    if on_cpu and "Compiler: cl is not found" in text:
        return CannotRun("inductor compiles for the CPU with cl of Microsoft Visual C++, and there is none")
    if on_cpu and "Found no NVIDIA driver" in text:
        return CannotRun("this Triton is too old to interpret a kernel on a CPU")
    if re.search(r"GPUTooOld|too old to be supported by the triton", text, re.IGNORECASE):
        return CannotRun("Triton supports no GPU this old")
    if "OutOfResources" in text or "out of resource" in text:
        return CannotRun("a block of this GPU has too little shared memory or too few registers for the kernel")
    known = known_cause(text, Machine.here())
    return Broken(*known) if known else error


def known_cause(text: str, machine: Machine) -> Optional[Tuple[str, str]]:
    """What is wrong, and what to do, by the text of a compile error's exceptions; None where the cause is unknown."""
    for pattern, what, advice in _KNOWN:
        match = re.search(pattern, text)
        if match:
            fields = {name: value or "" for name, value in match.groupdict().items()}
            fields.update(python=machine.python, cache=machine.cache)
            return what.format(**fields), advice.format(**fields)
    return _failed_program(text, machine)


def _failed_program(text: str, machine: Machine) -> Optional[Tuple[str, str]]:
    """What is wrong, and what to do, where a program that Triton ran (gcc, ptxas) failed; None if none is named."""
    match = re.search(r"Command '\[?'?([^',\s]+)(.*?)returned non-zero exit status (\d+)", text, re.DOTALL)
    if not match:
        return None
    program, arguments, status = match.groups()
    if "-shared" in arguments and not machine.headers:
        return (
            "Python.h is missing: Triton builds its launcher as an extension of Python %s" % machine.python,
            "install python%s-dev (Debian, Ubuntu) or python%s-devel (Fedora, RHEL)" % (machine.python, machine.python),
        )
    if "-shared" in arguments:
        what = "%s, with which Triton builds its launcher, ended with status %s" % (program, status)
        return what, "try it on any C file; CC names another compiler"
    return "%s, which Triton runs, ended with status %s" % (program, status), "try it by hand: %s --version" % program


def _chain_text(error: BaseException) -> str:
    """Types and messages of the error and those that caused it, a line each."""
    chain: List[BaseException] = []
    left: Optional[BaseException] = error
    while left is not None and left not in chain:
        chain.append(left)
        left = left.__cause__ or left.__context__
    return "\n".join("%s: %s" % (type(error).__name__, error) for error in chain)


_PTXAS = (
    "install the newest Triton that this torch accepts, or give a toolkit's: "
    "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas (TRITON_PTXAS_BLACKWELL_PATH from sm_100 on)"
)
_KNOWN: List[Tuple[str, str, str]] = [
    (
        r"Failed to find C compiler",
        "there is no C compiler: Triton builds its launcher on this machine with gcc or clang",
        "install gcc (apt-get install gcc libc6-dev), or name a compiler in CC",
    ),
    (
        r"InvalidCxxCompiler|No working C\+\+ compiler",
        "there is no C++ compiler, with which inductor builds what stays on the CPU",
        "install g++ (apt-get install g++), or name a compiler in CXX",
    ),
    (
        r"No such file or directory: '(?P<path>[^']*(?:gcc|cc|clang)[^'/]*)'",
        "CC names {path}, which is not there",
        "unset CC, or name a C compiler that is installed",
    ),
    (
        r"No such file or directory: '(?P<path>[^']*ldconfig)'",
        "Triton looks for libcuda.so.1 with {path}, which is not there",
        "set TRITON_LIBCUDA_PATH to the folder of libcuda.so.1",
    ),
    (
        r"libcuda\.so cannot found",
        "Triton does not find libcuda.so.1: the loader's cache (ldconfig -p) does not list it",
        "run ldconfig as root, or set TRITON_LIBCUDA_PATH to the folder of libcuda.so.1",
    ),
    (
        r"Cannot find (?P<tool>ptxas[\w-]*)|\[Errno \d+\] [^:]*: '(?P<path>[^']*ptxas[\w-]*)'",
        "Triton's assembler {tool}{path} is missing or cannot be run",
        "reinstall triton, which brings it along; TRITON_PTXAS_PATH must be unset, or right",
    ),
    (
        r"Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'",
        "Triton's ptxas is too old for this GPU: it does not know {arch}",
        _PTXAS,
    ),
    (
        r"Unsupported \.version (?P<ptx>[\d.]+)",
        "Triton's ptxas is older than the PTX {ptx} that Triton writes",
        _PTXAS,
    ),
    (
        r"'?(?P<arch>sm_\w+)'? is not a recognized processor",
        "this Triton is too old for this GPU: its compiler does not know {arch}",
        "install the newest Triton that this torch accepts",
    ),
    (
        r"failed to map segment from shared object",
        "no library may be loaded from {cache}: its file system is mounted noexec",
        "set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to a folder on a file system without noexec",
    ),
    (
        r"Permission denied: ''",
        "CC or CXX is set, and to nothing",
        "unset it, or name a compiler that is installed",
    ),
    (
        r"Read-only file system|No space left|Disk quota exceeded",
        "what was compiled cannot be kept in {cache}",
        "set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to a folder with room that may be written to",
    ),
    (
        r"Cannot find a working triton installation",
        "torch.compile needs Triton for this GPU, and there is none that works",
        "install the triton that belongs to this torch",
    ),
    (
        r"0 active drivers",
        "Triton sees no GPU, while torch does",
        "see that no other build of triton is installed, and that libcuda.so.1 can be loaded",
    ),
    (
        r"(?P<name>GLIBC(?:XX)?_[\d.]+)' not found \(required by (?P<path>[^)]*)",
        "triton cannot be loaded: {path} needs {name}",
        "install a triton that was built for this system, or a newer system library",
    ),
]
"""What the exceptions hold, what that means, and what to do; the first that is found."""
