"""Two machines side by side: the cause comes first, noise does not count, and what was not read is said."""

import json
from collections.abc import Mapping
from typing import Any

from gpudoctor.app import pipeline, reading
from gpudoctor.core.catalog import TOPICS
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.difference import Difference
from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.compare import compare
from gpudoctor.views import diff

_BOOK = rulebook.load()


def known(value: Any, source: str = "nvml") -> Known:
    return Known(value, source)


def gpu(index: int, **columns: Any) -> Row:
    """A GPU that is well, but for what is given."""
    values = {"index": index, "name": "NVIDIA A100-SXM4-80GB", "uuid": f"GPU-{index}", "memory_mib": 81920}
    values |= {"temperature_c": 40 + index, "ecc_uncorrected": 0, **columns}
    return {name: value if isinstance(value, Absent | Unread) else known(value) for name, value in values.items()}


FACTS: Mapping[str, Fact] = {
    "host.kernel": known("6.8.0-64-generic", "/proc/sys/kernel/osrelease"),
    "host.uptime_s": known(1000, "/proc/uptime"),
    "driver.version": known("570.86.15", "/proc/driver/nvidia/version"),
    "driver.module_loaded": known(True, "/sys/module/nvidia"),
    "driver.module_version": known("570.86.15", "/sys/module/nvidia/version"),
    "driver.library_version": known("570.86.15", "/usr/lib/x86_64-linux-gnu"),
    "nvml.state": known("ok"),
    "torch.version": known("2.9.0+cu128", "version.py"),
}


MISMATCH = {"driver.library_version": known("570.124.06", "/usr/lib"), "nvml.state": known("version mismatch")}
"""What differs where the driver was upgraded under the running module."""


def diagnosis(facts: Mapping[str, Fact] | None = None, **groups: Rows) -> Diagnosis:
    snapshot = Snapshot(Target("snapshot", "node"), {**FACTS, **(facts or {})}, {"gpu": (gpu(0), gpu(1)), **groups})
    return pipeline.diagnose(snapshot, _BOOK)


def said(difference: Difference) -> str:
    return diff.render(difference, ("good.json", "bad.json"))


def names(difference: Difference) -> list[str]:
    return [change.name for changes in difference.layers.values() for change in changes]


def test_a_machine_equals_itself() -> None:
    difference = compare(diagnosis(), diagnosis())
    assert difference.equal
    assert said(difference).splitlines()[1] == "Nothing differs."


def test_what_always_differs_is_folded_into_one_line_and_does_not_count() -> None:
    gpus = (gpu(0, temperature_c=31, uuid="GPU-a"), gpu(1, uuid="GPU-b"))
    other = diagnosis({"host.uptime_s": known(5)}, gpu=gpus)
    difference = compare(diagnosis(), other)
    assert difference.equal
    moving = {"host.uptime_s", "gpu[0].temperature_c", "gpu[0].uuid", "gpu[1].uuid"}
    assert {change.name for change in difference.moving} == moving
    assert "moments (4): host.uptime_s, gpu.uuid, gpu.temperature_c" in " ".join(said(difference).split())


def test_the_cause_comes_first_with_the_facts_that_prove_it() -> None:
    sick = diagnosis(MISMATCH)
    difference = compare(diagnosis(), sick)
    first = difference.findings[0]
    assert (first.side, first.finding.id) == ("B", "driver.version-mismatch")
    assert [change.name for change in first.changes] == ["driver.library_version", "nvml.state"]
    lines = said(difference).splitlines()
    assert lines[1].startswith("Only on B: ERROR  driver.version-mismatch: ")
    assert "    driver.library_version: 570.86.15 -> 570.124.06" in said(difference)
    assert "driver.library_version" not in names(difference), "said once"
    assert said(compare(sick, diagnosis())).splitlines()[1].startswith("Only on A: ERROR  driver.version-mismatch")


def test_a_finding_that_is_folded_under_another_on_one_side_is_there_too() -> None:
    symptom = {
        "live.cuda_available": known(False, "torch"),
        "live.import_outcome": known("ok", "torch"),
        "torch.flavor": known("cuda", "version.py"),
    }
    alone, under = diagnosis(symptom), diagnosis({**symptom, **MISMATCH})
    assert "torch.cuda-unavailable" in {finding.id for finding in alone.findings}
    assert "torch.cuda-unavailable" in under.findings[0].explains
    sides = {(item.side, item.finding.id) for item in compare(alone, under).findings}
    assert ("B", "driver.version-mismatch") in sides
    assert ("A", "torch.cuda-unavailable") not in sides


def test_the_same_on_several_gpus_is_told_once_and_of_two_lists_the_difference() -> None:
    sick = diagnosis(gpu=(gpu(0, ecc_uncorrected=3), gpu(1, ecc_uncorrected=3)))
    text = said(compare(diagnosis(), sick))
    assert text.count("gpu.ecc:") == 1
    assert "gpu[0-1].ecc_uncorrected: 0 -> 3" in text
    a, b = (diagnosis({"torch.archs": known(archs)}) for archs in (("sm_80", "sm_90"), ("sm_80", "sm_120")))
    assert "torch.archs: only on A sm_90; only on B sm_120" in said(compare(a, b))


def test_gpus_of_one_machine_are_matched_by_uuid_when_one_is_lost() -> None:
    three = (gpu(0), gpu(1, vbios="x"), gpu(2))
    left = ({**gpu(0)}, {**gpu(2), "index": known(1)})
    difference = compare(diagnosis(gpu=three), diagnosis(gpu=left))
    assert "gpu[1]" in names(difference)
    assert not [name for name in names(difference) if name.endswith((".uuid", ".vbios"))]
    lost = {"index": known(1), "name": known("NVIDIA A100-SXM4-80GB")}
    difference = compare(diagnosis(gpu=(gpu(0), lost)), diagnosis(gpu=(gpu(0, uuid="other", memory_mib=1), lost)))
    assert names(difference) == ["gpu[0].memory_mib"]


def test_rows_are_matched_by_their_natural_key() -> None:
    def packages(**versions: str) -> tuple[Row, ...]:
        return tuple({"name": known(name), "version": known(version)} for name, version in versions.items())

    a, b = diagnosis(package=packages(numpy="1.26", torch="2.9")), diagnosis(package=packages(torch="2.8", triton="3"))
    assert names(compare(a, b)) == ["package[torch].version", "package[numpy]", "package[triton]"]
    text = said(compare(a, b))
    assert "package[torch].version: 2.9 -> 2.8" in text
    assert "package[numpy]: only on A (version 1.26)" in text

    def bus(address: str, width: int) -> tuple[Row, ...]:
        return ({"address": known(address), "link_width": known(width)},)

    a, b = diagnosis(pci=bus("0000:3b:00.0", 16)), diagnosis(pci=bus("0000:17:00.0", 8))
    assert names(compare(a, b)) == ["pci[0].link_width"]


def test_could_not_look_is_not_the_same_as_not_there_and_an_absent_group_is_one_change() -> None:
    difference = compare(diagnosis(), diagnosis({"nvml.state": Unread("the child was stopped after 5 s")}))
    assert not difference.equal
    assert [(change.name, change.unread) for change in difference.unread] == [("nvml.state", "B")]
    assert "Not read on B (1): nvml.state; the child was stopped after 5 s" in said(difference)
    difference = compare(diagnosis(), diagnosis(gpu=Absent("no NVIDIA GPU on the bus")))
    assert "gpu: 2 -> none" in said(difference)


def test_evidence_that_was_not_read_on_the_other_side_says_so() -> None:
    sick = diagnosis(MISMATCH)
    unread = Unread("/usr/lib: Permission denied")
    blind = diagnosis({"driver.library_version": unread, "nvml.state": known("unknown error")})
    text = " ".join(said(compare(blind, sick)).split())
    assert "not read on A (/usr/lib: Permission denied) -> 570.124.06" in text
    assert "On A: not judged" in text


def test_log_lines_are_evidence_but_no_facts_of_the_machine() -> None:
    line = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."
    sick = reading.read(json.dumps(diagnosis(text=({"line": known(line, "/dev/kmsg")},)).snapshot.to_json()), "b")
    difference = compare(diagnosis(text=()), sick)
    assert difference.findings
    assert f"only on B (/dev/kmsg): {line}" in " ".join(said(difference).split())
    assert not difference.layers.get("other")


def test_the_document_holds_both_sides_of_every_change() -> None:
    sick = diagnosis({**MISMATCH, "torch.version": Absent("not installed")})
    document = json.loads(diff.document(compare(diagnosis(), sick)))
    assert document["schema"] == "gpudoctor-diff/1"
    assert document["findings"][0]["facts"][0]["a"] == {"value": "570.86.15", "source": "/usr/lib/x86_64-linux-gnu"}
    (change,) = [one for one in document["facts"]["torch"] if one["fact"] == "torch.version"]
    assert (change["row"], change["a"]) == (None, {"value": "2.9.0+cu128", "source": "version.py"})


def test_every_fact_has_its_place() -> None:
    placed = {prefix for prefixes in TOPICS.values() for prefix in prefixes} | {"text", "report"}
    assert {name.partition(".")[0] for name in catalog().specs} <= placed
