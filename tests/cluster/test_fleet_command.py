"""``gpudoctor fleet`` and ``gpudoctor read`` on what many hosts wrote: reports, exit codes, misuse."""

import builtins
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import pipeline
from gpudoctor.app.cli import run
from gpudoctor.cluster.fleet.remote import Question
from gpudoctor.core.diagnosis import from_json
from gpudoctor.core.language import speaking
from gpudoctor.diagnosis import rulebook
from tests.cluster.fleet_documents import LOST, hosts
from tests.cluster.test_fleet_fold import OLD

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What five hosts wrote: one of them lost a GPU, one has another driver."""
    return written(tmp_path, n2=LOST, n4=OLD)


def written(folder: Path, **facts: Mapping[str, Any]) -> Path:
    """A file for each of five hosts, with a keyword's facts on the host of that name."""
    for number, text in enumerate(hosts(5, **facts), 1):
        (folder / f"n{number}.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("facts", "more", "code"),
    [({}, [], 0), ({"n4": OLD}, [], 0), ({"n4": OLD}, ["--strict"], 1), ({"n2": LOST}, [], 1)],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, capsys: Capture, facts: dict[str, Mapping[str, Any]], more: list[str], code: int
) -> None:
    assert run(["fleet", str(written(tmp_path, **facts)), *more]) == code
    assert capsys.readouterr().err == ""


def test_a_silent_host_is_exit_3(tmp_path: Path, capsys: Capture) -> None:
    written(tmp_path)
    (tmp_path / "n6.json").write_text("sh: gpudoctor: not found\n")
    assert run(["fleet", str(tmp_path)]) == 3
    assert "UNKNOWN: 1 of 6 hosts gave no answer; 5 may train" in capsys.readouterr().out


def test_the_json_is_one_document_on_one_line(folder: Path, capsys: Capture) -> None:
    run(["fleet", str(folder), "--json", "--scheduler", "slurm"])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    diagnosis = from_json(json.loads(out))
    assert diagnosis.fleet
    assert diagnosis.fleet.drain[0].argv[2] == "NodeName=n2"


def test_a_saved_fleet_reads_as_it_was_written(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    run(["fleet", str(folder)])
    report = capsys.readouterr().out
    run(["fleet", str(folder), "--json"])
    (tmp_path / "fleet.json").write_text(capsys.readouterr().out)
    assert run(["read", str(tmp_path / "fleet.json")]) == 1
    assert capsys.readouterr().out == report


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_the_other_forms_tell_the_same(folder: Path, capsys: Capture, form: str) -> None:
    run(["fleet", str(folder), "--format", form])
    out = capsys.readouterr().out
    assert "no longer answers on the PCI bus on n2" in out
    assert "560.35.03 on 1 of 5 hosts" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of --hosts NODESET, --slurm, or the files"),
        (["--slurm", "x.json"], "give one of"),
        (["nothere.json"], "nothere.json: no such file or folder"),
        (["--hosts", "n[1-"], "a node set is written node"),
        (["--hosts=-oProxyCommand=x"], "no host is called so"),
        (["--hosts", "n1", "--tui"], "needs a terminal"),
        (["--partition", "all"], "Slurm"),
    ],
)
def test_misuse_says_what_to_do(words: list[str], said: str, capsys: Capture) -> None:
    assert run(["fleet", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--budget", "soon"], ["--fanout", "0"], ["--program", "a 'b"]])
def test_options_that_cannot_be_meant_are_refused(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["fleet", "--hosts", "n1", *words])
    assert ended.value.code == 2


def test_without_clustershell_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    real = builtins.__import__

    def none(name: str, *rest: Any) -> Any:
        if name.startswith("ClusterShell"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    for name in [name for name in sys.modules if name.startswith("ClusterShell")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", none)
    assert run(["fleet", "--hosts", "n1"]) == 2
    assert "pip install 'gpudoctor[fleet]'" in capsys.readouterr().err


def test_hosts_are_asked_in_the_language_of_the_one_who_asks(tmp_path: Path) -> None:
    ours = f"{sys.executable} -m gpudoctor"
    assert "--lang" not in Question(program=ours).argv
    asked = ["sh", "-c", Question(program=ours, language="zh").time_limited_command(60)]
    document = json.loads(subprocess.run(asked, check=False, capture_output=True, timeout=600).stdout)
    with speaking("zh"):
        titles = {rule.title for rule in rulebook.load().rules if not rule.title.isascii()}
        alone = pipeline.check("quick")
    assert titles
    assert [finding["title"] for finding in document["findings"]] == [finding.title for finding in alone.findings]
