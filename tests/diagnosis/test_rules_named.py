"""What a page names once: the name means its expression wherever the page, or its translation, has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.diagnosis import rulebook
from tests.conftest import Program
from tests.corpus import speaking
from tests.diagnosis.test_rules_errors import PAGE, WHEN, written

NAMED = """\
id = "site.full"
title = "GPUs are full"
severity = "warning"
let.full = "[g.index for g in gpu if g.memory_used_mib > 0.9 * g.memory_mib]"
let.many = '''(
  len(full) > 1  # names above it mean the same
)'''
when = ["len(full) > 0", "not (many and gpu.count > 8)"]
unless = ["gpu.count == 0 and many"]
finding = "{'GPUs' if many else 'GPU'} {words(full) | some}: full; {gpu.count | all} there are"
why = "Nothing fits into {words(full)}."
misses = "full is a word here, and many another."
sources = ["the handbook, 2026-11"]

[[sign]]
match = 'the full (?P<what>\\w+) list'
weight = "conclusive"
when = ["not many"]
finding = "The {what} list is full: {len(full) | none} GPUs"

[[fix]]
title = "Make room on {words(full)}"
when = ["len(full) < 3"]
steps = [
  { argv = ["echo", "{words(full)}", "full"], when = ["many"], makes = { "gpu.count" = "{len(full)}" } },
]

[[case]]
name = "two are"
finds = "GPUs 0, 1: full; 2 there are"
[case.facts]
"gpu.count" = 2
gpu = [
  { index = 0, memory_mib = 100, memory_used_mib = 99 },
  { index = 1, memory_mib = 100, memory_used_mib = 98 },
]

[[case]]
name = "none is"
facts = { gpu = [{ index = 0, memory_mib = 100, memory_used_mib = 9 }], "gpu.count" = 1 }
passes = true

[[case]]
name = "nobody looked"
facts = { gpu = { unread = "NVML hangs" } }
unjudged = "NVML hangs"

[[case]]
name = "a line says so"
report = "the full waiting list"
facts = { gpu = [{ index = 0, memory_mib = 100, memory_used_mib = 99 }], "gpu.count" = 9 }
finds = "GPU 0: full; 9 there are"
"""


def test_a_name_means_its_expression(called: Program, tmp_path: Path) -> None:
    page = tmp_path / "gpu" / "site.full.toml"
    page.parent.mkdir()
    page.write_text(NAMED, "utf-8")
    done = called("rules", "test", str(tmp_path))
    assert (done.code, done.out, done.err) == (0, "4 cases passed, 0 failed, on 1 pages\n", "")
    rule = rulebook.load([tmp_path]).find("site.full")
    assert rule is not None
    full = "[g.index for g in gpu if g.memory_used_mib > 0.9 * g.memory_mib]"
    assert rule.when[0] == f"len(({full})) > 0"
    assert rule.why == f"Nothing fits into {{words(({full}))}}."
    assert rule.misses == "full is a word here, and many another."
    assert rule.signs[0].finding == f"The {{what}} list is full: {{len(({full})) | none}} GPUs"
    fix = rule.fixes[0]
    assert (fix.title, fix.when) == (f"Make room on {{words(({full}))}}", (f"len(({full})) < 3",))
    assert fix.steps[0].argv == ("echo", f"{{words(({full}))}}", "full")
    assert fix.steps[0].makes == (("gpu.count", f"{{len(({full}))}}"),)
    assert full in fix.steps[0].when[0]


def test_a_translation_says_the_name_too(called: Program, tmp_path: Path) -> None:
    page = written(tmp_path, f'when = ["{WHEN}"]', f'let.mib = "limits.shm_mib"\nwhen = ["{WHEN}"]')
    page.write_text(page.read_text("utf-8").replace('"{limits.shm_mib} MiB"', '"{mib} MiB"', 1), "utf-8")
    translated = tmp_path / "zh" / "env" / page.name
    translated.parent.mkdir(parents=True)
    words = 'title = "小"\nfinding = "共享内存：{mib} MiB"\nwhy = "。"\nmisses = "。"\n'
    words += '[[fix]]\ntitle = "改"\nsteps = ["改"]\n'
    translated.write_text(f'of = "00000000"\n{words}', "utf-8")
    told = called("rules", "test", str(tmp_path))
    digest = told.out.partition('with of = "')[2][:8]
    translated.write_text(f'of = "{digest}"\n{words}', "utf-8")
    with speaking("zh"):
        rule = rulebook.load([tmp_path]).find("site.shm")
    assert rule is not None
    assert rule.finding == "共享内存：{(limits.shm_mib)} MiB"


@pytest.mark.parametrize(
    ("let", "condition", "line", "says"),
    [
        ('let.small = "limits.shm_mib < 64"', WHEN, 4, "let.small: nothing on the page uses it"),
        ('let.small = "limits.shm_mib <"', "small", 4, "let.small: not an expression"),
        ("let.small = 64", "small", 4, "let.small is text, in quotes, not 64"),
        ('let."a b" = "limits.shm_mib"', WHEN, 4, "let.a b: a name is letters, digits and _"),
        ('let = "limits.shm_mib"', WHEN, 4, 'let is written let.name = "an expression"'),
        ('let.gpu = "limits.shm_mib < 64"', "gpu", 4, "let.gpu: there are facts of that name"),
        ('let.words = "limits.shm_mib < 64"', "words", 4, "let.words: there is a function of that name"),
        ('let.g = "limits.shm_mib < 64"', "any(g.index > 1 for g in gpu)", 5, "cannot be a loop's variable as well"),
        ('let.small = "limits.shm_mb < 64"', "small", 0, "no fact limits.shm_mb; did you mean limits.shm_mib"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(
    called: Program, tmp_path: Path, let: str, condition: str, line: int, says: str
) -> None:
    path = written(tmp_path, f'when = ["{WHEN}"]', f'{let}\nwhen = ["{condition}"]')
    done = called("rules", "test", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"gpudoctor: {path}:{line}: " if line else "gpudoctor: ")
    assert says in done.err


def test_in_a_sentence_a_name_may_not_hold_what_parts_it(called: Program, tmp_path: Path) -> None:
    path = written(
        tmp_path, f'when = ["{WHEN}"]', f"let.own = '''matches(host.arch, 'x86|arm')'''\nwhen = [\"{WHEN}\"]"
    )
    path.write_text(path.read_text("utf-8").replace('"{limits.shm_mib} MiB"', '"{own}"', 1), "utf-8")
    done = called("rules", "test", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "{own}: what is named there holds '|'" in done.err


def test_a_captured_group_keeps_its_name(called: Program, tmp_path: Path) -> None:
    assert "[[fix]]" in PAGE
    path = written(tmp_path, "[[fix]]", "[[sign]]\nmatch = '(?P<room>a+)'\nweight = 'conclusive'\n\n[[fix]]")
    path.write_text(
        path.read_text("utf-8").replace(f'when = ["{WHEN}"]', f'let.room = "{WHEN}"\nwhen = ["room"]', 1), "utf-8"
    )
    done = called("rules", "test", str(tmp_path))
    assert (done.code, "let.room: a sign captures a group of that name" in done.err) == (2, True)
