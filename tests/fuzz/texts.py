"""Whole texts made to be costly, and what reading and judging them takes.

python -m tests.fuzz.texts [--texts N] [--seed N]

Each text repeats what drives some patterns of pages and readers to despair (`tests.fuzz.hostile`), between words that
make others try, on lines of any width. Ends with 1 where one takes more than `time_limit` allows.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence

from gpudoctor.app.pipeline import diagnose
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import read_text
from tests.corpus import BOOK
from tests.fuzz.examine import time_limit
from tests.fuzz.hostile import Shape, lines, long_lines, reader_patterns, shapes

_SIZES = (4_000, 20_000, 60_000, 120_000, 400_000)
_COMMON = (1, 4, 8, 6, 1)
"""How often each size is taken: a text of 400 kB is one of twenty."""


def all_shapes(book: rulebook.Rulebook) -> list[Shape]:
    """Every kind of line that may drive a page's or a reader's pattern to despair."""
    found = [shape for rule in book.rules for sign in rule.signs for shape in shapes(sign.match, sign.required_words)]
    found += [shape for _, pattern in reader_patterns() for shape in long_lines(pattern)]
    return list(dict.fromkeys(found))


def texts(found: Sequence[Shape], seed: int) -> Iterator[str]:
    """Texts without end, each of one to six shapes."""
    rng = random.Random(seed)
    while True:
        size = rng.choices(_SIZES, _COMMON)[0]
        chosen = [rng.choice(found) for _ in range(rng.choice((1, 1, 2, 6)))]
        if rng.random() < 0.3:
            chosen = [shape._replace(width=rng.choice((60, 300, 1200, 4000))) for shape in chosen]
        body = [line for shape in chosen for line in lines(shape, size // len(chosen))]
        if rng.random() < 0.5:
            rng.shuffle(body)
        yield "\n".join(body)


def cost(text: str) -> float:
    """Seconds of processor time to read and judge it."""
    started = time.process_time()
    diagnose(read_text(text, "hostile"), BOOK)
    return time.process_time() - started


def main() -> int:
    """Print the costliest texts and each that costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made = texts(all_shapes(BOOK), options.seed)
    cost("warm cuda")
    costs = []
    for number in range(options.texts):
        text = next(made)
        costs.append((cost(text), len(text), number, text[:60]))
    over = [one for one in costs if one[0] > time_limit(one[1])]
    costs.sort(reverse=True)
    for seconds, size, number, begins in costs[:10]:
        print(f"{seconds:6.2f} s  {size / 1000:6.0f} kB  text {number}: {begins!r}")
    whole = sum(one[0] for one in costs)
    middle = costs[len(costs) // 2][0]
    print(f"{len(costs)} texts, {whole:.0f} s in all, median {middle:.2f} s; {len(over)} over the limit")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
