"""Why compiling failed on this machine: what Triton and inductor report, told by its cause."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from typing import List, NamedTuple, Optional, Tuple

from .._kernel import Broken, CannotRun


class Machine(NamedTuple):
    """What is looked at once something has failed."""

    headers: bool
    """Whether Python.h is there."""
    python: str
    """``3.11``"""
    cache: str
    """The folder for compiled kernels."""

    @staticmethod
    def here() -> Machine:
        """This one."""
        include = sysconfig.get_paths().get("include") or ""
        headers = os.path.exists(os.path.join(include, "Python.h"))
        return Machine(headers, "%d.%d" % sys.version_info[:2], os.environ.get("TRITON_CACHE_DIR", ""))


def told(error: BaseException, on_cpu: bool) -> BaseException:
    """The error by its cause: `Broken` or `CannotRun`; itself where the cause is not known."""
    text = _all_text(error)
    if on_cpu and re.search(r"InvalidCxxCompiler|No working C\+\+ compiler", text):
        return CannotRun("inductor compiles for the CPU with g++ or clang++, and there is none")
    if re.search(r"GPUTooOld|too old to be supported by the triton", text, re.IGNORECASE):
        return CannotRun("Triton supports no GPU this old")
    if "OutOfResources" in text or "out of resource" in text:
        return CannotRun("a block of this GPU has too little shared memory or too few registers for the kernel")
    known = cause(text, Machine.here())
    return Broken(*known) if known else error


def cause(text: str, machine: Machine) -> Optional[Tuple[str, str]]:
    """What is, and what to do, from all that the exceptions say; None where that is not known."""
    for pattern, what, advice in _KNOWN:
        found = re.search(pattern, text)
        if found:
            words = {name: value or "" for name, value in found.groupdict().items()}
            words.update(python=machine.python, cache=machine.cache)
            return what.format(**words), advice.format(**words)
    return _program(text, machine)


def _program(text: str, machine: Machine) -> Optional[Tuple[str, str]]:
    """A program that Triton ran has failed; its own words went to standard error."""
    found = re.search(r"Command '\[?'?([^',\s]+)(.*?)returned non-zero exit status (\d+)", text, re.DOTALL)
    if not found:
        return None
    program, arguments, status = found.groups()
    if "-shared" in arguments and not machine.headers:
        return (
            "Python.h is missing: Triton builds its launcher as an extension of Python %s" % machine.python,
            "install python%s-dev (Debian, Ubuntu) or python%s-devel (Fedora, RHEL)" % (machine.python, machine.python),
        )
    if "-shared" in arguments:
        what = "%s, with which Triton builds its launcher, ended with status %s" % (program, status)
        return what, "try it on any C file; CC names another compiler"
    return "%s, which Triton runs, ended with status %s" % (program, status), "try it by hand: %s --version" % program


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


def _all_text(error: BaseException) -> str:
    """Of the error and of those that led to it, type and words."""
    seen: List[BaseException] = []
    left: Optional[BaseException] = error
    while left is not None and left not in seen:
        seen.append(left)
        left = left.__cause__ or left.__context__
    return "\n".join("%s: %s" % (type(one).__name__, one) for one in seen)
