"""What machines read of a report: JUnit XML as Jenkins has it, and metrics as Prometheus' own client reads them."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import junitparser
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from junitparser.xunit2 import JUnitXml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gpudoctor.core.diagnosis import Diagnosis, Unjudged
from gpudoctor.core.fact import Known
from gpudoctor.core.fleet import Check, Fleet, Host, Result
from gpudoctor.views import document, junit, prometheus
from tests.conftest import Program
from tests.needs import REPOSITORY
from tests.views.tui.machines import diagnosis_of

_OUTCOME: tuple[set[str], set[str], set[str]] = (set(), {"type", "message"}, set())
_COUNTS = {"tests", "failures", "errors"}
_KINDS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", *_COUNTS}, {"testsuite"}),
    "testsuite": (
        {"name", *_COUNTS},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, {"time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": _OUTCOME,
    "error": _OUTCOME,
    "skipped": _OUTCOME,
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
}
"""By element: attributes that it must have and may have, and its children. Source: junit-10.xsd of Jenkins'
xunit-plugin (read 2026-11-22); GitLab reads the same elements. There is no ``properties`` in a testcase.
"""
_TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def misfits(text: str) -> list[str]:
    """What in the document the schema does not allow; raises `ElementTree.ParseError` for what is no XML."""
    root = ElementTree.fromstring(text)
    found = [] if root.tag == "testsuites" else [f"{root.tag} is the root"]
    for element in root.iter():
        if element.tag not in _KINDS:
            found.append(f"<{element.tag}> is unknown")
            continue
        needed, more, children = _KINDS[element.tag]
        found += [f"<{element.tag}> lacks {name}" for name in needed - set(element.keys())]
        found += [f"<{element.tag}> has {name}" for name in set(element.keys()) - needed - more]
        found += [f"<{element.tag}> holds <{child.tag}>" for child in element if child.tag not in children]
        found += [f"time {time!r}" for time in [element.get("time", "")] if not _TIME.fullmatch(time)]
        if children and any((words or "").strip() for words in (element.text, *(child.tail for child in element))):
            found.append(f"<{element.tag}> holds text")
    return found


MACHINES = ("too-old-b200", "hgx-h100", "throttled-heat-h100", "torch-arch-dropped-and-driver-too-old")


def cases(diagnosis: Diagnosis, strict: bool = False) -> dict[str, junitparser.TestCase]:
    """Every case by its name, as another program's reader has it."""
    said = junit.render(diagnosis, strict)
    assert misfits(said) == []
    return {case.name: case for suite in JUnitXml.fromstring(said.encode()) for case in suite}


def outcomes(case: junitparser.TestCase) -> list[str]:
    """``failure``, ``skipped``, ``error``: what became of it."""
    return [result._elem.tag for result in case.result]


@pytest.mark.parametrize("name", MACHINES)
def test_every_rule_is_one_case_and_the_sums_are_right(name: str) -> None:
    diagnosis = diagnosis_of(name)
    found = cases(diagnosis)
    rules = {finding.id for finding in diagnosis.findings} | set(diagnosis.passed)
    assert set(found) == rules | {item.id for item in diagnosis.unjudged} | {"verdict"}
    whole = ElementTree.fromstring(junit.render(diagnosis))
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        assert int(whole.attrib[count]) == sum(1 for _ in whole.iter(tag))
        assert int(whole.attrib[count]) == sum(int(suite.attrib[count]) for suite in whole)


def test_an_error_fails_with_all_that_is_to_be_known_and_typed() -> None:
    (failure,) = cases(diagnosis_of("too-old-b200"))["driver.too-old-for-gpu"].result
    assert failure.message.startswith("The driver is older than the B200: 550.163.01 is installed")
    assert failure.message.endswith("(and 7 more)")
    for words in (
        "the same of gpu 1, gpu 2",
        "gpu[0].name = B200  (table gpus: PCI id 10de:2901)",
        "$ apt-get install --yes nvidia-open",
        "more: gpudoctor explain driver.too-old-for-gpu",
    ):
        assert words in failure.text


def test_what_was_not_judged_is_skipped_and_says_why() -> None:
    diagnosis = diagnosis_of("too-old-b200")
    item = diagnosis.unjudged[0]
    (skipped,) = cases(diagnosis)[item.id].result
    assert skipped._elem.tag == "skipped"
    assert (skipped.message, skipped.text) == (item.because, item.because)


def test_a_warning_is_told_of_and_fails_only_where_warnings_are_errors() -> None:
    diagnosis = diagnosis_of("throttled-heat-h100")
    name = next(finding.id for finding in diagnosis.findings if finding.severity == "warning")
    plain, strict = cases(diagnosis)[name], cases(diagnosis, strict=True)[name]
    assert outcomes(plain) == []
    assert plain.system_out.startswith("WARNING  ")
    assert outcomes(strict) == ["failure"]
    assert outcomes(cases(diagnosis)["verdict"]) == []
    assert outcomes(cases(diagnosis, strict=True)["verdict"]) == ["failure"]


def test_a_consequence_names_what_to_see_to_first() -> None:
    whole = diagnosis_of("too-old-b200")
    cause = replace(whole.findings[0], explains=("torch.cuda-unavailable",))
    symptom = replace(cause, id="torch.cuda-unavailable", role="symptom", explains=())
    (failure,) = cases(replace(whole, findings=(cause, symptom)))["torch.cuda-unavailable"].result
    assert failure.text.startswith("Explained by driver.too-old-for-gpu: see to that first.\n")


def test_a_case_keeps_its_suite_and_name_whatever_comes_of_it() -> None:
    def places(diagnosis: Diagnosis) -> dict[str, str]:
        return {name: case.classname for name, case in cases(diagnosis).items()}

    sick, sound = places(diagnosis_of("too-old-b200")), places(diagnosis_of("hgx-h100"))
    both = sick.keys() & sound.keys()
    assert len(both) > 80
    assert all(sick[name] == sound[name] for name in both)


def test_where_nothing_could_be_judged_no_pipeline_shows_green() -> None:
    whole = diagnosis_of("hgx-h100")
    blind = replace(
        whole, verdict="unknown", findings=(), passed=(), unjudged=(Unjudged("gpu.ecc", "gpu: not asked", fact="gpu"),)
    )
    (error,) = cases(blind)["verdict"].result
    assert error._elem.tag == "error"
    assert "not asked: gpu.ecc" in error.text


def test_a_fleet_has_a_suite_for_each_host() -> None:
    hosts = (Host("node1"), Host("node2"), Host("node3", because="no answer within 60 s"))
    bad = Result("error", "driver 535 is older than the GPU", "driver.too-old-for-gpu")
    fleet = Fleet("all", hosts, (Check("driver", "Driver", "drv"),), {"node1": {"driver": bad}}, "no-go")
    whole = diagnosis_of("hgx-h100")
    snapshot = replace(whole.snapshot, target=replace(whole.snapshot.target, kind="fleet"))
    said = junit.render(replace(whole, snapshot=snapshot, fleet=fleet))
    assert misfits(said) == []
    suites = {suite.get("name"): suite for suite in ElementTree.fromstring(said)}
    assert [suites[f"host.node{n}"].get("hostname") for n in (1, 2, 3)] == ["node1", "node2", "node3"]
    assert "gpudoctor explain driver.too-old-for-gpu" in suites["host.node1"].findtext("testcase/failure", "")
    assert suites["host.node2"].find("testcase/skipped") is not None
    silence = suites["host.node3"].find("testcase/error")
    assert silence is not None
    assert silence.get("message") == "no answer within 60 s"


def test_the_program_writes_it(called: Program, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    report.write_text("Nvidia driver version: 470.57.02\nGPU 0: NVIDIA GeForce RTX 5090\n")
    done = called("read", str(report), "--format", "junit", "-o", str(tmp_path / "junit.xml"))
    assert (done.code, done.out) == (1, "")
    said = (tmp_path / "junit.xml").read_text("utf-8")
    assert misfits(said) == []
    assert 'message="The driver is older than the NVIDIA GeForce RTX 5090' in said
    two = called("read", str(report), str(report), "--format", "junit")
    assert (two.code, two.out) == (2, "")
    assert two.err == "gpudoctor: --format junit gives one document: give one file, or --together\n"


def test_a_fleet_and_a_preflight_write_it_too(called: Program, tmp_path: Path) -> None:
    for name in ("too-old-b200", "hgx-h100"):
        (tmp_path / f"{name}.json").write_text(
            document.render(diagnosis_of(name)).replace('"name":"node"', f'"name":"{name}"', 1)
        )
    place = tmp_path / "junit.xml"
    done = called("fleet", str(tmp_path), "--format", "junit", "-o", str(place))
    assert (done.code, done.out) == (1, "")
    said = place.read_text("utf-8")
    assert misfits(said) == []
    suites = [suite.get("name", "") for suite in ElementTree.fromstring(said)]
    assert suites[0] == "gpudoctor"
    assert sum(name.startswith("host.") for name in suites) == 2
    done = called("preflight", "--format", "junit")
    assert misfits(done.out) == []
    assert ("<failure" in done.out) == (done.code == 1)


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


def test_a_report_in_a_folder_that_is_not_there_is_refused_before_anything_is_asked(called: Program) -> None:
    done = called("check", "--level", "quick", "-o", "/nowhere/at/all.txt")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("gpudoctor: -o /nowhere/at/all.txt: No such file or directory; give a file")
