"""Every setting that steers NCCL and Gloo, with its origin, and whether the plugins that they name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread, value_of
from gpudoctor.core.secrets import variable_shown
from gpudoctor.probes._loader import Loader
from gpudoctor.probes._net_choice import Settings, settings_of
from gpudoctor.probes._reading import line, names, path_exists
from gpudoctor.probes._torch_files import loaded_torch
from gpudoctor.target import Target

ONLY = "linux"
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
_LONGEST_VALUE = 1024


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """Yields the group ``setting`` and the ``net`` facts about plugins, from settings and the loader's search order."""
    settings = settings_of(target)
    yield "setting", tuple(_setting_rows(target, settings))
    yield (
        "net.settings_unread",
        Known(settings.unreadable, "nccl.conf") if settings.unreadable else Absent("all were read"),
    )
    yield "net.efa", _efa_devices(target)
    try:
        loader = loaded_torch(target)
    except OSError as error:
        why = Unread(f"the loader's search order cannot be worked out: {error.strerror or error}")
        yield "net.plugins_missing", why
        yield "net.plugin", why
        return
    yield from _plugin_facts(settings, loader)


def _setting_rows(target: Target, settings: Settings) -> Iterator[Row]:
    """Yields a row per setting in force, by name: name, value (without secrets), origin, and missing (file)."""
    for setting in sorted(settings.by_name.values(), key=lambda setting: setting.name):
        yield {
            "name": Known(setting.name, setting.origin),
            "value": Known(variable_shown(setting.name, setting.value)[:_LONGEST_VALUE], setting.origin),
            "origin": Known(setting.origin, setting.origin),
            "missing": _missing_file(target, setting.name, setting.value),
        }


def _missing_file(target: Target, name: str, value: str) -> Fact:
    """The file that a setting in `_FILES` names by its full path, if it is not there, else absent; unread if that
    cannot be found out.

    Absent for every other setting.
    """
    if name not in _FILES or not value.startswith("/"):
        return Absent("it names no file")
    here = path_exists(target, value)
    if isinstance(here, Unread):
        return here
    return Absent("the file is there") if here else Known(value, value)


def _efa_devices(target: Target) -> Fact:
    """Names of the RDMA devices that are Amazon's EFA, maybe none; absent or unread as /sys/class/infiniband is."""
    devices = names(target, _DEVICES)
    if not isinstance(devices, list):
        return devices
    vendors = {name: line(target, f"{_DEVICES}/{name}/device/vendor") for name in devices}
    found = tuple(name for name, vendor in vendors.items() if value_of(vendor) == _AMAZON)
    return Known(found, _DEVICES)


def _plugin_facts(settings: Settings, loader: Loader) -> Iterator[tuple[str, Fact]]:
    """Yields net.plugins_missing (``VARIABLE=name``, not found) and net.plugin, the network plugin NCCL would load.

    The latter is absent if there is none; both unread if ld.so.cache cannot be read. By the rules of NCCL's
    src/plugin/plugin_open.cc: the value as it is, then as the end of a library's name.
    """
    if loader.cache.trouble:
        why = Unread(loader.cache.trouble)
        yield "net.plugins_missing", why
        yield "net.plugin", why
        return
    not_found = tuple(
        f"{variable}={name}"
        for variable, stem in _PLUGINS.items()
        for name in _plugin_names(settings[variable])
        if not _library_path(loader, name, stem)
    )
    yield "net.plugins_missing", Known(not_found, "the loader's search order")
    value = settings["NCCL_NET_PLUGIN"]
    candidates = _plugin_names(value) if value is not None else ["libnccl-net.so"]
    used = next((path for name in candidates if (path := _library_path(loader, name, "libnccl-net"))), "")
    yield "net.plugin", Known(used, used) if used else Absent("the loader finds no libnccl-net.so")


def _plugin_names(value: str | None) -> list[str]:
    """Plugin names in a setting (a list since NCCL 2.28); ``none`` and ``static_plugin`` name no library."""
    parts = [part.strip() for part in (value or "").split(",")]
    return [part for part in parts if part and part.lower() not in ("none", "static_plugin")]


def _library_path(loader: Loader, name: str, stem: str) -> str:
    """The path of NCCL's plugin `name`, or ``<stem>-<name>.so``; empty if the loader would not find it.

    The search starts from libnccl, which loads it.
    """
    if "/" in name:
        return name if loader.target.exists(name) else ""
    candidates = [name] if re.fullmatch(r"lib.*\.so(\.\d+)*", name) else [name, f"{stem}-{name}.so"]
    libnccl = loader.loaded.get("libnccl.so.2")
    return next((found.path for one in candidates if (found := loader.resolve(one, libnccl))), "")
