"""What ``import gpudoctor`` offers: stable names, types that a strict checker takes, a report that shows itself."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpudoctor
from gpudoctor.core.diagnosis import Note
from gpudoctor.core.fact import Known
from gpudoctor.views import html, text
from tests import needs
from tests.conftest import Program
from tests.views.test_view_html import Document
from tests.views.tui.machines import diagnosis_of

NAMES = """
Absent Diagnosis DoctorError DocumentError Evidence Finding Fix Known NoGoError Report RuleError Snapshot Step Unjudged
Unread UsageError Watching __version__ callback check load preflight read watch
"""
PASTE = "Nvidia driver version: 470.57.02\nGPU 0: NVIDIA GeForce RTX 5090\n"
SCRIPT = """
import gpudoctor

report: gpudoctor.Report = gpudoctor.check("quick", python=None, rules=["pages"], expect="h100.toml")
verdict: str = report.verdict
for finding in report.findings:
    commands: list[tuple[str, ...]] = [step.argv for fix in finding.fixes for step in fix.steps]
    about: list[str] = [item.state.source for item in finding.evidence if isinstance(item.state, gpudoctor.Known)]
driver = report.snapshot.get("driver.version")
if isinstance(driver, gpudoctor.Known):
    print(driver.value, driver.source)
elif isinstance(driver, gpudoctor.Absent):
    print(driver.why)
else:
    reveal_type(driver)
report.save("report.html", "html")
code: int = report.exit_code
try:
    text: str = gpudoctor.load("report.txt").render("markdown")
    gpudoctor.preflight(network=True)
except gpudoctor.NoGoError as error:
    print(error.checked.verdict)
except gpudoctor.DoctorError as error:
    print(error)
"""


def test_the_public_names_are_pinned_and_there() -> None:
    assert sorted(gpudoctor.__all__) == NAMES.split()
    assert set(gpudoctor.__all__) <= set(dir(gpudoctor))
    for name in gpudoctor.__all__:
        assert getattr(gpudoctor, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        gpudoctor.chekc  # noqa: B018 # type: ignore[attr-defined]


def test_a_strict_checker_takes_a_users_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--config-file", "", str(script)]
    argv = [sys.executable, "-m", "mypy", *words]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path)
    notes = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert notes == []
    assert 'Revealed type is "gpudoctor.core.fact.Unread"' in done.stdout


def test_importing_it_loads_nothing_else() -> None:
    code = "import sys, gpudoctor; print([name for name in sys.modules if name.startswith('gpudoctor.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['gpudoctor.core', 'gpudoctor.core.about']\n"


def test_a_report_is_a_diagnosis_that_prints_itself() -> None:
    report = gpudoctor.read(PASTE, "paste")
    assert isinstance(report, gpudoctor.Diagnosis)
    assert (report.verdict, report.exit_code) == ("broken", 1)
    assert str(report) == text.render(report)
    assert repr(report).startswith("<gpudoctor.Report of 'paste': broken; 1 found, ")
    assert report == gpudoctor.read(PASTE, "paste")


def test_what_is_shared_is_a_report_without_names() -> None:
    report = gpudoctor.read(PASTE)
    secret = dataclasses.replace(report, notes=(Note((), "look into /home/wolfram/train.py"),))
    assert "wolfram" in str(secret)
    assert isinstance(secret.shared(), gpudoctor.Report)
    assert "wolfram" not in str(secret.shared()) + secret.shared().render("html") + secret.shared().render("json")


def test_it_is_the_documents_of_the_program(gpudoctor: Program, tmp_path: Path) -> None:
    import gpudoctor as library

    place, saved = tmp_path / "paste.txt", tmp_path / "saved.json"
    place.write_text(PASTE)
    report = library.load(place)
    done = gpudoctor("read", str(place), "--json")
    assert json.loads(report.render("json")) == done.document
    assert report.exit_code == done.code
    report.save(saved)
    again = library.load(saved)
    assert [finding.id for finding in again.findings] == [finding.id for finding in report.findings]
    with pytest.raises(library.UsageError):
        report.save(tmp_path / "nowhere/x.json")
    with pytest.raises(library.DocumentError):
        library.load(tmp_path / "nothing.txt")


def test_a_sites_own_pages_may_be_named_by_words() -> None:
    with pytest.raises(gpudoctor.DoctorError):
        gpudoctor.read(PASTE, rules=["/nowhere/at/all"])


def test_a_notebook_shows_it_and_a_terminal_gets_the_text() -> None:
    try:
        from IPython.core.formatters import DisplayFormatter
    except ImportError:
        needs.missing("IPython")
    report = gpudoctor.read(PASTE, "paste")
    shown, _ = DisplayFormatter(active_types=["text/plain", "text/html"]).format(report)  # type: ignore[no-untyped-call]
    assert shown["text/plain"] == str(report)
    page = Document(shown["text/html"])
    assert "The driver is older than the NVIDIA GeForce RTX 5090" in "".join(page.text)
    assert not {"script", "link", "img", "h1", "h2", "h3", "html", "body"} & set(page.tags)
    assert page.tags.count("style") == 1


@pytest.mark.full
def test_a_cell_of_a_notebook_has_a_table_and_figures_with_each_gpu(tmp_path: Path) -> None:
    """A real kernel; GPUs of a recorded machine, and those of a run, which ends within the notebook."""
    try:
        import nbclient
        import nbformat
    except ImportError:
        needs.missing("nbclient and ipykernel")
    saved = tmp_path / "node.json"
    saved.write_text(json.dumps(diagnosis_of("throttled-heat-h100").to_json()))
    sources = (
        f"import gpudoctor; gpudoctor.load({str(saved)!r})",
        "with gpudoctor.watch() as watching: sum(range(9))\nwatching",
    )
    cells = [nbformat.v4.new_code_cell(source) for source in sources]  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    environ = {**os.environ, "GPUDOCTOR_HISTORY": "off"}
    nbclient.NotebookClient(notebook, timeout=600).execute(cwd=str(needs.REPOSITORY), env=environ)
    results = [
        output["data"] for cell in notebook.cells for output in cell.outputs if output.output_type == "execute_result"
    ]
    machine, run = (Document(data["text/html"]) for data in results)
    assert machine.tags.count("svg") >= 5
    rows = "".join(machine.text).partition("Found")[2]
    assert re.search(r"5\s*NVIDIA H100 80GB HBM3\s*90 of 89\s*1110 of 1980.*?! gpu.throttled", rows, re.DOTALL)
    assert "rules passed" in "".join(run.text)


def test_a_run_shows_its_gpus_as_they_were_over_it() -> None:
    report = gpudoctor.check("quick")
    row = {"index": Known(3, "NVML"), "memory_peak_mib": Known(40960, "NVML"), "memory_mib": Known(81920, "NVML")}
    run = dataclasses.replace(report.snapshot, groups={"run_gpu": (row,)})
    page = Document(html.cell(dataclasses.replace(report, snapshot=run)))
    assert re.search(r"GPUs, over the run.*3\s*40 of 80", "".join(page.text), re.DOTALL)


def test_its_styles_touch_nothing_but_itself() -> None:
    style = html.cell(diagnosis_of("throttled-heat-h100")).partition("<style>")[2].partition("</style>")[0]
    selectors = [part.rpartition("}")[2].strip() for part in style.split("{")[:-1]]
    assert len(selectors) > 30
    assert all(one.strip().startswith(".gpudoctor") for group in selectors for one in group.split(","))
