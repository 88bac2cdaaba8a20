"""The torch stack as a rule's cure: the steps that set it up in the environment of a snapshot, by its own tool.

Asked while judging, so everything here is tables and arithmetic. What is offered was worked out for these GPUs, this
driver and this Python, as far as they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpudoctor.knowledge import builds
from gpudoctor.language import say
from gpudoctor.model.fact import Known, Unread
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import Fix, Step
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.stack import GPU, Wishes, read_from
from gpudoctor.setup import environment, makes, mending
from gpudoctor.setup.candidate import Candidate
from gpudoctor.setup.emit import COMMANDS, Argvs, Order, completed, conda
from gpudoctor.setup.environment import COMPANIONS, VENV, Environment
from gpudoctor.setup.machine import device, generation
from gpudoctor.setup.solution import Solution
from gpudoctor.setup.solver import solved

_BOUND = ("flash-attn", "xformers", "vllm")
"""Packages that are made for one torch: they come along to another, or must be installed again."""
_ASSUMED = "525.60.13"
_UNKNOWN = "GPU and driver are not known here: on the machine itself gpudoctor setup torch chooses by them"
_ANY_DRIVER = (
    "The newest release for any driver that serves the GPU, from {driver} on: which one it is was not said; gpudoctor"
    " setup torch chooses by the machine's own"
)
_FORMER = (
    "The former CUDA's packages go first: their files bear the names of the new build's, and removed later they would"
    " take those along."
)
_LOCKED = (
    "A project with a uv.lock takes it back at the next uv sync: gpudoctor setup torch --emit pyproject has the lines"
    " that name this index."
)
_PYTHONS = ("3.12", "3.13", "3.11", "3.10")
"""Pythons for a new environment: first what most packages have wheels for."""


def torch_cures(snapshot: Snapshot, mode: str = "torch") -> tuple[Fix, ...]:
    """Cures of what is wrong with torch, by the tool of its environment, at most one a way; see `MODES`.

    None for a Jetson, whose torch NVIDIA builds itself. Raises `KeyError` for no mode.
    """
    cure = MODES[mode]
    if isinstance(snapshot.get("host.jetson"), Known):
        return ()
    env = environment.of(snapshot)
    return (_same if env.new and cure in _MENDING else cure)(snapshot, env)


def _newest(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """The newest stack that fits, with the companions that are installed."""
    return (_set_up(_wishes(snapshot), env),)


def _wishes(snapshot: Snapshot) -> Wishes:
    """Those of the machine. Where nobody looked for a driver, a report for one, the oldest is assumed that serves the
    GPUs and that the builds of CUDA 12 run on: what fits that fits most machines.
    """
    wishes = read_from(snapshot)
    if not isinstance(snapshot.get("driver.version"), Unread):
        return wishes
    if wishes.gpus:
        return replace(wishes, driver=_oldest(wishes.gpus))
    return replace(wishes, driver=_ASSUMED) if isinstance(snapshot.rows("gpu"), Unread) else wishes


def _oldest(found: Sequence[GPU]) -> str:
    """The first branch that serves all of these GPUs and CUDA 12; empty where there is none, or nobody knows."""
    bounds = [generation(one) for gpu in found for one in device(gpu).capabilities]
    if not bounds or any(last or not first for first, last in bounds):
        return ""
    return max([_ASSUMED.partition(".")[0], *(first for first, _ in bounds)], key=int)


def _same(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """The release that is installed, in a build that fits; where none does, the newest that fits."""
    wishes, former = _wishes(snapshot), builds.base(_version(env, snapshot))
    if not former:
        return (_set_up(wishes, env),)
    same = replace(wishes, torch=former, said=wishes.said | {"torch"})
    found = _solved(same, env)
    return (_fix(found, same, env) if found.best else _set_up(wishes, env),)


def _other_python(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """A new environment with a Python that has wheels."""
    wishes = _wishes(snapshot)
    fresh = replace(env, managed=True, python="", prefix="", installed={})
    for python in _PYTHONS:
        asked = replace(wishes, python=python, said=wishes.said | {"python"})
        found = _solved(asked, env)
        if found.best:
            return (_in_new_environment(completed(found.best, asked.arch), asked, fresh, python),)
    return (_set_up(wishes, env),)


def _in_new_environment(best: Candidate, wishes: Wishes, env: Environment, python: str) -> Fix:
    """By uv, which brings the Python along, as conda does."""
    if env.tool == "conda":
        order = Order(best, env, python=python)
        commands, undo = COMMANDS["conda"](order), f"conda env remove --name {conda.NAME}"
    else:
        order = Order(best, env.by("uv"), python=python)
        commands = (("uv", "venv", "--python", python, VENV), *COMMANDS["uv"](order)[1:])
        undo = say("Remove the folder {name}", name=VENV)
    title = say("A new environment with Python {python}", python=python)
    return Fix(title, _steps(commands, best, wishes, order.environment), undo=undo)


def _set_up(wishes: Wishes, env: Environment) -> Fix:
    found = _solved(wishes, env)
    return _fix(found, wishes, env)


def _solved(wishes: Wishes, env: Environment) -> Solution:
    """With the packages that are made for the torch installed now, where they can come along."""
    there = [name for name in COMPANIONS if name in env.installed]
    beside = there or ([] if "torch" in env.installed else ["torchvision"])
    bound = [name for name in _BOUND if name in env.installed]
    found = solved(replace(wishes, extras=(*beside, *bound)))
    return found if found.best or not bound else solved(replace(wishes, extras=tuple(beside)))


def _fix(found: Solution, wishes: Wishes, env: Environment) -> Fix:
    if found.best is None:
        return _nothing_fits(found)
    best = completed(found.best, wishes.arch)
    commands = COMMANDS[env.tool](Order(best, env, pinned=bool(wishes.torch)))
    build = f"CUDA {best.cuda}" if best.cuda else say("the CPU")
    if not commands:
        text = "conda-forge builds no torch for {build}: install it into an environment of its own, by pip or uv."
        title = say("torch {version} for {build} fits", version=best.torch, build=build)
        return Fix(title, (Step(text=say(text, build=build)),))
    own = ", in an environment of its own"
    title = say("Install torch {version} for {build}", version=best.torch, build=build)
    title += say(own) if env.new else mending.by(env)
    because = next((reason.because for reason in found.reasons if reason.standing == "chosen"), "")
    if not wishes.gpus and wishes.driver == _ASSUMED:
        because = say(_UNKNOWN)
    elif wishes.gpus and wishes.driver == _oldest(wishes.gpus):
        because = say(_ANY_DRIVER, driver=wishes.driver)
    return Fix(title, _steps(commands, best, wishes, env, because), undo=mending.back(env))


def _steps(commands: Argvs, best: Candidate, wishes: Wishes, env: Environment, because: str = "") -> tuple[Step, ...]:
    machine = "windows" if wishes.os == "windows" else wishes.arch or "x86_64"
    facts = makes.installed(best, env, machine)
    last = len(commands) - 1
    return tuple(
        Step(
            argv,
            text=_note(best, env, because) if number == last else _preparing(argv),
            needs=("network",) if _downloads(argv) else (),
            touches="environment",
            makes=facts if number == last else (),
        )
        for number, argv in enumerate(commands)
    )


def _downloads(argv: tuple[str, ...]) -> bool:
    return "install" in argv or "create" in argv


def _preparing(argv: tuple[str, ...]) -> str:
    if argv[-1] == VENV:
        own = say("An environment of its own, in the folder that this is run in.")
        return own + (say(" On Debian and Ubuntu this wants the package python3-venv.") if "-m" in argv else "")
    if "uninstall" in argv:
        return say(_FORMER)
    return ""


def _note(best: Candidate, env: Environment, because: str) -> str:
    """Why this build; and packages that were made for the former torch, and a lock that would take it back."""
    coming = {package.name for package in best.packages}
    left = [name for name in _BOUND if name in env.installed and name not in coming]
    said = [say("{sentence}.", sentence=because[:1].upper() + because[1:].rstrip("."))] if because else []
    again = "Made for the former torch, to be installed again: {names}."
    said += [say(again, names=", ".join(left))] if left else []
    said += [say(_LOCKED)] if env.tool == "uv" and not env.new else []
    said += [say("conda-forge builds torch itself; a new release comes there later.")] if env.tool == "conda" else []
    return say(" ").join(said)


def _nothing_fits(found: Solution) -> Fix:
    changes = [remedy.text for remedy in found.smallest]
    if not changes:
        text = say("No torch fits this machine: gpudoctor setup torch says why.")
        return Fix(say("No torch fits this machine"), (Step(text=text),))
    said = [say("No torch fits this machine as it is; it would with {change}.", change=changes[0])]
    said += [say("Or with: {changes}.", changes="; ".join(changes[1:3]))] if changes[1:] else []
    said.append(say("gpudoctor setup torch says why."))
    return Fix(say("First {change}", change=changes[0]), (Step(text=say(" ").join(said)),))


def _version(env: Environment, snapshot: Snapshot) -> str:
    fact = snapshot.get("torch.version")
    return str(fact.value) if isinstance(fact, Known) else env.installed.get("torch", "")


MODES: Mapping[str, Callable[[Snapshot, Environment], tuple[Fix, ...]]] = {
    "torch": _newest,
    "torch same": _same,
    "other python": _other_python,
    "companions": mending.companions,
    "nvidia wheels": mending.nvidia_wheels,
    "torch again": mending.again,
    "triton": mending.triton,
}
"""What a rule page may name as what is set up."""
_MENDING = (mending.companions, mending.nvidia_wheels, mending.again, mending.triton)
"""They change packages where they are, which nobody may in an environment that the distribution manages."""
