"""The daemons that set up NVLink fabrics: fabric manager and subnet manager within a machine, IMEX between machines.

Machines with NVSwitches need the fabric manager, from NVLink 5 (B200) on with the subnet manager, which reaches the
switches through InfiniBand devices. Trays of GB200 and GB300 have neither: their switches run it. IMEX is needed only
by jobs that span such machines, and often is started with them: that it does not run is no fault by itself.
In containers the daemons are the host's, and out of sight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Unread, known, texts_of, value_of
from gpudoctor.probes._driver_files import Daemon, log_since_start, logged_errors, logged_version
from gpudoctor.probes._machine_kind import host_hidden
from gpudoctor.probes._reading import names, path_exists, refusal, text
from gpudoctor.target import Target

ONLY = "linux"
FACTS = (
    fact("driver.fabric_manager", "text", "running, stopped, failed or not installed"),
    fact(
        "driver.fabric_manager_version",
        "version",
        "version of the fabric manager: the running one's, by its log, else the installed package's",
    ),
    fact("fabric.installed_version", "version", "version of the installed package of the fabric manager"),
    fact("fabric.enabled", "bool", "whether systemd starts the fabric manager at boot"),
    fact("fabric.errors", "list", "last lines that the fabric manager logged as errors since it was started"),
    fact("fabric.switch_ports", "list", "InfiniBand devices through which NVSwitches are managed, from NVLink 5 on"),
    fact("fabric.umad", "bool", "whether the kernel module ib_umad is loaded, which managing those switches needs"),
    fact("fabric.subnet_manager", "text", "NVLink subnet manager (nvlsm): running, stopped or not installed"),
    fact("imex.state", "text", "the daemon nvidia-imex: running, stopped, failed or not installed"),
    fact("imex.version", "version", "version of the installed nvidia-imex"),
    fact("imex.enabled", "bool", "whether systemd starts nvidia-imex at boot"),
    fact("imex.nodes", "int", "machines that IMEX is configured to join, from nodes_config.cfg; absent without one"),
    fact("imex.channels", "int", "IMEX channels that programs here may use; absent where the driver made none"),
    fact("imex.errors", "list", "last lines that nvidia-imex logged as errors since it was started"),
)

_MANAGER = Daemon(
    "nv-fabricmanager",
    "/run/nvidia-fabricmanager/nv-fabricmanager.pid",
    unit="nvidia-fabricmanager",
    package="nvidia-fabricmanager",
)
_SUBNET = Daemon("nvlsm", "/run/nvlsm.pid", unit="nvidia-fabricmanager", folder="/opt/nvidia/nvlsm/sbin")
_IMEX = Daemon("nvidia-imex", unit="nvidia-imex", package="nvidia-imex")
_CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_NODES = "/etc/nvidia-imex/nodes_config.cfg"
_INFINIBAND = "/sys/class/infiniband"
_FAILURE_WORDS = re.compile(
    r"Nothing to do|n.t match|not match|NOT_READY|not been loaded|cannot be started|fail|fatal|error|mismatch", re.I
)
"""Words of the lines in which a daemon tells the journal why it did not start."""


def probe(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields the ``fabric`` and ``imex`` facts and the fabric manager's state and version; unread in a container.

    systemd and its journal are asked of daemons that are down. imex.channels is known in containers, too.
    """
    hidden = host_hidden(target)
    found = names(target, _CHANNELS)
    if isinstance(found, list):
        yield "imex.channels", Known(sum(name.startswith("channel") for name in found), _CHANNELS)
    else:
        yield "imex.channels", found
    if hidden:
        yield from ((spec.name, Unread(hidden)) for spec in FACTS if spec.name != "imex.channels")
        return
    yield from _fabric_manager_facts(target)
    yield from _switch_facts(target)
    yield from _imex_facts(target)


def _fabric_manager_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields driver.fabric_manager (state), fabric_manager_version, fabric.enabled, installed_version and errors.

    All but the state absent if it is not installed.
    """
    state = _MANAGER.state(target)
    yield "driver.fabric_manager", state
    if (fact := known(state)) and fact.value == "not installed":
        gone = Absent(fact.source)
        for name in ("driver.fabric_manager_version", "fabric.installed_version", "fabric.enabled", "fabric.errors"):
            yield name, gone
        return
    yield "fabric.enabled", _MANAGER.enabled(target)
    settings = text(target, _CONFIG, 1 << 16)
    match = re.search(r"^LOG_FILE_NAME=(/\S+)", settings, re.M) if isinstance(settings, str) else None
    path = match[1] if match else "/var/log/fabricmanager.log"
    log = log_since_start(target, path)
    installed = _installed_version(target)
    logged = logged_version(log, path)
    runs = value_of(state) == "running"
    yield "fabric.installed_version", installed
    yield "driver.fabric_manager_version", logged if runs and known(logged) else installed
    yield "fabric.errors", _daemon_errors(target, _MANAGER, state, logged_errors(log, path))


def _installed_version(target: Target) -> Fact:
    """The fabric manager's version by its dpkg package, else, from level standard on, by ``--version``; else unread."""
    packaged = _MANAGER.packaged_version(target)
    if known(packaged) or target.level == "quick":
        return packaged
    argv = (_MANAGER.binary(target), "--version")
    try:
        answer = target.run(argv, timeout=2)
    except OSError:
        return packaged
    match = re.search(r"\b(\d{3}(?:\.\d+){1,2})\b", answer.out)
    return Known(match[1], " ".join(argv)) if match else packaged


def _daemon_errors(target: Target, daemon: Daemon, state: Fact, logged: Fact) -> Fact:
    """Errors in the daemon's log (`logged`), and, if it is down, lines of its journal that say why it did not start.

    At most 20; the journal is not asked at level quick.
    """
    down = value_of(state) in ("failed", "stopped")
    if not down or target.level == "quick" or not target.which("journalctl"):
        return logged
    argv = ("journalctl", "-b", "-u", daemon.unit, "-n", "40", "-o", "cat", "--no-pager")
    try:
        answer = target.run(argv, timeout=2)
    except OSError:
        return logged
    found = [
        line.strip()[:300] for line in answer.out.split("\n") if _FAILURE_WORDS.search(line) and "-- " not in line[:3]
    ]
    if not found:
        return logged
    return Known((*texts_of(logged), *dict.fromkeys(found))[-20:], " ".join(argv[:4]))


def _switch_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields fabric.switch_ports (NVSwitches that are InfiniBand devices, from NVLink 5 on), umad and subnet_manager.

    The product data of such a device, which only root may read, contain ``SW_MNG``: the first is unread if none is
    found and one may not be read.
    """
    devices = names(target, _INFINIBAND)
    found: list[str] = []
    refused: Unread | None = None
    for device in devices if isinstance(devices, list) else ():
        path = f"{_INFINIBAND}/{device}/device/vpd"
        try:
            if b"SW_MNG" in target.read_bytes(path, 4096):
                found.append(device)
        except FileNotFoundError:
            continue
        except OSError as error:
            refused = refusal(path, error)
    if isinstance(devices, Unread):
        refused = devices
    yield (
        "fabric.switch_ports",
        refused if refused and not found else Known(tuple(found), f"{_INFINIBAND}/*/device/vpd"),
    )
    loaded = path_exists(target, "/sys/module/ib_umad")
    modules = path_exists(target, "/sys/module")
    if isinstance(loaded, bool) and modules is True:
        yield "fabric.umad", Known(loaded, "/sys/module/ib_umad" if loaded else "no /sys/module/ib_umad")
    else:
        yield "fabric.umad", Unread("/sys/module cannot be read")
    yield "fabric.subnet_manager", _SUBNET.state(target)


def _imex_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields imex.nodes, state, version, enabled and errors; the last three absent if IMEX is not installed."""
    yield "imex.nodes", _imex_nodes(target)
    state = _IMEX.state(target)
    yield "imex.state", state
    if (fact := known(state)) and fact.value == "not installed":
        for name in ("imex.version", "imex.enabled", "imex.errors"):
            yield name, Absent(fact.source)
        return
    yield "imex.version", _IMEX.packaged_version(target)
    yield "imex.enabled", _IMEX.enabled(target)
    path = "/var/log/nvidia-imex.log"
    yield "imex.errors", _daemon_errors(target, _IMEX, state, logged_errors(log_since_start(target, path), path))


def _imex_nodes(target: Target) -> Fact:
    """Number of addresses in IMEX's node list, one a line; absent without it, or with comments alone, as installed."""
    listed = text(target, _NODES, 1 << 16)
    if not isinstance(listed, str):
        return listed
    nodes = [line for line in listed.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    return Known(len(nodes), _NODES) if nodes else Absent(f"{_NODES} lists no machine")
