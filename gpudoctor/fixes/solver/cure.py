"""The torch stack as a rule's cure: the steps that set it up in the environment of a snapshot, by its own tool.

Asked while judging, so everything here is tables and arithmetic. What is offered was worked out for these GPUs, this
driver and this Python, as far as they are known.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Unread
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.rule import Fix, Step
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.stack import GPU, Wishes, wishes_from_snapshot
from gpudoctor.core.system import shell_line
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.fixes.solver import environment, repairs
from gpudoctor.fixes.solver.described_machine import machine_text
from gpudoctor.fixes.solver.environment import COMPANIONS, VENV, Environment
from gpudoctor.fixes.solver.install_commands import COMMANDS, CONDA_NAME, Argvs, Order, completed
from gpudoctor.fixes.solver.machine import device, generation
from gpudoctor.fixes.solver.solution import Candidate, Solution, facts_once_installed
from gpudoctor.fixes.solver.solver import solve

_BOUND = ("flash-attn", "xformers", "vllm")
"""Packages that are made for one torch: they come along to another, or must be installed again."""
_ASSUMED = "525.60.13"
_UNKNOWN = "GPU and driver are not known here: on the machine itself gpudoctor setup torch chooses by them"
_ANY_DRIVER = (
    "The newest release for any driver that serves the GPU, from {driver} on: which one it is was not said; gpudoctor"
    " setup torch chooses by the machine's own"
)
_FORMER = (
    "Remove the old CUDA's packages first: they own files with the same names as the new build's, and removing them"
    " later would delete the new ones."
)
_LOCKED = (
    "A project with a uv.lock takes it back at the next uv sync: gpudoctor setup torch --emit pyproject has the lines"
    " that name this index."
)
_PYTHONS = ("3.12", "3.13", "3.11", "3.10")
"""Pythons for a new environment: first what most packages have wheels for."""


def torch_cures(snapshot: Snapshot, mode: str = "torch") -> tuple[Fix, ...]:
    """Fixes for torch by the environment's own tool, for a mode that `MODES` has; any other raises `KeyError`. Empty on
    a Jetson. Repairs in place become a new environment if the distribution manages this one.
    """
    cure = MODES[mode]
    if snapshot.known("host.jetson"):
        return ()
    env = environment.environment_of_snapshot(snapshot)
    return (_same_release_cure if env.new and cure in _MENDING else cure)(snapshot, env)


def with_cures(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with each fix that names a solver mode replaced by the fixes for this machine."""
    snapshot = diagnosis.snapshot
    findings = tuple(
        replace(finding, fixes=_expanded_fixes(finding.fixes, snapshot))
        if any(fix.setup for fix in finding.fixes)
        else finding
        for finding in diagnosis.findings
    )
    return replace(diagnosis, findings=findings)


def _expanded_fixes(fixes: Sequence[Fix], snapshot: Snapshot) -> tuple[Fix, ...]:
    """The fixes, with those that name a solver mode expanded; of those with the same title and commands, the first."""
    cures: dict[object, Fix] = {}
    for fix in fixes:
        for cure in torch_cures(snapshot, fix.setup) if fix.setup else (fix,):
            cures.setdefault((cure.title, *(step.argv or step.text for step in cure.steps)), cure)
    return tuple(cures.values())


def _newest_cure(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that installs the newest stack that fits, with the companions installed now; or one that names the change
    without which none does.
    """
    return (_set_up(_wishes(snapshot), env),)


def _wishes(snapshot: Snapshot) -> Wishes:
    """The solver's input for this machine. If its driver is Unread, the oldest that serves its GPUs and CUDA 12 is
    taken; if the GPUs are Unread, too, one that is assumed, and none if they are Absent.
    """
    wishes = wishes_from_snapshot(snapshot)
    if not isinstance(snapshot.get("driver.version"), Unread):
        return wishes
    if wishes.gpus:
        return replace(wishes, driver=_oldest_driver_branch(wishes.gpus))
    return replace(wishes, driver=_ASSUMED) if isinstance(snapshot.rows("gpu"), Unread) else wishes


def _oldest_driver_branch(gpus: Sequence[GPU]) -> str:
    """Oldest driver branch that serves all these GPUs and CUDA 12; ``""`` if newer ones no longer serve one, or it is
    not known.
    """
    bounds = [generation(capability) for gpu in gpus for capability in device(gpu).capabilities]
    if not bounds or any(last or not first for first, last in bounds):
        return ""
    return max([_ASSUMED.partition(".")[0], *(first for first, _ in bounds)], key=int)


def _same_release_cure(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that installs the present torch release in a build that fits; the newest if none fits or is installed."""
    wishes, former = _wishes(snapshot), builds.base(snapshot.text("torch.version") or env.installed.get("torch", ""))
    if not former:
        return (_set_up(wishes, env),)
    same = replace(wishes, torch=former, set_by_user=wishes.set_by_user | {"torch"})
    found = _solution_with_companions(same, env)
    return (_fix(found, same, env) if found.best else _set_up(wishes, env),)


def _other_python_cure(snapshot: Snapshot, env: Environment) -> tuple[Fix, ...]:
    """Fix that makes a new environment with a Python that has wheels; if there is none, one for this environment."""
    wishes = _wishes(snapshot)
    fresh = replace(env, managed=True, python="", prefix="", installed={})
    for python in _PYTHONS:
        asked = replace(wishes, python=python, set_by_user=wishes.set_by_user | {"python"})
        found = _solution_with_companions(asked, env)
        if found.best:
            return (_in_new_environment(completed(found.best, asked.arch), asked, fresh, python),)
    return (_set_up(wishes, env),)


def _in_new_environment(best: Candidate, wishes: Wishes, env: Environment, python: str) -> Fix:
    """Fix that creates a new environment with that Python by uv or conda and installs the stack."""
    if env.tool == "conda":
        order = Order(best, env, python=python)
        commands, undo = COMMANDS["conda"](order), f"conda env remove --name {CONDA_NAME}"
    else:
        order = Order(best, env.by("uv"), python=python)
        commands = (("uv", "venv", "--python", python, VENV), *COMMANDS["uv"](order)[1:])
        undo = say("Remove the folder {name}", name=VENV)
    title = say("A new environment with Python {python}", python=python)
    return Fix(title, _steps(commands, best, wishes, order.environment), undo=undo)


def _set_up(wishes: Wishes, env: Environment) -> Fix:
    """Fix that installs the best stack for the wishes, or names the smallest change if nothing fits."""
    return _fix(_solution_with_companions(wishes, env), wishes, env)


def _solution_with_companions(wishes: Wishes, env: Environment) -> Solution:
    """Solution for torch with the companions installed now (torchvision if torch is not); packages bound to one torch
    are left out if they prevent it.
    """
    there = [name for name in COMPANIONS if name in env.installed]
    beside = there or ([] if "torch" in env.installed else ["torchvision"])
    bound = [name for name in _BOUND if name in env.installed]
    found = solve(replace(wishes, extras=(*beside, *bound)))
    return found if found.best or not bound else solve(replace(wishes, extras=tuple(beside)))


def _fix(solution: Solution, wishes: Wishes, env: Environment) -> Fix:
    """Fix that installs the best stack of the solution; a fix naming the smallest change if nothing fits."""
    if solution.best is None:
        return _no_fit_cure(solution, wishes, env)
    best = completed(solution.best, wishes.arch)
    commands = COMMANDS[env.tool](Order(best, env, pinned=bool(wishes.torch)))
    build = f"CUDA {best.cuda}" if best.cuda else say("the CPU")
    if not commands:
        text = "conda-forge builds no torch for {build}: install it into an environment of its own, by pip or uv."
        title = say("torch {version} for {build} fits", version=best.torch, build=build)
        return Fix(title, (Step(text=say(text, build=build)),))
    own = ", in an environment of its own"
    title = say("Install torch {version} for {build}", version=best.torch, build=build)
    title += say(own) if env.new else repairs.tool_suffix(env)
    because = next((reason.because for reason in solution.reasons if reason.standing == "chosen"), "")
    if not wishes.gpus and wishes.driver == _ASSUMED:
        because = say(_UNKNOWN)
    elif wishes.gpus and wishes.driver == _oldest_driver_branch(wishes.gpus):
        because = say(_ANY_DRIVER, driver=wishes.driver)
    return Fix(title, _steps(commands, best, wishes, env, because), undo=repairs.undo_text(env))


def _steps(commands: Argvs, best: Candidate, wishes: Wishes, env: Environment, because: str = "") -> tuple[Step, ...]:
    """Steps of the commands; the last one has the explanation `because` and the facts that it makes true."""
    facts = tuple(facts_once_installed(best, env, wishes))
    last = len(commands) - 1
    return tuple(
        Step(
            argv,
            text=_install_note(best, env, because) if number == last else _step_explanation(argv),
            needs=("network",) if "install" in argv or "create" in argv else (),
            touches="environment",
            makes=facts if number == last else (),
        )
        for number, argv in enumerate(commands)
    )


def _step_explanation(argv: tuple[str, ...]) -> str:
    """Explanation of a preparing command (new environment, uninstall); ``""`` for others."""
    if argv[-1] == VENV:
        own = say("An environment of its own, in the folder that this is run in.")
        return own + (say(" On Debian and Ubuntu this wants the package python3-venv.") if "-m" in argv else "")
    if "uninstall" in argv:
        return say(_FORMER)
    return ""


def _install_note(best: Candidate, env: Environment, because: str) -> str:
    """Why this build, which packages must be installed again, whether a uv.lock would undo it; ``""`` if none
    applies.
    """
    coming = {package.name for package in best.packages}
    left = [name for name in _BOUND if name in env.installed and name not in coming]
    sentences = [say("{sentence}.", sentence=because[:1].upper() + because[1:].rstrip("."))] if because else []
    again = "Made for the former torch, to be installed again: {names}."
    sentences += [say(again, names=", ".join(left))] if left else []
    sentences += [say(_LOCKED)] if env.tool == "uv" and not env.new else []
    if env.tool == "conda":
        sentences.append(say("conda-forge builds torch itself; a new release comes there later."))
    return say(" ").join(sentences)


def _no_fit_cure(solution: Solution, wishes: Wishes, env: Environment) -> Fix:
    """Fix without commands that names the smallest changes of the machine with which torch would fit, if any, what
    installs torch after a newer driver, and the command that says why, which describes the machine by the wishes.
    """
    architectures = tuple(
        replace(gpu, name=f"sm_{gpu.compute_capability.replace('.', '')}") if gpu.compute_capability else gpu
        for gpu in wishes.gpus
    )  # a name that a report has may be none that the tables, and so --for, know
    described = shlex.quote(machine_text(replace(wishes, gpus=architectures)))
    reasons = say("{command} says why.", command=f"gpudoctor setup torch --for {described}")
    changes = [remedy.text for remedy in solution.smallest]
    if not changes:
        title = say("No torch fits the machine")
        return Fix(title, (Step(text=say("{sentence}.", sentence=title) + say(" ") + reasons),))
    sentences = [say("No torch fits the machine as it is; it would with {change}.", change=changes[0])]
    sentences += [say("Or with: {changes}.", changes="; ".join(changes[1:3]))] if changes[1:] else []
    sentences.append(reasons)
    steps = [Step(text=say(" ").join(sentences))]
    first = solution.smallest[0]
    if first.field == "driver" and (best := solve(wishes.remedied(first)).best):
        then = COMMANDS[env.tool](Order(completed(best, wishes.arch), env, pinned=bool(wishes.torch)))
        steps.append(Step(text=say("Then torch: {command}", command="; ".join(map(shell_line, then)))))
    return Fix(say("First {change}", change=changes[0]), tuple(steps))


MODES: Mapping[str, Callable[[Snapshot, Environment], tuple[Fix, ...]]] = {
    "torch": _newest_cure,
    "torch same": _same_release_cure,
    "other python": _other_python_cure,
    "companions": repairs.companions,
    "nvidia wheels": repairs.nvidia_wheels,
    "torch again": repairs.reinstall_torch,
    "triton": repairs.triton,
}
"""What a rule page may name as what is set up."""
_MENDING = (repairs.companions, repairs.nvidia_wheels, repairs.reinstall_torch, repairs.triton)
"""They change packages where they are, which nobody may in an environment that the distribution manages."""
