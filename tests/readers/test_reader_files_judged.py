"""Manifests of every kind on machines of every kind, and `gpudoctor read FILE --for MACHINE` as a person calls it."""

import json
from pathlib import Path

import pytest

from gpudoctor.core.stack import Stack
from gpudoctor.fixes.solver.described_machine import parse_machine
from gpudoctor.fixes.solver.stacks import stack
from tests.conftest import Program
from tests.readers.reading import (
    FILES,
    H100,
    OLD,
    RTX_4090,
    RTX_5090,
    V100,
    column,
    errors,
    examples,
    judged,
    of_file,
    source,
    value,
)

SOUND = [
    ("requirements-cu124.txt", RTX_4090, "2.6.0+cu124", 3),
    ("requirements-cu124.txt", V100, "", 0),
    ("requirements-plain.txt", H100, "2.15.0", 1),
    ("requirements-range.txt", RTX_4090, "2.5.1", 1),
    ("requirements-owner.txt", RTX_4090, "2.6.0", 1),
    ("requirements-markers.txt", RTX_4090, "2.7.1", 1),
    ("requirements-mirror.txt", RTX_4090, "", 0),
    ("pyproject-uv.toml", RTX_5090, "2.11.0+cu128", 6),
    ("pyproject-poetry.toml", RTX_4090, "2.5.1+cu121", 7),
    ("uv.lock", RTX_5090, "2.9.1+cu128", 16),
    ("uv.lock", V100, "", 0),
    ("environment-pytorch.yml", RTX_4090, "2.4.1", 8),
    ("environment-forge.yml", RTX_5090, "", 0),
    ("cuda-runtime.Dockerfile", RTX_4090, "2.6.0+cu124", 20),
    ("pytorch-image.Dockerfile", V100, "2.5.1+cu124", 1),
    ("replaced.Dockerfile", H100, "2.13.0", 2),
    ("compose-gpu.yaml", RTX_5090, "", 0),
    ("compose-small-shm.yaml", RTX_5090, "", 0),
    ("pod-gpu.yaml", RTX_5090, "", 0),
]
BROKEN = [
    ("requirements-cu124.txt", RTX_5090, "torch.arch-too-new"),
    ("requirements-plain.txt", RTX_4090, "torch.driver-too-old"),
    ("requirements-plain.txt", V100.replace("535.183.01", "580.95.05"), "torch.arch-dropped"),
    ("requirements-plain.txt", f"{RTX_5090},os=windows", "torch.cpu-build"),
    ("requirements-range.txt", "gpu=GH200,driver=570.124.06,python=3.12,arch=aarch64", "torch.cpu-build"),
    ("requirements-cu124.txt", "gpu=RTX 5090,driver=550.90.07,python=3.12", "driver.too-old-for-gpu"),
    ("requirements-cu124.txt", OLD, "torch.driver-too-old"),
    ("requirements-cpu.txt", RTX_4090, "torch.cpu-build"),
    ("requirements-clash.txt", RTX_4090, "torch.companion-mismatch"),
    ("requirements-local-part.txt", RTX_4090, "torch.python-unsupported"),
    ("requirements-wheel.txt", RTX_4090, "torch.python-unsupported"),
    ("requirements-range.txt", "gpu=RTX 4090,driver=550,python=3.14", "torch.python-unsupported"),
    ("requirements-wheels-of-nvidia.txt", RTX_4090, "torch.nvidia-wheels"),
    ("requirements-stale-extra-index.txt", RTX_5090, "torch.driver-too-old"),
    ("requirements-jax.txt", H100, "jax.gpu-libs"),
    ("pyproject-poetry.toml", RTX_5090, "torch.arch-too-new"),
    ("pyproject-uv.toml", "gpu=RTX 5090,driver=570.124.06,python=3.14", "torch.python-unsupported"),
    ("pyproject-uv.toml", V100, "torch.arch-dropped"),
    ("pixi.toml", RTX_5090, "torch.arch-too-new"),
    ("environment-cpuonly.yml", RTX_4090, "torch.cpu-build"),
    ("environment-pytorch.yml", RTX_5090, "torch.arch-too-new"),
    ("environment-pip.yml", RTX_4090, "torch.driver-too-old"),
    ("cuda-runtime.Dockerfile", RTX_5090, "torch.arch-too-new"),
    ("replaced.Dockerfile", RTX_4090, "torch.driver-too-old"),
    ("old-python.Dockerfile", RTX_4090, "torch.python-unsupported"),
    ("masked.Dockerfile", RTX_5090, "env.visible-devices"),
    ("compose-forgotten.yaml", RTX_5090, "container.gpus-not-asked"),
    ("compose-runtime.yaml", H100, "container.capabilities"),
    ("pod-forgotten.yaml", H100, "container.gpus-not-asked"),
    ("pod-mig.yaml", H100, "env.visible-devices"),
]
UNTOLD = [
    ("environment-pip.yml", H100),
    ("requirements-own-index.txt", RTX_5090),
    ("pyproject-extras.toml", RTX_5090),
    ("environment-open.yml", RTX_5090),
]


@pytest.mark.parametrize(("name", "machine", "torch", "line"), SOUND)
def test_what_fits_gives_no_error_and_is_called_sound(name: str, machine: str, torch: str, line: int) -> None:
    """With the torch that would be there and the line that it comes from, unless that is another's matter."""
    diagnosis = of_file(name, machine)
    if torch:
        assert value(diagnosis, "torch.version") == torch
        assert source(diagnosis, "torch.version").startswith(f"{name}, line {line}")
    assert errors(diagnosis) == []
    assert diagnosis.verdict in ("sound", "impaired")
    assert "workload.would-run" in {finding.id for finding in diagnosis.findings}


@pytest.mark.parametrize(("name", "machine", "cause"), BROKEN)
def test_what_does_not_fit_is_named_first_with_file_and_line(name: str, machine: str, cause: str) -> None:
    diagnosis = of_file(name, machine)
    assert errors(diagnosis)[:1] == [cause]
    assert diagnosis.verdict == "broken"
    told = [getattr(item.state, "source", "") for item in diagnosis.findings[0].evidence]
    facts = [getattr(fact, "source", "") for fact in diagnosis.snapshot.facts.values()]
    assert any(name in one for one in [*told, *facts])


@pytest.mark.parametrize(("name", "machine"), UNTOLD)
def test_what_nobody_can_tell_is_said_and_not_guessed(name: str, machine: str) -> None:
    diagnosis = of_file(name, machine)
    assert errors(diagnosis) == []
    assert diagnosis.verdict == "unknown"
    assert any(note.text.startswith("Not told: ") for note in diagnosis.notes)


def test_every_example_is_judged_here() -> None:
    judged = {name for name, *_ in (*SOUND, *BROKEN, *UNTOLD)}
    assert judged == set(examples())


def test_without_a_machine_only_what_the_file_says_is_judged() -> None:
    clash = of_file("requirements-clash.txt")
    assert errors(clash) == ["torch.companion-mismatch"]
    plain = of_file("requirements-cu124.txt")
    assert (errors(plain), plain.verdict) == ([], "unknown")
    assert any(note.text.startswith("To judge it for a machine: ") for note in plain.notes)
    whole = of_file("requirements-cu124.txt", f"{RTX_4090},os=linux,arch=x86_64")
    assert not any("--for" in note.text for note in whole.notes)


def test_what_the_machine_was_taken_to_be_is_said_with_the_words_that_say_otherwise() -> None:
    notes = [note.text for note in of_file("requirements-cu124.txt", "gpu=RTX 4090x2,driver=550.90.07").notes]
    whole = "'gpu=RTX 4090x2,driver=550.90.07,python=3.12,os=linux,arch=x86_64'"
    granted = "Taken for granted, for --for names no other: os=linux, arch=x86_64, any python."
    assert f"{granted} Name what differs: --for {whole}" in notes
    assert not any(note.startswith("Left out: numpy") for note in notes)


@pytest.mark.parametrize(
    ("name", "machine", "torch", "line"),
    [
        ("requirements-plain.txt", "gpu=H100,driver=580,python=3.10", "2.14.1", "requirements-plain.txt, line 1"),
        ("requirements-stale-extra-index.txt", RTX_5090, "2.15.0", "requirements-stale-extra-index.txt, line 2"),
        ("requirements-markers.txt", f"{RTX_4090},arch=aarch64", "2.11.0", "requirements-markers.txt, line 2"),
        ("requirements-markers.txt", f"{RTX_4090},os=windows", "2.8.0", "requirements-markers.txt, line 4"),
        ("pyproject-uv.toml", f"{RTX_5090},os=windows", "2.15.0", "pyproject-uv.toml, line 6"),
        ("environment-pip.yml", H100, "2.15.0+cu130", "environment-pip.yml, line 7"),
    ],
)
def test_the_torch_that_would_be_there_and_the_line_it_comes_from(
    name: str, machine: str, torch: str, line: str
) -> None:
    diagnosis = of_file(name, machine)
    assert value(diagnosis, "torch.version") == torch
    assert source(diagnosis, "torch.version").startswith(line)


def _said(text: str, machine: str = H100) -> str:
    """What a requirements file's report says after its findings."""
    return " ".join(note.text for note in judged(text, "requirements.txt", machine).notes)


def test_what_no_table_has_is_not_taken_to_fit() -> None:
    index = "--extra-index-url https://download.pytorch.org/whl/cu128\n"
    said = _said(f"{index}torch==2.7.1+cu128\nvllm==0.10.1\n")
    assert "whether vllm 0.10.1 goes with that torch" in said
    assert "0.9.2 is for torch 2.7.0, 0.10.2 for torch 2.8.0" in said
    assert "pip install --dry-run torch==2.7.1+cu128 vllm==0.10.1" in said
    assert "whether vllm" not in _said(f"{index}torch==2.9.0+cu128\nvllm==0.11.2\n")
    assert "0.33.0 is for torch 2.14.0" in _said("torch==2.14.0\nvllm==99.0\n")
    clash = judged("torch==2.6.0\nvllm==0.10.1\n", "requirements.txt", RTX_4090)
    assert errors(clash) == ["torch.companion-mismatch"]
    assert "0.9.2 for torch 2.7.0 and 0.10.2 for torch 2.8.0" in clash.findings[0].title
    assert not any(note.text.startswith("Not told") for note in clash.notes)


@pytest.mark.parametrize(
    ("lines", "torch", "vllm"),
    [
        ("vllm==0.8.4\n", "2.6.0", "0.8.4"),
        ("vllm==0.14.0\n", "2.9.1", "0.14.0"),
        ("vllm\n", "2.14.0", "0.33.0"),
        ("vllm<0.12\n", "2.9.0", "0.11.2"),
        ("torch<2.9\nvllm\n", "2.8.0", "0.11.0"),
        ("torch==2.6.0\nvllm\n", "2.6.0", "0.8.5.post1"),
    ],
)
def test_vllm_decides_the_torch_that_comes_with_it(lines: str, torch: str, vllm: str) -> None:
    diagnosis = judged(lines, "requirements.txt", H100)
    assert column(diagnosis.snapshot, "package", "version") == [torch, vllm]
    assert value(diagnosis, "torch.version") == torch
    assert errors(diagnosis) == []


def test_no_line_vanishes_without_a_word() -> None:
    said = _said(
        "torch==2.6.0\nflash-attn\ndeepspeed==0.17.0\nbitsandbytes\nrich\ntriton-windows ; sys_platform == 'win32'\n",
        f"{RTX_4090},os=linux,arch=x86_64",
    )
    assert "source only: flash-attn (requirements.txt, line 2). That needs nvcc" in said
    assert "pip install --no-build-isolation flash-attn." in said
    assert "first used, by nvcc: deepspeed (requirements.txt, line 3)" in said
    assert "Not pinned, and not judged: bitsandbytes." in said
    assert "no rule is about them: rich." in said
    assert "Left out: triton-windows (sys_platform == 'win32')." in said
    wheel = "flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl"
    assert "source only" not in _said(f"torch==2.6.0\nflash-attn @ https://github.com/x/{wheel}\n", RTX_4090)


@pytest.mark.parametrize(
    "name", ["reqs.txt", "req2.txt", "gpu-reqs.in", "requirements/prod.txt", "a/Requirements/x.txt"]
)
def test_requirements_go_by_other_names_too(name: str) -> None:
    assert value(judged("torch==2.9.0\n", name, H100), "manifest.kind") == "requirements"


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


def test_misuse_is_said_in_a_line(called: Program, tmp_path: Path) -> None:
    run = called("read", str(FILES / "requirements-cu124.txt"), "--for", "gpux=RTX 5090")
    assert (run.code, run.out) == (2, "")
    assert "did you mean gpu?" in run.err
    assert run.err.count("\n") == 1
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
