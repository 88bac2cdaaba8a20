"""Who is named among simulated hosts, and who wrongly.

python -m tests.cluster.fabric [--trials 500] [--seed N] [SCENE...]

The scene ``rails`` has 1,024 hosts with 8 ports each. Ends with 1 where a scene of the promises (one slow and one dead
of 1,024; rails) keeps it not.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster.fabric import rails
from tests.cluster.fabric.trials import SCENES, Figures, trials

RAILS = "rails"
PROMISED = {"one_slow_one_dead": 4, RAILS: 6}
"""The most rounds of the scenes in which 99 % are named, and an innocent one in half of a percent."""


def main() -> int:
    """The exit code."""
    words = argparse.ArgumentParser(prog="python -m tests.cluster.fabric")
    words.add_argument("--trials", type=int, default=500)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--wrong", action="store_true", help="also say what went wrong")
    scenes = [*SCENES, RAILS]
    words.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(scenes)}; all where none is given")
    asked = words.parse_args()
    kept = True
    for scene in asked.scenes or scenes:
        begun = time.monotonic()
        of_ports = rails.trials(asked.trials, asked.seed, 1024, 8) if scene == RAILS else None
        figures = of_ports or trials(scene, asked.trials, asked.seed)
        took = time.monotonic() - begun
        sys.stdout.write(
            f"{scene:18} {asked.trials} trials: all named in {figures.named:.1%}, an innocent one suspected in "
            f"{figures.wronged:.1%}, at most {figures.rounds} rounds, {took:.1f} s\n"
        )
        if asked.wrong and isinstance(figures, Figures):
            _wrong(figures, asked.seed)
        if most := PROMISED.get(scene):
            kept = kept and figures.named >= 0.99 and figures.wronged <= 0.005 and figures.rounds <= most
    return not kept


def _wrong(figures: Figures, seed: int) -> None:
    for at, trial in enumerate(figures.trials, seed):
        for fault in trial.missed:
            sys.stdout.write(f"  seed {at}, {len(trial.fabric.hosts)} hosts: missed {fault}\n")
        for suspect in trial.innocent:
            sys.stdout.write(f"  seed {at}, {len(trial.fabric.hosts)} hosts: innocent {suspect.words}\n")


if __name__ == "__main__":
    sys.exit(main())
