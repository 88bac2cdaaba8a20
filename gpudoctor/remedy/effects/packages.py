"""What package commands bring about: the rows of the package list, torch's build, what is beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from pathlib import PurePath

from gpudoctor.knowledge import builds
from gpudoctor.model.fact import Absent, Fact, Known, Row
from gpudoctor.model.values import CannotJudge
from gpudoctor.remedy.effects.commands import Command, Wanted, command_of, normal
from gpudoctor.remedy.effects.outlook import ANEW, SOURCE, Outlook

_TORCH = ("torch", "pytorch", "pytorch-gpu")
_OF_TORCH = ("torch", "pin", "triton", "libs.shadowing", "libs.missing", "libs.clashes", "lib", "libnccl")
_OF_ENVIRONMENT = (*_OF_TORCH, "package", "extension", "jax", "tf", "bitsandbytes", "python")
_OF_PYTHON = ("duplicates", "leftovers", "damaged", "damaged_files", "overwritten")
_TRITON = ("triton", "triton-windows", "pytorch-triton")
_COMPANIONS = ("torchvision", "torchaudio")
_WHEEL = re.compile(r"nvidia-(cudnn|nccl)(-cu\d\d)?")
_FRAMEWORKS = {"tensorflow": "tf", "jax": "jax"}


def change(outlook: Outlook, argv: tuple[str, ...]) -> bool:
    """Apply a package command; whether it is one that changes the environment in use."""
    command = command_of(argv)
    if command is None:
        return False
    if command.creates:
        _move(outlook, command)
        if not command.wanted:
            return True
    elif not _here(outlook, command):
        return False
    names = [wanted.name for wanted in command.wanted]
    _mend(outlook, names, whole=command.anew and not command.alone and any(name in _TORCH for name in names))
    if command.removes:
        _remove(outlook, names)
    else:
        _install(outlook, command)
    return True


def _here(outlook: Outlook, command: Command) -> bool:
    """Whether the command changes the environment that is looked at."""
    ours = [outlook.text("python.path"), outlook.text("python.prefix")]
    return not command.python or not any(ours) or command.python in ("python", "python3", *ours)


def _move(outlook: Outlook, command: Command) -> None:
    """Into a new, empty environment: it is the one in use from here on."""
    version = outlook.text("python.version") if not command.python.startswith("3.") else command.python
    nothing = Absent("a new environment: nothing is installed in it yet")
    outlook.forget(_OF_ENVIRONMENT, anew=True)
    outlook.put("python.prefix", Known(command.creates, SOURCE))
    outlook.put("python.path", Known(str(PurePath(command.creates) / "bin" / "python"), SOURCE))
    outlook.put("python.environment", Known("conda" if command.tool == "conda" else "venv", SOURCE))
    outlook.put("python.installer", Known(command.tool, SOURCE))
    outlook.put("python.implementation", Known("cpython", SOURCE))
    outlook.put("python.externally_managed", Known(False, SOURCE))
    if version:
        outlook.put("python.version", Known(version, SOURCE))
    for name in ("torch.version", "triton.version", "jax.version", "tf.version"):
        outlook.put(name, nothing)
    for name in _OF_PYTHON:
        outlook.put(f"python.{name}", Known((), SOURCE))
    outlook.put_rows("package", ())
    outlook.put_rows("extension", ())


def _mend(outlook: Outlook, names: list[str], whole: bool) -> None:
    """Packages that are written anew or taken away are no longer damaged or twice there; the others still are.

    `whole` is torch with all that it requires.
    """
    for name in _OF_PYTHON:
        told = outlook.known(f"python.{name}")
        if isinstance(told, tuple) and told:
            first = [(entry, normal(str(entry).split(" ")[0])) for entry in told]
            left = tuple(entry for entry, of in first if of not in names and not (whole and of.startswith("nvidia-")))
            outlook.put(f"python.{name}", Known(left, SOURCE) if left != told else outlook.facts[f"python.{name}"])


def _remove(outlook: Outlook, names: list[str]) -> None:
    take_away(outlook, names)
    gone = Absent("uninstalled by a step of the plan")
    if any(name in _TORCH for name in names):
        others = _other_installs(outlook)
        outlook.forget(_OF_TORCH, anew=True)
        outlook.put("torch.version", Known(others[0].split(" ")[1], SOURCE) if others else gone)
        outlook.put("torch.installs", Known(tuple(others), SOURCE))
    elif any(name.startswith("nvidia-") for name in names):
        _forget_wheels(outlook)
    for name, prefix in _FRAMEWORKS.items():
        if name in names:
            outlook.forget((prefix,), anew=True)
            outlook.put(f"{prefix}.version", gone)


def _other_installs(outlook: Outlook) -> list[str]:
    """``pip 2.5.1 in /home/...``: those left of several; what is found first is what pip and uv take away."""
    told = outlook.known("torch.installs")
    installs = [str(entry) for entry in told] if isinstance(told, tuple) else []
    first = next((place for place, entry in enumerate(installs) if not entry.startswith("conda ")), 0)
    return [entry for place, entry in enumerate(installs) if place != first and entry.count(" ") > 1]


def _install(outlook: Outlook, command: Command) -> None:
    wanted = [one for one in command.wanted if not _satisfied(outlook, one, command)]
    torch = next((one for one in wanted if one.name in _TORCH), None)
    if torch:
        _install_torch(outlook, torch, command)
    elif any(one.name.startswith("nvidia-") for one in wanted):
        _forget_loaded(outlook)
    for one in wanted:
        if one.name not in _TORCH:
            _install_other(outlook, one, command)
            _meet(outlook, one)


def _satisfied(outlook: Outlook, one: Wanted, command: Command) -> bool:
    """Whether pip and uv leave what is installed: another build of that release, or another index, is none to them."""
    if command.tool == "conda" or command.anew:
        return False
    there = outlook.text("torch.version") if one.name in _TORCH else version_of(outlook, one.name)
    public = there.partition("+")[0] if "+" not in one.version else there
    return bool(there) and one.version in ("", public)


def _meet(outlook: Outlook, one: Wanted) -> None:
    """What torch requires of that package is there now, unless it is another version."""
    asked = (row.get("wants") for row in outlook.rows("pin") if name_of(row) == one.name)
    if any(isinstance(wants, Known) and not one.version.startswith(str(wants.value)) for wants in asked):
        return
    keep(outlook, "pin", lambda row: name_of(row) != one.name)
    told = outlook.known("torch.pins_unmet")
    if isinstance(told, tuple):
        left = tuple(entry for entry in told if str(entry).split(" ")[0] != one.name)
        outlook.put("torch.pins_unmet", Known(left, SOURCE))


def _install_torch(outlook: Outlook, torch: Wanted, command: Command) -> None:
    """torch, the wheels that its release pins, and triton; the rest follows from its version by the tables."""
    version, build = torch.version.partition("+")[0], command.build or torch.version.partition("+")[2]
    build = build_of(outlook, version, build, command)
    version = version or newest(outlook, build)
    outlook.forget(_OF_TORCH, anew=True)
    _forget_wheels(outlook)
    if not version:
        outlook.put("torch.version", ANEW)
        return
    whole = f"{version}+{build}" if build else version
    outlook.put("torch.version", Known(whole, SOURCE))
    outlook.put("torch.installs", Known((f"{command.tool} {whole}",), SOURCE))
    if not command.alone:
        outlook.put("torch.pins_unmet", Known((), SOURCE))
        outlook.put_rows("pin", ())
    if command.tool == "conda":
        outlook.put("python.installer", Known("conda", SOURCE))
    put(outlook, "torch", whole, command.tool)
    flavor = builds.flavor_of(whole)
    if flavor and flavor.name == "cuda":
        _wheels_of(outlook, version, flavor.toolkit)
    triton = builds.releases().get(builds.base(version) or "", {}).get("triton")
    if triton and not command.alone:
        for name, value in (("version", triton), ("wanted", triton), ("fits", True)):
            outlook.put(f"triton.{name}", Known(value, SOURCE))


def _wheels_of(outlook: Outlook, version: str, cuda: str) -> None:
    """The cuDNN and NCCL that the release's build for that CUDA pins."""
    row: Mapping[str, str] | None = None
    with suppress(CannotJudge):
        row = builds.build(version, cuda)
    major = cuda.partition(".")[0]
    for name in ("cudnn", "nccl"):
        if row and name in row:
            outlook.put(f"torch.{name}", Known(row[name], SOURCE))
            put(outlook, f"nvidia-{name}-cu{major}", row[name], "pip")


def _install_other(outlook: Outlook, one: Wanted, command: Command) -> None:
    version = _companion(outlook, one, command) if one.name in _COMPANIONS else one.version
    put(outlook, one.name, version, command.tool)
    if version and (wheel := _WHEEL.fullmatch(one.name)):
        outlook.put(f"torch.{wheel[1]}", Known(version, SOURCE))
    if version and one.name in _TRITON:
        wanted = outlook.text("triton.wanted")
        outlook.put("triton.version", Known(version, SOURCE))
        outlook.put("triton.fits", Known(wanted == version, SOURCE) if wanted else ANEW)
    if prefix := _FRAMEWORKS.get(one.name):
        outlook.forget((prefix,), anew=True)
        outlook.put(f"{prefix}.version", Known(version, SOURCE) if version else ANEW)
        outlook.put(f"{prefix}.pins_unmet", Known((), SOURCE))


def _companion(outlook: Outlook, one: Wanted, command: Command) -> str:
    """The version that comes: the one named, else that of torch's release, and of torch's build."""
    torch, version = outlook.text("torch.version"), one.version
    outlook.forget(("torch.companions_unmet", "torch.companions_broken"), anew=True)
    if not version:
        with suppress(CannotJudge):
            version = builds.companion_for(torch, one.name)
    build = command.build or torch.partition("+")[2]
    return f"{version}+{build}" if version and build not in ("", "auto") and "+" not in version else version


def _forget_wheels(outlook: Outlook) -> None:
    """What rests on which nvidia wheels are there, and is said of another package than torch."""
    outlook.forget(("jax.pins_unmet", "tf.pins_unmet", "tf.missing_libraries", "torch.pins_unmet", "pin"))
    _forget_loaded(outlook)


def _forget_loaded(outlook: Outlook) -> None:
    """Which library is loaded, and from where."""
    outlook.forget(("lib", "libs.shadowing", "libs.missing", "libs.clashes"))


# ---- Which torch a command brings where it leaves that open ----
# As the index, uv and conda choose.


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


# ---- The package list, and the extensions among them, while commands change them ----

_GROUPS = ("package", "extension")


def name_of(row: Row) -> str:
    """The package's name as lists have it; empty where it is not known."""
    name = row.get("name")
    return normal(str(name.value)) if isinstance(name, Known) else ""


def version_of(outlook: Outlook, name: str) -> str:
    """The version of that package; empty where it is not listed, or without one."""
    versions = (row.get("version") for row in outlook.rows("package") if name_of(row) == name)
    return next((str(version.value) for version in versions if isinstance(version, Known)), "")


def take_away(outlook: Outlook, names: Container[str]) -> None:
    """The list without these packages."""
    for group in _GROUPS:
        keep(outlook, group, lambda row: name_of(row) not in names)


def keep(outlook: Outlook, group: str, wanted: Callable[[Row], bool]) -> None:
    """The group with these of its rows."""
    rows = outlook.rows(group)
    kept = tuple(row for row in rows if wanted(row))
    if kept != rows:
        outlook.put_rows(group, kept)


def put(outlook: Outlook, name: str, version: str, tool: str) -> None:
    """The list with that package, at that version or one that is not known.

    An extension that is installed again has other libraries than before.
    """
    fact: Fact = Known(version, SOURCE) if version else ANEW
    row: Row = {"name": Known(name, SOURCE), "version": fact, "installer": Known(tool, SOURCE)}
    if isinstance(outlook.groups.get("package"), tuple):
        kept = tuple(item for item in outlook.rows("package") if name_of(item) != name)
        outlook.put_rows("package", (*kept, row))
    before = outlook.rows("extension")
    if any(name_of(item) == name for item in before):
        fresh = ({**dict.fromkeys(item, ANEW), "name": item["name"], "version": fact} for item in before)
        rows = (new if name_of(old) == name else old for old, new in zip(before, fresh, strict=True))
        outlook.put_rows("extension", tuple(rows))
