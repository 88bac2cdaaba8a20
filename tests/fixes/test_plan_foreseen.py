"""Plans over several causes: what they would come to, who stands in whose way, and what is never run."""

from dataclasses import replace

import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Fact, Known, Row, Rows, Value
from gpudoctor.core.rule import Fix, Step
from gpudoctor.fixes import effects, plan
from tests.fixes.specimens import BOOK, judged, linux

PYTHON = "/opt/venv/bin/python"
INDEX = "https://download.pytorch.org/whl/"


def diagnosed(gpu: str, capability: str, **facts: Value) -> Diagnosis:
    """What is found of a machine with one GPU."""
    return pipeline.diagnose(linux([(gpu, capability)], None, **facts), BOOK)


def curing(diagnosis: Diagnosis, cause: str, *fixes: Fix) -> Diagnosis:
    """The diagnosis with these cures for that cause in place of the page's."""
    findings = [replace(one, fixes=fixes) if one.id == cause else one for one in diagnosis.findings]
    return replace(diagnosis, findings=tuple(findings))


def install(build: str, *words: str) -> Step:
    argv = (PYTHON, "-m", "pip", "install", *(words or (f"torch==2.9.1+{build}",)), "--index-url", INDEX + build)
    return Step(argv, "", ("network",), "environment")


V100 = diagnosed("Tesla V100-SXM2-32GB", "7.0", torch__version="2.9.1+cpu", driver__version="580.95.05")


@pytest.mark.parametrize(("build", "new"), [("cu126", ()), ("cu130", ("torch.arch-dropped",))])
def test_a_wrong_cure_is_told(build: str, new: tuple[str, ...]) -> None:
    """CUDA 13 makes no code for Volta; the newest driver does not change that."""
    sick = curing(V100, "torch.cpu-build", Fix("install", (install(build),)))
    foreseen = effects.predict(sick, plan.plan_for(sick), judged)
    assert foreseen.cleared == ("torch.cpu-build",)
    assert foreseen.new == new


def test_a_cure_that_would_bring_about_an_error_is_not_offered_first() -> None:
    wrong, right = Fix("wrong", (install("cu130"),)), Fix("right", (install("cu126"),))
    made = plan.plan_for(curing(V100, "torch.cpu-build", wrong, right), judge=judged)
    assert [way.title for way in made.ways] == ["right", "wrong"]
    assert [step.argv[-1] for step in made.commands][1:] == [INDEX + "cu126"]
    assert made.remarks == ("wrong would bring about torch.arch-dropped",)


@pytest.mark.parametrize(
    ("planted", "new"),
    [
        (Step((), "by hand", makes=(("driver.version", "470.256.02"),), touches="system"), "torch.driver-too-old"),
        (Step((), "by hand", makes=(("env.CUDA_VISIBLE_DEVICES", ""),), touches="environment"), "env.visible-devices"),
        (install("cu126", "torch==2.9.1+cu126", "torchvision==0.20.0+cu126"), "torch.companion-mismatch"),
        (install("cpu", "torch==2.9.1+cpu"), "torch.cpu-build"),
    ],
)
def test_a_step_that_breaks_a_sound_machine_is_told(planted: Step, new: str) -> None:
    sound = diagnosed(
        "NVIDIA A100-SXM4-80GB", "8.0", torch__version="2.9.1+cu126", driver__version="550.54.15", gpu__count=1
    )
    packages: Rows = ({"name": Known("torch", "x"), "version": Known("2.9.1+cu126", "x")},)
    snapshot = replace(sound.snapshot, groups={**sound.snapshot.groups, "package": packages})
    sick = Finding("site.x", "torch", "error", "cause", "certain", "x", "", (), fixes=(Fix("planted", (planted,)),))
    diagnosis = replace(sound, snapshot=snapshot, findings=(*sound.findings, sick))
    assert new in effects.predict(diagnosis, plan.plan_for(diagnosis, ("site.x",)), judged).new


def test_what_comes_up_only_because_it_must_be_read_again_is_not_the_plans_doing() -> None:
    """torch ran on this GPU although the tables have no code for it; after any change that is to be tried again."""
    facts: dict[str, Value] = {"torch__version": "2.9.1+cu130", "torch__archs": ("sm_75",), "gpu__count": 1}
    snapshot = diagnosed("Tesla V100-SXM2-32GB", "7.0", **facts).snapshot
    ran: Row = {"kernel": Known("ok", "x")}
    diagnosis = pipeline.diagnose(replace(snapshot, groups={**snapshot.groups, "live_gpu": (ran,)}), BOOK)
    assert "torch.arch-dropped" not in [one.id for one in diagnosis.findings]
    restart = Step(("systemctl", "restart", "x"), "", ("root",), "system", (("driver.persistenced", True),))
    sick = replace(diagnosis, findings=(*diagnosis.findings, found("site.x", "host", restart)))
    assert not effects.predict(sick, plan.plan_for(sick, ("site.x",)), judged).new


def test_a_cause_that_another_cure_clears_has_none_of_its_own() -> None:
    sick = diagnosed("NVIDIA GeForce GTX 1080", "6.1", torch__version="2.9.1+cu130", driver__version="570.124.06")
    ids = {one.id for one in sick.findings}
    assert {"torch.arch-dropped", "torch.driver-too-old"} <= ids
    sick = curing(sick, "torch.arch-dropped", Fix("install", (install("cu126"),)))
    made = plan.plan_for(sick, ("torch.arch-dropped", "torch.driver-too-old"), judge=judged)
    assert [step.argv[-1] for step in made.commands if step.cause] == [INDEX + "cu126"]
    assert set(made.verifies) == {"torch.arch-dropped", "torch.driver-too-old"}
    assert made.remarks == ("torch.driver-too-old is cured by the steps before it",)


def test_a_cure_that_brings_back_what_another_one_clears_waits() -> None:
    """Each of two causes has one cure, and each takes back the other's."""
    sick = diagnosed("NVIDIA GeForce GTX 1080", "6.1", torch__version="2.9.1+cu130", driver__version="580.95.05")
    sick = curing(sick, "torch.arch-dropped", Fix("install", (install("cu126"),)))
    other = found("site.y", "workload", install("cu130"))
    made = plan.plan_for(replace(sick, findings=(*sick.findings, other)), judge=judged)
    assert [step.argv[-1] for step in made.commands if step.cause] == [INDEX + "cu126"]
    assert "cure site.y would bring about torch.arch-dropped" in made.remarks
    assert made.remarks[-1] == "site.y is looked at again first: its cures and that of torch.arch-dropped are at odds"


def found(name: str, layer: str, *steps: Step) -> Finding:
    return Finding(name, layer, "error", "cause", "certain", name, "", (), fixes=(Fix(f"cure {name}", steps),))


REBOOT = Step(("reboot",), "", ("root", "reboot"), "system")


def test_lower_layers_come_first_and_the_machine_is_started_anew_once() -> None:
    driver, firmware = (Step(("apt-get", "install", name), touches="system") for name in "ab")
    findings = (
        found("torch.x", "torch", install("cu126")),
        found("gpu.x", "gpu", firmware, REBOOT),
        found("driver.x", "driver", driver, REBOOT, Step(("modprobe", "c"), touches="system")),
    )
    made = plan.plan_for(replace(V100, findings=findings), root=True)
    said = [step.verify or step.argv[-1] for step in made.chosen[1:]]
    assert said == ["a", "b", "reboot", "c", "driver.x", "gpu.x", INDEX + "cu126", "torch.x"]
    assert [step.argv[-1] for step in made.until_reboot.commands[1:]] == ["a", "b", "reboot"]


@pytest.mark.parametrize(
    "name", ["--index-url=https://evil.example", "-r/etc/passwd", "torch\n--pre", "torch; rm -rf ~", "t\u202eorch"]
)
def test_a_hostile_name_never_becomes_a_word_of_a_command(name: str) -> None:
    rows: Rows = ({"name": Known(name, "x"), "torch": Known("2.4", "x"), "version": Known("1.0", "x")},)
    sick = replace(V100, snapshot=replace(V100.snapshot, groups={**V100.snapshot.groups, "extension": rows}))
    step = Step((PYTHON, "-m", "pip", "uninstall", "-y", name), touches="environment")
    made = plan.plan_for(replace(sick, findings=(found("ext.x", "ext", step),)))
    [cure] = [step for step in made.chosen if step.way]
    assert cure.argv == ()
    assert cure.text.startswith("Not run: ")
    assert cure.hindrance == "by hand: done by a person"


def test_a_shell_never_sees_what_the_machine_says_of_itself() -> None:
    path = "/tmp/$(touch x)/python"
    sick = replace(
        V100, snapshot=replace(V100.snapshot, facts={**V100.snapshot.facts, "python.path": Known(path, "x")})
    )
    shell = Step(("sh", "-c", f"{path} -m pip list | sort"))
    direct = Step((path, "-c", "import torch"))
    made = plan.plan_for(replace(sick, findings=(found("ext.x", "ext", shell, direct),)))
    assert [step.argv for step in made.chosen if step.way] == [(), direct.argv]


def test_a_plan_says_what_must_hold_and_what_each_package_becomes() -> None:
    packages: Rows = (
        {"name": Known("torch", "x"), "version": Known("2.9.1+cpu", "x")},
        {"name": Known("numpy", "x"), "version": Known("2.0", "x")},
    )
    facts: dict[str, Fact] = {**V100.snapshot.facts, "python.prefix": Known("/opt/venv", "x")}
    snapshot = replace(V100.snapshot, facts=facts, groups={**V100.snapshot.groups, "package": packages})
    sick = curing(replace(V100, snapshot=snapshot), "torch.cpu-build", Fix("install", (install("cu126"),)))
    [step] = [step for step in plan.plan_for(sick).chosen if step.way]
    assert [(item.kind, item.subject) for item in step.requires] == [
        ("program", PYTHON),
        ("writable", "/opt/venv"),
        ("unchanged", "/opt/venv"),
    ]
    assert [(change.name, change.before, change.after) for change in step.changes][:1] == [
        ("torch", "2.9.1+cpu", "2.9.1+cu126")
    ]
    assert "numpy" not in [change.name for change in step.changes]
    assert step.makes_true == "torch 2.9.1+cu126 is there"


def test_what_is_installed_is_noted_save_where_the_plan_makes_the_environment() -> None:
    managed: dict[str, Value] = {"python__externally_managed": True, "driver__version": "580.95.05"}
    sick = diagnosed("NVIDIA L4", "8.9", torch__version="2.9.1+cpu", **managed)
    assert [step.argv[1:3] for step in plan.plan_for(sick).commands] == [("-m", "venv"), ("-m", "pip")]
    assert plan.plan_for(V100).commands[0].argv == (PYTHON, "-m", "pip", "freeze")
    conda = Step(("conda", "install", "--yes", "--prefix", "/opt/x", "cudnn"), touches="environment")
    made = plan.plan_for(replace(V100, findings=(found("torch.x", "torch", conda),)))
    assert made.commands[0].argv == ("conda", "list", "--explicit", "--prefix", "/opt/x")


def test_an_environment_that_conda_would_make_elsewhere_is_left_to_a_person() -> None:
    """What the engine would refuse keeps nothing else of the plan from being run."""
    new = Step(("conda", "create", "--yes", "--name", "torch", "pytorch-gpu"), touches="environment")
    made = plan.plan_for(
        replace(V100, findings=(found("torch.x", "torch", new), found("ext.x", "ext", install("cu126"))))
    )
    assert {step.cause: step.hindrance for step in made.commands if step.cause} == {
        "torch.x": "makes another environment of conda's: run it yourself, and name its Python with --python",
        "ext.x": "",
    }


def test_lines_that_told_of_a_cause_are_set_aside_with_it() -> None:
    report = "Tesla V100 with CUDA capability sm_70 is not compatible with the current PyTorch installation"
    sick = reading.read(report)
    assert "torch.arch-dropped" in [one.id for one in sick.findings]
    sick = curing(sick, "torch.arch-dropped", Fix("install", (install("cu126"),)))
    foreseen = effects.predict(sick, plan.plan_for(sick, ("torch.arch-dropped",)), judged)
    assert "torch.arch-dropped" not in (*foreseen.stays, *foreseen.new)
