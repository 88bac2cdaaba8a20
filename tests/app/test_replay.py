"""``gpudoctor replay``: kept documents, logs and runs judged again, before a site arms a profile."""

import json
from pathlib import Path

import jsonschema
import pytest

from gpudoctor.app import pipeline
from gpudoctor.core.frozen import replace
from gpudoctor.diagnosis.history import Shelf
from gpudoctor.views import document, schema
from tests.conftest import Program
from tests.diagnosis.expect.machines import BOOK, machine

XID = "[ 1200.5] NVRM: Xid (PCI:0000:18:00): 79, pid=812, name=python, GPU has fallen off the bus.\n"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A month of two sound nodes and a sick one: snapshots, a kept run, a kernel log, and what is no text."""
    folder = tmp_path / "kept"
    folder.mkdir()
    for host, what in (("n1", "hgx-h100"), ("n2", "hgx-a100"), ("n3", "ecc-uncorrected-h100")):
        snapshot = machine(what)
        snapshot = replace(snapshot, target=replace(snapshot.target, name=host))
        (folder / f"{host}-monday.json").write_text(document.facts(snapshot, "1"), "utf-8")
        if host == "n3":
            Shelf(folder / "n3").keep(pipeline.diagnose(snapshot, BOOK), "1")
    (folder / "n4").mkdir()
    (folder / "n4" / "dmesg.txt").write_text(XID)
    (folder / "n4" / "core").write_bytes(bytes(range(256)) * 8)
    return folder


def test_it_tells_which_machines_would_have_been_drained_and_why(called: Program, kept: Path) -> None:
    ran = called("replay", str(kept), "--json")
    assert ran.code == 1
    jsonschema.validate(ran.document, json.loads(schema.text("replay")))
    assert (ran.document["profile"], ran.document["machines"], ran.document["drained"]) == (None, 4, ["n3", "n4"])
    causes = {(one["machine"], cause["id"]) for one in ran.document["files"] for cause in one["causes"]}
    assert {("n3", "gpu.ecc"), ("n4", "gpu.fell-off-bus")} <= causes
    assert [Path(one["file"]).name for one in ran.document["files"] if one["trouble"]] == ["core"]


def test_the_text_counts_and_names_what_could_not_be_read(called: Program, kept: Path) -> None:
    ran = called("replay", str(kept))
    said = " ".join(ran.out.split())
    assert "2 machines would have been drained: by 3 of 5 files of 4 machines" in said
    assert "n3: 2 of 2, first 20" in said
    assert "gpu.ecc" in said
    assert "Not read: " in said
    assert [line for line in ran.out.splitlines() if len(line) > 80 and " " in line.strip()] == []  # a path is whole


def test_a_profile_that_is_not_armed_yet_shows_what_it_would_do(called: Program, kept: Path) -> None:
    sound = str(kept / "n1-monday.json"), str(kept / "n2-monday.json")
    assert called("replay", *sound).code == 0
    ran = called("replay", *sound, "--expect", "hgx-h100", "--json")
    assert ran.code == 1
    assert (ran.document["profile"], ran.document["drained"]) == ("hgx-h100", ["n2"])


def test_a_folder_without_files_is_misuse_and_one_without_text_is_no_verdict(
    called: Program, kept: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert called("replay", str(tmp_path / "empty")).code == 2
    assert called("replay", str(tmp_path / "nowhere")).code == 2
    assert called("replay", str(kept / "n4" / "core")).code == 3
