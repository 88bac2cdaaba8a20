"""Every simulated machine under the unmodified program: what it finds, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_read
from gpudoctor.views import schema
from tests import rates
from tests.sim import scenario
from tests.sim.documents import Documents, sampled

HEALTHY = [scenario.PROFILES / f"{name}.json" for name in scenario.names(scenario.PROFILES)]
SICK = [scenario.SICK / f"{name}.json" for name in scenario.names(scenario.SICK)]


def test_there_are_enough_of_them() -> None:
    assert len(HEALTHY) >= 20
    assert len(HEALTHY) + len(SICK) >= 90


@pytest.mark.parametrize("path", sampled(HEALTHY + SICK))
def test_scenario(path: Path, documents: Documents) -> None:
    record, ran = documents.of(path)
    assert ran.err == ""
    loud = [one["id"] for one in ran.document["findings"] if one["severity"] != "info"]
    assert loud == record.expect["ids"], ran.out
    assert ran.code == record.expect["exit"]
    for text in record.expect.get("says", ()):
        assert text in ran.out


@pytest.mark.parametrize("path", sampled(HEALTHY))
def test_a_healthy_machine_is_sound_and_the_document_valid(path: Path, documents: Documents) -> None:
    import jsonschema

    record, ran = documents.of(path)
    assert record.expect["ids"] == []
    assert ran.document["verdict"] == "sound"
    jsonschema.validate(ran.document, json.loads(schema.text()))


@pytest.mark.full
def test_every_cause_of_the_lower_layers_is_found_on_some_machine(documents: Documents) -> None:
    """Each page of these folders fires through the real program; see `expect.ids` for the machines.

    Those over what kernels measured have machines of their own, in tests/rates.py; those over files, examples of these
    in tests/readers/files; those over what only a cluster or a program prints, what it prints in
    tests/readers/messages.
    """
    printed = {"container.kubernetes-gpus", "env.libc-too-old", "host.disk-full", "host.slurm-gpus"}
    of_history = {"gpu.below-own-best"}  # tests/diagnosis/history
    of_windows = {  # tests/windows
        *("driver.device-problem", "driver.model-pending", "env.dll-blocked", "env.path-length", "env.python-32-bit"),
        *("env.store-python", "env.vc-runtime", "gpu.reset-by-windows", "host.page-file", "host.wsl-no-gpu"),
    }
    layers = ("host", "driver", "gpu", "env", "container", "wsl")
    book = rulebook.load()
    pages = {rule.id for rule in book.rules if rule.layer in layers and "manifest.kind" not in facts_read(rule)}
    found = {one["id"] for path in SICK for one in documents.of(path)[1].document["findings"]}
    assert pages - found - {page for _, page, _ in rates.sick().values()} == printed | of_windows | of_history
