"""Which finding stands first where several are true, and whom it is about: its subjects."""

import json
from collections.abc import Mapping

import jsonschema
import pytest

from gpudoctor.app import pipeline
from gpudoctor.app.commands.rules import snapshot_of
from gpudoctor.app.pipeline import diagnose
from gpudoctor.app.reading import read
from gpudoctor.core.diagnosis import Diagnosis, Finding, from_json
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread, listed
from gpudoctor.core.rule import Case, Rule
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.expression import parse
from gpudoctor.diagnosis.judge import judge_rule
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.rulebook import load
from gpudoctor.diagnosis.rulebook.expressions import loop_groups
from gpudoctor.readers import read_text
from gpudoctor.views import prometheus, schema
from tests.diagnosis.expect.machines import known

BOOK = rulebook.load()
LAYERS = {"env", "torch", "cuda", "cudnn"}
ABSENT = {"absent": "not there"}

SOUND: Mapping[str, object] = {
    "host.platform": "linux",
    "host.arch": "x86_64",
    "host.wsl": ABSENT,
    "pci.nvidia_count": 1,
    "pci.gpu_vendors": ["nvidia"],
    "gpu": [{"name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-1", "compute_capability": "8.0"}],
    "gpu.count": 1,
    "nvml.state": "ok",
    "driver.version": "535.183.01",
    "driver.cuda_version": "12.2",
    "python.version": "3.12.3",
    "python.implementation": "cpython",
    "python.overwritten": [],
    "torch.version": "2.6.0+cu124",
    "torch.flavor": "cuda",
    "torch.cuda": "12.4",
    "torch.archs": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
    "torch.pins_unmet": [],
    "torch.companions_unmet": [],
    "torch.installs": ["pip 2.6.0+cu124"],
    "torch.cudnn": "9.1.0.70",
    "tf.version": ABSENT,
    "jax.version": ABSENT,
    "env.CUDA_VISIBLE_DEVICES": ABSENT,
    "cuda.home": ABSENT,
    "libs.libcuda": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "libs.libcuda_kind": "driver",
    "libs.shadowing": [],
    "libs.clashes": [],
    "libs.missing": [],
    "live.import_error": ABSENT,
    "live.cuda_available": True,
    "live.cuda_error": ABSENT,
    "live.cudnn": "9.1.0",
    "live_gpu": [{"error": ABSENT}],
}


def found(changes: Mapping[str, object]) -> list[Finding]:
    snapshot = snapshot_of(Case("", "machine", {**SOUND, **changes}))
    return [finding for finding in diagnose(snapshot, BOOK).findings if finding.layer in LAYERS]


def test_wheels_that_overwrite_each_other_stand_before_the_import_they_break() -> None:
    error = "ImportError: libtorch_cuda.so: undefined symbol: ncclMemFree"
    pair = "nvidia-nccl-cu11 and nvidia-nccl-cu12"
    first = found({"python.overwritten": [pair], "live.import_error": error, "live.cuda_available": {"unread": error}})
    assert [finding.id for finding in first] == ["torch.nvidia-wheels"]


def test_compat_stands_before_the_driver_that_it_was_to_lift() -> None:
    changes = {
        "gpu": [{"name": "NVIDIA GeForce GTX 1080", "uuid": "GPU-1", "compute_capability": "6.1"}],
        "driver.version": "470.82.01",
        "driver.cuda_version": "11.4",
        "libs.libcuda_kind": "compat",
        "libs.libcuda_version": "550.54.15",
        "live.cuda_available": False,
    }
    first = found(changes)
    assert first[0].id == "env.forward-compat"
    assert first[0].explains == ("torch.cuda-unavailable", "torch.driver-too-old")


@pytest.mark.parametrize("state", [ABSENT, {"unread": "nobody could look"}], ids=["absent", "unread"])
def test_any_fact_may_be_missing(state: object) -> None:
    """No page stumbles over a fact that is not there, alone or with all the others."""
    sick = {
        "torch.companions_unmet": ["torchvision 0.15.2 where 0.21.0 belongs"],
        "torch.pins_unmet": ["nvidia-cudnn-cu12 wants 9.1.0.70, has 8.9.2.26"],
        "torch.installs": ["pip 2.6.0 in /a", "conda 2.5.1 in /b"],
        "libs.shadowing": ["/a/libcudnn.so.9 instead of /b/libcudnn.so.9"],
        "live.import_error": "ImportError: libcudnn.so.9: cannot open shared object file",
        "live.cuda_available": False,
        "live.cudnn": "8.9.2",
    }
    everything = found(sick)
    for name in SOUND:
        assert {finding.id for finding in found({**sick, name: state})} <= {
            "torch.missing",
            "torch.import-failed",
            "torch.import-broken",
            "cudnn.missing",
            "cudnn.version",
            "env.library-path",
            *(child for finding in everything for child in (finding.id, *finding.explains)),
        }
    assert found(dict.fromkeys(SOUND, state)) == []


LEADS = {
    "an old driver under a new card, and a CPU build of torch": (
        "Nvidia driver version: 470.57.02\nGPU: NVIDIA GeForce RTX 5090\nPyTorch version: 2.13.0+cpu\n",
        ["driver.too-old-for-gpu", "torch.cpu-build"],
    ),
    "the Xid that asks for a reset follows the memory error": (
        (
            "NVRM: Xid (PCI:0000:9c:00): 48, pid=1, name=python, DBE\n"
            "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)\n"
        ),
        ["gpu.ecc"],
    ),
    "the GPU that fell off the bus cannot be initialised either": (
        (
            "NVRM: Xid (PCI:0000:c1:00): 79, pid=7, GPU has fallen off the bus.\n"
            "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n"
            "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error\n"
        ),
        ["gpu.fell-off-bus"],
    ),
    "a legacy card, whose driver then says that it found none": (
        (
            "NVRM: The NVIDIA GeForce GT 710 GPU installed in this system is\n"
            "NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please\n"
            "NVRM:  information.  The 535.129.03 NVIDIA driver will ignore\nNVRM: No NVIDIA GPU found.\n"
        ),
        ["driver.gpu-dropped"],
    ),
}


def _led(diagnosis: Diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings if finding.severity != "info"]


@pytest.mark.parametrize(("report", "ids"), LEADS.values(), ids=LEADS)
def test_the_cause_leads_and_its_consequences_fold(report: str, ids: list[str]) -> None:
    assert _led(read(report)) == ids


def _local(groups: dict[str, Rows], **facts: Fact) -> Diagnosis:
    named = {name.replace("__", "."): fact for name, fact in facts.items()}
    return diagnose(Snapshot(Target("local", "test"), named, groups), load())


BUS: Rows = (
    {
        "vendor": Known("nvidia", "sysfs"),
        "name": Known("NVIDIA GeForce RTX 5090", "sysfs"),
        "address": Known("0000:01:00.0", "sysfs"),
    },
)


def test_a_card_that_the_driver_does_not_list_is_judged_by_the_bus() -> None:
    diagnosis = _local(
        {"pci": BUS, "gpu": Unread("NVML did not start")},
        host__container=Absent("no sign of one"),
        driver__version=Unread("the nvidia module is not loaded"),
        driver__module_loaded=Known(False, "sysfs"),
        driver__module_disk_version=Known("535.183.01", "modinfo"),
    )
    assert "driver.too-old-for-gpu" in _led(diagnosis)


def test_a_container_is_not_judged_by_the_bus_of_its_host() -> None:
    snapshot = Snapshot(
        Target("local", "test"),
        {"host.container": Known("docker", "/.dockerenv")},
        {"pci": BUS, "gpu": Unread("NVML did not start")},
    )
    assert complete(snapshot).groups["gpu"] == Unread("NVML did not start")


def test_an_illegal_access_is_the_programs_only_where_no_hardware_failed() -> None:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    row = "NVRM: Xid (PCI:0000:c3:00): 48, pid=812, name=python3, DBE (double bit error) Error on GPC 0"
    for lines, first in (((error,), "workload.assert"), ((row, error), "gpu.ecc")):
        text: Rows = tuple({"line": Known(line, "report")} for line in lines)
        finding = diagnose(Snapshot(Target("report", "case"), {}, {"text": text}), BOOK).findings[0]
        assert (finding.id, finding.confidence == "possible") == (first, False)


DEVICES = frozenset(
    [
        "aer",
        "barrier",
        "collective",
        "cuda_device",
        "gpu",
        "gpu_pair",
        "gpu_path",
        "gpu_process",
        "interface",
        "link",
        "live_gpu",
        "machine",
        "measured",
        "mig",
        "nvlink",
        "outlier",
        "p2p",
        "pci",
        "rank",
        "rate",
        "rdma",
        "rung",
        "silence",
        "split",
        "stuck",
        "suspect",
        "sxid",
        "xid",
    ]
)
"""Groups whose rows are GPUs, links, ports, processes, ranks or hosts, or belong to one."""
WHOLE = {
    "env.forward-compat": "the package cannot be used on this machine's kind of GPU",
    "env.tf32-off": "a setting of the environment",
    "env.visible-devices": "a setting of the environment, which leaves no GPU",
    "env.visible-devices-partial": "a setting of the environment",
    "fleet.sound": "says of the whole fleet that it is sound",
    "host.other-vendor": "there is no NVIDIA GPU to be named",
    "nccl.connected": "says of the whole job that it is sound",
    "nccl.slow": "the rate of one collective over all GPUs",
    "torch.rocm-build": "a build of torch that uses no NVIDIA GPU",
    "workload.fits": "says of the whole machine that it is sound",
    "workload.would-run": "says of the whole machine that it is sound",
}
"""Pages that weigh such rows and are about the machine, the job or the fleet as a whole."""
PAGES = (*BOOK.rules, *BOOK.cluster)
FIRING = [case for case in rulebook.cases() if case.finds is not None and not case.report]


def weighed(rule: Rule) -> set[str]:
    """The groups that the page's conditions look through for a row."""
    texts = (*rule.when, *(text for proof in rule.proofs for text in proof.when))
    return {group for text in texts for group in loop_groups(parse(text), "").values()} & DEVICES


def findings_of(case: Case) -> list[Finding]:
    rule = next(page for page in PAGES if (page.id, page.scope) == (case.rule, case.scope))
    snapshot = snapshot_of(case)
    return [one for one in judge_rule(rule, snapshot) if isinstance(one, Finding)]


def test_a_page_that_weighs_devices_says_which_its_finding_is_about() -> None:
    bare = {rule.id for rule in PAGES if not rule.each and not rule.subjects and weighed(rule)}
    assert bare == set(WHOLE), "give it subjects, or name it in WHOLE; no exception is stale"
    assert [rule.id for rule in PAGES if rule.each and rule.subjects] == [], "with each, the row is the subject"


def test_a_case_that_fires_on_one_of_several_names_it() -> None:
    assert len(FIRING) > 250
    for case in FIRING:
        snapshot = snapshot_of(case)
        for finding in findings_of(case):
            on_rows = {item.fact.partition(".")[0] for item in finding.evidence if item.index is not None} & DEVICES
            several = {group for group in on_rows if len(listed(snapshot.rows(group))) > 1}
            if several and case.rule not in WHOLE:
                assert finding.subject, f"{case.rule}: {case.name}: {sorted(several)} have several rows"


def diagnosed(**rows: list[dict[str, object]]) -> Diagnosis:
    facts: dict[str, object] = {"nvml.state": "ok", "gpu.count": len(rows.get("gpu", ()))}
    return pipeline.diagnose(known(facts, "standard", **rows), BOOK)


def subjects(diagnosis: Diagnosis, rule: str) -> list[dict[str, object]]:
    finding = next(one.to_json() for one in diagnosis.findings if one.id == rule)
    assert finding["subject"] == (finding.get("subjects") or [finding["subject"]])[0]  # type: ignore[index]
    return finding.get("subjects") or [finding["subject"]]  # type: ignore[return-value]


def test_which_gpu_a_finding_is_about() -> None:
    rows: list[dict[str, object]] = [{"index": 0}, {"index": 3, "uuid": "GPU-3", "error": "GPU is lost"}]
    rows.append({"index": 5, "error": "GPU is lost", "error_code": 15})
    lost = diagnosed(gpu=rows)
    assert subjects(lost, "gpu.fell-off-bus") == [{"gpu": 3, "uuid": "GPU-3"}, {"gpu": 5}]
    # CUDA_VISIBLE_DEVICES=2 makes CUDA's device 0 of NVML's GPU 2.
    gpus: list[dict[str, object]] = [{"index": n, "uuid": f"GPU-{n}"} for n in range(3)]
    live: list[dict[str, object]] = [{"index": 0, "uuid": "GPU-2", "name": "NVIDIA A10", "kernel": "wrong"}]
    assert subjects(diagnosed(gpu=gpus, live_gpu=live), "gpu.wrong-results") == [
        {"live_gpu": 0, "gpu": 2, "uuid": "GPU-2", "name": "NVIDIA A10"}
    ]


def test_a_gpu_that_the_log_names_by_address_is_the_gpu_of_that_address() -> None:
    gpus: list[dict[str, object]] = [
        {"index": n, "uuid": f"GPU-{n}", "address": f"0000:{n}f:00.0", "links_lost": ()} for n in range(2)
    ]
    named = {"gpu": 1, "uuid": "GPU-1", "address": "0000:1f:00.0"}
    down = diagnosed(gpu=gpus, xid=[{"code": 74, "address": "0000:1f:00.0"}], sxid=[])
    assert subjects(down, "gpu.nvlink-down") == [named]
    assert next(one for one in down.findings if one.id == "gpu.nvlink-down").about == {"0000:1f:00.0"}
    memory = diagnosed(gpu=gpus, xid=[{"code": 62, "address": "0000:1f:00.0"}], sxid=[])
    assert subjects(memory, "gpu.xid") == [{"xid": 0, **named}]


def test_a_pasted_line_names_the_gpu() -> None:
    read = read_text("Found 17 faulty memory elements on GPU 3", "log")
    assert subjects(pipeline.diagnose(read, BOOK), "gpu.wrong-results") == [{"gpu": 3}]
    read = read_text("NVRM: GPU at PCI:0000:3B:00: GPU-0a GPU 0000:3B:00.0 has fallen off the bus.", "log")
    assert {"address": "0000:3b:00.0"} in subjects(pipeline.diagnose(read, BOOK), "gpu.fell-off-bus")


def test_subjects_survive_the_document_and_the_schema_knows_them() -> None:
    rows: list[dict[str, object]] = [{"index": n, "error": "GPU is lost", "uuid": f"GPU-{n}"} for n in range(3)]
    lost = diagnosed(gpu=rows)
    document = lost.to_json()
    jsonschema.validate(document, json.loads(schema.text()))
    assert from_json(document).findings[0].subjects == lost.findings[0].subjects
    (series,) = [line for line in prometheus.render(lost).splitlines() if 'gpu="2"' in line and "fell-off" in line]
    assert 'uuid="GPU-2"' in series


@pytest.mark.parametrize(
    ("also", "first", "under"),
    [
        ("", "nccl.shm", ("container.shm",)),
        ("ERROR: Unexpected bus error encountered in worker.\n", "container.shm", ("nccl.shm",)),
    ],
)
def test_of_two_pages_on_one_full_shm_one_explains_the_other(also: str, first: str, under: tuple[str, ...]) -> None:
    line = "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-0aB1cD (size 9637888)"
    (finding,) = diagnose(read_text(f"inside a container (/.dockerenv present)\n{also}{line}\n"), BOOK).findings
    assert (finding.id, finding.explains) == (first, under)
