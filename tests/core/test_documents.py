"""Documents that tests get from the program are held against the schema, without the test's doing."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from gpudoctor.views import document
from tests.documents import misfits
from tests.views.tui.machines import diagnosis_of


@cache
def line() -> str:
    """A document as the program prints it."""
    return document.render(diagnosis_of("too-old-b200"))


def spoiled() -> str:
    """A document that lacks what the schema demands."""
    raw = json.loads(line())
    del raw["findings"][0]["title"]
    return document.line(raw)


def test_a_document_is_valid_and_a_spoiled_one_is_not() -> None:
    assert misfits(f"{line()}\nsome other line\n{line()}\n") == []
    (misfit,) = misfits(spoiled())
    assert misfit.startswith("diagnosis findings.0: ")
    assert "title" in misfit
    assert [misfit[:9] for misfit in misfits(line()[:-5])] == ["no JSON: "]
    assert misfits('{"schema":"gpudoctor-new/1"}') == ["gpudoctor schema knows no gpudoctor-new/1"]


def test_what_a_process_says_or_writes_is_looked_at(tmp_path: Path) -> None:
    place = tmp_path / "gpudoctor"
    place.write_text(f"#!{sys.executable}\nimport sys, shutil\nprint(open(sys.argv[1]).read())\n")
    place.chmod(0o755)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(line())
    bad.write_text(spoiled())
    assert subprocess.run([place, good], check=True, capture_output=True).stdout.decode().strip() == line()
    with pytest.raises(AssertionError, match="a document is not as gpudoctor schema says"):
        subprocess.run([place, bad], check=True, capture_output=True)
    with pytest.raises(AssertionError, match="a document is not as gpudoctor schema says"):
        subprocess.run([place, "/dev/null", "-o", bad], check=True, capture_output=True)


def test_what_is_printed_here_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write(spoiled())
    with pytest.raises(AssertionError, match="a document is not as gpudoctor schema says"):
        capsys.readouterr()
