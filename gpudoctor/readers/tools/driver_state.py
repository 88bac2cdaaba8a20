"""dkms status, mokutil, ls -l /dev/nvidia*, lspci, systemctl status of NVIDIA's services, nvidia-imex-ctl -N."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread, known, known_facts
from gpudoctor.readers._machine import adapter_facts, gpu_vendor
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern
from gpudoctor.readers._values import normalized_pci_address

EXACT = 6
FACTS = (
    fact("imex.domain", "text", "whether all machines of the domain reach each other: up, degraded or down"),
    fact("imex.unreached", "list", "machines of the domain that are not ready or that some other does not reach"),
)

_DKMS = Pattern(r"\bnvidia(?:-(?!fs\b)[\w-]{1,60})?(?:/|, )(\d[\w.~-]*)(?:, ([\w.+-]+), \w+)?: (added|built|installed)")
_RELEASE = Pattern(r"(?:Linux )?(\d+\.\d+\.\S+)")
_KERNEL = Pattern(r"Linux \S+ (\d+\.\d+\.\S+) #\d|Linux-(\S{1,120}?)-(?:x86_64|aarch64)")
_NODE = Pattern(r"c([rwxsStT-]{9})\S?\s.*?(/dev/nvidia[\w/-]*)\s*$")
_OPENED = Pattern(r"/dev/nvidia(?:\d+|ctl|-uvm)")
"""What every CUDA program opens for reading and writing."""
_NO_NODE = Pattern(r"cannot access '?(/dev/nvidia[\w*/-]*)'?: No such file")
_GRES = Pattern(r"\bfatal: can't stat gres\.conf file (/dev/nvidia\d{1,3}): No such file or directory\s*$")
"""Why slurmd ends; it writes that it has started where the file came in time."""
_STARTED = "slurmd started on "
_PCI = Pattern(
    r"(?i)\s*(?:lspci[^:]*:\s*)?(?:\d+:\s*)?((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+"
    r"(VGA compatible controller|3D controller|Display controller)(?: \[\w+\])?: (.+)"
)
_DEVICE = Pattern(r"\s*(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\s+[A-Z][^:\[]{2,50}(?: \[\w+\])?: \S")
_BRIDGES = ("Host bridge", "ISA bridge", "PCI bridge")
_ALL_ADAPTERS = Pattern(r"nvidia|10de|::03(?:xx)?\b|grep.*3d.*(?:vga|display)|grep.*(?:vga|display).*3d")
"""What of an lspci command selects every graphics adapter, or NVIDIA's: compute GPUs are no VGA controllers."""
_PCI_ID = Pattern(r"(?i)\[([0-9a-f]{4}:[0-9a-f]{4})\]")
_UNNAMED = Pattern(r"(?i)NVIDIA Corporation Device ([0-9a-f]{4})\b")
"""How lspci writes a device that its list of names is too old for."""
_PACKAGE = Pattern(
    r"(?i)(?:nvidia-driver|libnvidia-compute|nvidia-compute-G0|dpkg nvidia driver)(?: \d{3})?"
    r"[\w.-]{0,40}?(?::\w{1,12})?[\s:=-]+(?:\d:)?(\d{3}\.\d{2,3}(?:\.\d{2})?)(?![\w.])"
)
_MODULE_PACKAGE = Pattern(
    r"^(?:ii\s+)?(?:(?:local|extra|core|cachyos)/)?(?:nvidia(?:-\d{3}xx)?(?:-open)?(?:-dkms|-lts)?|(?:akmod"
    r"|kmod)-nvidia(?:-open)?(?:-dkms)?)"
    r"[ -](?:\d:)?(\d{3}\.\d{2,3}(?:\.\d{2})?)-\d"
)
_OFFERS = Pattern(
    r"(?:dnf|yum) (?:-\S+ )*(?:check-up\w+|search|repoquery|(?:list|info)\b.*\b(?:avail|upgr|updat|recent|showdup))"
    r"|pacman -S[a-z]*[is]|apt list(?!.*--installed)|zypper (?:se|search|lu|list-updates)\b"
)
"""Commands that list what a repository has: it may be installed or not."""
_LIST = Pattern(r"(?i)(Installed|Available|Available upgrades|Upgraded|Obsoleting) packages\s*$")
"""Headings in dnf's and yum's lists."""
_QUERY = Pattern(r"^(?:pacman -Qs?|rpm -qa?|dpkg -l|dnf list(?: installed)?|packages?)\b[^:\n]{0,40}:\s*")
"""What is written in front of a package where its query is the label."""
_FEWEST_OF_WHOLE_BUS = 3
"""Devices, bridges among them, that make a listing of the whole bus; one of a `grep` shows no bridge."""
_ACTIVE = Pattern(r"\bActive: (active \(running\)|inactive|failed|deactivating|activating \(auto-restart\))")
_SERVICE_STATES = {
    "active (running)": "running",
    "inactive": "stopped",
    "failed": "failed",
    "deactivating": "stopped",
    "activating (auto-restart)": "failed",
}
"""What systemd prints of a service, and our word for it."""
_IN_USE = Pattern(r"\s+Kernel driver in use: (\S+)")


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Facts of the driver's packages, DKMS, device nodes and services, of PCI devices, Secure Boot and IMEX."""
    low = paste.lower
    yield from _dkms_state(paste)
    for index, line in paste.having("bad return status for module build"):
        yield "driver.dkms_error", Known(line.strip()[:300], paste.use(index))
    if "nvidia" in low:
        yield from _distribution_packages(paste)
    yield from _secure_boot(paste)
    if "/dev/nvidia" in low:
        yield from _device_nodes(paste)
    if state := _service_state(paste, "nvidia-fabricmanager", "fabric manager"):
        yield "driver.fabric_manager", state
    if state := _service_state(paste, "nvidia-persistenced"):
        yield "driver.persistenced", Known(state.value == "running", state.source)
    if "controller" in low or "bridge" in low:
        yield from _pci_devices(paste)
    yield from _empty_lspci(paste)
    if "imex" in low or "domain state:" in low:
        yield from _imex(paste)


def _dkms_state(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """driver.dkms for the running kernel, or the first one listed where the text does not name the kernel.

    "added" where dkms has no entry for the running kernel.
    """
    matches = paste.matches(_DKMS.search, ": installed", ": added", ": built")
    states = [(match.group(2) or "", match.group(3), source) for match, source in matches]
    running = running_kernel(paste) if states else ""
    chosen = [state for state in states if running and state[0] == running] or (states if not running else [])
    if chosen:
        yield "driver.dkms", Known(chosen[0][1], chosen[0][2])
    elif states:
        yield "driver.dkms", Known("added", states[0][2])


def running_kernel(paste: Paste) -> str:
    """Release of the running kernel by a label, ``uname -r`` or uname's line, in that order; empty where not shown."""
    labels = ("kernel", "kernel version", "uname r", "running kernel")
    releases = (_RELEASE.match(label.value) for label in paste.labels if label.name in labels)
    labelled = next((release.group(1) for release in releases if release), "")
    printed = _KERNEL.search(paste.text)
    uname_output = next(
        (line.strip() for at, _ in paste.commands_starting("uname -r") for _, line in paste.output(at, 1)), ""
    )
    return labelled or uname_output or (printed.group(1) or printed.group(2) if printed else "")


def _distribution_packages(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Versions from the driver's packages of apt, dnf, zypper, pacman; those removed or only offered do not count.

    driver.library_version or driver.module_disk_version, by the package, and driver.installed.
    """
    offered = _offered_lines(paste)
    for index, line in paste.having("nvidia-driver", "libnvidia-compute", "nvidia-compute-g0", "dpkg nvidia driver"):
        if index in offered:
            continue
        if (match := _PACKAGE.search(line)) and not line.lower().lstrip().startswith(("rc ", "un ")):
            yield "driver.library_version", Known(match.group(1), paste.use(index))
            yield "driver.installed", Known(True, paste.use(index))
    for index, line in enumerate(paste.bare):
        text = _QUERY.compiled.sub("", line.strip())
        if "nvidia" in line[:60] and index not in offered and (match := _MODULE_PACKAGE.match(text)):
            source = paste.use(index)
            yield "driver.module_disk_version", Known(match.group(1), source)
            yield "driver.installed", Known(True, source)


def _offered_lines(paste: Paste) -> set[int]:
    """Indexes of the lines that list what a repository offers, but for packages that they call installed."""
    lines: set[int] = set()
    offered = False
    for index, line in enumerate(paste.bare):
        if index in paste.commands:
            offered = bool(_OFFERS.match(line.removeprefix("sudo ")))
        elif heading := _LIST.match(line):
            offered = heading[1].lower() != "installed"
        elif offered and "installed" not in line:
            lines.add(index)
    return lines


def _secure_boot(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """host.secure_boot from mokutil's answer."""
    for index, line in paste.having("secureboot ", "secure boot "):
        low = line.lower()
        if "secureboot enabled" in low or "secure boot enabled" in low:
            yield "host.secure_boot", Known(True, paste.use(index))
        elif "secureboot disabled" in low or "secure boot disabled" in low:
            yield "host.secure_boot", Known(False, paste.use(index))


def _device_nodes(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``node`` from ``ls -l /dev/nvidia*``, and driver.nodes_denied and driver.nodes_missing.

    ``usable`` is True where others may read and write; False, and the node denied, where neither owner nor group may
    both read and write what every CUDA program opens; else left out.
    """
    rows: list[Row] = []
    closed: list[str] = []
    missing_nodes: list[str] = []
    source = ""
    for index, line in paste.having("/dev/nvidia"):
        if node := _NODE.match(line):
            source = paste.use(index)
            bits, path = node.groups()
            mode = sum(1 << (8 - position) for position, bit in enumerate(bits) if bit not in "-ST")
            row = known_facts(source, path=path, mode=f"{mode:04o}")
            if bits[6:8] == "rw":
                row["usable"] = Known(True, source)
            elif "rw" not in (bits[0:2], bits[3:5]) and _OPENED.fullmatch(path):
                row["usable"] = Known(False, source)
                closed.append(path)
            rows.append(row)
        elif (gres := _GRES.search(line)) and not any(_STARTED in later for later in paste.bare[index:]):
            source = paste.use(index)
            missing_nodes.append(gres.group(1))
        elif not_found := _NO_NODE.search(line):
            source = paste.use(index)
            missing_nodes.extend(
                ("/dev/nvidia0", "/dev/nvidiactl") if "*" in not_found.group(1) else (not_found.group(1),)
            )
    if not missing_nodes:
        missing_nodes, source = _missing_nodes(paste)
    if rows:
        yield "node", tuple(rows)
    if closed:
        yield "driver.nodes_denied", Known(tuple(closed), source)
    if missing_nodes:
        yield "driver.nodes_missing", Known(tuple(dict.fromkeys(missing_nodes)), source)


def _missing_nodes(paste: Paste) -> tuple[list[str], str]:
    """/dev/nvidiactl and nvidia-uvm where ``ls /dev/nvidia*`` shows others but not these, and the source; or empty."""
    for index, command in paste.commands_starting("ls"):
        if not command.rstrip().endswith("/dev/nvidia*"):
            continue
        listed = {word for _, line in paste.output(index) for word in line.split() if word.startswith("/dev/nvidia")}
        if listed and "grep" not in command:
            return [path for path in ("/dev/nvidiactl", "/dev/nvidia-uvm") if path not in listed], paste.use(index)
    return [], ""


def _service_state(paste: Paste, unit: str, words: str = "") -> Known | None:
    """State that ``systemctl status`` shows last: running, failed, stopped or not installed; None if it is not shown.

    A unit that is starting has no state. `words` finds lines that name it otherwise, such as by its description.
    """
    last: Known | None = None
    for index, line in paste.having(unit.removeprefix("nvidia-"), *([words] if words else ())):
        low = line.lower()
        if "could not be found" in low or "not-found" in low or f"unit {unit}.service not found" in low:
            last = Known("not installed", paste.use(index))
        if f"{unit}.service" not in low:
            continue
        for after in range(index, min(index + 6, len(paste.lines))):
            if active := _ACTIVE.search(paste.lines[after]):
                source = paste.use(after)
                if answer := _SERVICE_STATES.get(active[1]):
                    last = Known(answer, source)
                break
    return last


def _pci_devices(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``pci`` for the graphics adapters in lspci, and the facts that follow from them.

    For a listing of the whole bus also pci.devices, its size, host.wsl as absent and, without an adapter, counts of
    none.
    """
    rows: list[dict[str, Fact]] = []
    devices: dict[str, int] = {}
    for index, line in enumerate(paste.bare):
        if _DEVICE.match(line):
            devices.setdefault(line.split()[0], index)
        if match := _PCI.match(line):
            source = paste.use(index)
            bus_address, _, name = match.groups()
            maker = "nvidia" if "nvidia" in name.lower() else gpu_vendor(name) or "other"
            address = normalized_pci_address(bus_address)
            row = known_facts(source, address=address, vendor=maker, name=name.strip())
            if ids := _PCI_ID.search(name):
                row["device_id"] = Known(ids.group(1).lower(), source)
            elif unnamed := _UNNAMED.search(name):
                row["device_id"] = Known(f"10de:{unnamed.group(1).lower()}", source)
            if "(rev ff)" in name:
                row["alive"] = Known(False, source)
            rows.append(row)
        elif rows and (driver := _IN_USE.match(line)):
            rows[-1].setdefault("driver", Known(driver.group(1), paste.use(index)))
    first = min(devices.values(), default=0)
    command = next((paste.commands[at] for at in range(first, -1, -1) if at in paste.commands), "").lower()
    bridge_lines = [
        line for line in (paste.bare[index] for index in devices.values()) if any(b in line for b in _BRIDGES)
    ]
    whole = bool(bridge_lines) and len(devices) > _FEWEST_OF_WHOLE_BUS and "grep" not in command
    if rows:
        yield "pci", tuple(rows)
        yield from _of_shown_adapters(rows, whole or _ALL_ADAPTERS.search(command) is not None)
    if whole:
        source = paste.use(first, max(devices.values()))
        yield "pci.devices", Known(len(devices), source)
        yield "host.wsl", Absent(f"lspci shows the bridges of a machine, of which WSL has none ({source})")
        if not rows:
            yield "pci.nvidia_count", Known(0, source)
            yield "pci.gpu_vendors", Known((), source)


def _of_shown_adapters(rows: Sequence[Row], complete: bool) -> Iterator[tuple[str, Fact]]:
    """The facts of `adapter_facts`; a count of 0 for NVIDIA is `Unread` unless the listing is `complete`."""
    for name, entry in adapter_facts(rows):
        count = known(entry) if name == "pci.nvidia_count" and not complete else None
        if count and not count.value:
            yield name, Unread(f"not all of lspci's lines are shown ({count.source})", reason=Reason.NOT_STATED)
        else:
            yield name, entry


def _empty_lspci(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """pci.nvidia_count is 0 where ``lspci | grep -i nvidia`` printed nothing before the next command."""
    for index, command in paste.commands_starting("lspci"):
        if "nvidia" not in command.lower() and "10de" not in command:
            continue
        output = [line.strip() for _, line in paste.output(index)]
        after = next((n for n in range(index + 1, len(paste.lines)) if paste.lines[n].strip()), None)
        if (not output and after in paste.commands) or output[:1] in (["(no output)"], ["(empty)"], ["(nothing)"]):
            yield "pci.nvidia_count", Known(0, paste.use(index))


_IMEX_NODE = Pattern(
    r"Node #(\d{1,4})\s+([*-]) ([\w.:-]{1,80})\s+(?:\*\s+)?- ([A-Z_]{2,40})(?:\s+- Version: (\d{3}\.[\d.]{2,12}))?"
    r"(?:\s+- Hostname: \S+)?\s*$"
)
_IMEX_DOMAIN = Pattern(r"\s*Domain State: (UP|DEGRADED|DOWN)\s*$")
_IMEX_REACH = Pattern(r"\s+(\d{1,4})((?:\s+(?:[INRDAC]|!V!|!M!))+)\s*$")
_IMEX_READY = "READY"


def _imex(paste: Paste) -> Iterator[tuple[str, Fact]]:
    """Facts ``imex.*`` of NVIDIA's IMEX daemon: state, version, domain, number of nodes, and the nodes not reached."""
    if state := _service_state(paste, "nvidia-imex"):
        yield "imex.state", state
    nodes: dict[int, str] = {}
    unready: dict[int, int] = {}
    last = 0
    for index, line in enumerate(paste.bare):
        if node := _IMEX_NODE.match(line.lstrip()):
            number = int(node[1])
            nodes[number], last = node[3], index
            paste.use(index)
            if node[4] != _IMEX_READY:
                unready[number] = index
            if node[2] == "*" and node[5]:
                yield "imex.version", Known(node[5], paste.use(index))
        elif nodes and (reach := _IMEX_REACH.match(line)):
            states = reach[2].split()
            row = int(reach[1])
            own = states[row] if row < len(states) else "C"
            if len(states) == len(nodes) and own != "C":
                unready.setdefault(row, index)
            paste.use(index)
        elif domain := _IMEX_DOMAIN.match(line):
            yield "imex.domain", Known(domain[1].lower(), paste.use(index))
    if nodes:
        yield "imex.nodes", Known(len(nodes), paste.use(last))
        if unready:
            names = tuple(nodes[number] for number in sorted(unready) if number in nodes)
            yield "imex.unreached", Known(names, paste.use(next(iter(unready.values()))))
