"""Shared cures: pages of ``rules/setup``, what is refused on them, and how rule pages come to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.app.commands import rules
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.errors import RuleError
from gpudoctor.core.fact import Fact, Known
from gpudoctor.core.rule import Case, Fix, SetupCase
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import pages, rulebook
from gpudoctor.diagnosis.judge import judge_rule, new_evaluator
from gpudoctor.diagnosis.judge.cures import setup_options
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.knowledge.setup_facts import with_setup_facts
from gpudoctor.diagnosis.rulebook.compiled import setup_cases, setups
from gpudoctor.diagnosis.rulebook.compiling import checked_pages, checked_setups

CASES = setup_cases()
MISSING: dict[str, object] = {
    "driver.installed": False,
    "pci.nvidia_count": 1,
    "host.container": {"absent": "no"},
    "host.wsl": {"absent": "no"},
}


def machine(gpus: tuple[str, ...] = (), **facts: object) -> Snapshot:
    """A machine with these facts, whose names have two underscores for the dot."""
    known: dict[str, Fact] = {name.replace("__", "."): Known(value, "test") for name, value in facts.items()}  # type: ignore[arg-type]
    rows = tuple({"name": Known(name, "test")} for name in gpus)
    return complete(Snapshot(Target("local", "test"), known, {"gpu": rows} if rows else {}))


def ways(what: str, snapshot: Snapshot) -> list[Fix]:
    return [fix for _, fix in setup_options(what, snapshot, new_evaluator(snapshot))]


@pytest.mark.parametrize("case", CASES, ids=[f"{case.page}: {case.name}" for case in CASES])
def test_each_case_is_offered_what_it_says(case: SetupCase) -> None:
    assert rules.setup_failure(case) is None


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"offers": "Arch Linux"}, "should offer 'Arch Linux', offers 'Ubuntu'"),
        ({"argv": ("reboot",)}, "should begin with 'reboot'"),
        ({"has": (("apt-get", "update"),)}, "should run 'apt-get update'"),
        ({"has": (("reboot",), ("ubuntu-drivers", "install"))}, "should run 'ubuntu-drivers install'"),
    ],
)
def test_a_case_that_is_wrong_says_what_is_offered(changed: dict[str, object], problem: str) -> None:
    case = next(case for case in CASES if case.offers == "Ubuntu")
    fields = {name: getattr(case, name) for name in ("page", "name", "facts", "offers", "argv", "has")}
    failure = rules.setup_failure(SetupCase(**{**fields, **changed}))
    assert problem in str(failure)


PAGE = """
id = "thing"
title = "Install the thing"
sources = ["its handbook (2026-11)"]

[step]
start = { argv = ["systemctl", "start", "thing"], needs = ["root"], touches = "system" }

[[fix]]
title = "Ubuntu"
when = ["setup.system == 'ubuntu'"]
steps = [{ argv = ["apt-get", "install", "--yes", "thing"], makes = { "driver.installed" = true } }, "start"]
undo = "apt-get remove thing"

[[case]]
name = "Ubuntu"
facts = { "host.distribution" = "ubuntu" }
offers = "Ubuntu"
"""


def test_a_page_is_read_with_its_named_steps(tmp_path: Path) -> None:
    (tmp_path / "thing.toml").write_text(PAGE, "utf-8")
    [page] = checked_setups(tmp_path)
    assert page["origin"] == "setup/thing.toml"
    assert "case" not in page


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"driver.installed" = true', '"driver.inserted" = true', "no fact driver.inserted"),
        (
            '"driver.installed" = true',
            '"driver.installed" = "yes"',
            "driver.installed, true or false, is given as the text 'yes': write true",
        ),
        ("setup.system", "setup.sytem", "no fact setup.sytem"),
        ('"start"]', '"begin"]', "names a step that is not under"),
        ('offers = "Ubuntu"', 'offers = "Debian"', "no fix is called 'Debian'"),
        ('offers = "Ubuntu"', 'offers = ""', "no case offers 'Ubuntu'"),
        ('id = "thing"', 'id = "other"', "the file is named by its id"),
        ('sources = ["its handbook (2026-11)"]', "sources = []", "no source"),
        ("[[case]]", "[[cases]]", "unknown key 'cases'"),
        ('undo = "apt-get remove thing"', 'undo = "a"\nwhy = "b"', "unknown key 'why'"),
    ],
)
def test_a_broken_page_is_refused_by_name(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in PAGE
    (tmp_path / "thing.toml").write_text(PAGE.replace(old, new), "utf-8")
    with pytest.raises(RuleError, match=r"thing\.toml") as refused:
        checked_setups(tmp_path)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("fix", "problem"),
    [
        ('setup = "drivre"', "nothing sets up 'drivre'"),
        ('setup = "driver"\nsteps = []', "has steps, or says what is set up"),
        ('steps = [{ argv = ["true"], makes = { "driver.loaded" = true } }]', "no fact driver.loaded"),
    ],
)
def test_a_rule_page_refers_to_what_there_is(tmp_path: Path, fix: str, problem: str) -> None:
    page = rulebook.load().find("driver.missing")
    assert page
    text = (pages.home() / page.origin).read_text("utf-8")
    assert 'setup = "driver"' in text
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "driver.missing.toml").write_text(text.replace('setup = "driver"', fix), "utf-8")
    with pytest.raises(RuleError, match=r"driver\.missing\.toml") as refused:
        checked_pages(tmp_path)
    assert problem in str(refused.value)


def found(rule_id: str, facts: dict[str, object]) -> Finding:
    rule = rulebook.load().find(rule_id)
    assert rule
    snapshot = rules.snapshot_of(Case(rule_id, "test", facts))
    [finding] = [one for one in judge_rule(rule, snapshot) if isinstance(one, Finding)]
    return finding


def test_a_rule_s_fix_becomes_the_ways_of_this_machine() -> None:
    ubuntu = {"host.distribution": "ubuntu", "host.distribution_version": "24.04", "host.package_manager": "apt"}
    finding = found("driver.missing", {**MISSING, **ubuntu, "gpu": [{"name": "NVIDIA GeForce RTX 4090"}]})
    assert [fix.title for fix in finding.fixes] == ["Install the driver (Ubuntu)"]
    assert [step.argv[0] for step in finding.fixes[0].steps] == ["ubuntu-drivers", "ubuntu-drivers", "reboot"]
    assert dict(finding.fixes[0].steps[1].makes)["driver.installed"] is True


def test_what_is_known_to_apply_comes_before_what_might() -> None:
    titles = [fix.title for fix in found("driver.missing", {**MISSING, "host.package_manager": "apt"}).fixes]
    assert titles == ["Install the driver (Ubuntu)", "Install the driver (Debian)"]
    everywhere = [fix.title for fix in found("driver.missing", MISSING).fixes]
    assert {"Install the driver (Ubuntu)", "Install the driver (Arch Linux)"} <= set(everywhere)


def test_a_step_is_left_out_where_its_condition_is_not_known_to_hold() -> None:
    fedora = {"host__distribution": "fedora", "host__distribution_version": "43"}
    [plain] = ways("driver", machine(("NVIDIA GeForce RTX 4090",), **fedora))
    [signed] = ways("driver", machine(("NVIDIA GeForce RTX 4090",), **fedora, host__secure_boot=True))
    assert "mokutil" not in [step.argv[0] for step in plain.steps]
    assert "mokutil" in [step.argv[0] for step in signed.steps]
    assert signed.steps[-1].argv == ("reboot",)
    assert "Enroll MOK" in signed.steps[-1].text


@pytest.mark.parametrize(
    ("gpus", "cuda", "system", "release", "expected"),
    [
        (("NVIDIA GeForce RTX 5090",), "", "ubuntu", "24.04", ("open", "580", "580.65.06")),
        (("NVIDIA GeForce GTX 1080 Ti",), "", "fedora", "43", ("proprietary", "580", "580.65.06")),
        (("Tesla K80",), "", "debian", "12", ("proprietary", "none", None)),
        (("NVIDIA GeForce RTX 5090",), "", "debian", "13", ("open", "none", "595.45.04")),
        (("NVIDIA GeForce RTX 3090",), "13.0", "debian", "13", ("open", "none", "595.45.04")),
        (("NVIDIA GeForce RTX 3090",), "12.8", "debian", "13", ("open", "550", "550.54.14")),
        (("Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 4090"), "", "arch", "", ("proprietary", "580", "580.65.06")),
        (("Tesla V100-SXM2-16GB", "NVIDIA B200"), "", "ubuntu", "24.04", ("none", "580", "580.65.06")),
    ],
)
def test_the_branch_serves_every_gpu_and_torch(
    gpus: tuple[str, ...], cuda: str, system: str, release: str, expected: tuple[str, str, str | None]
) -> None:
    """By NVIDIA's matrix of architectures and branches, and what each distribution has packages of."""
    facts: dict[str, object] = {"host__distribution": system, "host__distribution_version": release}
    there = with_setup_facts(machine(gpus, **facts, **({"torch__cuda": cuda} if cuda else {})))
    told = [there.get(f"setup.{name}") for name in ("modules", "branch", "driver")]
    assert tuple(fact.value if isinstance(fact, Known) else None for fact in told) == expected


def test_the_driver_serves_the_oldest_gpu_too() -> None:
    there = with_setup_facts(machine(("NVIDIA GeForce GTX 970", "Tesla K80")))
    assert there.get("setup.ceiling") == Known("470", "table gpus")


@pytest.mark.parametrize("hostile", ["-Z", "--purge", "9; reboot", "$(reboot)", "a" * 5000, "\x1b[31m", "24.04\n--yes"])
@pytest.mark.parametrize("what", sorted(setups()))
def test_hostile_names_become_no_words_of_a_command(what: str, hostile: str) -> None:
    names = ("distribution_version", "kernel", "arch")
    facts = {f"host__{name}": hostile for name in names}
    for system in ("ubuntu", "debian", "fedora", "rocky", "amzn", "opensuse-leap", "sles", "arch"):
        snapshot = machine(("NVIDIA GeForce RTX 4090",), host__distribution=system, torch__cuda=hostile, **facts)
        for fix in ways(what, snapshot):
            for step in fix.steps:
                assert not any(hostile in word for word in step.argv), f"{fix.title}: {step.argv}"
