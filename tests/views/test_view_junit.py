"""The report as JUnit XML: what Jenkins' schema allows, what a pipeline shows, nothing foreign in its markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import junitparser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser.xunit2 import JUnitXml

from gpudoctor.core.diagnosis import Diagnosis, Evidence, Unjudged
from gpudoctor.core.fact import Known
from gpudoctor.core.fleet import Check, Fleet, Host, Result
from gpudoctor.views import document, junit
from tests.conftest import Program
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


@settings(max_examples=40)
@given(st.text(st.characters(), max_size=60))
def test_no_foreign_text_breaks_the_document(evil: str) -> None:
    evil = f"{evil}]]><!--</failure>&\x00\x1b\x85\ufffe\ud800[[ATTACHMENT|x]]\" '"
    whole = diagnosis_of("too-old-b200")
    finding = replace(whole.findings[0], title=evil, why=evil, evidence=(Evidence(evil, Known(evil, evil)),))
    target = replace(whole.snapshot.target, name=evil)
    odd = replace(
        whole, findings=(finding,), unjudged=(Unjudged(evil, evil),), snapshot=replace(whole.snapshot, target=target)
    )
    said = junit.render(odd)
    assert said.isascii()
    assert misfits(said) == []
    assert list(_texts(said, "]]><!--</failure>&"))
    assert "[[ATTACHMENT|" not in said


def _texts(said: str, words: str) -> Iterator[str]:
    for element in ElementTree.fromstring(said).iter():
        yield from (text for text in (element.text or "", *element.attrib.values()) if words in text)


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
