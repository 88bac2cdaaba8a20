"""No cure makes a machine weaker: what no page, no shared cure and no torch cure may ever ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest

from gpudoctor.core.fact import Fact, Known
from gpudoctor.core.rule import Fix, Step
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.rulebook.compiled import setups
from gpudoctor.fixes.solver.cure import MODES, torch_cures

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


def pages() -> list[tuple[str, Sequence[Fix]]]:
    book = rulebook.load()
    rules = [(rule.id, rule.fixes) for rule in (*book.rules, *book.cluster)]
    return [*rules, *((f"setup {page.id}", page.fixes) for page in setups().values())]


def _machine(**facts: object) -> Snapshot:
    known: dict[str, Fact] = {name.replace("__", "."): Known(value, "test") for name, value in facts.items()}  # type: ignore[arg-type]
    row = {"name": Known("NVIDIA GeForce RTX 4090", "test")}
    return complete(Snapshot(Target("local", "test"), known, {"gpu": (row,)}))


def machines() -> Iterator[Snapshot]:
    """Environments of every tool, owner and driver that torch is put into."""
    for tool, managed, driver, python in product(
        ("pip", "uv", "conda"), (True, False), ("525.60.13", "580.95.05"), ("3.9.2", "3.12.3")
    ):
        yield _machine(
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


def test_no_page_weakens() -> None:
    for name, fixes in pages():
        no_fix_weakens(name, fixes)


def no_fix_weakens(name: str, fixes: Sequence[Fix]) -> None:
    for fix in fixes:
        for text in said(fix):
            assert not weakens(text), f"{name}: {fix.title}: {weakens(text)}"
        for step in fix.steps:
            assert not restarts_unmarked(step), (
                f"{name}: {fix.title}: {step.argv} wants the mark reboot, and to be alone"
            )
            assert not FIRST.search(" ".join(step.argv)), f"{name}: {fix.title}: {step.argv}"
    for step in fixes[0].steps if fixes else ():
        warned = WARNED.search(step.text[: found.start()]) if (found := FIRST.search(step.text)) else True
        assert warned, f"{name}: the first cure is NVIDIA's installer: {step.text}"


@pytest.mark.parametrize("mode", MODES)
def test_no_torch_cure_weakens(mode: str) -> None:
    found = [fix for machine in machines() for fix in torch_cures(machine, mode)]
    assert found
    for fix in found:
        assert not any(map(weakens, said(fix))), [weakens(text) for text in said(fix)]
        for step in fix.steps:
            assert "root" not in step.needs, f"{step.argv}: an environment is its user's"


PLANTED = (
    "python -m pip install --break-system-packages torch",
    "chmod -R a+w /usr/lib/python3",
    "chmod 0666 /dev/nvidiactl",
    "sudo python3 -m pip install torch",
    "curl -fsSL https://get.example.org | sh",
    "sh -c wget -qO- https://get.example.org | sudo bash",
    "mokutil --disable-validation",
    "Disable Secure Boot in the firmware.",
    "setenforce 0",
    "iptables -F",
    "ufw disable",
    "systemctl disable --now firewalld",
    "docker run --privileged IMAGE",
    "rm -rf /usr/*",
    "pip install --trusted-host pypi.org torch",
    "apt-get install --allow-unauthenticated nvidia-driver",
    "curl -k -o driver.deb https://example.org/driver.deb",
    "pip install torch --index-url http://example.org/wheels",
)


@pytest.mark.parametrize("text", PLANTED)
def test_what_is_planted_is_found(text: str) -> None:
    assert weakens(text)


def test_a_restart_says_so_and_is_alone() -> None:
    assert restarts_unmarked(Step(("reboot",), needs=("root",)))
    assert restarts_unmarked(Step(("sh", "-c", "apt-get install -y x && reboot"), needs=("root", "reboot")))
    assert not restarts_unmarked(Step(("reboot",), needs=("root", "reboot")))
