"""The program as it is typed, on simulated machines; many machines held to a profile."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
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
from tests.processes import Ran, free_port
from tests.sim import scenario
from tests.sim.root import HOST, Machine

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The program inside the simulated machine of that name."""
    made: dict[str, Machine] = {}

    def run(name: str, *words: str) -> Ran:
        if name not in made:
            path = scenario.PROFILES / f"{name}.json"
            record = scenario.load(path if path.exists() else scenario.SICK / f"{name}.json")
            made[name] = Machine(record, tmp_path_factory.mktemp(name))
        return made[name].gpudoctor(*words)

    return run


def test_a_machine_as_expected_is_sound_and_the_report_says_how_many_lines_hold(on: Run) -> None:
    ran = on("hgx-h100", "check", "--expect", "hgx-h100")
    assert ran.code == 0, ran.out
    assert "As expected by hgx-h100: 17 lines hold." in ran.out
    document = on("hgx-h100", "check", "--expect", "hgx-h100", "--json").document
    assert document["verdict"] == "sound"


@pytest.mark.full
def test_a_machine_that_deviates_is_broken_and_preflight_says_no_go(on: Run) -> None:
    for words in (("check",), ("preflight", "--level", "standard")):
        ran = on("hgx-a100", *words, "--expect", "hgx-h100", "--json")
        assert ran.code == 1
        findings = ran.document["findings"]
        assert isinstance(findings, list)
        names = {finding["id"]: finding for finding in findings}
        assert names["expect.gpu-name"]["layer"] == "expect"
        assert names["expect.gpu-name"]["evidence"][0]["value"] == "NVIDIA A100-SXM4-80GB"
    assert on("hgx-a100", "preflight", "--expect", "hgx-h100").out.startswith("NO-GO")
    refused = on("hgx-a100", "preflight", "--expect", "hgx-h100", "--", "echo", "started")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.endswith("\nThe command was not started.\n")


@pytest.mark.full
def test_a_profile_of_this_machine_holds_on_it_and_not_on_a_sick_one(on: Run, tmp_path: Path) -> None:
    wrote = on("hgx-h100", "expect", "--from-here", "-o", f"{HOST}{tmp_path}/golden.toml")
    assert (wrote.code, wrote.out, wrote.err) == (0, "", "")
    golden = f"{HOST}{tmp_path}/golden.toml"
    ran = on("hgx-h100", "check", "--expect", golden)
    assert ran.code == 0, ran.out
    assert " lines hold.\n" in ran.out
    assert on("nvlink-three-links-h100", "check", "--expect", golden).code == 1


def test_from_a_machine_that_is_not_sound_it_is_written_with_a_warning(on: Run) -> None:
    ran = on("nvlink-three-links-h100", "expect", "--from-here", "--level", "quick")
    assert ran.code == 0
    assert ran.out.startswith("# What a machine must be")
    assert ran.err.endswith(" is not sound (gpu.nvlink-down): the profile describes it as it is\n")


def test_a_line_that_cannot_be_judged_exits_with_3(on: Run, tmp_path: Path) -> None:
    path = put(tmp_path, "[expect]\ngpu.count = 8\ncollective.right = true")
    assert on("hgx-h100", "check", "--expect", f"{HOST}{path}").code == 0  # no check of one machine measures it
    path = put(tmp_path, '[expect]\ngpu.count = 8\nmanifest.kind = "pip"')  # no probe answers for it
    ran = on("hgx-h100", "check", "--expect", f"{HOST}{path}", "--json")
    assert (ran.code, ran.document["verdict"]) == (3, "unknown")
    because = {item["id"]: item["because"] for item in ran.document["unjudged"]}
    assert because["expect.manifest-kind"] == "manifest.kind: not asked"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("snapshots")
    return {name: saved(name, folder) for name in ("hgx-h100", "hgx-h200", "hgx-a100")}


def test_a_snapshot_of_somebody_elses_machine_is_held_to_a_profile(called: Program, snapshots: dict[str, str]) -> None:
    assert called("read", snapshots["hgx-h100"], "--expect", "hgx-h100").code == 0
    both = called("read", *snapshots.values(), "--expect", "hgx-h100", "--json")
    assert both.code == 1
    verdicts = [json.loads(line)["verdict"] for line in both.out.splitlines()]
    assert verdicts == ["sound", "broken", "broken"]


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_every_view_shows_what_is_unmet(called: Program, snapshots: dict[str, str], form: str) -> None:
    ran = called("read", snapshots["hgx-a100"], "--expect", "hgx-h100", "--format", form)
    plain = " ".join(ran.out.split())
    assert "gpu.name is NVIDIA A100-SXM4-80GB on all 8 GPUs, expected NVIDIA H100 80GB HBM3" in plain
    assert "As expected by hgx-h100" in plain


def test_a_profile_from_several_snapshots(called: Program, snapshots: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "both.toml"
    ran = called("expect", "--from", snapshots["hgx-h100"], snapshots["hgx-h200"], "--name", "hopper", "-o", str(out))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert 'profile = "hopper"' in out.read_text()
    for name, code in (("hgx-h100", 0), ("hgx-h200", 0), ("hgx-a100", 1)):
        assert called("read", snapshots[name], "--expect", str(out)).code == code


def test_profiles_that_ship_are_listed_shown_and_extended(called: Program, tmp_path: Path) -> None:
    listed = called("expect", "list")
    assert listed.code == 0
    assert "aws-p5.48xlarge" in listed.out
    shown = called("expect", "show", "hgx-h100").out
    path = put(
        tmp_path, shown.replace('profile = "hgx-h100"', 'profile = "mine"').replace("gpu.count = 8", "gpu.count = 4")
    )
    assert 'profile = "mine"' in path.read_text()
    assert called("check", "--level", "quick", "--expect", str(path)).code == 1  # there is no GPU here


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("check", "--expect", "hgx-h10"), "did you mean hgx-h100"),
        (("preflight", "--expect", "nowhere.toml"), "nowhere.toml: no such file"),
        (("expect",), "one of list, show NAME, --from-here, --from FILE"),
        (("expect", "list", "--from-here"), "one of list, show NAME, --from-here, --from FILE"),
        (("expect", "show"), "which one?"),
        (("expect", "list", "hgx-h100"), "one of list, show NAME"),
        (("expect", "--from-here", "--name", "Ours"), "a profile's name is in lower case"),
        (("expect", "show", "hgx"), "no profile of that name ships"),
        (("expect", "--from", "nowhere.json"), "nowhere.json"),
    ],
)
def test_misuse_is_said_in_a_line_and_exits_with_2(called: Program, words: tuple[str, ...], says: str) -> None:
    ran = called(*words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_explain_knows_the_id_of_a_line(called: Program) -> None:
    said = called("explain", "expect.driver-version")
    assert said.code == 0
    assert "a line of an expectation profile" in said.out
    assert "driver.version  (version)" in said.out


def test_every_host_of_a_fleet_is_held_to_it(called: Program, tmp_path: Path) -> None:
    for name in ("hgx-h100", "hgx-a100"):
        document = pipeline.diagnose(machine(name), BOOK).to_json()
        target = document["target"]
        assert isinstance(target, dict)
        document["target"] = {**target, "name": name}
        (tmp_path / f"{name}.json").write_text(json.dumps(document), "utf-8")
    assert called("fleet", str(tmp_path), "--json").code == 0
    ran = called("fleet", str(tmp_path), "--expect", "hgx-h100", "--json")
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
