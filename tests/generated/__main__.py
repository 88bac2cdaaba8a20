"""``python -m tests.generated --all``: the whole run, with its figures."""

import argparse
from itertools import islice

from gpudoctor.diagnosis import rulebook
from tests.diagnosis.test_table_reach import new_alarms, profiles
from tests.generated.beyond import machines
from tests.generated.changes import broken, changes
from tests.generated.figures import Figures
from tests.generated.sound import sound


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--all", action="store_true", help="15,000 sound and about 9,000 changed environments")
    parser.add_argument(
        "--seed", type=int, default=1, help="another seed makes other environments (default %(default)s)"
    )
    parser.add_argument(
        "--beyond", metavar="N", type=int, help="instead, so many machines of tomorrow, each as text too"
    )
    asked = parser.parse_args()
    if asked.beyond:
        found = [
            line for raised in islice(machines(asked.seed, profiles()), asked.beyond) for line in new_alarms(raised)
        ]
        print(*found, f"{asked.beyond} machines and their pastes: {len(found)} errors and warnings", sep="\n")
        return int(bool(found))
    book = rulebook.load([])
    whole, changed = Figures(book), Figures(book)
    whole.sound(islice(sound(asked.seed), 15_000 if asked.all else 500))
    print("sound:", whole)
    changed.broken(broken(asked.seed, 100 if asked.all else 5))
    print(f"changed in one of {len(changes())} ways:", changed)
    for line in [*whole.alarms[:20], *changed.missed[:20]]:
        print(" ", line)
    return int(bool(whole.alarms) or changed.first < 0.98)


if __name__ == "__main__":
    raise SystemExit(main())
