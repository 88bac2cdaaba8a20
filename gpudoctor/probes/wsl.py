"""The Windows Subsystem for Linux: whether the Linux side of the Windows driver is there and comes first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Fact, Known, Rows, Unread, known
from gpudoctor.probes import _machine_kind
from gpudoctor.probes._driver_files import LIBRARY_FOLDERS
from gpudoctor.probes._packages import DPKG_STATUS, installed_packages
from gpudoctor.probes._reading import as_unread, names, path_exists, refusal, resolve_path, text
from gpudoctor.target import Target

ONLY = "linux"
FACTS = (
    fact("wsl.driver", "bool", "whether WSL has mounted the Windows driver's libcuda at /usr/lib/wsl/lib"),
    fact("wsl.loader", "bool", "whether ld.so.conf, its cache or LD_LIBRARY_PATH leads to /usr/lib/wsl/lib"),
    fact("wsl.device", "bool", "whether /dev/dxg is there, through which WSL reaches the GPU"),
    fact("wsl.linux_driver", "list", "libraries of a Linux driver that are installed in the distribution"),
    fact("wsl.linux_packages", "list", "packages of a Linux driver that are installed in the distribution"),
)

_FOLDER = "/usr/lib/wsl/lib"
_DEVICE = "/dev/dxg"
_CACHE = "/etc/ld.so.cache"
_LIBRARY = re.compile(r"(?:libcuda|libnvidia-ml)\.so(?:\.1|\.\d{2,4}\.\d+(?:\.\d+)?)?")
_PACKAGES = (
    r"nvidia-(?:driver|dkms|utils|kernel-\w+)(?:-\d+)?(?:-server)?(?:-open)?|libnvidia-compute-\d+(?:-server)?"
    r"|cuda-drivers(?:-\d+)?"
)


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the ``wsl`` facts, from files; absent outside WSL, unread in a container within WSL."""
    found = _machine_kind.wsl(target)
    hidden = _machine_kind.host_hidden(target)
    if hidden or not known(found):
        none = Unread(hidden) if known(found) else found
        yield from ((spec.name, none) for spec in FACTS)
        return
    yield "wsl.driver", _exists_fact(target, f"{_FOLDER}/libcuda.so.1")
    yield "wsl.loader", _loader_finds_driver(target)
    yield "wsl.device", _exists_fact(target, _DEVICE)
    yield "wsl.linux_driver", _linux_driver_libraries(target)
    installed = installed_packages(target, _PACKAGES)
    yield (
        "wsl.linux_packages",
        Known(tuple(sorted(installed)), DPKG_STATUS) if isinstance(installed, dict) else as_unread(installed),
    )


def _exists_fact(target: Target, path: str) -> Fact:
    """Whether the path exists; unread if that cannot be told."""
    state = path_exists(target, path)
    return state if isinstance(state, Unread) else Known(state, path)


def _loader_finds_driver(target: Target) -> Fact:
    """Whether LD_LIBRARY_PATH, ld.so.cache, ld.so.conf or ld.so.conf.d names /usr/lib/wsl/lib.

    Unread if one may not be read. WSL writes /etc/ld.so.conf.d/ld.wsl.conf itself, unless /etc/wsl.conf tells it not
    to.
    """
    if _FOLDER in target.environ.get("LD_LIBRARY_PATH", "").split(":"):
        return Known(True, "LD_LIBRARY_PATH")
    try:
        if _FOLDER.encode() in target.read_bytes(_CACHE, 1 << 24):
            return Known(True, _CACHE)
    except FileNotFoundError:
        pass
    except OSError as error:
        return refusal(_CACHE, error)
    listed = names(target, "/etc/ld.so.conf.d")
    if isinstance(listed, Unread):
        return listed
    more = listed if isinstance(listed, list) else []
    paths = ["/etc/ld.so.conf", *(f"/etc/ld.so.conf.d/{name}" for name in more)]
    for path in paths:
        content = text(target, path, 1 << 16)
        if isinstance(content, Unread):
            return content
        if isinstance(content, str) and re.search(rf"^\s*{_FOLDER}/?\s*$", content, re.M):
            return Known(True, path)
    return Known(False, f"neither {_CACHE} nor /etc/ld.so.conf.d nor LD_LIBRARY_PATH names {_FOLDER}")


def _linux_driver_libraries(target: Target) -> Fact:
    """Paths of a Linux driver's libraries in the distribution, maybe none.

    Links that lead to /usr/lib/wsl are left out. Unread if none is found and a folder cannot be read.
    """
    found: dict[str, str] = {}
    trouble: Unread | None = None
    for folder in LIBRARY_FOLDERS:
        here = names(target, folder)
        if isinstance(here, Unread):
            trouble = trouble or here
        for name in here if isinstance(here, list) else ():
            place = f"{folder}/{name}"
            resolved = resolve_path(target, place) if _LIBRARY.fullmatch(name) else ""
            if resolved and not resolved.startswith("/usr/lib/wsl/"):
                found.setdefault(resolved, place)
    if trouble and not found:
        return trouble
    return Known(tuple(found.values()), "the usual folders of libraries")
