"""The operating system of a simulated machine: release, firmware, processors, memory, processes, network."""

from collections.abc import Mapping
from typing import Any

from tests.probes.trees import EFI_GLOBAL
from tests.sim.files import Files

SYSTEMS = {
    "ubuntu-24.04": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n',
    "ubuntu-22.04": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n',
    "debian-12": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n',
    "rhel-9.6": 'PRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)"\nVERSION_ID="9.6"\nID="rhel"\nID_LIKE="fedora"\n',
    "fedora-43": 'PRETTY_NAME="Fedora Linux 43 (Workstation Edition)"\nVERSION_ID=43\nID=fedora\n',
    "arch": 'PRETTY_NAME="Arch Linux"\nNAME="Arch Linux"\nID=arch\n',
}
_MANAGERS = {"ubuntu": "apt-get", "debian": "apt-get", "rhel": "dnf", "fedora": "dnf", "arch": "pacman"}


_UPTIME_S, _BOOTED = 864_000, 1_763_000_000
PACKAGES = "/var/lib/dpkg/status"
"""What Debian's family has installed; the driver adds its own."""


def system(files: Files, machine: Mapping[str, Any]) -> None:
    kernel = machine["kernel"]
    files.add("/etc/os-release", SYSTEMS[machine["system"]])
    files.program(f"/usr/bin/{_MANAGERS[machine['system'].partition('-')[0]]}")
    files.add("/proc/sys/kernel/ostype", "Linux\n").add("/proc/sys/kernel/osrelease", f"{kernel}\n")
    files.add("/proc/sys/kernel/arch", f"{machine['arch']}\n")
    files.add("/proc/version", f"Linux version {kernel} (builder@host) (gcc 13.3.0) #1 SMP\n")
    files.add("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz-{kernel} root=/dev/nvme0n1p2 ro quiet\n")
    files.add("/proc/uptime", f"{_UPTIME_S}.00 96000000.00\n").add("/proc/loadavg", f"{machine['load']} 2/1893 4711\n")
    if machine["system"].startswith(("ubuntu", "debian")):
        files.add(PACKAGES, "Package: libc6\nStatus: install ok installed\nVersion: 2.39-0ubuntu8.6\n\n")
    flags = "fpu sse2 avx2" + (" hypervisor" if machine["virtual"] or machine["wsl"] else "")
    if machine["arch"] == "x86_64":
        files.add("/proc/cpuinfo", f"processor\t: 0\nvendor_id\t: {machine['cpu']}\nflags\t\t: {flags}\n")
    else:
        files.add("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nFeatures\t: fp asimd\n")
    if not machine["wsl"]:
        _firmware(files, machine)
    files.add("/sys/kernel/security/lockdown", f"{_lockdown(machine['secure_boot'])}\n")
    files.add("/sys/power/suspend_stats/success", "0\n").add("/sys/module/module/parameters/sig_enforce", "N\n")
    _modules(files, machine)
    said = [line.replace("\n", "\\x0a") for line in machine["kmsg"]]  # a message of several lines is one record
    lines = [f"6,{at},{60_000_000 + at * 1000},-;{line}\n" for at, line in enumerate(said, 900)]
    files.add("/proc/stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {_BOOTED}\n")
    since = (_UPTIME_S - 3600) * 1_000_000
    lines += [f"3,{at},{since + at * 1000},-;{line}\n" for at, line in enumerate(machine["events"], 2900)]
    files.add("/dev/kmsg", f"6,1,0,-;Linux version {kernel}\n" + "".join(lines))


def _lockdown(secure: bool) -> str:
    return "none [integrity] confidentiality" if secure else "[none] integrity confidentiality"


def _firmware(files: Files, machine: Mapping[str, Any]) -> None:
    files.add("/sys/class/dmi/id/sys_vendor", f"{machine['vendor']}\n")
    files.add("/sys/class/dmi/id/product_name", f"{machine['product']}\n")
    place = f"/sys/firmware/efi/efivars/SecureBoot-{EFI_GLOBAL}"
    files.add(place, bytes([6, 0, 0, 0, machine["secure_boot"]]))


def _modules(files: Files, machine: Mapping[str, Any]) -> None:
    """The kernel's own modules and headers; those of NVIDIA come with the driver."""
    kernel = machine["kernel"]
    files.add(f"/lib/modules/{kernel}/modules.dep", "kernel/fs/ext4/ext4.ko.zst: kernel/fs/jbd2/jbd2.ko.zst\n")
    files.folder(f"/usr/src/linux-headers-{kernel}")
    files.link(f"/lib/modules/{kernel}/build", f"/usr/src/linux-headers-{kernel}")


def processes(files: Files, machine: Mapping[str, Any]) -> None:
    """Process 1, the kernel's threads, what the scenario names, and what the session inherits."""
    user, last = machine["user"], machine["cpus"] - 1
    uids = "\t".join([str(user)] * 4)
    rights = "0000000000000000" if user else "000001ffffffffff"
    files.add("/proc/self/status", f"Name:\tpython3\nUid:\t{uids}\nCapEff:\t{rights}\nCpus_allowed_list:\t0-{last}\n")
    files.add("/proc/self/mountinfo", "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n")
    files.add("/proc/self/cgroup", "0::/user.slice\n").add("/proc/1/cgroup", "0::/init.scope\n")
    files.add("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n")
    files.add("/sys/fs/cgroup/user.slice/memory.max", "max\n").add("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n")
    limits = {"Max locked memory": ("unlimited", "bytes"), "Max open files": ("1048576", "files")}
    limits.update({"Max processes": ("unlimited", "processes"), "Max stack size": ("8388608", "bytes")})
    table = "".join(f"{name:<26}{value:<21}{value:<21}{unit:<10}\n" for name, (value, unit) in limits.items())
    files.add("/proc/self/limits", f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}{'Units':<10}\n{table}")
    for pid, name in {"1": "systemd", "2": "kthreadd", **machine["processes"]}.items():
        process(files, pid, name)
    files.folder("/run/systemd/system")
    for name in ("maps", "fd", "exe", "environ", "stat"):
        files.link(f"/proc/self/{name}", f"/.host/proc/self/{name}")


def process(files: Files, pid: int | str, name: str) -> None:
    """A process that sleeps; the kernel keeps 15 letters of its name."""
    short = name.rpartition("/")[2][:15]
    rest = " ".join(["0"] * 17)
    files.add(f"/proc/{pid}/comm", f"{short}\n").add(f"/proc/{pid}/stat", f"{pid} ({short}) S 1 {rest} 1000 {rest}\n")
    files.add(f"/proc/{pid}/cmdline", f"{name}\0").add(f"/proc/{pid}/status", f"Name:\t{short}\nUid:\t0\t0\t0\t0\n")


def fitness(files: Files, machine: Mapping[str, Any]) -> None:
    """Processors, memory and clocks as a well kept machine has them."""
    total, nodes = machine["memory_gib"] << 20, machine["numa"]
    sizes = {"MemTotal": total, "MemFree": total // 8, "MemAvailable": total * 3 // 4, "SwapTotal": 0, "SwapFree": 0}
    lines = [f"{name + ':':<16}{size:>12} kB\n" for name, size in sizes.items()]
    files.add("/proc/meminfo", "".join([*lines, "HugePages_Total:       0\nHugePages_Free:        0\n"]))
    per = machine["cpus"] // nodes
    for node in range(nodes):
        files.add(f"/sys/devices/system/node/node{node}/cpulist", f"{node * per}-{node * per + per - 1}\n")
    files.add("/sys/devices/system/node/online", f"0-{nodes - 1}\n" if nodes > 1 else "0\n")
    for name in ("present", "online"):
        files.add(f"/sys/devices/system/cpu/{name}", f"0-{machine['cpus'] - 1}\n")
    clock = "hyperv_clocksource_tsc_page" if machine["wsl"] else "kvm-clock" if machine["virtual"] else "tsc"
    clock = clock if machine["arch"] == "x86_64" else "arch_sys_counter"
    folder = "/sys/devices/system/clocksource/clocksource0"
    files.add(f"{folder}/current_clocksource", f"{clock}\n").add(
        f"{folder}/available_clocksource", f"{clock} acpi_pm\n"
    )
    files.add("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    for name in ("free", "resv"):
        files.add(f"/sys/kernel/mm/hugepages/hugepages-2048kB/{name}_hugepages", "0\n")
    files.add("/proc/sys/kernel/numa_balancing", "0\n").add("/proc/sys/vm/overcommit_memory", "0\n")
    if machine["wsl"]:
        return
    files.add("/run/systemd/timesync/synchronized", "")
    if machine["virtual"]:
        files.folder("/sys/devices/system/cpu/cpufreq").folder("/sys/devices/system/edac/mc")
        return
    for cpu in range(min(machine["cpus"], 4)):
        policy = f"/sys/devices/system/cpu/cpufreq/policy{cpu}"
        for name, value in {"scaling_governor": "performance", "scaling_max_freq": 3800000}.items():
            files.add(f"{policy}/{name}", f"{value}\n")
        files.add(f"{policy}/cpuinfo_max_freq", "3800000\n")
    for name in ("ce_count", "ue_count"):
        files.add(f"/sys/devices/system/edac/mc/mc0/{name}", "0\n")


def network(files: Files) -> None:
    for name in ("lo", "eth0"):
        files.add(f"/sys/class/net/{name}/operstate", "unknown\n" if name == "lo" else "up\n")
        files.add(f"/sys/class/net/{name}/mtu", "65536\n" if name == "lo" else "1500\n")
