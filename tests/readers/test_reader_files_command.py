"""``gpudoctor read FILE --for MACHINE`` as a person or a pipeline calls it, and on what ``setup torch`` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoctor.core.stack import Stack
from gpudoctor.fixes.solver.described import parse_machine
from gpudoctor.fixes.solver.stacks import stack
from tests.conftest import Program
from tests.readers.manifests import FILES, RTX_4090, RTX_5090, errors, judged, value


def test_exit_codes_are_those_of_any_diagnosis(called: Program) -> None:
    name = str(FILES / "requirements-cu124.txt")
    assert called("read", name, "--for", RTX_4090).code == 0
    assert called("read", name, "--for", RTX_5090).code == 1
    assert called("read", name).code == 3


def test_the_documents_read_back(called: Program, tmp_path: Path) -> None:
    names = sorted(str(path) for path in FILES.iterdir())
    run = called("read", "--json", *names, "--for", RTX_5090)
    documents = [json.loads(line) for line in run.out.splitlines()]
    assert len(documents) == len(names)
    saved = [tmp_path / f"{number}.json" for number in range(len(names))]
    for path, document in zip(saved, documents, strict=True):
        path.write_text(json.dumps(document))
    again = called("read", "--json", *map(str, saved))
    assert again.code == run.code
    for first, line in zip(documents, again.out.splitlines(), strict=True):
        second = json.loads(line)
        assert all(first[key] == second[key] for key in ("verdict", "findings", "facts"))


def test_the_report_says_what_would_be_there_and_what_to_change(called: Program) -> None:
    said = called("read", str(FILES / "requirements-cu124.txt"), "--for", RTX_5090).out
    lines = said.splitlines()
    assert lines[0].startswith("gpudoctor ")
    assert "requirements-cu124.txt on the machine that you described" in lines[0]
    assert "What it would bring:" in lines
    assert any(line.strip().startswith("torch 2.6.0+cu124  (requirements-cu124.txt, line 3") for line in lines)
    assert "In place of requirements-cu124.txt, line 3: torch==" in " ".join(said.split())
    assert "--emit requirements" in said
    assert "Not read: requirements-dev.txt" in said
    assert "pip uninstall" not in said
    for form, word in (("markdown", "What it would bring:"), ("html", "<h2>What it would bring</h2>")):
        shown = called("read", str(FILES / "requirements-cu124.txt"), "--for", RTX_5090, "--format", form)
        assert word in shown.out


def test_the_machine_that_is_here_may_be_meant(called: Program) -> None:
    run = called("read", "--json", str(FILES / "requirements-cu124.txt"), "--for", "here")
    facts = run.document["facts"]
    assert facts["torch.version"]["value"].startswith("2.6.0")
    assert "host.arch" in facts
    assert "live.outcome" not in facts


def test_a_machine_that_is_none_is_misuse(called: Program) -> None:
    run = called("read", str(FILES / "requirements-cu124.txt"), "--for", "gpux=RTX 5090")
    assert (run.code, run.out) == (2, "")
    assert "did you mean gpu?" in run.err
    assert run.err.count("\n") == 1


def test_a_report_is_of_a_machine_already(called: Program, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("RuntimeError: CUDA error: no kernel image is available for execution on the device\n")
    run = called("read", str(log), "--for", RTX_5090)
    assert (run.code, run.out) == (2, "")
    assert "--for does not go with it" in run.err


def test_several_files_are_read_together(called: Program, tmp_path: Path) -> None:
    docker, lines = tmp_path / "Dockerfile", tmp_path / "requirements.txt"
    docker.write_text("FROM python:3.12-slim\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n")
    lines.write_text("--index-url https://download.pytorch.org/whl/cu128\ntorch==2.9.1\n")
    run = called("read", "--json", "--together", str(docker), str(lines), "--for", RTX_5090)
    assert run.code == 0
    assert run.document["facts"]["torch.version"]["value"] == "2.9.1+cu128"
    assert run.document["facts"]["host.container"]["value"] == "docker"


MACHINES = [
    "gpu=RTX 5090,driver=570.124.06,python=3.12,os=linux,arch=x86_64",
    "gpu=RTX 5090,driver=580.95.05,python=3.13,os=linux,arch=x86_64",
    "gpu=RTX 4090,driver=550.90.07,python=3.12,os=linux,arch=x86_64",
    "gpu=RTX 4090,driver=535.183.01,python=3.10,os=linux,arch=x86_64",
    "gpu=RTX 3090,driver=470.256.02,python=3.10,os=linux,arch=x86_64",
    "gpu=V100,driver=535.183.01,python=3.11,os=linux,arch=x86_64",
    "gpu=GTX 1080 Ti,driver=580.95.05,python=3.12,os=linux,arch=x86_64",
    "gpu=H100,driver=535.183.01,python=3.11,os=linux,arch=x86_64",
    "gpu=T4,driver=525.147.05,python=3.10,os=linux,arch=x86_64",
    "gpu=B200,driver=580.95.05,python=3.12,os=linux,arch=x86_64",
    "gpu=GH200 480GB,driver=580.95.05,python=3.12,os=linux,arch=aarch64",
    "gpu=RTX 4070,driver=581.15,python=3.12,os=windows,arch=x86_64",
]
NAMES = {
    "requirements": "requirements.txt",
    "pyproject": "pyproject.toml",
    "environment": "environment.yml",
    "dockerfile": "Dockerfile",
}


def made(machine: str) -> Stack:
    found = stack(parse_machine(machine).with_wish("extras", ("torchvision",)))
    assert found.torch
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_every_form_that_is_written_is_read_as_the_stack_that_fits(machine: str) -> None:
    found = made(machine)
    for form, name in NAMES.items():
        if (form == "dockerfile" and "windows" in machine) or not found.files.get(form):
            continue
        diagnosis = judged(found.files[form], name, machine)
        assert errors(diagnosis) == [], (form, found.files[form])
        if form != "environment":  # conda-forge's newest is not in the tables
            assert value(diagnosis, "torch.version") == found.torch, form
            assert dict(found.packages)["torchvision"] in found.files[form]


@pytest.mark.parametrize("machine", MACHINES[:8])
def test_the_cure_of_a_manifest_names_that_stack(machine: str) -> None:
    diagnosis = judged("torch==1.13.1\ntorchvision==0.14.1\n", "requirements.txt", machine.replace("3.12", "3.11"))
    found = made(machine.replace("3.12", "3.11"))
    cures = [fix for finding in diagnosis.findings for fix in finding.fixes if fix.title.startswith("Change the lines")]
    for fix in cures:
        assert found.torch.partition("+")[0] in fix.title
        assert f"torch=={found.torch}" in fix.steps[0].text
        assert fix.steps[-1].argv[:4] == ("gpudoctor", "setup", "torch", "--for")
        assert all(step.touches == "nothing" for step in fix.steps)
    assert bool(cures) == any(one.startswith("torch.") for one in errors(diagnosis))
