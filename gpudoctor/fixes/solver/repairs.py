"""What stands beside torch put right, torch itself kept: companions, nvidia wheels, triton, torch's own files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.core.fact import Json, listed, text_of
from gpudoctor.core.language import say
from gpudoctor.core.pattern import pattern
from gpudoctor.core.rule import Fix, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.fixes.solver.environment import COMPANIONS, Environment, sane
from gpudoctor.fixes.solver.install_commands import BASE

_WHEEL = pattern(r"(nvidia-.+?)(?:-cu(\d+))?")
_BUILD = pattern(r"\+(cu\d{2,3}|cpu)$")
_REVISION = "conda install --revision N, with the number that conda list --revisions shows for the state before"
_ONE_CHANNEL = "All from one channel: a torchvision of another channel or of pip beside conda-forge's torch breaks."
_LOCKED = "A project with a uv.lock takes it back at the next uv sync: name the release in pyproject.toml as well."


def companions(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that keeps torch and installs matching torchvision and torchaudio; none if the tables lack that torch, or its
    build is not known.
    """
    torch, build = _installed_torch(snapshot, env)
    pins = [f"{name}=={version}" for name, version in _matching_companions(torch, env)]
    if not pins or not build:
        return ()
    if env.tool == "conda":
        argv = _conda_command(env, f"pytorch={_minor_release(torch)}", *(name.partition("==")[0] for name in pins))
        text = say(_ONE_CHANNEL)
    elif env.tool == "uv":
        argv = (
            *_install_command(env),
            f"torch=={torch}",
            *(f"{pin}+{build}" for pin in pins),
            f"--torch-backend={build}",
        )
        text = say(_LOCKED)
    else:
        argv = (
            *_install_command(env),
            "--no-deps",
            *(f"{pin}+{build}" for pin in pins),
            "--index-url",
            f"{BASE}/{build}",
        )
        text = ""
    makes: tuple[tuple[str, Json], ...] = (("torch.companions_unmet", []), ("torch.companions_broken", []))
    names = say(" and ").join(pin.replace("==", " ") for pin in pins)
    step = Step(argv, text, ("network",), "environment", makes)
    return (
        Fix(say("Keep torch, install {names}", names=names) + tool_suffix(env), (step,), undo=undo_text(env, pins)),
    )


def _matching_companions(torch: str, env: Environment) -> Iterator[tuple[str, str]]:
    """(name, version) of the companions that belong to that torch, of those installed; torchvision if none is."""
    for name in [name for name in COMPANIONS if name in env.installed] or ["torchvision"]:
        try:
            yield name, builds.companion_for(torch, name)
        except CannotJudge:
            continue


def nvidia_wheels(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that restores the nvidia wheels that torch pins, after removing those of another CUDA major; if none can be
    named, or with conda, one that reinstalls torch.
    """
    torch, build = _installed_torch(snapshot, env)
    if env.tool == "conda" or not torch:
        return reinstall_torch(snapshot, env)
    major = build[2:4] if build.startswith("cu") else ""
    wheels = ((name, _WHEEL.fullmatch(name)) for name in env.installed)
    clashing = sorted(name for name, match in wheels if major and match and match[2] not in (None, major))
    pins = sorted(_wheels_to_restore(snapshot, env, major, clashing))
    if not pins:
        return reinstall_torch(snapshot, env)
    steps = []
    if clashing:
        reason = say("They share their files with the wheels that torch pins.")
        steps.append(Step(_uninstall_command(env, clashing), reason, touches="environment"))
    makes: tuple[tuple[str, Json], ...] = tuple(
        (name, []) for name in ("torch.pins_unmet", "python.overwritten", "python.damaged", "python.damaged_files")
    )
    steps.append(Step((*_reinstall_command(env), "--no-deps", *pins), "", ("network",), "environment", makes))
    title = say("Put back the nvidia wheels that torch pins") + tool_suffix(env)
    return (Fix(title, tuple(steps), undo=undo_text(env, pins)),)


def _wheels_to_restore(snapshot: Snapshot, env: Environment, major: str, clashing: Iterable[str]) -> Iterator[str]:
    """Requirements to install: unmet pins, and damaged or overwritten wheels at their present version."""
    pins = [(text_of(row.get("name")), text_of(row.get("wants"))) for row in listed(snapshot.rows("pin"))]
    wanted = {name: wants for name, wants in pins if sane(name, wants)}
    shared = {f"{match[1]}-cu{major}" for name in clashing if (match := _WHEEL.fullmatch(name))}
    harmed = {name for name in (*snapshot.texts("python.damaged"), *shared) if name in env.installed}
    for name in {*wanted, *harmed}:
        if name.startswith(("nvidia-", "triton")):
            yield f"{name}=={wanted.get(name) or env.installed[name]}"


def reinstall_torch(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that reinstalls the same torch with its requirements; none for pip and uv if its build is not known."""
    torch, build = _installed_torch(snapshot, env)
    if env.tool == "conda":
        argv = _conda_command(env, "--force-reinstall", f"pytorch={_minor_release(torch)}" if torch else "pytorch")
    elif not torch or not build:
        return ()
    elif env.tool == "uv":
        argv = (*_reinstall_command(env), f"torch=={torch}", f"--torch-backend={build}")
    else:
        argv = (*_reinstall_command(env), f"torch=={torch}", "--index-url", f"{BASE}/{build}")
    makes: tuple[tuple[str, Json], ...] = (
        ("torch.pins_unmet", []),
        ("python.damaged", []),
        ("python.damaged_files", []),
        ("libs.missing", []),
        ("libs.clashes", []),
        ("live.import_error", {"absent": "torch is whole again"}),
    )
    step = Step(argv, say("This brings the libraries that torch pins."), ("network",), "environment", makes)
    return (Fix(say("Install torch {version} anew", version=torch) + tool_suffix(env), (step,)),)


def triton(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that installs the triton pinned by torch; empty on Windows, with conda, or if it is not known."""
    torch, _ = _installed_torch(snapshot, env)
    try:
        version = builds.companion_for(torch, "triton")
    except CannotJudge:
        return ()
    if env.windows or env.tool == "conda":
        return ()
    makes: tuple[tuple[str, Json], ...] = (("triton.version", version), ("torch.pins_unmet", []))
    step = Step((*_install_command(env), f"triton=={version}"), "", ("network",), "environment", makes)
    title = say("Install triton {version}, which torch {torch} pins", version=version, torch=torch) + tool_suffix(env)
    return (Fix(title, (step,)),)


def undo_text(env: Environment, pins: Iterable[str] = ()) -> str:
    """How to undo a change of these packages (by default torch and companions); ``""`` if their versions are not
    known.
    """
    if env.new:
        return say("Remove the folder {name}", name=".venv")
    if env.tool == "conda":
        return say(_REVISION)
    names = [pin.partition("==")[0] for pin in pins] or ("torch", *COMPANIONS)
    former = [f"{name}=={env.installed[name]}" for name in names if name in env.installed]
    build = _BUILD.search(env.installed.get("torch", ""))
    index = say(", torch's from {index}", index=f"{BASE}/{build[1]}") if build and not pins else ""
    return say("Install again what was there: {packages}", packages=" ".join(former)) + index if former else ""


def _installed_torch(snapshot: Snapshot, env: Environment) -> tuple[str, str]:
    """(version with build, build) of the installed torch: ``2.9.0+cu126``, ``cu126``; ``""`` for what is not known."""
    version = snapshot.text("torch.version") or env.installed.get("torch", "")
    if not sane("torch", version) or not builds.base(version):
        return "", ""
    if match := _BUILD.search(version):
        return version, match[1]
    digits = re.fullmatch(r"(\d+)\.(\d)", snapshot.text("torch.cuda"))
    return (f"{version}+cu{digits[1]}{digits[2]}", f"cu{digits[1]}{digits[2]}") if digits else (version, "")


def _minor_release(torch: str) -> str:
    """The x.y of a torch version: ``2.9`` for ``2.9.0+cu126``."""
    return ".".join(torch.split(".")[:2])


def _install_command(env: Environment) -> tuple[str, ...]:
    """Install command of pip or uv, without packages."""
    if env.tool == "uv":
        return ("uv", "pip", "install", "--python", env.interpreter)
    return (env.interpreter, "-m", "pip", "install")


def _reinstall_command(env: Environment) -> tuple[str, ...]:
    """Command of pip or uv that reinstalls, without packages."""
    return (*_install_command(env), "--reinstall" if env.tool == "uv" else "--force-reinstall")


def _uninstall_command(env: Environment, names: Iterable[str]) -> tuple[str, ...]:
    """Command of pip or uv that removes these packages."""
    if env.tool == "uv":
        return ("uv", "pip", "uninstall", "--python", env.interpreter, *names)
    return (env.interpreter, "-m", "pip", "uninstall", "--yes", *names)


def _conda_command(env: Environment, *words: str) -> tuple[str, ...]:
    """conda install command for conda-forge with these arguments."""
    where = ("--prefix", env.prefix) if env.prefix else ()
    return ("conda", "install", "--yes", *where, "--override-channels", "--channel", "conda-forge", *words)


def tool_suffix(env: Environment) -> str:
    """Suffix of a title that names the tool, ``, with uv``; ``""`` for pip."""
    return "" if env.tool == "pip" else say(", with {tool}", tool=env.tool)
