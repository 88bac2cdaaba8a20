"""CUDA toolkits on this machine, and the compiler that would be used."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread, known, text_of, value_of
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._reading import names_in
from gpudoctor.target import Target, system_paths
from gpudoctor.target.protocol import printable

FACTS = (
    fact("cuda.nvcc", "text", "path of the nvcc that PATH gives"),
    fact("cuda.nvcc_version", "version", "its release, such as 12.4"),
    fact("cuda.ptxas", "text", "path of the ptxas that PATH gives"),
    fact("cuda.ptxas_version", "version", "its release"),
    fact("cuda.home", "text", "CUDA_HOME or CUDA_PATH as set"),
    fact("cuda.home_has_nvcc", "bool", "whether CUDA_HOME/bin/nvcc is there"),
    fact(
        "cuda.toolkit_version",
        "version",
        "release of the toolkit that a build would use: CUDA_HOME's, else nvcc's, else /usr/local/cuda's",
    ),
    fact("cuda.host_compiler", "text", "path of the C++ compiler that a build would use"),
    fact("cuda.host_compiler_version", "version", "its version, such as 13.2.0"),
    fact("cuda.host_compiler_kind", "text", "gcc, clang or msvc"),
    column("toolkit.path", "text", "folder of a toolkit: /usr/local/cuda-12.4"),
    column("toolkit.version", "version", "its release"),
    column("toolkit.nvcc", "bool", "whether it has nvcc"),
)


_VERSION_JSON_PARTS = ("cuda", "cuda_nvcc", "cuda_cudart")
_VERSION_TXT = re.compile(r"CUDA Version (\d+\.\d+)")
_CUDA_H = re.compile(r"#define\s+(?:CUDA_VERSION|CUDART_VERSION)\s+(\d{4,5})\b")
_HEADERS = ("cuda.h", "cuda_runtime_api.h")
_FOLDER_NAME = re.compile(r"(?:cuda-|/CUDA/v)(\d+\.\d+)(?:\.\d+)?$")
_RELEASE = re.compile(r"release (\d+\.\d+)")


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``cuda`` facts and the group ``toolkit``; files are read first, programs run last."""
    toolkits = _toolkits(target)
    yield (
        "toolkit",
        tuple(
            {"path": Known(folder, folder), "version": release, "nvcc": _has_nvcc(target, folder)}
            for folder, release in toolkits.items()
        )
        or Absent("no CUDA toolkit in the usual places, in CUDA_HOME, or in the Python environment"),
    )
    home = _cuda_home(target)
    yield "cuda.home", home
    yield "cuda.home_has_nvcc", (_has_nvcc(target, system_paths.spelled(text_of(home))) if known(home) else home)
    nvcc, release = _program(target, "nvcc", 3.0)
    yield "cuda.nvcc", nvcc
    yield "cuda.nvcc_version", release
    yield "cuda.toolkit_version", _build_release(target, home, nvcc, release)
    ptxas, release = _program(target, "ptxas", 2.0)
    yield "cuda.ptxas", ptxas
    yield "cuda.ptxas_version", release
    yield from host_compiler_facts(target)


def _toolkits(target: Target) -> dict[str, Fact]:
    """The resolved folder of each CUDA toolkit to its release; a link such as /usr/local/cuda is not counted again.

    The release is unread if a folder cannot be entered, or its files do not tell.
    """
    usual = _usual_places_of_windows(target) if target.system == "windows" else _usual_places(target)
    named = [target.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    found: dict[str, Fact] = {}
    for place in (*usual, *named, *_wheel_folders(target)):
        folder = target.link(place) if system_paths.is_absolute(place) else ""
        try:
            if folder and folder not in found and _is_toolkit(target, folder):
                found[folder] = _release_of(target, folder)
        except PermissionError as error:
            found[folder] = Unread(f"{folder}: {error.strerror}")
    return found


def _usual_places(target: Target) -> Iterator[str]:
    """Yields the folders in which Linux's packages and installers put toolkits."""
    yield from (f"/usr/local/{name}" for name in names_in(target, "/usr/local") if name.startswith("cuda"))
    yield from ("/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit")
    sdk = "/opt/nvidia/hpc_sdk/Linux_x86_64"
    for release in names_in(target, sdk):
        yield from (f"{sdk}/{release}/cuda/{name}" for name in names_in(target, f"{sdk}/{release}/cuda"))


def _usual_places_of_windows(target: Target) -> Iterator[str]:
    """Yields the folders in which NVIDIA's installer for Windows, and conda, put toolkits."""
    programs = system_paths.spelled(target.environ.get("PROGRAMFILES", "C:/Program Files"))
    folder = f"{programs}/NVIDIA GPU Computing Toolkit/CUDA"
    yield from (f"{folder}/{name}" for name in names_in(target, folder))
    if conda := target.environ.get("CONDA_PREFIX"):
        yield f"{system_paths.spelled(conda)}/Library"


def _wheel_folders(target: Target) -> Iterator[str]:
    """Yields the folders where nvidia-cuda-nvcc wheels in the target's environment put the compiler."""
    if not target.python:
        return
    library = f"{system_paths.prefix_of(target.python)}/lib"
    for name in names_in(target, library):
        if name.startswith("python3."):
            yield from (f"{library}/{name}/site-packages/nvidia/{part}" for part in ("cuda_nvcc", "cu13", "cu14"))


def _is_toolkit(target: Target, folder: str) -> bool:
    """True if the folder holds a compiler, or a version file or cuda.h; a folder of left-over libraries is none."""
    if any(map(target.exists, system_paths.programs(f"{folder}/bin", "nvcc", "ptxas", system=target.system))):
        return True
    return any(target.exists(f"{folder}/{name}") for name in ("version.json", "version.txt", "include/cuda.h"))


def _has_nvcc(target: Target, folder: str) -> Fact:
    """Whether the toolkit's bin folder has nvcc; unread if a folder on the way cannot be entered."""
    path = next(system_paths.programs(f"{folder}/bin", "nvcc", system=target.system), f"{folder}/bin/nvcc")
    return _exists_fact(target, path)


def _exists_fact(target: Target, path: str) -> Fact:
    """Whether the path exists; unread if a folder on the way cannot be entered."""
    try:
        return Known(target.exists(path), path)
    except OSError as error:
        return Unread(f"{path}: {error.strerror or error}")


def _release_of(target: Target, folder: str) -> Fact:
    """The toolkit's release such as ``12.4``, by its own files, else by its folder's name; unread if neither tells."""
    if release := _release_in_json(_read_or_none(target, f"{folder}/version.json") or ""):
        return Known(release, f"{folder}/version.json")
    if match := _VERSION_TXT.search(_read_or_none(target, f"{folder}/version.txt") or ""):
        return Known(match[1], f"{folder}/version.txt")
    for include in ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"):
        for header in _HEADERS:
            match = _CUDA_H.search(_read_or_none(target, f"{folder}/{include}/{header}") or "")
            if match:
                number = int(match[1])
                return Known(f"{number // 1000}.{number % 1000 // 10}", f"{folder}/{include}/{header}")
    match = _FOLDER_NAME.search(folder)
    return Known(match[1], f"the name {folder}") if match else Unread(f"{folder} does not tell its release")


def _release_in_json(text: str) -> str | None:
    """The CUDA release (major.minor) in the text of version.json, else the compiler's; None if there is none."""
    try:
        parts = json.loads(text)
    except ValueError:
        return None
    for part in _VERSION_JSON_PARTS:
        entry = parts.get(part) if isinstance(parts, dict) else None
        match = re.match(r"\d+\.\d+", str(entry.get("version", ""))) if isinstance(entry, dict) else None
        if match:
            return match[0]
    return None


def _read_or_none(target: Target, path: str) -> str | None:
    """The file's text, at most 256 KiB; None if it cannot be read."""
    try:
        return target.read(path, limit=1 << 18)
    except OSError:
        return None


def _cuda_home(target: Target) -> Fact:
    """The value of CUDA_HOME, else of CUDA_PATH; absent if neither is set."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = target.environ.get(name)
        if value:
            return Known(value, name)
    return Absent("neither CUDA_HOME nor CUDA_PATH is set")


def _build_release(target: Target, home: Fact, nvcc: Fact, nvcc_release: Fact) -> Fact:
    """The release that torch's extension builder would use: CUDA_HOME's, else nvcc's, else /usr/local/cuda's.

    Absent if CUDA_HOME names a folder that is not there, or if there is none of the three.
    """
    if setting := known(home):
        folder = system_paths.spelled(str(setting.value)).rstrip("/")
        there = _exists_fact(target, folder)
        if value_of(there):
            return _release_of(target, target.link(folder))
        return there if isinstance(there, Unread) else Absent(f"{setting.source}={folder}, which is not there")
    if known(nvcc):
        return nvcc_release
    if target.exists("/usr/local/cuda"):
        return _release_of(target, target.link("/usr/local/cuda"))
    folder = "" if target.system == "windows" else ", no /usr/local/cuda"
    return Absent(f"no CUDA_HOME, no nvcc on PATH{folder}")


def _program(target: Target, name: str, seconds: float) -> tuple[Fact, Fact]:
    """Path and release of ``nvcc`` or ``ptxas`` on PATH (both absent if it is not there).

    The release is that of the toolkit's files, else of ``--version``.
    """
    path = target.which(name)
    if not path:
        missing = Absent(f"no {name} on PATH")
        return missing, missing
    where = Known(path, "PATH")
    folder, _, last = target.link(path).rpartition("/bin/")
    release: Fact = Unread("not read from files")
    if folder and last.removesuffix(".exe") == name and folder not in {"/usr", "/usr/local"}:
        release = _release_of(target, folder)
    if not known(release):
        release = _release_by_running(target, path, seconds)
    return where, release


def _release_by_running(target: Target, path: str, seconds: float) -> Fact:
    """The release that the program prints for ``--version``; unread if it prints none within `seconds`."""
    try:
        answer = target.run([path, "--version"], timeout=seconds)
    except OSError as error:
        return Unread(f"{path} could not be started: {error.strerror or error}")
    match = _RELEASE.search(answer.out)
    if match:
        return Known(match[1], f"{path} --version")
    return Unread(f"`{path} --version` told no release ({answer.how})", reason=answer.reason)


# ---- The host compiler that nvcc and torch's extension builder would take ----
# Part of the probe cuda_toolkit.

_CCBIN = pattern(r"(?:-ccbin|--compiler-bindir)[=\s]+(\S+)")
_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc"})


def host_compiler_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields cuda.host_compiler (path), _version and _kind of the C++ compiler that nvcc and torch's builder would use.

    Absent if there is none; unread if it cannot be looked up.
    """
    if target.system == "windows":
        yield from _msvc_facts(target)
        return
    try:
        source, path = _choose_host_compiler(target)
    except OSError as error:
        unread = Unread(f"the compiler that a variable names: {error.strerror or error}")
        yield from ((f"cuda.host_compiler{part}", unread) for part in ("", "_version", "_kind"))
        return
    if not path:
        missing = Absent(source)
        yield from ((f"cuda.host_compiler{part}", missing) for part in ("", "_version", "_kind"))
        return
    yield "cuda.host_compiler", Known(path, source)
    version, kind = _compiler_version(target, path)
    yield "cuda.host_compiler_version", version
    yield "cuda.host_compiler_kind", kind


def _msvc_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields cuda.host_compiler (path), _version and _kind of cl.exe: PATH's, else that of the newest Visual Studio.

    torch's extension builder finds the latter as well.
    """
    path = target.which("cl")
    if not path:
        found = _installed_msvc(target)
        if isinstance(found, tuple):
            path, toolset = found
            source = "vswhere.exe"
            yield "cuda.host_compiler", Known(path, source)
            yield "cuda.host_compiler_kind", Known("msvc", source)
            # Toolset 14.42 has the compiler 19.42 (Microsoft Learn: Overview of Microsoft C++ compiler versioning).
            yield "cuda.host_compiler_version", Known(f"19.{toolset.partition('.')[2]}", f"toolset {toolset}")
        else:
            yield from ((f"cuda.host_compiler{part}", found) for part in ("", "_version", "_kind"))
        return
    yield "cuda.host_compiler", Known(path, "PATH")
    yield "cuda.host_compiler_kind", Known("msvc", path)
    try:
        match = re.search(r"\b(19\.\d+(?:\.\d+)*)\b", target.run([path], timeout=5.0).err)
    except OSError as error:
        yield "cuda.host_compiler_version", Unread(f"{path} could not be started: {error.strerror or error}")
        return
    yield "cuda.host_compiler_version", Known(match[1], path) if match else Unread(f"{path} names no version")


def _installed_msvc(target: Target) -> tuple[str, str] | Absent | Unread:
    """Path of cl.exe and version of the toolset (14.42.34433) of the newest Visual Studio that has the C++ tools.

    Absent without one, unread if vswhere.exe fails or cl.exe is not in its place. vswhere.exe, part of every installer
    since Visual Studio 2017, has a fixed place (github.com/microsoft/vswhere).
    """
    programs = system_paths.spelled(target.environ.get("PROGRAMFILES(X86)", "C:/Program Files (x86)"))
    vswhere = f"{programs}/Microsoft Visual Studio/Installer/vswhere.exe"
    if not target.exists(vswhere):
        return Absent("no cl.exe on PATH, and no Visual Studio Installer")
    needs = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
    words = ["-latest", "-products", "*", "-requires", needs, "-property", "installationPath", "-utf8"]
    try:
        answer = target.run([vswhere, *words], timeout=5.0)
    except OSError as error:
        return Unread(f"{vswhere} could not be started: {error.strerror or error}")
    if not answer.ok:
        return Unread(f"{vswhere}: {answer.how}", reason=answer.reason)
    folder = system_paths.spelled((answer.out.strip().splitlines() or [""])[0].strip())
    if not folder:
        return Absent("no cl.exe on PATH, and no Visual Studio that has the C++ tools")
    toolset = (_read_or_none(target, f"{folder}/VC/Auxiliary/Build/Microsoft.VCToolsVersion.default.txt") or "").strip()
    path = f"{folder}/VC/Tools/MSVC/{toolset}/bin/Hostx64/x64/cl.exe"
    if not re.fullmatch(r"14\.\d+(?:\.\d+)*", toolset) or not target.exists(path):
        return Unread(f"{folder} has no cl.exe for x64 where Visual Studio keeps it")
    return path, toolset


def _choose_host_compiler(target: Target) -> tuple[str, str | None]:
    """Where the choice comes from (a variable or PATH) and the compiler's path; if there is none, the reason and None.

    Raises `OSError` if a folder on the way cannot be read.
    """
    for variable in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CXX"):
        value = target.environ.get(variable, "").strip()
        if variable.endswith("_FLAGS"):
            flag = _CCBIN.search(value)
            value = flag[1] if flag else ""
        if not value:
            continue
        words = _split_command(value)
        word = next((word for word in words if word.rpartition("/")[2] not in _LAUNCHERS), value)
        if variable != "CXX" and target.exists(f"{word}/g++"):
            word = f"{word}/g++"
        path = word if "/" in word and target.exists(word) else target.which(word)
        return (variable, path) if path else (f"{variable}={value}, which is not there", None)
    for name in ("g++", "gcc", "c++", "clang++"):
        path = target.which(name)
        if path:
            return "PATH", path
    return "no C++ compiler on PATH, and neither NVCC_CCBIN nor CXX is set", None


def _split_command(value: str) -> list[str]:
    """The value split as a shell would; the whole value if its quotes do not match."""
    try:
        return shlex.split(value) or [value]
    except ValueError:
        return [value]


def _compiler_version(target: Target, path: str) -> tuple[Fact, Fact]:
    """Version and kind (gcc or clang) by the first line of ``--version``, such as ``g++ (Debian 12.2.0-14) 12.2.0``.

    Both unread if it does not run or prints something else.
    """
    try:
        answer = target.run([path, "--version"], timeout=2.0)
    except OSError as error:
        unread = Unread(f"{path} could not be started: {error.strerror or error}")
        return unread, unread
    first = (answer.out.strip().splitlines() or [""])[0]
    source = f"{path} --version"
    clang = re.search(r"clang version (\d+(?:\.\d+)+)", first)
    if clang:
        return Known(clang[1], source), Known("clang", source)
    gcc = re.search(r"\)\s+(\d+(?:\.\d+)+)", first)
    if gcc and ("Free Software Foundation" in answer.out or "gcc" in first.lower() or "g++" in first):
        return Known(gcc[1], source), Known("gcc", source)
    why = printable(f"`{source}` is neither gcc's nor clang's answer ({answer.how}): {first}")
    unread = Unread(why, reason=answer.reason)
    return unread, unread
