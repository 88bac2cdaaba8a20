"""What package commands bring about: the rows of the package list, torch's build, what is beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from gpudoctor.core.fact import Absent, Fact, Known, Row, known, text_of, value_of
from gpudoctor.core.values import CannotJudge
from gpudoctor.core.versions import normal
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.fixes.effects.commands import Command, Wanted, command_of
from gpudoctor.fixes.effects.outlook import ANEW, SOURCE, Outlook

_TORCH = ("torch", "pytorch", "pytorch-gpu")
_OF_TORCH = ("torch", "pin", "triton", "libs.shadowing", "libs.missing", "libs.clashes", "lib", "libnccl")
_OF_ENVIRONMENT = (*_OF_TORCH, "package", "extension", "jax", "tf", "bitsandbytes", "python")
_OF_PYTHON = ("duplicates", "leftovers", "damaged", "damaged_files", "overwritten")
_TRITON = ("triton", "triton-windows", "pytorch-triton")
_COMPANIONS = ("torchvision", "torchaudio")
_WHEEL = re.compile(r"nvidia-(cudnn|nccl)(-cu\d\d)?")
_FRAMEWORKS = {"tensorflow": "tf", "jax": "jax"}


def apply_command(outlook: Outlook, argv: tuple[str, ...]) -> bool:
    """Apply a package command to the predicted state `outlook`; False if it is none or is for another environment."""
    command = command_of(argv)
    if command is None:
        return False
    if command.creates:
        _enter_new_environment(outlook, command)
        if not command.wanted:
            return True
    elif not _changes_current_environment(outlook, command):
        return False
    names = [wanted.name for wanted in command.wanted]
    _clear_damage(outlook, names, whole=command.anew and not command.alone and any(name in _TORCH for name in names))
    if command.removes:
        _remove(outlook, names)
    else:
        _install(outlook, command)
    return True


def _changes_current_environment(outlook: Outlook, command: Command) -> bool:
    """True if the command changes the environment that the snapshot describes; also where the command or the snapshot
    names none.
    """
    ours = [outlook.text("python.path"), outlook.text("python.prefix")]
    return not command.python or not any(ours) or command.python in ("python", "python3", *ours)


def _enter_new_environment(outlook: Outlook, command: Command) -> None:
    """Make the new, empty environment that the command creates the one in use, without torch or packages."""
    version = outlook.text("python.version") if not command.python.startswith("3.") else command.python
    nothing = Absent("a new environment: nothing is installed in it yet")
    outlook.forget(_OF_ENVIRONMENT, anew=True)
    outlook.put("python.prefix", Known(command.creates, SOURCE))
    place = r"\Scripts\python.exe" if outlook.text("host.platform") == "windows" else "/bin/python"
    outlook.put("python.path", Known(f"{command.creates}{place}", SOURCE))
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


def _clear_damage(outlook: Outlook, names: list[str], whole: bool) -> None:
    """Remove these packages from the lists of damaged, duplicate or overwritten ones (``python.damaged`` and others).
    `whole` also removes all nvidia-* packages, as torch is installed with all its requirements.
    """
    for name in _OF_PYTHON:
        if entries := outlook.texts(f"python.{name}"):
            packages = [(entry, normal(entry.split(" ")[0])) for entry in entries]
            left = tuple(
                entry for entry, of in packages if of not in names and not (whole and of.startswith("nvidia-"))
            )
            outlook.put(f"python.{name}", Known(left, SOURCE) if left != entries else outlook.facts[f"python.{name}"])


def _remove(outlook: Outlook, names: list[str]) -> None:
    """Apply the removal of packages to the outlook: package list, torch, and other frameworks."""
    for group in ("package", "extension"):
        keep_rows(outlook, group, lambda row: name_of(row) not in names)
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
    """Installations of torch left when the one that pip found first is removed: ``pip 2.5.1 in /home/...``."""
    installs = outlook.texts("torch.installs")
    first = next((place for place, entry in enumerate(installs) if not entry.startswith("conda ")), 0)
    return [entry for place, entry in enumerate(installs) if place != first and entry.count(" ") > 1]


def _install(outlook: Outlook, command: Command) -> None:
    """Apply the installation of a command's packages that are not satisfied already."""
    wanted = [package for package in command.wanted if not _satisfied(outlook, package, command)]
    torch = next((package for package in wanted if package.name in _TORCH), None)
    if torch:
        _install_torch(outlook, torch, command)
    elif any(package.name.startswith("nvidia-") for package in wanted):
        _forget_loaded(outlook)
    for package in wanted:
        if package.name not in _TORCH:
            _install_other(outlook, package, command)
            _satisfy_pins(outlook, package)


def _satisfied(outlook: Outlook, package: Wanted, command: Command) -> bool:
    """True if the installer would leave the package as it is: any build of the release counts unless one is named.
    False for conda and where all is installed anew.
    """
    if command.tool == "conda" or command.anew:
        return False
    there = outlook.text("torch.version") if package.name in _TORCH else version_of(outlook, package.name)
    public = there.partition("+")[0] if "+" not in package.version else there
    return bool(there) and package.version in ("", public)


def _satisfy_pins(outlook: Outlook, package: Wanted) -> None:
    """Remove torch's unmet requirement for this package, unless another version is required."""
    asked = (row.get("wants") for row in outlook.rows("pin") if name_of(row) == package.name)
    if any(known(wants) and not package.version.startswith(text_of(wants)) for wants in asked):
        return
    keep_rows(outlook, "pin", lambda row: name_of(row) != package.name)
    if unmet := outlook.texts("torch.pins_unmet"):
        left = tuple(entry for entry in unmet if entry.split(" ")[0] != package.name)
        outlook.put("torch.pins_unmet", Known(left, SOURCE))


def _install_torch(outlook: Outlook, torch: Wanted, command: Command) -> None:
    """Apply the installation of torch, with the wheels and triton that its release pins; Unread without a version."""
    version, build = torch.version.partition("+")[0], command.build or torch.version.partition("+")[2]
    build = torch_build_of(outlook, version, build, command)
    version = version or newest_torch(outlook, build)
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
    put_package(outlook, "torch", whole, command.tool)
    flavor = builds.flavor_of(whole)
    if flavor and flavor.name == "cuda":
        _install_pinned_wheels(outlook, version, flavor.toolkit)
    triton = builds.releases().get(builds.base(version) or "", {}).get("triton")
    if triton and not command.alone:
        for name, value in (("version", triton), ("wanted", triton), ("fits", True)):
            outlook.put(f"triton.{name}", Known(value, SOURCE))


def _install_pinned_wheels(outlook: Outlook, version: str, cuda: str) -> None:
    """Apply the cuDNN and NCCL versions pinned by the torch build for that CUDA.

    The wheel for Windows has cuDNN and the other libraries in it, and there is no NCCL.
    """
    row: Mapping[str, str] | None = None
    with suppress(CannotJudge):
        row = builds.build(version, cuda)
    major = cuda.partition(".")[0]
    on_windows = value_of(outlook.facts.get("host.platform")) == "windows"
    for name in ("cudnn", "nccl") if not on_windows else ():
        if row and name in row:
            outlook.put(f"torch.{name}", Known(row[name], SOURCE))
            put_package(outlook, f"nvidia-{name}-cu{major}", row[name], "pip")


def _install_other(outlook: Outlook, package: Wanted, command: Command) -> None:
    """Apply the installation of a package other than torch: its row, and facts about it."""
    version = _companion_version(outlook, package, command) if package.name in _COMPANIONS else package.version
    put_package(outlook, package.name, version, command.tool)
    if version and (wheel := _WHEEL.fullmatch(package.name)):
        outlook.put(f"torch.{wheel[1]}", Known(version, SOURCE))
    if version and package.name in _TRITON:
        wanted = outlook.text("triton.wanted")
        outlook.put("triton.version", Known(version, SOURCE))
        outlook.put("triton.fits", Known(wanted == version, SOURCE) if wanted else ANEW)
    if prefix := _FRAMEWORKS.get(package.name):
        outlook.forget((prefix,), anew=True)
        outlook.put(f"{prefix}.version", Known(version, SOURCE) if version else ANEW)
        outlook.put(f"{prefix}.pins_unmet", Known((), SOURCE))


def _companion_version(outlook: Outlook, package: Wanted, command: Command) -> str:
    """Version of torchvision or torchaudio that is installed: the one named, else that of torch's release, with torch's
    build as suffix; ``""`` if unknown. Facts about broken companions are dropped.
    """
    torch, version = outlook.text("torch.version"), package.version
    outlook.forget(("torch.companions_unmet", "torch.companions_broken"), anew=True)
    if not version:
        with suppress(CannotJudge):
            version = builds.companion_for(torch, package.name)
    build = command.build or torch.partition("+")[2]
    return f"{version}+{build}" if version and build not in ("", "auto") and "+" not in version else version


def _forget_wheels(outlook: Outlook) -> None:
    """Mark facts that depend on the installed nvidia wheels, or on loaded libraries, as to be read again."""
    outlook.forget(("jax.pins_unmet", "tf.pins_unmet", "tf.missing_libraries", "torch.pins_unmet", "pin"))
    _forget_loaded(outlook)


def _forget_loaded(outlook: Outlook) -> None:
    """Mark facts about loaded libraries as to be read again."""
    outlook.forget(("lib", "libs.shadowing", "libs.missing", "libs.clashes"))


# ---- Which torch a command brings where it leaves that open ----
# As the index, uv and conda choose.


def torch_build_of(outlook: Outlook, version: str, build: str, command: Command) -> str:
    """Build of torch that is installed: the one named, else by a wanted ``cuda-version``; for conda and uv's ``auto``
    the newest for the driver, on Windows ``cpu``, else that of the default index. ``""`` if the tables do not tell.
    """
    if build and build != "auto":
        return build
    cuda = next((package.version for package in command.wanted if package.name == "cuda-version"), "")
    if cuda:
        return "cu" + "".join(cuda.split(".")[:2])
    if command.tool == "conda" or build == "auto":
        return _newest_build(outlook, version)
    if outlook.text("host.platform") == "windows":
        return "cpu"
    release = version or newest_torch(outlook, "")
    with suppress(CannotJudge):
        return builds.torch_default(release, outlook.text("host.arch") or "x86_64")
    return ""


def _newest_build(outlook: Outlook, version: str) -> str:
    """Newest CUDA build of that torch (``""``: of any) not above the driver's CUDA version; ``""`` if there is none."""
    highest = outlook.text("driver.cuda_version")
    found = [
        row
        for row in builds.all_builds()
        if row["build"].startswith("cu")
        and version in ("", row["torch"])
        and (not highest or _version_numbers(row["cuda"]) <= _version_numbers(highest))
    ]
    return max(found, key=lambda row: _version_numbers(row["cuda"]))["build"] if found else ""


def newest_torch(outlook: Outlook, build: str) -> str:
    """Newest torch release with that CUDA build (any other word, or ``""``: with any) and wheels for this Python, if
    that is known; ``""`` if the tables have none.
    """
    having = {
        row["torch"] for row in builds.all_builds() if not build or row["build"] == build or not build.startswith("cu")
    }
    tag = "cp" + "".join(outlook.text("python.version").split(".")[:2])
    found = [
        version
        for version, row in builds.releases().items()
        if version in having and (tag == "cp" or tag in row["pythons"].split())
    ]
    return max(found, key=_version_numbers, default="")


def _version_numbers(version: str) -> tuple[int, ...]:
    """Numeric parts of a version for comparison, (2, 9, 1); other parts are skipped."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# ---- The package list, and the extensions among them, while commands change them ----


def name_of(row: Row) -> str:
    """Normalised package name of a row; ``""`` if not known."""
    return normal(text_of(row.get("name")))


def version_of(outlook: Outlook, name: str) -> str:
    """Version of an installed package as listed; ``""`` if it is not, or its version is not known."""
    versions = (row.get("version") for row in outlook.rows("package") if name_of(row) == name)
    return next(filter(None, map(text_of, versions)), "")


def keep_rows(outlook: Outlook, group: str, predicate: Callable[[Row], bool]) -> None:
    """Remove the rows of a group for which `predicate` is false."""
    rows = outlook.rows(group)
    kept = tuple(row for row in rows if predicate(row))
    if kept != rows:
        outlook.put_rows(group, kept)


def put_package(outlook: Outlook, name: str, version: str, tool: str) -> None:
    """Add or replace a package in the package list, if that is known; an empty version is Unread.
    An extension of that name has all other columns Unread, for its libraries have changed.
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
