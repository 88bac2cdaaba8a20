"""What ``gpudoctor setup torch`` writes for a machine is, read for that machine, what it was meant to be."""

from __future__ import annotations

import pytest

from gpudoctor.core.stack import Stack
from gpudoctor.fixes.solver.described import parse_machine
from gpudoctor.fixes.solver.stacks import stack
from tests.readers.manifests import errors, judged, value

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
    found = stack(parse_machine(machine).saying("extras", ("torchvision",)))
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
