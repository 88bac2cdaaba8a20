"""The Windows Subsystem for Linux: whether the Linux side of the Windows driver is there and comes first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Fact, Known, Rows, Unread
from gpudoctor.probes import _marks
from gpudoctor.probes._dpkg import STATUS, packages
from gpudoctor.probes._driver.disk import LIBRARY_FOLDERS
from gpudoctor.probes._reading import names, real, refusal, text, there
from gpudoctor.target import Target

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
    """Only files. Outside WSL everything is absent; a container in WSL sees another's files, and says nothing."""
    found = _marks.wsl(target)
    hidden = _marks.host_hidden(target)
    if not isinstance(found, Known) or hidden:
        none = found if not isinstance(found, Known) else Unread(hidden)
        yield from ((spec.name, none) for spec in FACTS)
        return
    yield "wsl.driver", _there(target, f"{_FOLDER}/libcuda.so.1")
    yield "wsl.loader", _loader(target)
    yield "wsl.device", _there(target, _DEVICE)
    yield "wsl.linux_driver", _libraries(target)
    installed = packages(target, _PACKAGES)
    yield (
        "wsl.linux_packages",
        Known(tuple(sorted(installed)), STATUS) if isinstance(installed, dict) else Unread(installed.why),
    )


def _there(target: Target, path: str) -> Fact:
    state = there(target, path)
    return state if isinstance(state, Unread) else Known(state, path)


def _loader(target: Target) -> Fact:
    """WSL writes /etc/ld.so.conf.d/ld.wsl.conf itself, unless /etc/wsl.conf tells it not to."""
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
        said = text(target, path, 1 << 16)
        if isinstance(said, Unread):
            return said
        if isinstance(said, str) and re.search(rf"^\s*{_FOLDER}/?\s*$", said, re.M):
            return Known(True, path)
    return Known(False, f"neither {_CACHE} nor /etc/ld.so.conf.d nor LD_LIBRARY_PATH names {_FOLDER}")


def _libraries(target: Target) -> Fact:
    """Files of the distribution's own; a link that leads to /usr/lib/wsl is WSL's."""
    found: dict[str, str] = {}
    trouble: Unread | None = None
    for folder in LIBRARY_FOLDERS:
        here = names(target, folder)
        if isinstance(here, Unread):
            trouble = trouble or here
        for name in here if isinstance(here, list) else ():
            place = f"{folder}/{name}"
            goal = real(target, place) if _LIBRARY.fullmatch(name) else ""
            if goal and not goal.startswith("/usr/lib/wsl/"):
                found.setdefault(goal, place)
    if trouble and not found:
        return trouble
    return Known(tuple(found.values()), "the usual folders of libraries")
