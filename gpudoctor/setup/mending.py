"""What stands beside torch put right, torch itself kept: companions, nvidia wheels, triton, torch's own files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.knowledge import builds
from gpudoctor.language import say
from gpudoctor.model.fact import Json, Known, listed
from gpudoctor.model.pattern import pattern
from gpudoctor.model.rule import Fix, Step
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge
from gpudoctor.setup.emit import BASE
from gpudoctor.setup.environment import COMPANIONS, Environment, sane

_WHEEL = pattern(r"(nvidia-.+?)(?:-cu(\d+))?")
_BUILD = pattern(r"\+(cu\d{2,3}|cpu)$")
_REVISION = "conda install --revision N, with the number that conda list --revisions shows for the state before"
_ONE_CHANNEL = "All from one channel: a torchvision of another channel or of pip beside conda-forge's torch breaks."
_LOCKED = "A project with a uv.lock takes it back at the next uv sync: name the release in pyproject.toml as well."
_FORMER = ("torch", "torchvision", "torchaudio")


def companions(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Torch stays, torchvision and torchaudio become those that belong to it; none for a torch that no table has."""
    torch, build = _torch(snapshot, env)
    pins = [f"{name}=={version}" for name, version in _belonging(torch, env)]
    if not pins or not build:
        return ()
    if env.tool == "conda":
        argv = _conda(env, f"pytorch={_release(torch)}", *(name.partition("==")[0] for name in pins))
        text = say(_ONE_CHANNEL)
    elif env.tool == "uv":
        argv = (*_install(env), f"torch=={torch}", *(f"{pin}+{build}" for pin in pins), f"--torch-backend={build}")
        text = say(_LOCKED)
    else:
        argv = (*_install(env), "--no-deps", *(f"{pin}+{build}" for pin in pins), "--index-url", f"{BASE}/{build}")
        text = ""
    makes: tuple[tuple[str, Json], ...] = (("torch.companions_unmet", []), ("torch.companions_broken", []))
    names = say(" and ").join(pin.replace("==", " ") for pin in pins)
    step = Step(argv, text, ("network",), "environment", makes)
    return (Fix(say("Keep torch, install {names}", names=names) + by(env), (step,), undo=back(env, pins)),)


def _belonging(torch: str, env: Environment) -> Iterator[tuple[str, str]]:
    """Those that are installed, torchvision where it is not known which are."""
    for name in [name for name in COMPANIONS if name in env.installed] or ["torchvision"]:
        try:
            yield name, builds.companion_for(torch, name)
        except CannotJudge:
            continue


def nvidia_wheels(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """The nvidia wheels that torch pins put back; before, those of another CUDA major go, whose files are the same."""
    torch, build = _torch(snapshot, env)
    if env.tool == "conda" or not torch:
        return again(snapshot, env)
    major = build[2:4] if build.startswith("cu") else ""
    clashing = sorted(_clashing(env, major))
    pins = sorted(_off(snapshot, env, major, clashing))
    if not pins:
        return again(snapshot, env)
    steps = []
    if clashing:
        said = say("They share their files with the wheels that torch pins.")
        steps.append(Step(_uninstall(env, clashing), said, touches="environment"))
    makes: tuple[tuple[str, Json], ...] = tuple(
        (name, []) for name in ("torch.pins_unmet", "python.overwritten", "python.damaged", "python.damaged_files")
    )
    steps.append(Step((*_reinstall(env), "--no-deps", *pins), "", ("network",), "environment", makes))
    title = say("Put back the nvidia wheels that torch pins") + by(env)
    return (Fix(title, tuple(steps), undo=back(env, pins)),)


def _clashing(env: Environment, major: str) -> Iterator[str]:
    for name in env.installed:
        match = _WHEEL.fullmatch(name)
        if match and match[2] and major and match[2] != major:
            yield name


def _off(snapshot: Snapshot, env: Environment, major: str, clashing: Iterable[str]) -> Iterator[str]:
    """Requirements of what is put back: what torch asks for where it is unmet, else what is installed, anew."""
    wanted = dict(_unmet(snapshot))
    shared = {f"{match[1]}-cu{major}" for name in clashing if (match := _WHEEL.fullmatch(name))}
    harmed = {name for name in (*_listed(snapshot, "python.damaged"), *shared) if name in env.installed}
    for name in {*wanted, *harmed}:
        if name.startswith(("nvidia-", "triton")):
            yield f"{name}=={wanted.get(name) or env.installed[name]}"


def _unmet(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for row in listed(snapshot.rows("pin")):
        name, wants = row.get("name"), row.get("wants")
        if isinstance(name, Known) and isinstance(wants, Known) and sane(str(name.value), str(wants.value)):
            yield str(name.value), str(wants.value)


def again(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """The same torch installed anew, with what it requires."""
    torch, build = _torch(snapshot, env)
    if env.tool == "conda":
        argv = _conda(env, "--force-reinstall", f"pytorch={_release(torch)}" if torch else "pytorch")
    elif not torch or not build:
        return ()
    elif env.tool == "uv":
        argv = (*_reinstall(env), f"torch=={torch}", f"--torch-backend={build}")
    else:
        argv = (*_reinstall(env), f"torch=={torch}", "--index-url", f"{BASE}/{build}")
    makes: tuple[tuple[str, Json], ...] = (
        ("torch.pins_unmet", []),
        ("python.damaged", []),
        ("python.damaged_files", []),
        ("libs.missing", []),
        ("libs.clashes", []),
        ("live.import_error", {"absent": "torch is whole again"}),
    )
    step = Step(argv, say("This brings the libraries that torch pins."), ("network",), "environment", makes)
    return (Fix(say("Install torch {version} anew", version=torch) + by(env), (step,)),)


def triton(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """The triton that torch pins; none on Windows, for which PyTorch has none."""
    torch, _ = _torch(snapshot, env)
    try:
        version = builds.companion_for(torch, "triton")
    except CannotJudge:
        return ()
    if env.windows or env.tool == "conda":
        return ()
    makes: tuple[tuple[str, Json], ...] = (("triton.version", version), ("torch.pins_unmet", []))
    step = Step((*_install(env), f"triton=={version}"), "", ("network",), "environment", makes)
    title = say("Install triton {version}, which torch {torch} pins", version=version, torch=torch) + by(env)
    return (Fix(title, (step,)),)


def back(env: Environment, pins: Iterable[str] = ()) -> str:
    """How what is done can be taken back, in words; empty where nobody knows what was there."""
    if env.new:
        return say("Remove the folder {name}", name=".venv")
    if env.tool == "conda":
        return say(_REVISION)
    names = [pin.partition("==")[0] for pin in pins] or [name for name in _FORMER if name in env.installed]
    former = [f"{name}=={env.installed[name]}" for name in names if name in env.installed]
    build = _BUILD.search(env.installed.get("torch", ""))
    index = say(", torch's from {index}", index=f"{BASE}/{build[1]}") if build and not pins else ""
    return say("Install again what was there: {packages}", packages=" ".join(former)) + index if former else ""


def _torch(snapshot: Snapshot, env: Environment) -> tuple[str, str]:
    """The version with its build, and the build: ``2.9.0+cu126``, ``cu126``; empty where it is not known."""
    fact, cuda = snapshot.get("torch.version"), snapshot.get("torch.cuda")
    version = str(fact.value) if isinstance(fact, Known) else env.installed.get("torch", "")
    if not sane("torch", version) or not builds.base(version):
        return "", ""
    if match := _BUILD.search(version):
        return version, match[1]
    digits = re.fullmatch(r"(\d+)\.(\d)", str(cuda.value)) if isinstance(cuda, Known) else None
    return (f"{version}+cu{digits[1]}{digits[2]}", f"cu{digits[1]}{digits[2]}") if digits else (version, "")


def _release(torch: str) -> str:
    return ".".join(torch.split(".")[:2])


def _install(env: Environment) -> tuple[str, ...]:
    if env.tool == "uv":
        return ("uv", "pip", "install", "--python", env.interpreter)
    return (env.interpreter, "-m", "pip", "install")


def _reinstall(env: Environment) -> tuple[str, ...]:
    return (*_install(env), "--reinstall" if env.tool == "uv" else "--force-reinstall")


def _uninstall(env: Environment, names: Iterable[str]) -> tuple[str, ...]:
    if env.tool == "uv":
        return ("uv", "pip", "uninstall", "--python", env.interpreter, *names)
    return (env.interpreter, "-m", "pip", "uninstall", "--yes", *names)


def _conda(env: Environment, *words: str) -> tuple[str, ...]:
    where = ("--prefix", env.prefix) if env.prefix else ()
    return ("conda", "install", "--yes", *where, "--override-channels", "--channel", "conda-forge", *words)


def by(env: Environment) -> str:
    """By which tool, at the end of a cure's title; nothing for pip, as everybody takes it."""
    return "" if env.tool == "pip" else say(", with {tool}", tool=env.tool)


def _listed(snapshot: Snapshot, name: str) -> tuple[str, ...]:
    fact = snapshot.get(name)
    return tuple(map(str, fact.value)) if isinstance(fact, Known) and isinstance(fact.value, tuple) else ()
