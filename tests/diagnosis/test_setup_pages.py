"""Shared cures: pages of rules/setup, what is refused on them; and no cure of any page weakens a machine."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest

from gpudoctor.app.commands import rules
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.errors import RuleError
from gpudoctor.core.fact import Fact, Known
from gpudoctor.core.rule import Case, Fix, SetupCase, Step
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import page_cache, rulebook
from gpudoctor.diagnosis.judge import judge_rule, new_evaluator
from gpudoctor.diagnosis.judge.cures import setup_options
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.knowledge.setup_facts import with_setup_facts
from gpudoctor.diagnosis.rulebook.compiled import setup_cases, setups
from gpudoctor.diagnosis.rulebook.compiling import checked_pages, checked_setups
from gpudoctor.fixes.solver.cure import MODES, torch_cures

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
    text = (page_cache.home() / page.origin).read_text("utf-8")
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


def test_a_rule_s_fix_becomes_the_ways_of_this_machine_the_certain_before_the_possible() -> None:
    ubuntu = {"host.distribution": "ubuntu", "host.distribution_version": "24.04", "host.package_manager": "apt"}
    finding = found("driver.missing", {**MISSING, **ubuntu, "gpu": [{"name": "NVIDIA GeForce RTX 4090"}]})
    assert [fix.title for fix in finding.fixes] == ["Install the driver (Ubuntu)"]
    assert [step.argv[0] for step in finding.fixes[0].steps] == ["ubuntu-drivers", "ubuntu-drivers", "reboot"]
    assert dict(finding.fixes[0].steps[1].makes)["driver.installed"] is True
    titles = [fix.title for fix in found("driver.missing", {**MISSING, "host.package_manager": "apt"}).fixes]
    assert titles == ["Install the driver (Ubuntu)", "Install the driver (Debian)"]
    anywhere = [fix.title for fix in found("driver.missing", MISSING).fixes]
    assert anywhere == ["Install the driver (by the distribution's own packages)"]


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
        (("NVIDIA GeForce RTX 5090",), "", "debian", "13", ("open", "none", "580.65.06")),
        (("NVIDIA GeForce RTX 3090",), "13.0", "debian", "13", ("open", "none", "580.65.06")),
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


NEVER: Mapping[str, str] = {
    "pip over the distribution's packages": r"--break-system-packages",
    "everybody may write": r"chmod\s+(?:-\w+\s+)*(?:0?[0-7]?[0-7][0-7][2367]\b|(?:a|o|ugo)?\+\w*w)",
    "pip as root": r"sudo\s+(?:-\w+\s+)*(?:\S*/)?(?:python\S*\s+-m\s+)?pip\d?\b",
    "the network into a shell": r"(?:curl|wget)\b[^|;&]*\|\s*(?:sudo\s+)?(?:ba|da|z)?sh\b",
    "the network into a shell, the other way": r"\b(?:ba|z)?sh\s+<\(\s*(?:curl|wget)",
    "Secure Boot switched off": r"--disable-validation|disabl\w+ secure ?boot|secure ?boot\s+(?:off|disabled)\b(?! \()",
    "SELinux switched off": r"setenforce\s+0|SELINUX=(?:disabled|permissive)",
    "AppArmor switched off": r"aa-teardown|apparmor=0|(?:stop|disable)\s+apparmor",
    "the firewall switched off": r"iptables\s+(?:-\w\s+\w+\s+)*-F|nft\s+flush|ufw\s+disable"
    r"|(?:stop|disable)(?:\s+--now)?\s+firewalld",
    "a container that is the host": r"--privileged",
    "a folder of the system removed": r"\brm\s+-\w*[rR]\w*\s+(?:-\w+\s+)*[\"']?/"
    r"(?:\s|\*|etc|usr|lib|var|boot|opt|home|root|dev)?(?:[\"'\s]|/\*|/?$)",
    "packages without their signatures": r"--trusted-host|--allow-unauthenticated|--force-yes|--nogpgcheck"
    r"|--no-gpg-checks?|\[trusted=yes\]|gpgcheck=0",
    "certificates not looked at": r"--no-check-certificate|curl\s+(?:-\w*k|--insecure)\b|PIP_CERT=''",
    "a plain connection": r"(?:curl|wget|pip|index-url|add-?repo)\b[^\n]{0,80}\bhttp://(?!localhost|127\.)",
    "the mitigations of the processor switched off": r"mitigations=off",
}
"""What is never asked for, by what it is, as it would stand in a command or in words."""
WARNED = re.compile(r"\b(?:never|not|no|without|instead of|in place of|do not)\b[^.;]{0,60}$", re.IGNORECASE)
"""Words before it that warn of it."""
FIRST = re.compile(r"(?:^|[\s/])[\w.-]*NVIDIA-Linux\S*\.run\b|\.run installer", re.IGNORECASE)
"""NVIDIA's installer, which fights the packages: never a command, and never the first of several cures."""


def weakens(text: str) -> str:
    """What in a command or a sentence is never to be asked for, unless it is warned of; empty where nothing is."""
    for what, pattern in NEVER.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            if not WARNED.search(text[: match.start()]):
                return f"{what}: {match[0]!r}"
    return ""


def said(fix: Fix) -> Iterator[str]:
    """Everything that the fix asks for."""
    yield fix.title
    yield fix.undo
    for step in fix.steps:
        yield " ".join(step.argv)
        yield step.text


def restarts_unmarked(step: Step) -> bool:
    """Whether its command starts the machine anew without a mark that says so, or does other things beside it."""
    words = " ".join(step.argv)
    command = re.search(
        r"(?:^|[\s;&|'\"])(?:reboot|shutdown\s+-[rh]|poweroff|systemctl\s+(?:reboot|poweroff))\b", words
    )
    return bool(command) and ("reboot" not in step.needs or bool(re.search(r"[;&|]", words)))


def all_fixes() -> list[tuple[str, Sequence[Fix]]]:
    book = rulebook.load()
    rules = [(rule.id, rule.fixes) for rule in (*book.rules, *book.cluster)]
    return [*rules, *((f"setup {page.id}", page.fixes) for page in setups().values())]


def machines() -> Iterator[Snapshot]:
    """Environments of every tool, owner and driver that torch is put into."""
    for tool, managed, driver, python in product(
        ("pip", "uv", "conda"), (True, False), ("525.60.13", "580.95.05"), ("3.9.2", "3.12.3")
    ):
        yield machine(
            ("NVIDIA GeForce RTX 4090",),
            python__installer=tool,
            python__environment="conda" if tool == "conda" else "system" if managed else "venv",
            python__externally_managed=managed,
            python__path="/usr/bin/python3",
            python__prefix="/usr",
            python__version=python,
            driver__version=driver,
            torch__version="2.9.0+cpu",
            host__platform="linux",
            host__arch="x86_64",
        )


@pytest.mark.parametrize(("name", "fixes"), all_fixes(), ids=[name for name, _ in all_fixes()])
def test_no_page_weakens(name: str, fixes: Sequence[Fix]) -> None:
    for fix in fixes:
        for text in said(fix):
            assert not weakens(text), f"{name}: {fix.title}: {weakens(text)}"
        for step in fix.steps:
            assert not restarts_unmarked(step), (
                f"{name}: {fix.title}: {step.argv} wants the mark reboot, and to be alone"
            )
            assert not FIRST.search(" ".join(step.argv)), f"{name}: {fix.title}: {step.argv}"
    for step in fixes[0].steps if fixes else ():
        warned = WARNED.search(step.text[: match.start()]) if (match := FIRST.search(step.text)) else True
        assert warned, f"{name}: the first cure is NVIDIA's installer: {step.text}"


@pytest.mark.parametrize("mode", MODES)
def test_no_torch_cure_weakens(mode: str) -> None:
    found = [fix for machine in machines() for fix in torch_cures(machine, mode)]
    assert found
    for fix in found:
        assert not any(map(weakens, said(fix))), [weakens(text) for text in said(fix)]
        for step in fix.steps:
            assert "root" not in step.needs, f"{step.argv}: an environment is its user's"
