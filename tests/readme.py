"""The parts of README.md that the program itself says: ``python -m tests.readme --write`` brings them up to date."""

from __future__ import annotations

import asyncio
import re
import sys

from gpudoctor import doctor, rulebook
from gpudoctor.pages import home
from gpudoctor.views import text
from tests.needs import REPOSITORY

README = REPOSITORY / "README.md"
REPORT = """\
PyTorch version: 2.13.0+cpu
Is CUDA available: False
OS: Ubuntu 24.04.3 LTS (x86_64)
Python version: 3.12.3 (64-bit runtime)
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version: 470.57.02
"""
TODAY = "2026-11-21"
PAGE = "gpu/gpu.compute-mode.toml"


def report() -> str:
    """A pasted report and what is said of it."""
    said = text.render(doctor.diagnose(doctor.snapshot_of(REPORT, "-"), rulebook.load(), today=TODAY))
    return f"```console\n$ cat report.txt\n{REPORT}$ gpudoctor read - < report.txt\n{said}\n```"


def page() -> str:
    """One page, without its cases after the first."""
    source = (home() / PAGE).read_text("utf-8")
    head, *cases = source.split("[[case]]")
    return f"```toml\n{head}[[case]]{cases[0].rstrip()}\n```"


def rules() -> str:
    """All rules as a table."""
    rows = ["| rule | says | severity |", "|---|---|---|"]
    book = rulebook.load()
    rows += [f"| `{rule.id}` | {rule.title} | {rule.severity} |" for rule in book.rules]
    rows += [f"| `{rule.id}` (many machines) | {rule.title} | {rule.severity} |" for rule in book.cluster]
    return "\n".join(rows)


def gallery() -> str:
    """The interface in pictures."""
    from tests import screenshots

    return screenshots.gallery()


def keys() -> str:
    """The interface's keys."""
    from tests import screenshots

    return asyncio.run(screenshots.keys())


def demo_list() -> str:
    """The recorded machines, in a table."""
    from gpudoctor import demos

    rows = [f"| `{demo.name}` | {demo.title} | {demo.machine} |" for demo in demos.every()]
    return "\n".join(["| name | what is wrong | machine |", "|---|---|---|", *rows])


def generated(current: str) -> str:
    """The README with its generated parts made anew."""
    parts = {"report": report, "page": page, "rules": rules, "gallery": gallery, "keys": keys, "demos": demo_list}

    def fill(match: re.Match[str]) -> str:
        return f"<!-- generated: {match[1]} -->\n\n{parts[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- generated: (\w+) -->.*?<!-- end -->", fill, current, flags=re.DOTALL)


if __name__ == "__main__":
    made = generated(README.read_text("utf-8"))
    if "--write" in sys.argv:
        README.write_text(made, "utf-8")
    else:
        sys.stdout.write(made)
