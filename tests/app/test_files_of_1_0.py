"""What gpudoctor 1.0.0 wrote is read and judged: each file was written by it on a simulated B200 with an old driver."""

import gzip
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpudoctor.app import reading
from gpudoctor.core import measurement
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.history import run_at
from tests import needs
from tests.conftest import Program

FOLDER = Path(__file__).with_name("files_of_1_0")
MOVED = Path("/tmp/gpudoctor-1.0.0")
"""Where the environment of its run lay: a run is taken back where it was made."""
CAUSE = "driver.too-old-for-gpu"


def text(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()).decode()


@pytest.mark.parametrize("name", ["diagnosis", "snapshot"])
def test_a_document_is_judged_as_it_was(name: str) -> None:
    diagnosis = reading.read(text(name), name)
    assert (diagnosis.verdict, diagnosis.findings[0].id) == ("broken", CAUSE)
    former = [finding["id"] for finding in json.loads(text("diagnosis"))["findings"]]
    assert [finding.id for finding in diagnosis.findings] == former


def test_a_snapshot_is_held_to_the_profile_that_describes_it() -> None:
    diagnosis = reading.read(text("snapshot"), expect=str(FOLDER / "profile.toml"))
    assert [finding.id for finding in diagnosis.findings if finding.id.startswith("expect.")] == []
    assert any(name.startswith("expect.") for name in diagnosis.passed)


def test_results_of_kernels_and_a_run_of_the_history() -> None:
    assert measurement.from_json(json.loads(text("kernels"))).runs
    (place,) = (FOLDER / "history").iterdir()
    run = run_at(place)
    assert run
    assert not run.good
    assert CAUSE in [finding["id"] for finding in run.findings]
    assert run.snapshot().facts.keys() >= {"host.os", "driver.version"}


def test_a_page_of_a_site_with_what_is_no_longer_read(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    shutil.copy(FOLDER / "site.no-quota.toml", tmp_path / "host")
    found = reading.read("export CUDA_VISIBLE_DEVICES=NoDevFiles\n", rules=[tmp_path]).findings
    assert "site.no-quota" in [finding.id for finding in found]
    assert rulebook.load([tmp_path]).find("site.no-quota")


def test_a_run_is_taken_back(gpudoctor: Program) -> None:
    """It changed a package of an environment of the system's interpreter."""
    needs.program("/usr/bin/python3.11")
    assert not MOVED.exists(), f"{MOVED} is in the way"
    try:
        with tarfile.open(FOLDER / "run.tar.gz") as archive:
            archive.extractall(MOVED.parent, filter="tar")
        environ = {"GPUDOCTOR_STATE": str(MOVED / "state/runs")}
        done = gpudoctor("fix", "--undo", "last", "--yes", "--level", "quick", env=environ)
        assert "changed: stub 2.0 → 1.0" in done.out, done.err
        assert "cut off" not in done.err
        show = "import stub; print(stub.version)"
        assert subprocess.check_output([MOVED / "venv/bin/python", "-c", show], text=True) == "1.0\n"
    finally:
        shutil.rmtree(MOVED, ignore_errors=True)
