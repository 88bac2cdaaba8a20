"""What the names of a machine's system and GPUs tell: platform, distribution, package manager; GPUs by maker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, known, text_of
from gpudoctor.readers._pattern import Pattern, table
from gpudoctor.readers._values import ARCHITECTURES, first_version

_TABLE = """
apt: kubuntu = ubuntu | xubuntu = ubuntu | lubuntu = ubuntu | ubuntu | pop!_os = pop | pop_os = pop | linux mint =
    linuxmint | linuxmint | elementary | zorin | kali | raspbian | deepin | debian | proxmox = debian | mx linux =
    debian | jetson = ubuntu | dgx os = ubuntu | neon
dnf: fedora | red hat = rhel | rhel | centos | rocky | almalinux | alma linux = almalinux | oracle linux = ol |
    amazon linux = amzn | scientific linux = scientific | nobara | azure linux = azurelinux | mariner | openeuler
zypper: opensuse | suse = sles | sles
pacman: arch | manjaro | endeavouros | cachyos | garuda
emerge: gentoo
apk: alpine
none: nixos | void | slackware | synology | unraid | truenas | clear linux = clear-linux-os | guix | bottlerocket |
    flatcar | cos_containerd = cos | container-optimized = cos
"""
"""Package manager: words in the name of a distribution, with its short id where that is another."""


def _parsed_distributions() -> Iterator[tuple[str, str, str]]:
    """Word in a name, short id and package manager (empty for none) of each distribution in the table."""
    for manager, names in table(_TABLE):
        for name in names:
            word, _, short = name.partition(" = ")
            yield word, short or word, "" if manager == "none" else manager


_DISTRIBUTIONS = tuple(_parsed_distributions())
GLIBC = Pattern(r"glibc[- ]?(\d+\.\d+)")
_PLATFORM = Pattern(r"(Linux|Windows|Darwin|macOS)-(.+)")
_ARCH = Pattern(r"\b(x86_64|amd64|aarch64|arm64|ppc64le|riscv64|i[36]86)\b")


def system_facts(name: str, source: str) -> Iterator[tuple[str, Fact]]:
    """Facts of the operating system called `name`: ``Ubuntu 22.04.5 LTS (x86_64)``, ``Microsoft Windows 11 Pro``.

    ``host.os`` always; platform, WSL (absent on Windows and macOS), distribution, its version, package manager and
    architecture where the name tells.
    """
    low = name.lower()
    yield "host.os", Known(name, source)
    if "windows" in low and "linux" not in low and "wsl" not in low:
        yield "host.platform", Known("windows", source)
        yield "host.wsl", Absent(f"the system is {name[:60]} ({source})")
    elif low.startswith(("macos", "mac os", "mac ", "os x", "darwin")) or "macos" in low or "mac osx" in low:
        yield "host.platform", Known("macos", source)
        yield "host.wsl", Absent(f"the system is {name[:60]} ({source})")
    else:
        yield from _linux_facts(low, source)
    if arch := _ARCH.search(low):
        yield "host.arch", Known(ARCHITECTURES.get(arch.group(1), arch.group(1)), source)


def _linux_facts(lowercase_name: str, source: str) -> Iterator[tuple[str, Fact]]:
    """Platform, WSL and distribution facts of a Linux system's name in lower case; nothing for another system.

    Of a distribution its short id, its version and package manager where known.
    """
    distribution = next((entry for entry in _DISTRIBUTIONS if entry[0] in lowercase_name), None)
    if not distribution and not any(
        word in lowercase_name for word in ("linux", "gnu", "unix", "wsl", "dsm", "hpc", "colab", "kaggle")
    ):
        return
    yield "host.platform", Known("linux", source)
    if "wsl" in lowercase_name:
        yield "host.wsl", Known(1 if "wsl1" in lowercase_name or "wsl 1" in lowercase_name else 2, source)
    if not distribution:
        return
    yield "host.distribution", Known(distribution[1], source)
    text_after = lowercase_name.partition(distribution[0])[2]
    version = first_version(text_after) or next(
        (word for word in text_after.replace("(", " ").split() if word.isdecimal()), None
    )
    if version:
        yield "host.distribution_version", Known(version, source)
    if distribution[2]:
        yield "host.package_manager", Known(distribution[2], source)


def platform_facts(text: str, source: str) -> Iterator[tuple[str, Fact]]:
    """Facts in Python's `platform.platform` text: ``Linux-6.8.0-64-generic-x86_64-with-glibc2.35``.

    Nothing for a text of another form.
    """
    match = _PLATFORM.match(text)
    if not match:
        return
    system_name, details = match.groups()
    if system_name != "Linux":
        yield from ((name, fact) for name, fact in system_facts(system_name, source) if name != "host.os")
        return
    kernel_release = details.partition("-with-")[0]
    for arch in ("-x86_64", "-aarch64", "-ppc64le"):
        if kernel_release.endswith(arch):
            yield "host.arch", Known(arch[1:], source)
            kernel_release = kernel_release.removesuffix(arch)
    yield from kernel_facts(kernel_release, source)
    if glibc := GLIBC.search(details):
        yield "host.glibc", Known(glibc.group(1), source)


def kernel_facts(release: str, source: str) -> Iterator[tuple[str, Fact]]:
    """Facts of the running kernel by its release: ``6.8.0-64-generic``, ``5.15.90.1-microsoft-standard-WSL2``.

    The release, platform linux, WSL's version (`Absent` for another kernel, left out for one without ``-`` in its
    release), and the architecture where the release names it.
    """
    low = release.lower()
    yield "host.kernel", Known(release, source)
    yield "host.platform", Known("linux", source)
    if "microsoft" in low:
        yield "host.wsl", Known(2 if "wsl2" in low or "standard" in low else 1, source)
    elif "-" in release:
        yield "host.wsl", Absent(f"kernel {release[:60]} is not Microsoft's ({source})")
    if arch := _ARCH.search(low):
        yield "host.arch", Known(ARCHITECTURES.get(arch.group(1), arch.group(1)), source)


# ---- Lists of GPU names as reports give them ----
# ``NVIDIA A10, NVIDIA A10``, ``8x H100``, ``NVIDIA A100 x8``.

_TIMES_BEFORE = Pattern(r"(\d{1,3})\s*[x×*]\s+(.+)|(\d{1,3})[x×](?=[A-Z])(.+)")
_TIMES_AFTER = Pattern(r"(?![mM]x)(.+?)[\s(]*[x×*]\s*(\d{1,3})\)?$")
_LONGEST_NAME = 120
_PARTS = Pattern(r"(?:(?<!\s)\s+)?(?:,|;|\+| and | & )\s*")
_INDEX = Pattern(r"(?:GPU\s*)?\[?(\d{1,2})\]?\s*[:=]\s*(.+)")
_NOTE = Pattern(
    r"(?i)\s*\((?:UUID|compute|sm_|CC|driver|\d+\s*[GM]i?B|laptop, )[^)]*\)?|\s+@\s.*|\s+[-–—]\s+[A-Za-z].*"
)
_FORMER = Pattern(
    r"(?i)(?:replac\w+|instead|was|were|formerly|previous\w*|before|not|no|without|old|swapped|after|worked|like)\b"
)
"""How a part of the list begins that names a GPU which is not, or no longer, in the machine."""
_NEGATED = Pattern(r"(?i)\s*(?:no|not|without|none|non)\b")
_OTHERS = (
    (
        "amd",
        Pattern(
            r"(?i)\b(?:amd|advanced micro devices|radeon|instinct|firepro|gfx\d+|mi\d{2,3}x?"
            r"|rx ?\d{3,4}(?: ?(?:xtx?|gre|[ms]))?)\b"
        ),
    ),
    ("intel", Pattern(r"(?i)\b(?:intel|iris|uhd graphics|hd graphics|arc (?:pro )?[ab]\d+|data center gpu max)\b")),
    (
        "other",
        Pattern(
            r"(?i)\b(?:apple|m[1-5] (?:pro|max|ultra)|matrox|aspeed|vmware|virtio|qxl|cirrus|adreno|mali)\b|\bm[1-5]$"
        ),
    ),
)
_OTHER_MAKER = Pattern(
    r"(?i)(?:advanced micro devices|amd|apple|arc\b|aspeed|ati\b|instinct|intel|matrox|radeon|rx ?\d{3,4})"
)
"""How a name begins that is not NVIDIA's, whatever numbers are in it: ``[AMD/ATI] Rembrandt [Radeon 680M]``."""
_NVIDIA = Pattern(
    r"(?i)nvidia|geforce|quadro|tesla|titan|\b[rg]tx(?:\b|\d)|\bgt \d|\b[abvhpktl]\d{1,3}[a-z]?\b"
    r"|\b[at]\d{4}\b|\bgb?h?\d{2,3}\b|jetson|\bmx\d{3}|\bnvs\b|grid|\bdgx\b|\b(?:30|40|50|20|10)[5-9]0(?:ti)?\b|\d{3}m\b"
)


def gpu_vendor(name: str) -> str | None:
    """The maker of the GPU of that name: nvidia, amd, intel or other; None where the name does not tell."""
    if _NVIDIA.search(name) and not _OTHER_MAKER.match(name):
        return "nvidia"
    return next((maker for maker, pattern in _OTHERS if pattern.search(name)), None)


def split_gpu_names(text: str) -> list[str]:
    """The GPU names in the text, one entry per GPU (``8x H100`` gives eight), without notes and numbers.

    Names that the text denies or calls former are left out.
    """
    out: list[str] = []
    for part in _PARTS.compiled.split(text):
        if len(part) > _LONGEST_NAME or _NEGATED.match(part):
            continue
        name = _NOTE.compiled.sub("", part).strip(" .'\"[]{}")
        if numbered := _INDEX.fullmatch(name):
            name = numbered.group(2).strip()
        count = 1
        if before := _TIMES_BEFORE.fullmatch(name):
            count, name = int(before.group(1) or before.group(3)), (before.group(2) or before.group(4)).strip()
        elif after := _TIMES_AFTER.fullmatch(name):
            count, name = int(after.group(2)), after.group(1).strip()
        if name and not _FORMER.match(name):
            out.extend([name] * min(count, 256))
    return out


def gpu_facts(text: str, source: str) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``gpu`` for NVIDIA's GPUs that the text lists, numbered in its order; other makers as pci.gpu_vendors.

    Names whose maker is not known are skipped; nothing where no name tells its maker.
    """
    rows: list[Row] = []
    indices = count()
    for name in split_gpu_names(text):
        if maker := gpu_vendor(name):
            index = {"index": Known(next(indices), source)} if maker == "nvidia" else {}
            rows.append({"name": Known(name, source), **index})
    if rows:
        yield from gpu_facts_by_vendor(rows)


def gpu_facts_by_vendor(rows: Sequence[Row]) -> Iterator[tuple[str, Fact | Rows]]:
    """NVIDIA's rows as ``gpu``; where other makers are among them, ``pci.gpu_vendors`` with all makers, NVIDIA first,
    and a count of 0 NVIDIA GPUs where none is NVIDIA's.

    Each row needs a ``name``; one whose maker is unknown counts as NVIDIA's.
    """
    makers = [gpu_vendor(text_of(row["name"])) if known(row["name"]) else None for row in rows]
    ours = tuple(row for row, maker in zip(rows, makers, strict=True) if maker in (None, "nvidia"))
    if ours:
        yield "gpu", ours
    others = tuple(sorted({maker for maker in makers if maker and maker != "nvidia"}))
    if others:
        first = known(next(iter(rows[0].values())))
        source = first.source if first else ""
        yield "pci.gpu_vendors", Known((("nvidia",) if ours else ()) + others, source)
        if not ours:
            yield "pci.nvidia_count", Known(0, source)


def adapter_facts(rows: Sequence[Row]) -> Iterator[tuple[str, Fact]]:
    """pci.nvidia_count, pci.gpu_vendors (all makers) and pci.nvidia_drivers (kernel drivers) from rows of ``pci``.

    At least one row, each with a known ``vendor``. pci.nvidia_drivers is left out where no driver of NVIDIA's GPUs is
    known.
    """
    vendors = [fact for row in rows if (fact := known(row["vendor"]))]
    makers, source = [str(fact.value) for fact in vendors], vendors[0].source
    yield "pci.nvidia_count", Known(makers.count("nvidia"), source)
    yield "pci.gpu_vendors", Known(tuple(dict.fromkeys(makers)), source)
    ours = [row for row, maker in zip(rows, makers, strict=True) if maker == "nvidia"]
    drivers = [str(fact.value) for row in ours if (fact := known(row.get("driver")))]
    if drivers:
        named_drivers = ("nova" if driver.startswith("nova") else driver for driver in drivers)
        yield "pci.nvidia_drivers", Known(tuple(dict.fromkeys(named_drivers)), source)
