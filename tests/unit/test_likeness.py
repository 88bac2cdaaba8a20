"""A text with no known message in it gets pointers to the nearest pages: guesses, said to be guesses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoctor import rulebook
from gpudoctor.doctor import diagnose
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text
from gpudoctor.rulebook.furniture import is_furniture
from gpudoctor.views._report import verdict
from tests.conftest import Program

UNHEARD = "our module signing key was never enrolled in the firmware's MOK list and enforcement is switched on"

REFUSED = """\
Access to model example/medium-diffusers is restricted. You must be authenticated to access it.
20:14:43-810193 INFO     Select: model="medium_incl_clips.safetensors"
Browser session: user=None client=127.0.0.1
Startup time: 503.30 ldm=497.04 extensions=0.09
"""
NOT_FOUND = """\
download: error: Failed to download example/model-8B with error: 'An error happened while trying to locate the file on
the Hub and we cannot find the requested files in the local cache. Please check your connection and try again.'
"""


def _read(text: str) -> Diagnosis:
    return diagnose(read_text(text), rulebook.load())


def test_the_nearest_page_is_named_as_possible_with_the_lines_that_point_to_it() -> None:
    diagnosis = _read(f"hello\n{UNHEARD}\nthanks\n")
    first = diagnosis.findings[0]
    assert first.id == "driver.secure-boot"
    assert (first.confidence, first.severity) == ("possible", "warning")
    assert first.evidence[0].state == Known(UNHEARD, "line 2")
    assert diagnosis.verdict == "unknown"
    assert first.id in diagnosis.notes[-1].rules
    assert first.id not in {item.id for item in diagnosis.unjudged}


@pytest.mark.parametrize("text", [REFUSED, NOT_FOUND])
def test_a_text_that_speaks_of_no_gpu_software_is_near_to_no_page(text: str) -> None:
    assert _read(text).findings == ()


def test_a_page_that_a_fact_excludes_is_not_named() -> None:
    assert "driver.secure-boot" in {finding.id for finding in _read(UNHEARD).findings}
    excluded = _read(f"{UNHEARD}\ntorch.cuda.is_available(): True\n")
    assert "driver.secure-boot" not in {finding.id for finding in excluded.findings}


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
        "Take two eggs, a little flour and a pan; heat it and serve with salt.",
        "SecureBoot",
    ],
)
def test_a_few_shared_words_are_chance(text: str) -> None:
    assert _read(text).findings == ()


def test_in_a_long_text_a_lead_that_a_short_one_needs_is_chance() -> None:
    log = """\
Total VRAM 16379 MB, total RAM 32668 MB
Set vram state to: NORMAL_VRAM
VAE dtype: torch.bfloat16
Using pytorch cross attention
### Loading: a pack of nodes (V5.3)
### Loading: another pack (Subpack: V0.5)
wildcards loading done, models listed, server waits for clients at its usual port
Traceback (most recent call last):
  File "nodes.py", line 1864, in load_custom_node
    module_spec.loader.exec_module(module)
  File "importlib/_bootstrap_external.py", line 940, in exec_module
  File "importlib/_bootstrap.py", line 241, in _call_with_frames_removed
ModuleNotFoundError: No module named 'some_nodes'
Cannot import some nodes for custom use: No module named 'some_nodes'
"""
    assert not any(finding.nearness for finding in _read(log).findings)


def test_what_nccl_logs_on_every_start_accuses_nothing() -> None:
    started = """\
node:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.1<0>
node:1:1 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
node:1:1 [0] NCCL INFO NET/IB : No device found.
node:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.0.1<0>
node:1:1 [0] NCCL INFO Using network Socket
node:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0
"""
    assert _read(started).findings == ()


def test_where_a_cause_was_recognised_nothing_is_guessed() -> None:
    diagnosis = _read(f"{UNHEARD}\nNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
    assert [finding.id for finding in diagnosis.findings] == ["gpu.fell-off-bus"]
    assert not any(finding.nearness for finding in diagnosis.findings)


def test_a_symptom_that_asks_for_its_cause_is_folded_under_what_could_explain_it() -> None:
    first = _read(f"torch.cuda.is_available(): False\n{UNHEARD}\n").findings[0]
    assert first.nearness
    assert "torch.cuda-unavailable" in first.explains
    assert first.confidence == "possible"


def test_no_cure_is_printed_for_a_pointer(gpudoctor: Program) -> None:
    text = gpudoctor("read", "-", stdin=UNHEARD).out
    assert "Possibly: " in text
    assert "To be sure: " in text
    assert "What to do" not in text


def test_a_sites_own_page_is_near_too(gpudoctor: Program, tmp_path: Path) -> None:
    gpudoctor("rules", "new", "site.no-badge", str(tmp_path), "--layer", "host")
    [page] = tmp_path.rglob("*.toml")
    page.write_text(SITE_PAGE)
    told = "my badge was not charged at the turnstile of the wing"
    document = json.loads(gpudoctor("read", "--json", "--rules", str(tmp_path), "-", stdin=told).out)
    assert [finding["id"] for finding in document["findings"]] == ["site.no-badge"]


SITE_PAGE = """
id = "site.no-badge"
title = "The badge is not charged for the turnstile"
severity = "warning"
layer = "host"
when = ["env.BADGE == 'empty'"]
finding = "The badge is not charged"
why = "The turnstile of the wing opens for a charged badge only."
misses = "A lost badge."
sources = ["the porter"]
fix = [{ title = "Charge it", steps = [{ text = "At the desk." }] }]
case = [
  { name = "empty", facts = { "env.BADGE" = "empty" }, finds = "The badge is not charged" },
  { name = "full", facts = { "env.BADGE" = "full" }, passes = true },
  { name = "nobody looked", facts = { "env.BADGE" = { unread = "no" } }, unjudged = "env.BADGE" },
]
"""


FORM = """\
PyTorch version: 2.8.0+cu128
CUDA used to build PyTorch: 12.8
Is CUDA available: False
GPU models and configuration:
GPU 0: NVIDIA A100-SXM4-80GB
GPU 1: NVIDIA A100-SXM4-80GB
Nvidia driver version: 560.35.03

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.27.3
[pip3] torch==2.8.0
[pip3] triton==3.4.0
[conda] Could not collect
"""


def test_a_form_that_only_names_things_points_nowhere() -> None:
    diagnosis = _read(FORM)
    assert [finding.id for finding in diagnosis.findings] == ["torch.cuda-unavailable"]
    assert verdict(diagnosis) == "Broken: what is seen stands below, why it is so is not known yet"


def test_what_the_user_says_beside_a_form_still_points() -> None:
    diagnosis = _read(FORM + "\nI exported CUDA_VISIBLE_DEVICES with the UUID of the card in my bashrc\n")
    first = diagnosis.findings[0]
    assert (first.id, first.confidence) == ("env.visible-devices", "possible")
    assert verdict(diagnosis) == "Broken, and no cause is proven: the first finding is where to look first"


def test_no_page_is_guessed_for_a_text_of_another_vendors_gpus_alone() -> None:
    told = "the GPU clock stays stuck at 41 MHz in place of 2400 MHz while inference runs, power draw 50 W of 150 W"
    assert _read(told).findings
    assert _read(f"$ rocm-smi\n{told}\n").findings == ()
    assert _read(f"$ rocm-smi\n{told}\non the NVIDIA card as well\n").findings


def test_a_part_of_nvidia_smis_own_report_is_no_complaint() -> None:
    report = """\
when a pod starts, the device plugin starts anew
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows                         : N/A
    Temperature
        GPU Current Temp                  : 31 C
        GPU Slowdown T.Limit Temp         : -2 C
        GPU Max Operating T.Limit Temp    : 0 C
        Memory Max Operating T.Limit Temp : 0 C
    GPU Power Readings
        Average Power Draw                : 79.80 W
        Current Power Limit               : 500.00 W
        Default Power Limit               : 500.00 W
"""
    assert _read(report).findings == ()


@pytest.mark.parametrize(
    ("line", "furniture"),
    [
        ("nvidia-cublas-cu12==12.8.4.1", True),
        ("    Product Name                          : NVIDIA H100", True),
        ("llm_load_tensors: offloaded 0/33 layers to GPU", True),
        ("llama_new_context_with_model: failed to allocate compute buffers", False),
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)", True),
        ("node:1:2 [0] NCCL INFO P2P Chunksize set to 131072", True),
        ("node:1:2 [0] NCCL INFO Could not find real path of /sys/class/net/eth0/device", False),
        ("Error message:  CUDA driver is a stub library", False),
        ("RuntimeError: CUDA error: no kernel image is available", False),
        ("GPU 0: fan stopped", False),
    ],
)
def test_lines_of_forms_and_lists_are_told_from_sentences(line: str, furniture: bool) -> None:
    assert is_furniture(line) is furniture
