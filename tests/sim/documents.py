"""Each simulated machine is diagnosed once a test run, whichever test or worker asks first."""

import fcntl
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from gpudoctor.target.record import Record
from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import Machine


def sampled(
    values: Sequence[Any], name: Callable[[Any], str] = lambda path: path.stem, one_of: int = 8
) -> list[ParameterSet]:
    """One of so many machines for every run, and all of them for ``pytest -m full``: each costs two seconds."""
    return [
        pytest.param(value, id=name(value), marks=pytest.mark.full if number % one_of else ())
        for number, value in enumerate(values)
    ]


class Documents:
    """Diagnoses by scenario file, kept in a folder that the workers of one run share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, path: Path) -> tuple[Record, Ran]:
        """The scenario and what ``gpudoctor --json`` made of it."""
        record = scenario.load(path)
        kept = self.folder / f"{path.parent.name}-{path.stem}.json"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                with tempfile.TemporaryDirectory() as root:
                    ran = Machine(record, Path(root)).gpudoctor(*record.expect.get("words", ("--json",)))
                kept.write_text(json.dumps(ran._asdict()), "utf-8")
        return record, Ran(**json.loads(kept.read_text("utf-8")))


def shared(factory: pytest.TempPathFactory) -> Documents:
    """The folder of this test run: under pytest-xdist each worker's own lies in one of the run's."""
    base = factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "simulated"
    folder.mkdir(exist_ok=True)
    return Documents(folder)
