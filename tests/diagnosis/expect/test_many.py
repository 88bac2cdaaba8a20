"""Many machines held to a profile: a fleet's documents, the ranks of a job, and the functions of the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpudoctor
from gpudoctor.app import pipeline
from gpudoctor.core.diagnosis import from_json
from gpudoctor.diagnosis.expect import held_to, load
from tests.conftest import Program
from tests.diagnosis.expect.machines import (
    BOOK,
    folded,
    held,
    lines_passed,
    machine,
    profile,
    put,
    saved,
    unjudged,
    unmet,
)
from tests.processes import free_port


def test_every_host_of_a_fleet_is_held_to_it(gpudoctor: Program, tmp_path: Path) -> None:
    for name in ("hgx-h100", "hgx-a100"):
        document = pipeline.diagnose(machine(name), BOOK).to_json()
        target = document["target"]
        assert isinstance(target, dict)
        document["target"] = {**target, "name": name}
        (tmp_path / f"{name}.json").write_text(json.dumps(document), "utf-8")
    assert gpudoctor("fleet", str(tmp_path), "--json").code == 0
    ran = gpudoctor("fleet", str(tmp_path), "--expect", "hgx-h100", "--json")
    assert ran.code == 1
    assert "expect.gpu-name" in [finding["id"] for finding in ran.document["findings"]]
    assert [one["hosts"] for one in ran.document["fleet"]["drain"]] == [["hgx-a100"]]


def test_every_rank_of_a_job_checks_its_machine_against_it(tmp_path: Path) -> None:
    path = put(tmp_path, '[expect]\nhost.arch = "sparc"\nhost.memory_mib = ">= 1 MiB"')
    port = free_port()
    job = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    argv = [sys.executable, "-m", "gpudoctor", "preflight", "--expect", str(path), "--json"]
    ranks = [
        subprocess.Popen(
            argv,
            env={**os.environ, **job, "RANK": str(rank), "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    document = json.loads("".join(said))
    titles = [finding["title"] for finding in document["findings"] if finding["id"] == "expect.host-arch"]
    assert len(titles) == 1
    assert "expected sparc (ours)" in titles[0]


def test_the_package_holds_machines_to_profiles(tmp_path: Path) -> None:
    report = gpudoctor.load(saved("hgx-a100", tmp_path), expect="hgx-h100")
    assert report.exit_code == 1
    assert report.findings[0].id == "expect.gpu-name"
    assert gpudoctor.load(saved("hgx-h100", tmp_path), expect="hgx-h100").exit_code == 0
    own = put(tmp_path, '[expect]\nhost.arch = "sparc"')
    assert "expect.host-arch" in {finding.id for finding in gpudoctor.check("quick", expect=own).findings}
    with pytest.raises(gpudoctor.UsageError, match="no such file"):
        gpudoctor.check("quick", expect="nowhere.toml")


def test_a_document_says_all_of_it_and_is_held_to_another_profile_anew(tmp_path: Path) -> None:
    first = held(machine("nvlink-three-links-h100"), load("hgx-h100"))
    again = from_json(json.loads(json.dumps(first.to_json())))
    assert folded(again) == folded(first)
    assert unjudged(again) == unjudged(first)
    assert lines_passed(again) == lines_passed(first)
    other = held_to(again, profile(tmp_path, "[expect]\ngpu.count = 4"), BOOK)
    assert list(unmet(other)) == ["gpu-count"]
    assert not folded(other)
    assert not lines_passed(other)
    assert [note.text for note in other.notes if note.text.startswith("As expected")] == [
        "As expected by ours: 0 lines hold, 1 does not."
    ]
    assert other.verdict == "broken"
