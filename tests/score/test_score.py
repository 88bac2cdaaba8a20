"""On labelled reports of real machines the first finding is the cause; these floors only ever rise."""

import re
import sys

from tests.needs import labelled_reports
from tests.processes import finished

TOP1, TOP3, FALSE_ALARMS = 0.95, 0.97, 0.0


def test_the_score_does_not_fall() -> None:
    folder = labelled_reports()
    argv = [sys.executable, str(folder / "score.py"), str(folder / "cases")]
    done = finished([*argv, "--gpudoctor", f"{sys.executable} -m gpudoctor"], timeout=None)
    assert done.code == 0, done.err
    figures = re.search(r"top1 ([\d.]+) .* top3 ([\d.]+) false-alarms ([\d.]+)", done.out)
    assert figures, done.out
    top1, top3, alarms = map(float, figures.groups())
    assert top1 >= TOP1
    assert top3 >= TOP3
    assert alarms <= FALSE_ALARMS
