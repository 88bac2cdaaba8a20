"""Modules that modprobe is told to leave alone."""

from __future__ import annotations

import re

from gpudoctor.model.fact import Fact, Known, Unread
from gpudoctor.probes._reading import names, text
from gpudoctor.target import Target


def blacklisted(target: Target, module: str, hidden: str) -> Fact:
    """Whether the module is kept from loading: by the kernel's command line, or by a line in modprobe.d."""
    boot = text(target, "/proc/cmdline")
    if isinstance(boot, str):
        for word in boot.split():
            key, _, value = word.partition("=")
            if key in ("modprobe.blacklist", "rd.driver.blacklist", "module_blacklist") and module in value.split(","):
                return Known(True, f"/proc/cmdline: {word}")
            if word in (f"{module}.modeset=0", f"{module}.blacklist=1", f"{module}.blacklist=yes"):
                return Known(True, f"/proc/cmdline: {word}")
    rule = re.compile(
        rf"^[ \t]*(?:blacklist[ \t]+{module}|alias[ \t]+{module}[ \t]+off|options[ \t]+{module}[ \t]+.*\bmodeset=0"
        rf"|install[ \t]+{module}[ \t]+(?:/usr)?(?:/bin/)?(?:false|true)|remove[ \t]+{module}[ \t]+/bin/false)\b",
        re.M,
    )
    paths, refused = _configured(target)
    trouble: str = hidden or refused
    for path in paths:
        content = text(target, path)
        if isinstance(content, Unread):
            trouble = trouble or content.why
        match = rule.search(content) if isinstance(content, str) else None
        if match and not hidden and isinstance(content, str):
            return Known(True, f"{path} line {content.count(chr(10), 0, match.start()) + 1}")
    if isinstance(boot, Unread):
        trouble = trouble or boot.why
    return Unread(trouble) if trouble else Known(False, "modprobe.d and /proc/cmdline")


def _configured(target: Target) -> tuple[list[str], str]:
    """The files of modprobe.d, and why there may be more. A file replaces its namesake in a later folder."""
    out: dict[str, str] = {}
    trouble = ""
    for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"):
        found = names(target, f"{folder}/modprobe.d")
        if isinstance(found, Unread):
            trouble = trouble or found.why
        for name in found if isinstance(found, list) else ():
            if name.endswith(".conf"):
                out.setdefault(name, f"{folder}/modprobe.d/{name}")
    return list(out.values()), trouble
