"""The systemd units: systemd takes them, they hide nothing that is to be seen, and what they run writes the figures."""

import configparser
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests import needs
from tests.app.recipes.node import CAUSE, CODES, HEALTHY, SICK, UNKNOWN, Node, recipe

FIGURES = "/var/lib/prometheus/node-exporter/gpudoctor.prom"
_HIDING = {"PrivateDevices", "ProtectClock", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"}


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe("systemd", tmp_path_factory.mktemp("recipe"))


def test_systemd_takes_both_units_and_would_find_a_wrong_word(systemd: Path, tmp_path: Path) -> None:
    for name in ("gpudoctor.service", "gpudoctor.timer"):
        text = (systemd / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/bin/gpudoctor", needs.program("true")))
    assert _verified(tmp_path) == ""
    with (tmp_path / "gpudoctor.timer").open("a") as file:
        file.write("[Timer]\nOnBoot=2min\n")
    assert "'OnBoot'" in _verified(tmp_path)


def test_it_sees_the_machine_as_it_is(systemd: Path) -> None:
    assert not _HIDING & set(_service(systemd))


@pytest.mark.parametrize("machine", [HEALTHY, SICK, UNKNOWN])
def test_the_figures_are_there_and_the_unit_fails_where_an_error_is(node: Node, systemd: Path, machine: str) -> None:
    node.becomes(machine)
    place = node.place(FIGURES)
    place.parent.mkdir(parents=True)
    service = _service(systemd)
    command = service["ExecStart"].replace(FIGURES, str(place)).split()
    assert command[0] == "/usr/local/bin/gpudoctor"
    ran = node.run(["gpudoctor", *command[1:]])
    assert (ran.returncode, ran.stdout) == (CODES[machine], "")
    fails = ran.returncode not in {0, int(service["SuccessExitStatus"])}
    assert fails == (machine == SICK)
    found = dict(_figures(place))
    errors = [one["id"] for one in found["gpudoctor_finding"] if one["severity"] == "error"]
    assert errors == ([CAUSE] if machine == SICK else [])


def test_the_alerts_are_about_figures_that_there_are(node: Node, systemd: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", (systemd / "README.md").read_text(), re.DOTALL)
    assert block
    (group,) = yaml.safe_load(block[1])["groups"]
    wanted = {name for rule in group["rules"] for name in re.findall(r"gpudoctor_\w+", rule["expr"])}
    place = node.root / "gpudoctor.prom"
    node.run(["gpudoctor", "check", "--format", "prometheus", "-o", str(place)])
    assert wanted == {"gpudoctor_verdict", "gpudoctor_check_timestamp_seconds"}
    assert wanted <= {name for name, _ in _figures(place)}


def _verified(folder: Path) -> str:
    units = [str(folder / name) for name in ("gpudoctor.service", "gpudoctor.timer")]
    checker = [needs.program("systemd-analyze"), "verify", "--man=no", *units]
    return subprocess.run(checker, check=False, capture_output=True, text=True, timeout=600).stderr


def _service(systemd: Path) -> dict[str, str]:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(systemd / "gpudoctor.service")
    return dict(unit["Service"])


def _figures(place: Path) -> list[tuple[str, list[dict[str, str]]]]:
    families = text_string_to_metric_families(place.read_text())
    return [(one.name, [dict(sample.labels) for sample in one.samples]) for one in families]
