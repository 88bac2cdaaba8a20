"""The metrics, read as Prometheus' own client reads them: names, labels, bounds, and a file that is always whole."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gpudoctor.core.fact import Known
from gpudoctor.core.fleet import Fleet, Host
from gpudoctor.views import prometheus
from tests.conftest import Program
from tests.needs import REPOSITORY
from tests.views.tui.machines import diagnosis_of


def metrics(text: str) -> dict[str, Metric]:
    """Every family by its name."""
    families = list(text_string_to_metric_families(f"{text}\n"))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def values(text: str, name: str, label: str) -> dict[str, float]:
    """Of that metric each series by one of its labels."""
    return {sample.labels[label]: sample.value for sample in metrics(text)[name].samples}


def test_a_sick_machine_says_what_is_wrong_with_which_gpu() -> None:
    diagnosis = diagnosis_of("throttled-heat-h100")
    text = prometheus.render(diagnosis, at=1_795_343_414.25, seconds=0.5)
    verdicts = values(text, "gpudoctor_verdict", "verdict")
    assert {word for word, value in verdicts.items() if value == 1} == {diagnosis.verdict}
    assert sorted(verdicts) == ["broken", "impaired", "sound", "unknown"]
    hot = [sample for sample in metrics(text)["gpudoctor_finding"].samples if sample.labels["gpu"]]
    assert [(sample.labels["id"], sample.labels["severity"], sample.labels["gpu"]) for sample in hot] == [
        ("gpu.throttled", "warning", "5")
    ]
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", hot[0].labels["uuid"])
    assert values(text, "gpudoctor_rules", "state") == {
        "found": len({finding.id for finding in diagnosis.findings}),
        "unjudged": len(diagnosis.unjudged),
        "passed": len(diagnosis.passed),
    }
    assert [sample.value for sample in metrics(text)["gpudoctor_check_timestamp_seconds"].samples] == [1795343414.25]
    assert [sample.value for sample in metrics(text)["gpudoctor_check_duration_seconds"].samples] == [0.5]
    info = metrics(text)["gpudoctor_info"].samples[0].labels
    assert info["driver"].startswith("5")
    assert info["level"] == "standard"


def test_names_and_help_are_as_prometheus_wants_them() -> None:
    text = prometheus.render(diagnosis_of("hgx-h100"), 1.0, 1.0)
    for family in metrics(text).values():
        assert re.fullmatch(r"gpudoctor(_[a-z]+)+", family.name)
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))  # those are of counters
        assert all(re.fullmatch(r"[a-z]+", label) for sample in family.samples for label in sample.labels)
        assert all(sample.timestamp is None for sample in family.samples)  # the collector refuses files with times
    lines = text.splitlines()
    assert len(set(lines)) == len(lines)
    assert "timestamp" not in prometheus.render(diagnosis_of("hgx-h100"))


def test_every_metric_is_explained_on_the_page_about_views() -> None:
    page = (REPOSITORY / "gpudoctor/app/docs/views.md").read_text("utf-8")
    told = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `gpudoctor_")}
    written = metrics(prometheus.render(diagnosis_of("throttled-heat-h100"), 1.0, 1.0))
    assert set(told) == {*written, "gpudoctor_hosts"}
    for name, family in written.items():
        assert all(f"`{label}`" in told[name] for label in family.samples[0].labels), name


def test_findings_are_bounded_and_equal_ones_are_counted() -> None:
    whole = diagnosis_of("too-old-b200")
    rows = tuple(whole.findings[0] for _ in range(5))
    many = tuple(replace(whole.findings[0], id=f"site.page-{n}", subjects=()) for n in range(3000))
    text = prometheus.render(replace(whole, findings=(*rows, *many)))
    samples = metrics(text)["gpudoctor_finding"].samples
    assert len(samples) == prometheus.MOST_FINDINGS
    assert (samples[0].labels["id"], samples[0].value) == ("driver.too-old-for-gpu", 5)
    assert values(text, "gpudoctor_rules", "state")["found"] == 3001


def test_a_fleet_counts_its_hosts() -> None:
    whole = diagnosis_of("hgx-h100")
    hosts = (Host("a"), Host("b", because="no answer"))
    snapshot = replace(whole.snapshot, target=replace(whole.snapshot.target, kind="fleet"))
    fleet = replace(whole, snapshot=snapshot, fleet=Fleet("f", hosts, (), {}, "unknown"))
    assert values(prometheus.render(fleet), "gpudoctor_hosts", "state") == {
        "all": 2,
        "silent": 1,
        "sound": 1,
        "to_drain": 0,
    }


@settings(max_examples=40)
@given(st.text(max_size=300))
@example('"} 1\nup 0\n#')
@example("\\")
@example('\\"')
@example("\x1b[31m\u2028")
@example("é\udc80")
def test_foreign_text_stays_within_its_label(evil: str) -> None:
    whole = diagnosis_of("too-old-b200")
    row = {"uuid": Known(evil, "nvml")}
    facts = {**whole.snapshot.facts, "torch.version": Known(evil, "x")}
    odd = replace(
        whole,
        tool_version=evil,
        findings=(replace(whole.findings[0], id=evil, subjects=({"gpu": 0},)),),
        snapshot=replace(whole.snapshot, facts=facts, groups={"gpu": (row,)}),
    )
    said, plain = prometheus.render(odd), prometheus.render(replace(whole, findings=whole.findings[:1]))
    assert said.isascii()
    assert said.count("\n") == plain.count("\n")
    assert metrics(said).keys() == metrics(plain).keys()
    labels = metrics(said)["gpudoctor_finding"].samples[0].labels
    assert all(len(word) <= 120 for word in labels.values())


def test_the_program_replaces_the_file_in_one_step(gpudoctor: Program, tmp_path: Path) -> None:
    place = tmp_path / "gpudoctor.prom"
    place.write_text("old\n")
    before = place.stat().st_ino
    done = gpudoctor("check", "--level", "quick", "--format", "prometheus", "-o", str(place))
    assert done.out == ""
    assert done.code in {0, 1, 3}
    text = place.read_text("ascii")
    assert sum(values(text, "gpudoctor_verdict", "verdict").values()) == 1
    assert metrics(text)["gpudoctor_check_duration_seconds"].samples[0].value > 0
    assert place.stat().st_ino != before  # another file took its place: no reader sees half of one
    assert [path.name for path in tmp_path.iterdir()] == ["gpudoctor.prom"]


def test_a_report_in_a_folder_that_is_not_there_is_refused_before_anything_is_asked(gpudoctor: Program) -> None:
    done = gpudoctor("check", "--level", "quick", "-o", "/nowhere/at/all.txt")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("gpudoctor: -o /nowhere/at/all.txt: No such file or directory; give a file")
