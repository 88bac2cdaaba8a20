"""Every setting that steers NCCL and Gloo, with its origin, and whether the plugins that they name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.catalog import column, fact
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.model.secrets import variable_shown
from gpudoctor.probes._libraries.loader import Loader
from gpudoctor.probes._net.settings import Settings, settings_of
from gpudoctor.probes._python.torch_load import loaded_torch
from gpudoctor.probes._reading import line, names, there
from gpudoctor.target import Target

FACTS = (
    column("setting.name", "text", "a variable of NCCL, Gloo, UCX, libfabric or torch's NCCL part that is in force"),
    column("setting.value", "text", "its value"),
    column("setting.origin", "text", "environment, or the file that sets it: /etc/nccl.conf"),
    column("setting.missing", "text", "the file that it names, where that is not there; absent otherwise"),
    fact("net.settings_unread", "text", "why a file of settings could not be read; absent where all were"),
    fact("net.plugins_missing", "list", "plugins named that the loader does not find, such as NCCL_NET_PLUGIN=ofi"),
    fact("net.plugin", "text", "network plugin that NCCL would load; absent where it would use its own transports"),
    fact("net.efa", "list", "RDMA devices that are Amazon's EFA, which NCCL uses by a plugin alone"),
)

_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE")
_PLUGINS = {
    "NCCL_NET_PLUGIN": "libnccl-net",
    "NCCL_TUNER_PLUGIN": "libnccl-tuner",
    "NCCL_PROFILER_PLUGIN": "libnccl-profiler",
}
_DEVICES = "/sys/class/infiniband"
_AMAZON = "0x1d0f"
_LONGEST = 1024


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """From the environment, the two files of NCCL and the loader's search order; nothing is loaded."""
    settings = settings_of(target)
    yield "setting", tuple(_rows(target, settings))
    yield "net.settings_unread", Known(settings.blind, "nccl.conf") if settings.blind else Absent("all were read")
    yield "net.efa", _efa(target)
    try:
        loader = loaded_torch(target)
    except OSError as error:
        why = Unread(f"the loader's search order cannot be worked out: {error.strerror or error}")
        yield "net.plugins_missing", why
        yield "net.plugin", why
        return
    yield from _plugins(settings, loader)


def _rows(target: Target, settings: Settings) -> Iterator[Row]:
    for setting in sorted(settings.by_name.values(), key=lambda one: one.name):
        yield {
            "name": Known(setting.name, setting.origin),
            "value": Known(variable_shown(setting.name, setting.value)[:_LONGEST], setting.origin),
            "origin": Known(setting.origin, setting.origin),
            "missing": _missing(target, setting.name, setting.value),
        }


def _missing(target: Target, name: str, value: str) -> Fact:
    if name not in _FILES or not value.startswith("/"):
        return Absent("it names no file")
    here = there(target, value)
    if isinstance(here, Unread):
        return here
    return Absent("the file is there") if here else Known(value, value)


def _efa(target: Target) -> Fact:
    devices = names(target, _DEVICES)
    if not isinstance(devices, list):
        return devices
    vendors = {name: line(target, f"{_DEVICES}/{name}/device/vendor") for name in devices}
    found = tuple(name for name, said in vendors.items() if isinstance(said, Known) and said.value == _AMAZON)
    return Known(found, _DEVICES)


def _plugins(settings: Settings, loader: Loader) -> Iterator[tuple[str, Fact]]:
    """By the rules of NCCL's src/plugin/plugin_open.cc: the value as it is, then as the end of a library's name."""
    if loader.cache.trouble:
        why = Unread(loader.cache.trouble)
        yield "net.plugins_missing", why
        yield "net.plugin", why
        return
    lost = tuple(
        f"{variable}={name}"
        for variable, stem in _PLUGINS.items()
        for name in _named(settings[variable])
        if not _found(loader, name, stem)
    )
    yield "net.plugins_missing", Known(lost, "the loader's search order")
    value = settings["NCCL_NET_PLUGIN"]
    candidates = _named(value) if value is not None else ["libnccl-net.so"]
    used = next((path for name in candidates if (path := _found(loader, name, "libnccl-net"))), "")
    yield "net.plugin", Known(used, used) if used else Absent("the loader finds no libnccl-net.so")


def _named(value: str | None) -> list[str]:
    """Names in a setting, a list since 2.28; those that stand for no library of their own are none."""
    parts = [part.strip() for part in (value or "").split(",")]
    return [part for part in parts if part and part.lower() not in ("none", "static_plugin")]


def _found(loader: Loader, name: str, stem: str) -> str:
    """The plugin's path; empty where the loader would find none. The search starts from libnccl, which asks for it."""
    if "/" in name:
        return name if loader.target.exists(name) else ""
    tried = [name] if re.fullmatch(r"lib.*\.so(\.\d+)*", name) else [name, f"{stem}-{name}.so"]
    asking = loader.loaded.get("libnccl.so.2")
    return next((found.path for one in tried if (found := loader.resolve(one, asking))), "")
