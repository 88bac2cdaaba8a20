"""Which torch a command brings where it leaves that open: as the index, uv and conda choose."""

from __future__ import annotations

from contextlib import suppress

from gpudoctor.knowledge import builds
from gpudoctor.model.values import CannotJudge
from gpudoctor.remedy.effects.commands import Command
from gpudoctor.remedy.effects.outlook import Outlook


def build_of(outlook: Outlook, version: str, build: str, command: Command) -> str:
    """The build that comes: the one named, else what the index gives for this platform, or conda for this driver."""
    if build and build != "auto":
        return build
    cuda = next((one.version for one in command.wanted if one.name == "cuda-version"), "")
    if cuda:
        return "cu" + "".join(cuda.split(".")[:2])
    if command.tool == "conda" or build == "auto":
        return _newest_build(outlook, version)
    if outlook.text("host.platform") == "windows":
        return "cpu"
    release = version or newest(outlook, "")
    with suppress(CannotJudge):
        return builds.torch_default(release, outlook.text("host.arch") or "x86_64")
    return ""


def _newest_build(outlook: Outlook, version: str) -> str:
    """The newest CUDA build that is not above the driver's CUDA, as uv and conda choose."""
    highest = outlook.text("driver.cuda_version")
    found = [
        row
        for row in builds.rows()
        if row["build"].startswith("cu") and (not version or row["torch"] == version) and _at_most(row["cuda"], highest)
    ]
    return max(found, key=lambda row: _numbers(row["cuda"]))["build"] if found else ""


def newest(outlook: Outlook, build: str) -> str:
    """The newest release that has that build, for this Python; empty where the tables do not know."""
    having = {row["torch"] for row in builds.rows() if not build or row["build"] == build or not build.startswith("cu")}
    tag = "cp" + "".join(outlook.text("python.version").split(".")[:2])
    found = [
        version
        for version, row in builds.releases().items()
        if version in having and (tag == "cp" or tag in row["pythons"].split())
    ]
    return max(found, key=_numbers, default="")


def _at_most(cuda: str, highest: str) -> bool:
    return not highest or _numbers(cuda) <= _numbers(highest)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
