"""Which libraries glibc's loader would load, and every copy of the CUDA libraries: from the files, nothing is loaded.

The order for a name that an object needs: what is loaded already; the DT_RPATH of the object, of whatever loaded it
and of the program, unless the object has a DT_RUNPATH; LD_LIBRARY_PATH; the object's DT_RUNPATH; ld.so.cache; built-in
folders.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections import deque
from collections.abc import Iterator, Mapping

from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._binaries import Dynamic, MalformedError, opened
from gpudoctor.probes._dists import Dist, Environment, libraries_of
from gpudoctor.probes._site import Site
from gpudoctor.target import Target

_FOLLOWED = pattern(r"lib(torch|c10|caffe2|shm|cu|nv|nccl|magma)")
"""Names worth following: torch's own and NVIDIA's; the C library and its like are the same for everybody."""

_MOST_OBJECTS = 400
"""Objects after which we stop: torch with all its libraries loads about 40."""


@frozen
class LibraryObject:
    """A library that would be loaded: its path, why this copy, its dynamic section, and the object that needs it."""

    path: str
    why: str
    dynamic: Dynamic
    loader: LibraryObject | None = None
    by_variable: bool = False
    """Whether LD_LIBRARY_PATH or LD_PRELOAD names it, or its folder."""

    @property
    def file(self) -> str:
        """The file name without its folder."""
        return self.path.rpartition("/")[2]


class Loader:
    """glibc's search for libraries in a process of `program`.

    `loaded`: name (SONAME or file name) to library; `missing`: name to the library that needs it.
    """

    def __init__(self, target: Target, program: str | None) -> None:
        self.target = target
        self.loaded: dict[str, LibraryObject] = {}
        self.missing: dict[str, LibraryObject] = {}
        self.cache: Cache = read_cache(target)
        self.defaults = tuple(folder for folder in _BUILT_IN if target.exists(folder))
        entries = re.split("[:;]", target.environ.get("LD_LIBRARY_PATH", ""))
        self.library_path = [(index, entry.rstrip("/")) for index, entry in enumerate(entries, 1) if entry]
        self.program = self._read_object(target.link(program), "the program", None) if program else None
        for entry in re.split(r"[:\s]+", target.environ.get("LD_PRELOAD", "")):
            if "/" in entry and (found := self._read_object(entry, "LD_PRELOAD", None, by_variable=True)):
                self._register(found)

    def load(self, path: str, why: str) -> None:
        """Record what loading the library at `path` would load: it and all that it needs, in dlopen's order.

        Fills `loaded` and `missing`; nothing if it cannot be read. Only torch's and NVIDIA's libraries are followed.
        """
        first = self._read_object(path, why, None)
        if first is None:
            return
        self._register(first)
        queue = deque([first])
        while queue and len(self.loaded) < _MOST_OBJECTS:
            needed_by = queue.popleft()
            for name in needed_by.dynamic.needed:
                if name in self.loaded or not _FOLLOWED.match(name):
                    continue
                found = self.resolve(name, needed_by)
                if found is None:
                    self.missing.setdefault(name, needed_by)
                else:
                    self._register(found, name)
                    queue.append(found)

    def resolve(self, name: str, needed_by: LibraryObject | None) -> LibraryObject | None:
        """The library that the loader would find in its folders for `name`, needed by `needed_by`; None if none has a
        readable one.

        Whether it is in `loaded` already is not looked at.
        """
        for path, why, by_variable in self._candidate_paths(name, needed_by):
            if self.target.exists(path) and (found := self._read_object(path, why, needed_by, by_variable=by_variable)):
                return found
        return None

    def _candidate_paths(self, name: str, needed_by: LibraryObject | None) -> Iterator[tuple[str, str, bool]]:
        """Yields (path, why there, whether by an environment variable) of possible files, in the loader's order."""
        for folder, why, by_variable in self._folders(needed_by):
            yield f"{folder}/{name}", why, by_variable
        if name in self.cache.paths:
            yield self.cache.paths[name], "ld.so.cache", False
        for folder in self.defaults:
            yield f"{folder}/{name}", f"built-in folder {folder}", False

    def _folders(self, needed_by: LibraryObject | None) -> Iterator[tuple[str, str, bool]]:
        """Yields (folder, why there, whether by an environment variable): RPATH, LD_LIBRARY_PATH, RUNPATH, in order.

        RPATHs of the object, its loaders and the program count only if the object has no RUNPATH.
        """
        runpath = needed_by.dynamic.runpath if needed_by else ()
        if not runpath:
            link = needed_by
            while link:
                yield from self._expand_origin(link, link.dynamic.rpath, "RPATH")
                link = link.loader
            if self.program:
                yield from self._expand_origin(self.program, self.program.dynamic.rpath, "RPATH")
        for index, entry in self.library_path:
            yield entry, f"LD_LIBRARY_PATH entry {index}", True
        if needed_by:
            yield from self._expand_origin(needed_by, runpath, "RUNPATH")

    @staticmethod
    def _expand_origin(owner: LibraryObject, folders: tuple[str, ...], tag: str) -> Iterator[tuple[str, str, bool]]:
        """Yields (folder, why, False) for the absolute folders of an RPATH or RUNPATH, with $ORIGIN replaced."""
        origin = owner.path.rpartition("/")[0]
        for folder in folders:
            path = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            if path.startswith("/"):
                yield posixpath.normpath(path), f"{tag} of {owner.file}", False

    def _read_object(
        self, path: str, why: str, needed_by: LibraryObject | None, *, by_variable: bool = False
    ) -> LibraryObject | None:
        """The library at `path`; None if it cannot be read or is no 64-bit ELF file: the loader passes over it."""
        try:
            with opened(self.target.path(path)) as elf:
                return LibraryObject(path, why, elf.dynamic(), needed_by, by_variable)
        except (OSError, MalformedError):
            return None

    def _register(self, library: LibraryObject, name: str = "") -> None:
        """Record the library as loaded under `name`, its SONAME and its file name, unless these are taken; none of them
        stays in `missing`.
        """
        for known in (name, library.dynamic.soname, library.file):
            if known:
                self.loaded.setdefault(known, library)
                self.missing.pop(known, None)


# ---- ``/etc/ld.so.cache``, read directly, and the built-in folders ----
# As glibc 2.32 and newer write it: ``glibc-ld.so.cache1.1``, number of entries u32, length of the text u32, 28 bytes
# more, then per entry flags i32, name offset u32, path offset u32, OS version u32, hardware capabilities u64. An older
# ldconfig puts ``ld.so-1.7.0`` with 12-byte entries before it; offsets count from the newer header.

_CACHE = "/etc/ld.so.cache"
_OLD, _NEW = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"
_MOST_CACHE_BYTES = 1 << 24
_ENTRY = struct.Struct("<iIIIQ")
_64_BIT = frozenset({0x0300, 0x0500, 0x0A00, 0x1000})
"""The flags' high byte of 64-bit x86, POWER, Arm and RISC-V."""

_BUILT_IN = (
    *("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"),
    *("/lib64", "/usr/lib64", "/lib", "/usr/lib"),
)


@frozen
class Cache:
    """Library name to path from ld.so.cache, the first entry of each name; `trouble`: why it could not be read."""

    paths: Mapping[str, str]
    trouble: str = ""


def read_cache(target: Target) -> Cache:
    """The cache at /etc/ld.so.cache; empty if there is none, empty with `trouble` if it cannot be read or parsed."""
    try:
        raw = target.read_bytes(_CACHE, _MOST_CACHE_BYTES)
    except FileNotFoundError:
        return Cache({})
    except OSError as error:
        return Cache({}, f"{_CACHE} could not be read: {error.strerror or error}")
    try:
        return Cache(parse_cache(raw))
    except (ValueError, struct.error) as error:
        return Cache({}, f"{_CACHE}: {error}")


def parse_cache(raw: bytes) -> dict[str, str]:
    """Library name to path in the bytes of an ld.so.cache, the first entry of each name.

    32-bit entries, and those for certain hardware capabilities alone, are left out. `ValueError` or `struct.error` if
    malformed.
    """
    start = 0
    if raw.startswith(_OLD):
        (number,) = struct.unpack_from("<I", raw, len(_OLD))
        start = (len(_OLD) + 4 + 12 * number + 7) // 8 * 8
    if raw[start : start + len(_NEW)] != _NEW:
        raise ValueError("not a cache that glibc 2.x writes")
    number, length = struct.unpack_from("<II", raw, start + 20)
    at = start + 48
    if at + number * _ENTRY.size + length > len(raw):
        raise ValueError("it is cut short")
    found: dict[str, str] = {}
    for flags, name, path, _, hardware in _ENTRY.iter_unpack(raw[at : at + number * _ENTRY.size]):
        if flags & 0xFF == 3 and flags & 0xFF00 in _64_BIT and not hardware:
            found.setdefault(_c_string(raw, start + name), _c_string(raw, start + path))
    return found


def _c_string(raw: bytes, at: int) -> str:
    """The NUL-terminated string at offset `at`; raises `ValueError` outside the file."""
    end = raw.find(b"\0", at)
    if not 0 <= at < len(raw) or end < 0:
        raise ValueError("an entry points outside it")
    return raw[at:end].decode("utf-8", "replace")


# ---- Every copy of the CUDA libraries in the places where they are installed, each real file once ----

CUDA_LIBRARIES = (
    *("libcuda", "libcudart", "libcudnn", "libnccl", "libcublas", "libcublasLt"),
    *("libnvJitLink", "libcusparse", "libcusolver", "libcufft", "libnvrtc"),
)
_CUDA_FILE = pattern(rf"({'|'.join(CUDA_LIBRARIES)})(?:-[0-9a-f]+)?\.so((?:\.\d+)*)")
_RELEASE = pattern(r"\.so\.(\d+(?:\.\d+)+)$")


@frozen
class LibraryCopy:
    """One file of a CUDA library: library name, path by which a loader asks for it, resolved file, and origin.

    `origin` is torch, wheel, conda, toolkit, driver, system or environment.
    """

    name: str
    path: str
    real: str
    origin: str

    @property
    def file(self) -> str:
        """The file name without its folder."""
        return self.path.rpartition("/")[2]


def library_copies(target: Target, loader: Loader, site: Site | None) -> list[LibraryCopy]:
    """Every copy of the `CUDA_LIBRARIES` in the folders where they are installed and in ld.so.cache, those of the
    Python environment first.

    A file with several paths is listed once.
    """
    found: dict[str, LibraryCopy] = {}
    for folder, origin in _folders(target, loader, site):
        for copy in _in_folder(target, folder, origin):
            found.setdefault(copy.real, copy)
    for name, path in loader.cache.paths.items():
        match = _CUDA_FILE.fullmatch(name)
        if match and target.exists(path):
            copy = LibraryCopy(match[1], path, target.link(path), _origin_by_path(path, match[1]))
            found.setdefault(copy.real, copy)
    return list(found.values())


def wheel_owners(target: Target, environment: Environment | None) -> dict[str, Dist]:
    """The NVIDIA wheel (``nvidia-*``) that installed each library, by the library's path, from the wheels' RECORD
    files; empty without an environment.
    """
    if environment is None:
        return {}
    wheels = [dist for dist in environment.dists if dist.name.startswith("nvidia-")]
    return {library.path: dist for dist in wheels for library in libraries_of(target, dist) or ()}


def version_of(copy: LibraryCopy, owners: dict[str, Dist]) -> Fact:
    """The version of a CUDA library's file by its wheel (`owners`: path to wheel), else by the real file's name.

    Unread if these give only the ABI number.
    """
    for path in (copy.path, copy.real):
        if path in owners:
            return Known(owners[path].version, owners[path].path)
    match = _RELEASE.search(copy.real)
    if match and copy.name == "libcuda" and int(match[1].partition(".")[0]) < 100:
        return Unread(f"{copy.real} does not say which driver it belongs to")
    if match and (copy.real != copy.path or match[1].count(".") > 1):
        return Known(match[1], copy.real)
    return Unread(f"the name {copy.real.rpartition('/')[2]} does not say it, and no wheel owns it")


def libcuda_kind(path: str, real: str) -> str:
    """Kind of a libcuda by its path and resolved path: driver, stub, compat or wsl."""
    both = f"{path} {real}"
    if "/stubs/" in both:
        return "stub"
    if "/wsl/" in both:
        return "wsl"
    return "compat" if "/compat/" in both or "/cuda-compat" in both else "driver"


def _folders(target: Target, loader: Loader, site: Site | None) -> Iterator[tuple[str, str]]:
    """Yields (folder, origin) of all places of CUDA libraries: the environment's, toolkits', WSL's, the system's.

    The origin is empty where it follows from a library's path.
    """
    for folder in site.folders if site else ():
        yield f"{folder}/torch/lib", "torch"
        yield from ((f"{folder}/nvidia/{part}/lib", "wheel") for part in target.listing(f"{folder}/nvidia"))
    if site and site.environment == "conda":
        yield f"{site.prefix}/lib", "conda"
    yield from ((folder, "") for _, folder in loader.library_path)
    homes = [value.rstrip("/") for key in ("CUDA_HOME", "CUDA_PATH") if (value := target.environ.get(key))]
    homes += [f"/usr/local/{name}" for name in target.listing("/usr/local") if name.startswith("cuda")]
    for home in dict.fromkeys(homes):
        bases = [f"{home}/lib64", f"{home}/lib"]
        bases += [f"{home}/targets/{name}/lib" for name in target.listing(f"{home}/targets")]
        for base in bases:
            yield base, "toolkit"
            yield f"{base}/stubs", "toolkit"
        yield f"{home}/compat", "driver"
    yield "/usr/lib/wsl/lib", "driver"
    yield from ((folder, "") for folder in loader.defaults)


def _in_folder(target: Target, folder: str, origin: str) -> Iterator[LibraryCopy]:
    """The CUDA libraries in a folder, each real file once under its best alias; none if it cannot be listed."""
    try:
        names = target.listing(folder)
    except OSError:
        return
    best: dict[str, tuple[str, str]] = {}
    for name in names:
        if match := _CUDA_FILE.fullmatch(name):
            real = target.link(f"{folder}/{name}")
            previous = best.get(real)
            if previous is None or _alias_rank(name) < _alias_rank(previous[1]):
                best[real] = (match[1], name)
    for real, (library, name) in best.items():
        path = f"{folder}/{name}"
        if target.exists(path):
            yield LibraryCopy(library, path, real, origin or _origin_by_path(path, library))


def _alias_rank(name: str) -> tuple[bool, int]:
    """Sort key of file names: ``libX.so.9``, ``libX.so.9.1.0``, ``libX.so``, as programs ask for the first."""
    parts = name.partition(".so")[2].count(".")
    return parts == 0, parts


def _origin_by_path(path: str, library: str) -> str:
    """Where a library comes from, by its path: wheel, toolkit, driver, system or environment."""
    if "/nvidia/" in path and "-packages/" in path:
        return "wheel"
    if path.startswith(("/usr/local/cuda", "/opt/cuda", "/opt/nvidia/hpc_sdk")):
        return "toolkit"
    if path.startswith(("/usr/lib", "/lib", "/usr/local/lib")):
        return "driver" if library == "libcuda" else "system"
    return "environment"


def no_libcuda_reason(loader: Loader) -> Absent | Unread:
    """Why libcuda.so.1 was not found: absent, or unread if ld.so.cache could not be read."""
    if loader.cache.trouble:
        return Unread(loader.cache.trouble)
    return Absent("no libcuda.so.1 in LD_LIBRARY_PATH, ld.so.cache or the loader's built-in folders")
