"""Machines in one line: what they are read as, what is refused, and the facts that they become."""

import shlex
from dataclasses import replace

import pytest

from gpudoctor.core import plan as plans
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.stack import GPU, wishes_from_snapshot
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.fixes.solver.described_machine import (
    KEYS,
    SOURCE,
    machine_text,
    parse_machine,
    refuse_unknown_gpus,
    snapshot_of,
)
from gpudoctor.fixes.solver.stacks import stack
from tests.conftest import Program

WHOLE = "gpu=RTX 5090x2+H100,driver=570.124.06,python=3.12,os=wsl,arch=aarch64,glibc=2.31,distribution=Ubuntu 24.04"


def test_every_key_is_read_and_noted_as_said() -> None:
    wishes = parse_machine(WHOLE)
    assert wishes.gpus == (GPU("RTX 5090", "12.0", 2), GPU("H100", "9.0", 1))
    assert (wishes.driver, wishes.python, wishes.os, wishes.arch) == ("570.124.06", "3.12", "wsl", "aarch64")
    assert (wishes.libc, wishes.distribution) == ("glibc 2.31", "ubuntu 24.04")
    assert wishes.set_by_user == {"gpus", "driver", "python", "os", "arch", "libc", "distribution"}
    assert wishes.elsewhere


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("RTX 5090", [("RTX 5090", "12.0", 1)]),
        ("2x H100", [("H100", "9.0", 2)]),
        ("GTX 1080 Ti x 4", [("GTX 1080 Ti", "6.1", 4)]),
        ("8×A100-SXM4-80GB", [("A100-SXM4-80GB", "8.0", 8)]),
        ("H100 80GB HBM3x8", [("H100 80GB HBM3", "9.0", 8)]),
        ("MX150", [("MX150", "6.1", 1)]),
        ("MX150x2", [("MX150", "6.1", 2)]),
        ("sm_120", [("sm_120", "12.0", 1)]),
        ("RTX 5000", [("RTX 5000", "", 1)]),
    ],
)
def test_gpus_are_named_counted_and_joined(text: str, gpus: list[tuple[str, str, int]]) -> None:
    assert parse_machine(f"gpu={text}").gpus == tuple(GPU(*gpu) for gpu in gpus)


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("RTX 5080", "gpu=RTX 5080"),
        ("H100, driver 550", "gpu=H100,driver=550"),
        ("2x RTX 4090, linux, python: 3.12", "gpu=2x RTX 4090,os=linux,python=3.12"),
        ("driver=550, amd64", "driver=550,arch=amd64"),
        ("gpu=H100,os=Ubuntu 24.04", "gpu=H100,distribution=ubuntu 24.04"),
        ("gpu=H100,os=debian12", "gpu=H100,distribution=debian 12"),
        ("os=rhel9", "distribution=rhel 9"),
        ("distribution=Ubuntu24.04", "distribution=ubuntu 24.04"),
        ("distribution=ubuntu2204", "distribution=ubuntu 22.04"),
        ("distribution=opensuse-leap:15.6", "distribution=opensuse-leap 15.6"),
        ("H100, debian 12", "gpu=H100,distribution=debian 12"),
        ("H100, rocky9.4", "gpu=H100,distribution=rocky 9.4"),
    ],
)
def test_a_value_that_names_its_key_needs_no_key(text: str, machine: str) -> None:
    assert parse_machine(text) == parse_machine(machine)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "gpu="),
        ("gpus=H100", "did you mean gpu?"),
        ("5080", "did you mean --for gpu=5080?"),
        ("Frobnicator", "--for takes gpu="),
        ("gpus=H100, driver 550", "'gpus=H100' is none of these"),
        ("H100, A100", "joined by a plus"),
        ("driver=new", "570.124.06"),
        ("driver=570; rm -rf /", "no driver"),
        ("python=snake", "3.12"),
        ("gpu=H100+", "names no GPU"),
        ("gpu=H100x0", "no machine"),
        ("gpu=RTX 4090 driver=535 python=3.11", "between commas: --for 'gpu=RTX 4090,driver=535,python=3.11'"),
        ("gpu=H100,gpu=A100", "joined by a plus"),
        ("glibc=3", "2.31"),
        ("os=bsd", "linux, windows, wsl"),
        ("os=gentoo 2.17", "a distribution of Linux goes under distribution=: ubuntu 24.04"),
        ("arch=ppc", "aarch64"),
        ("distribution=--force", "ubuntu 24.04"),
    ],
)
def test_what_cannot_be_taken_is_named_with_what_could(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"(?s).*") as refused:
        parse_machine(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu=H100+Frobnicator 9000", "do not know the GPU 'Frobnicator 9000'; give its compute capability"),
        ("gpu=RTX 5900,driver=580", "do not know the GPU 'RTX 5900' (near it: GeForce RTX 5090"),
    ],
)
def test_a_gpu_that_the_tables_do_not_know_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_unknown_gpus(parse_machine(text))
    assert says in str(refused.value)


def test_the_facts_are_those_that_were_said_and_say_so() -> None:
    wishes = parse_machine(WHOLE)
    snapshot = snapshot_of(wishes)
    assert snapshot.get("host.platform") == Known("linux", SOURCE)
    assert snapshot.get("host.wsl") == Known(2, SOURCE)
    assert snapshot.get("host.glibc") == Known("2.31", SOURCE)
    assert [row["name"] for row in listed(snapshot.rows("gpu"))] == [
        Known(name, SOURCE) for name in ("RTX 5090", "RTX 5090", "H100")
    ]
    again = wishes_from_snapshot(complete(snapshot))
    kept = ("gpus", "driver", "python", "os", "arch", "libc", "distribution")
    assert all(getattr(again, name) == getattr(wishes, name) for name in kept)


def test_a_branch_becomes_the_newest_driver_of_it_that_the_tables_name() -> None:
    assert snapshot_of(parse_machine("driver=580")).get("driver.version") == Known("580.95.05", SOURCE)
    assert snapshot_of(parse_machine("driver=525,os=windows")).get("driver.version") == Known("528.33", SOURCE)
    assert snapshot_of(parse_machine("driver=580.10")).get("driver.version") == Known("580.10", SOURCE)


def test_what_was_not_said_is_not_asked() -> None:
    snapshot = snapshot_of(parse_machine("gpu=T4"))
    assert not snapshot.facts
    assert set(KEYS) == {"gpu", "driver", "python", "os", "arch", "glibc", "distribution"}


def test_a_machine_is_written_back_as_it_is_described() -> None:
    assert parse_machine(machine_text(parse_machine(WHOLE))) == parse_machine(WHOLE)
    assert (
        machine_text(parse_machine("gpu=H100x8,driver=550")) == "gpu=H100x8,driver=550,python=3.12,os=linux,arch=x86_64"
    )


def test_setup_driver_prints_the_whole_plan(called: Program) -> None:
    code, out, _ = called("setup", "driver", "--for", "distribution=debian 13,gpu=RTX 5090,arch=x86_64,os=linux")
    assert code == 0
    for words in (
        *("Install the NVIDIA driver", "repos/debian13/x86_64/cuda-keyring_1.1-1_all.deb"),
        *("$ apt-get install --yes nvidia-open", "needs a reboot", "To undo", "nothing was changed"),
    ):
        assert words in out


def test_as_json_it_is_a_plan(called: Program) -> None:
    ran = called("setup", "cuda-toolkit", "--cuda", "12.8", "--json", "--for", "distribution=rocky 9.5,arch=x86_64")
    plan = plans.from_json(ran.document)
    assert ran.code == 0
    assert ("dnf", "install", "--assumeyes", "cuda-toolkit-12-8") in [step.argv for step in plan.chosen]
    assert not plan.verifies


def test_where_no_way_is_known_it_says_what_is(called: Program) -> None:
    code, out, err = called("setup", "driver", "--for", "distribution=alpine 3.20,gpu=L4,os=linux")
    assert (code, out) == (1, "")
    assert "no way is known for alpine 3.20" in err
    assert "520" in err


@pytest.mark.parametrize(
    "words",
    [
        ("driver", "--for", "gpu=L4", "--apply"),
        ("driver", "--apply", "--dry-run"),
        ("driver", "--yes"),
        ("cuda-toolkit", "--cuda", "twelve"),
        ("driver", "--for", "colour=red"),
    ],
)
def test_misuse_is_refused(words: tuple[str, ...], called: Program) -> None:
    code, out, err = called("setup", *words)
    assert (code, out) == (2, "")
    assert err.startswith("gpudoctor: ")


def test_setup_assumes_the_usual_platform_and_says_so(called: Program) -> None:
    machine = "gpu=RTX 5070 Ti,driver=560.35.03,distribution=debian 12"
    code, out, _ = called("setup", "driver", "--for", machine)
    assert code == 0
    assert "repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb" in out
    assert "Not given in --for, so the usual is taken: arch=x86_64." in out
    plan = plans.from_json(called("setup", "cuda-toolkit", "--json", "--for", machine).document)
    assert any("repos/debian12/x86_64" in word for step in plan.chosen for word in step.argv)
    assert plan.remarks == ("Not given in --for, so the usual is taken: arch=x86_64",)
    _, given, _ = called("setup", "driver", "--for", f"{machine},arch=aarch64")
    assert "repos/debian12/sbsa/cuda-keyring_1.1-1_all.deb" in given
    assert "Not given" not in given


@pytest.mark.parametrize(
    ("words", "missing", "machine"),
    [
        (
            ("driver", "gpu=H100,distribution=ubuntu"),
            "the release of ubuntu",
            "gpu=H100,os=linux,arch=x86_64,distribution=ubuntu:26.04",
        ),
        (("driver", "gpu=H100,distribution=rhel"), "the release of rhel", "distribution=rhel:10"),
        (("driver", "distribution=fedora"), "the release of fedora", "distribution=fedora:44"),
        (("cuda-toolkit", "gpu=H100,os=windows"), "the driver", "gpu=H100,driver=580,os=windows,arch=x86_64"),
    ],
)
def test_where_only_a_key_is_missing_it_is_named_with_the_command(
    words: tuple[str, str], missing: str, machine: str, called: Program
) -> None:
    code, out, err = called("setup", words[0], "--for", words[1])
    assert (code, out) == (1, "")
    assert f"it depends on {missing}, which --for does not give" in err
    assert "no way is known" not in err
    (command,) = (line.strip() for line in err.splitlines() if line.strip().startswith("$ "))
    assert machine in command
    assert called(*shlex.split(command)[2:])[0] == 0


@pytest.mark.parametrize(
    ("machine", "wants", "driver", "torch"),
    [
        (
            "gpu=RTX 5070 Ti,driver=560.35.03,distribution=debian 12",
            (),
            "gpu=RTX 5070 Ti,driver=560.35.03,os=linux,distribution=debian:12",
            "gpu=RTX 5070 Ti,driver=580,os=linux,distribution=debian:12",
        ),
        (  # its GPU alone would take an older branch than torch's CUDA does
            "gpu=A100,driver=450.80.02,python=3.12",
            ("--want", "torch>=2.8"),
            "gpu=A100,driver=450.80.02,python=3.12 --cuda",
            "gpu=A100,driver=580,python=3.12 --want torch>=2.8",
        ),
        (
            "gpu=GTX 1080 Ti,driver=590.48.01",
            (),
            "gpu=GTX 1080 Ti,driver=590.48.01",
            "gpu=GTX 1080 Ti,driver=580",
        ),
    ],
)
def test_a_driver_that_would_do_comes_with_what_to_type(
    machine: str, wants: tuple[str, ...], driver: str, torch: str, called: Program
) -> None:
    asked = ("setup", "torch", "--offline", "--for", machine, *wants)
    code, out, _ = called(*asked)
    assert code == 1
    first, second, *then = (line.strip() for line in out.splitlines() if line.startswith("    $ "))
    assert f"setup driver --for {driver}" in " ".join(shlex.split(first))
    assert " ".join(shlex.split(second)).endswith(f"setup torch --for {torch}")
    remedies = called(*asked, "--json").document["smallest"]
    commands = next(one["commands"] for one in remedies if one["commands"])
    assert [shlex.split(line)[1:] for line in (first, second)] == commands
    plan, fit = (called(*argv[1:], *more) for argv, more in zip(commands, ((), ("--offline",)), strict=True))
    assert (plan[0], fit[0]) == (0, 0)
    assert then
    assert then == [line.strip() for line in fit[1].splitlines() if line.startswith("    $ ")]
    assert all(not one["commands"] for one in remedies if one["field"] != "driver")


def test_no_driver_is_planned_for_a_gpu_that_the_tables_do_not_know(called: Program) -> None:
    code, out, err = called("setup", "driver", "--for", "gpu=RTX 9999,distribution=ubuntu 24.04")
    assert (code, out) == (2, "")
    assert "the tables do not know the GPU 'RTX 9999'" in err


def test_what_follows_a_driver_is_from_the_mirror_that_was_given(called: Program) -> None:
    mirror = ("--offline", "--index", "https://mirror.example/whl")
    _, out, _ = called("setup", "torch", *mirror, "--for", "gpu=RTX 3090,driver=390.10,python=3.10")
    assert "--index-url https://mirror.example/whl/cu" in out


def test_on_this_machine_what_to_type_needs_no_description() -> None:
    here = replace(parse_machine("gpu=RTX 5090,driver=550.54.14,python=3.12"), set_by_user=frozenset())
    (remedy, *_) = stack(here).smallest
    assert remedy.commands == (("gpudoctor", "setup", "driver"), ("gpudoctor", "setup", "torch"))


def test_without_a_driver_to_change_there_is_nothing_to_type(called: Program) -> None:
    code, out, _ = called("setup", "torch", "--offline", "--for", "gpu=H100,driver=580,python=3.6")
    assert (code, "It would with" in out, "    $ " in out) == (1, True, False)
