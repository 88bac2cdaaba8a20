"""A finding about GPUs, links, ports, ranks or hosts names them: in its subject, and several in subjects."""

from __future__ import annotations

import json

import jsonschema

from gpudoctor.app import pipeline
from gpudoctor.app.commands.rules import snapshot_of
from gpudoctor.core.diagnosis import Diagnosis, Finding, from_json
from gpudoctor.core.fact import listed
from gpudoctor.core.rule import Case, Rule
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.expression import parse
from gpudoctor.diagnosis.judge import judge_rule
from gpudoctor.diagnosis.rulebook.expressions import loop_groups
from gpudoctor.readers import read_text
from gpudoctor.views import prometheus, schema
from tests.diagnosis.expect.machines import BOOK, known

DEVICES = frozenset([
    "aer", "barrier", "collective", "cuda_device", "gpu", "gpu_pair", "gpu_path", "gpu_process", "interface",
    "link", "live_gpu", "machine", "measured", "mig", "nvlink", "outlier", "p2p", "pci", "rank", "rate", "rdma",
    "rung", "silence", "split", "stuck", "suspect", "sxid", "xid",
])  # fmt: skip
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
    bare = [rule.id for rule in PAGES if not rule.each and not rule.subjects and weighed(rule)]
    assert [name for name in bare if name not in WHOLE] == [], "give it subjects, or name it in WHOLE"
    assert [rule.id for rule in PAGES if rule.each and rule.subjects] == [], "with each, the row is the subject"


def test_no_exception_is_stale() -> None:
    known_ids = {rule.id for rule in PAGES if weighed(rule) and not rule.each and not rule.subjects}
    assert set(WHOLE) == known_ids


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


def test_the_gpus_that_do_not_answer_are_named_by_their_numbers_and_not_by_their_rows() -> None:
    rows: list[dict[str, object]] = [{"index": 0}, {"index": 3, "uuid": "GPU-3", "error": "GPU is lost"}]
    rows.append({"index": 5, "error": "GPU is lost", "error_code": 15})
    lost = diagnosed(gpu=rows)
    assert subjects(lost, "gpu.fell-off-bus") == [{"gpu": 3, "uuid": "GPU-3"}, {"gpu": 5}]


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


def test_a_gpu_measured_under_another_number_is_named_as_nvml_numbers_it() -> None:
    """CUDA_VISIBLE_DEVICES=2 makes CUDA's device 0 of NVML's GPU 2."""
    gpus: list[dict[str, object]] = [{"index": n, "uuid": f"GPU-{n}"} for n in range(3)]
    live: list[dict[str, object]] = [{"index": 0, "uuid": "GPU-2", "name": "NVIDIA A10", "kernel": "wrong"}]
    assert subjects(diagnosed(gpu=gpus, live_gpu=live), "gpu.wrong-results") == [
        {"live_gpu": 0, "gpu": 2, "uuid": "GPU-2", "name": "NVIDIA A10"}
    ]


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
