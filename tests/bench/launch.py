"""How long until one can read something? gpudoctor beside the smallest Textual app, taken in turn on a pseudo-terminal.

python -m tests.bench.launch [--runs N]

From exec to the first frame with words on it: the band of gpudoctor, the one line of the small app. Compiled both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from tests.tui.terminal import Terminal

LIMIT = 1.8
SIZES = ((80, 24), (160, 48))
SMALLEST = """
from textual.app import App
from textual.widgets import Static

class Smallest(App):
    def compose(self):
        yield Static("SMALLEST")

Smallest().run()
"""
READABLE = ("READING", "SOUND", "BROKEN", "IMPAIRED", "UNKNOWN")


def seconds(words: list[str], wanted: tuple[str, ...], size: tuple[int, int]) -> float:
    """From exec until one of the words is drawn."""
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled, and so is theirs
    with Terminal(words, size, environ) as program:
        return program.wait_for(*wanted)


def main() -> None:
    """Print one line a size: both medians, and the median of the ratios of the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="counted pairs of runs (default: 15)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        (small := Path(folder, "smallest.py")).write_text(SMALLEST)
        for size in SIZES:
            pairs = []
            for _ in range(runs + 1):
                ours = seconds(["-m", "gpudoctor"], READABLE, size)
                theirs = seconds([str(small)], ("SMALLEST",), size)
                pairs.append((ours, theirs))
            mine, other = (statistics.median(column) for column in zip(*pairs[1:], strict=True))
            ratio = statistics.median(ours / theirs for ours, theirs in pairs[1:])
            print(f"{size[0]}x{size[1]}: {mine:.3f} s / {other:.3f} s = {ratio:.2f} (limit {LIMIT})")


if __name__ == "__main__":
    main()
