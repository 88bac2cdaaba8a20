"""Every copy of the CUDA libraries in the places where they are installed, each real file once."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._libraries.loader import Loader
from gpudoctor.probes._python.dists import Dist, Environment, libraries
from gpudoctor.probes._python.site import Site
from gpudoctor.target import Target

LIBRARIES = (
    *("libcuda", "libcudart", "libcudnn", "libnccl", "libcublas", "libcublasLt"),
    *("libnvJitLink", "libcusparse", "libcusolver", "libcufft", "libnvrtc"),
)
_FILE = pattern(rf"({'|'.join(LIBRARIES)})(?:-[0-9a-f]+)?\.so((?:\.\d+)*)")
_RELEASE = pattern(r"\.so\.(\d+(?:\.\d+)+)$")


@frozen
class Copy:
    """One file: `name` is the library's, `path` its alias that a loader would ask for, `real` the file itself."""

    name: str
    path: str
    real: str
    origin: str

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


def copies(target: Target, loader: Loader, site: Site | None) -> list[Copy]:
    """All of them, those of the environment first; a file reached by several ways is listed by the first."""
    found: dict[str, Copy] = {}
    for folder, origin in _folders(target, loader, site):
        for copy in _in_folder(target, folder, origin):
            found.setdefault(copy.real, copy)
    for name, path in loader.cache.paths.items():
        match = _FILE.fullmatch(name)
        if match and target.exists(path):
            copy = Copy(match[1], path, target.link(path), _origin(path, match[1]))
            found.setdefault(copy.real, copy)
    return list(found.values())


def owners(target: Target, environment: Environment | None) -> dict[str, Dist]:
    """Which NVIDIA wheel wrote which file, by their RECORDs."""
    if environment is None:
        return {}
    wheels = [dist for dist in environment.dists if dist.name.startswith("nvidia-")]
    return {library.path: dist for dist in wheels for library in libraries(target, dist) or ()}


def version_of(copy: Copy, owned: dict[str, Dist]) -> Fact:
    """By the wheel that wrote it, else by the real file's name where that says more than the ABI number."""
    for path in (copy.path, copy.real):
        if path in owned:
            return Known(owned[path].version, owned[path].path)
    match = _RELEASE.search(copy.real)
    if match and copy.name == "libcuda" and int(match[1].partition(".")[0]) < 100:
        return Unread(f"{copy.real} does not say which driver it belongs to")
    if match and (copy.real != copy.path or match[1].count(".") > 1):
        return Known(match[1], copy.real)
    return Unread(f"the name {copy.real.rpartition('/')[2]} does not say it, and no wheel owns it")


def kind_of(path: str, real: str) -> str:
    """What a libcuda is: driver, stub, compat or wsl."""
    both = f"{path} {real}"
    if "/stubs/" in both:
        return "stub"
    if "/wsl/" in both:
        return "wsl"
    return "compat" if "/compat/" in both or "/cuda-compat" in both else "driver"


def _folders(target: Target, loader: Loader, site: Site | None) -> Iterator[tuple[str, str]]:
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


def _in_folder(target: Target, folder: str, origin: str) -> Iterator[Copy]:
    try:
        names = target.listing(folder)
    except OSError:
        return
    best: dict[str, tuple[str, str]] = {}
    for name in names:
        if match := _FILE.fullmatch(name):
            real = target.link(f"{folder}/{name}")
            kept = best.get(real)
            if kept is None or _alias_rank(name) < _alias_rank(kept[1]):
                best[real] = (match[1], name)
    for real, (library, name) in best.items():
        path = f"{folder}/{name}"
        if target.exists(path):
            yield Copy(library, path, real, origin or _origin(path, library))


def _alias_rank(name: str) -> tuple[bool, int]:
    """``libX.so.9`` before ``libX.so.9.1.0`` before ``libX.so``: programs ask for the first."""
    parts = name.partition(".so")[2].count(".")
    return parts == 0, parts


def _origin(path: str, library: str) -> str:
    if "/nvidia/" in path and "-packages/" in path:
        return "wheel"
    if path.startswith(("/usr/local/cuda", "/opt/cuda", "/opt/nvidia/hpc_sdk")):
        return "toolkit"
    if path.startswith(("/usr/lib", "/lib", "/usr/local/lib")):
        return "driver" if library == "libcuda" else "system"
    return "environment"


def absent_reason(loader: Loader) -> Absent | Unread:
    """Why no libcuda was found: known only where the cache could be read."""
    if loader.cache.trouble:
        return Unread(loader.cache.trouble)
    return Absent("no libcuda.so.1 in LD_LIBRARY_PATH, ld.so.cache or the loader's built-in folders")
