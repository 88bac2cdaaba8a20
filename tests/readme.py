"""The parts of README.md and of the documentation that the program itself says.

``python -m tests.readme --write`` brings them up to date.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path

from gpudoctor.app import pipeline, reading
from gpudoctor.core import language
from gpudoctor.core.language import speaking
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.page_cache import home
from gpudoctor.diagnosis.rulebook.compiled import translations
from gpudoctor.views import text
from gpudoctor.views._terminal import Style
from tests.needs import REPOSITORY

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "gpudoctor/app/docs"
SITE = DOCS / "site-rules" / "driver" / "site.driver-branch.toml"
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
    said = text.render(pipeline.diagnose(reading.snapshot_of(REPORT, "-"), rulebook.load(), today=TODAY))
    return f"```console\n$ cat report.txt\n{REPORT}$ gpudoctor read{_lang()} - < report.txt\n{said}\n```"


def _lang() -> str:
    """What is typed for the language that is spoken."""
    return "" if language.current() == language.ENGLISH else f" --lang {language.current()}"


def first() -> str:
    """The same, as far as the first finding goes, and the counts."""
    begins = f"\n\n{language.say('ERROR')}"
    head, _, rest = report().partition(begins)
    finding = rest.partition(begins)[0]
    counts = rest.rstrip("`\n").rpartition("\n")[2]
    return f"{head}{begins}{finding}\n\n...\n{counts}\n```"


def running() -> str:
    """What a recorded run and a recorded job are told of, as far as the sentence of what was found."""
    from gpudoctor.app import demos

    shown = []
    for command, name in (("run -- python train.py grow", "oom-killed"), ("job 4711", "stuck-loader")):
        said = demos.own_report(demos.named(name).diagnosis())
        head, _, rest = said.partition(f"\n\n{language.say('WARNING')}  ")
        finding = re.split(r"\n  (?=\S)", rest)[0]
        shown.append(f"$ gpudoctor {command}\n{head}\n\n{language.say('WARNING')}  {finding}\n...")
    return f"```console\n{chr(10).join(shown)}\n```"


def chinese(part: Callable[[], str]) -> Callable[[], str]:
    """That part as it is in Chinese."""

    def said() -> str:
        with speaking("zh"):
            return part()

    return said


def translated() -> str:
    """The rules that have a page in the language that is spoken."""
    book = rulebook.load()
    origins = translations(home(), language.current())
    there = [rule for rule in (*book.rules, *book.cluster) if rule.origin in origins]
    rows = [f"| `{rule.id}` | {rule.title} | {language.say(rule.severity)} |" for rule in there]
    return "\n".join(["| 规则 | 说什么 | 级别 |", "|---|---|---|", *rows])


def site() -> str:
    """A page of a site's own."""
    return f"```toml\n{SITE.read_text('utf-8').rstrip()}\n```"


MACHINE = "gpu=V100+RTX 4090,driver=580,python=3.12,os=linux,arch=x86_64"
CPU_BUILD = """\
PyTorch version: 2.9.0+cpu
Is CUDA available: False
OS: Ubuntu 22.04.5 LTS (x86_64)
Python version: 3.11.9 (64-bit runtime)
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 3090
Nvidia driver version: 535.183.01
"""


def stack() -> str:
    """What fits a machine that is described."""
    from gpudoctor.fixes.solver import stacks
    from gpudoctor.fixes.solver.described_machine import parse_machine
    from gpudoctor.fixes.solver.environment import Environment
    from gpudoctor.views import stack as view

    said = view.render(stacks.stack(parse_machine(MACHINE), Environment()), "pip", Style())
    return f'```console\n$ gpudoctor setup torch{_lang()} --for "{MACHINE}"\n{said}\n```'


def plan() -> str:
    """The plan for a report, as it is printed."""
    from gpudoctor.fixes import plan as plans
    from gpudoctor.fixes.effects import predict
    from gpudoctor.views import plan as view

    book = rulebook.load()
    diagnosis = pipeline.diagnose(reading.snapshot_of(CPU_BUILD, "cpu.txt"), book, today=TODAY)
    judge = pipeline.judging(())
    made = plans.plan_for(diagnosis, judge=judge)
    said = view.render(made, foreseen=predict(diagnosis, made, judge))
    return f"```console\n$ gpudoctor fix --dry-run --read cpu.txt\n{said}\n```"


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
    from gpudoctor.app import demos

    rows = [f"| `{demo.name}` | {demo.title} | {demo.machine} |" for demo in demos.every()]
    return "\n".join(["| name | what is wrong | machine |", "|---|---|---|", *rows])


def recipe_list() -> str:
    """What ships for provisioning, CI and schedulers, in a table."""
    from gpudoctor.app.commands import bundled

    rows = [f"| `{name}` | {title} |" for name, title in bundled.recipe_titles().items()]
    return "\n".join(["| recipe | what it does |", "|---|---|", *rows])


def speed() -> str:
    """How fast and how large it is, beside others: the figures that were measured last."""
    from tests.bench import figures

    return figures.stored()


def generated(current: str) -> str:
    """A page of the documentation with its generated parts made anew."""
    parts = {
        "first": first,
        "first_zh": chinese(first),
        "running": running,
        "rules_zh": chinese(translated),
        "stack_zh": chinese(stack),
        "site": site,
        "report": report,
        "stack": stack,
        "plan": plan,
        "page": page,
        "rules": rules,
        "gallery": gallery,
        "keys": keys,
        "demos": demo_list,
        "speed": speed,
        "recipes": recipe_list,
    }

    def fill(match: re.Match[str]) -> str:
        return f"<!-- generated: {match[1]} -->\n\n{parts[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- generated: (\w+) -->.*?<!-- end -->", fill, current, flags=re.DOTALL)


def pages() -> list[Path]:
    """README.md and what it leads to."""
    return [README, *sorted(DOCS.glob("*.md"))]


if __name__ == "__main__":
    for place in pages():
        made = generated(place.read_text("utf-8"))
        if "--write" in sys.argv:
            place.write_text(made, "utf-8")
        else:
            sys.stdout.write(made)
