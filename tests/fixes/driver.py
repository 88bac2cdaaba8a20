"""The engine in a process of its own, to be killed: ``FOLDER apply PLAN`` or ``FOLDER undo RUN``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gpudoctor.core import plan as plans
from tests.fixes.index import Index
from tests.fixes.place import Place


def main(folder: str, what: str, name: str) -> None:
    """Do it in the place that lies there."""
    place = Place(Path(folder), Index(Path(folder)))
    if what == "apply":
        run = place.apply(plans.from_json(json.loads(Path(name).read_text("utf-8"))))
    else:
        run = place.undo(place.journals.load(name))
    sys.stdout.write(f"{run.id} {run.outcome} {run.why}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
