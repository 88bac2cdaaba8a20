"""What is said of a page that is wrong, of a new one, and of what a page names once."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.app.arguments import COMMANDS
from gpudoctor.app.commands import rules
from gpudoctor.core.document import parse_toml
from gpudoctor.core.errors import RuleError
from gpudoctor.core.language import speaking, words
from gpudoctor.diagnosis import page_cache, rulebook
from gpudoctor.diagnosis.rulebook.check import BLANK
from tests import needs
from tests.conftest import Program

PAGE = """\
id = "site.shm"
title = "Shared memory is small"
severity = "warning"
when = ["limits.shm_mib < 16384"]
finding = "{limits.shm_mib} MiB"
why = "Data loaders use it."
misses = "Other limits."
sources = ["the handbook, 2026-11"]

[[fix]]
title = "Make it larger"
steps = [{ text = "Remount it." }]

[[case]]
name = "small"
facts = { "limits.shm_mib" = 64 }
finds = "64 MiB"

[[case]]
name = "large"
facts = { "limits.shm_mib" = 64000 }
passes = true

[[case]]
name = "not asked"
facts = { "limits.shm_mib" = { unread = "no right to" } }
unjudged = "no right to"
"""
WHEN = "limits.shm_mib < 16384"
IN_CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH_SENTENCE = re.compile(r"\b[A-Za-z]{2,}(?: [a-z]{2,}){2,}\b")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\[row[^]]*\]")
SMALL = 'facts = { "limits.shm_mib" = 64 }'


def written(folder: Path, old: str = "", new: str = "") -> Path:
    """The page with that changed."""
    assert old in PAGE
    path = folder / "env" / "site.shm.toml"
    path.parent.mkdir()
    path.write_text(PAGE.replace(old, new, 1), "utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (WHEN, "limits.shm_mib < '16 GiB'", 4, "a whole number in MiB, is compared with the text '16 GiB'"),
        (WHEN, "limits.shm_mib < '16 GiB'", 4, "write limits.shm_mib < 16384"),
        (WHEN, "'16384' > limits.shm_mib", 4, "write 16384 > limits.shm_mib"),
        (WHEN, "limits.shm_mib == 'plenty'", 4, "is compared with the text 'plenty'\n"),
        (WHEN, "host.distribution == 24", 4, "write host.distribution == '24'"),
        (
            WHEN,
            "gpu.memory_mib > gpu.name",
            4,
            "gpu.memory_mib, a whole number in MiB, is compared with gpu.name, text",
        ),
        (WHEN, "limits.shm_mib == None", 4, "write absent(limits.shm_mib) or present(limits.shm_mib)"),
        (WHEN, "driver.version < 580", 4, 'write version(driver.version) < "580"'),
        (WHEN, "driver.version < '580'", 4, "write version(driver.version)"),
        ("{limits.shm_mib} MiB", "no cache on {space}", 5, "space is rows, not a value: write len(space), or [row."),
        (WHEN, "version() < '580'", 4, "version(text) is called with none of these"),
        (WHEN, "limits.shm_mb < 16384", 4, "did you mean limits.shm_mib?"),
        (WHEN, "limits.shm_mb < 16384", 4, "`gpudoctor explain facts limits` lists what there is"),
        (WHEN, "any(g.mem > 1 for g in gpu)", 4, "no fact gpu.mem; did you mean gpu.memory_mib, "),
        (WHEN, "any(g in gpuss)", 4, "no group 'g"),
        (WHEN, "match(gpu.name, 'A10')", 4, "no function 'match'; did you mean matches"),
        (WHEN, "limits.shm_mib <", 4, "not an expression"),
        ('["' + WHEN + '"]', '"' + WHEN + '"', 4, f'when is a list of texts: write when = ["{WHEN}"]'),
        (
            f'when = ["{WHEN}"]',
            f'proof = [{{ once = true, when = ["{WHEN}"] }}]',
            4,
            "a proof that is once stands on a page with each, and has a finding of its own",
        ),
        ('"Shared memory is small"', "3", 2, "title is text, in quotes, not 3"),
        ('"warning"', '"fatal"', 3, "severity is 'fatal', which is none of error, warning, info"),
        ("misses =", "mises =", 7, "unknown key 'mises'; did you mean misses?"),
        ('["the handbook, 2026-11"]', '"a"', 8, 'sources is a list of texts: write sources = ["a"]'),
        ('"Data loaders use it."', '"Data', 6, "Illegal character"),
        ("[[fix]]", "[fix]", 10, "fix is a list of tables, each written [[fix]]"),
        ("misses =", "detail = 5\nmisses =", 7, "detail is a list of tables, each written detail = [{ ... }]"),
        ('title = "Make it larger"\n', "", 10, "title is missing"),
        ('{ text = "Remount it." }', '{ argv = "mount" }', 12, 'argv is a list of texts: write argv = ["mount"]'),
        ("[[fix]]", "[[sign]]\nmatch = 'a(b'\nweight = 'conclusive'\n\n[[fix]]", 11, "sign 'a(b'"),
        ("[[fix]]", "[[sign]]\nmatch = '(\\w+a)*b'\nweight = 'conclusive'\n\n[[fix]]", 11, "a repetition within"),
        (
            "[[fix]]",
            "[[sign]]\nmatch = 'ab'\nweight = 'conclusive'\nfixes = ['Grow it']\n\n[[fix]]",
            13,
            "no fix is called 'Grow it'",
        ),
        ("[[fix]]", "[[sign]]\nmatch = 'ab'\n\n[[fix]]", 10, "weight is missing: one of conclusive, suggestive"),
        (
            SMALL,
            'facts = { "limits.shm_mib" = "64" }',
            16,
            "case 'small': limits.shm_mib, a whole number in MiB, is given",
        ),
        (SMALL, 'facts = { "limits.shm_mib" = "64 GiB" }', 16, "as the text '64 GiB': write 65536"),
        (SMALL, 'facts = { "limits.shm_mb" = 64 }', 16, "case 'small': no fact limits.shm_mb; did you mean"),
        (SMALL, "facts = { gpu = { index = 0 } }", 16, "case 'small': gpu is a list of rows"),
        (SMALL, 'facts = { gpu = ["A10"] }', 16, "case 'small': a row of gpu is a table"),
        (SMALL, 'facts = "limits.shm_mib = 64"', 16, "case 'small': facts is a table"),
        (SMALL, "", 14, "case 'small': it has facts, or the report"),
        ('finds = "64 MiB"', 'find = "64 MiB"', 17, "case 'small': unknown key 'find'; did you mean finds?"),
        (
            "passes = true",
            "passes = true\nfinds = 'x'",
            19,
            "case 'large': it says what comes of it, by one of finds, ",
        ),
    ],
)
def test_the_line_and_what_to_write_instead(
    called: Program, tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    path = written(tmp_path, old, new)
    done = called("rules", "test", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"gpudoctor: {path}:{line}: ")
    assert says in done.err
    chinese = called("rules", "test", str(tmp_path), "--lang", "zh")
    assert (chinese.code, chinese.out) == (2, "")
    problem = chinese.err.removeprefix(f"gpudoctor：{path}:{line}: ")
    assert problem != chinese.err
    if says not in ("Illegal character", "sign 'a(b'"):  # words of Python's own
        assert IN_CHINESE.search(problem)
        assert not ENGLISH_SENTENCE.search(QUOTED.sub("", problem))


@pytest.mark.parametrize(
    ("old", "says"),
    [
        ('why = "Data loaders use it."\n', "why is missing: what follows from it, and why"),
        (PAGE[PAGE.index('[[case]]\nname = "small"') : PAGE.index('[[case]]\nname = "large"')], "one that fires"),
        (PAGE[PAGE.index('[[case]]\nname = "large"') : PAGE.index('[[case]]\nname = "not')], "one that passes"),
        (
            PAGE[PAGE.index('[[case]]\nname = "not') :],
            'one that cannot be judged, with a fact that is { unread = "why" }',
        ),
    ],
)
def test_what_is_missing_altogether(called: Program, tmp_path: Path, old: str, says: str) -> None:
    path = written(tmp_path, old)
    done = called("rules", "test", str(path))
    assert done.code == 2
    assert done.err.startswith(f"gpudoctor: {path}: ")
    assert says in done.err
    chinese = called("rules", "test", str(path), "--lang", "zh").err
    assert IN_CHINESE.search(chinese)
    assert not ENGLISH_SENTENCE.search(QUOTED.sub("", chinese))


def test_a_report_refuses_such_a_page_with_the_same_words(called: Program, tmp_path: Path) -> None:
    written(tmp_path, WHEN, "limits.shm_mib == None")
    done = called("read", "-", "--rules", str(tmp_path), stdin="nothing\n")
    assert (done.code, done.err) == (2, called("rules", "test", str(tmp_path)).err)


def test_a_case_that_fails_is_named_with_its_line(called: Program, tmp_path: Path) -> None:
    path = written(tmp_path, "passes = true", 'finds = "64000 MiB"')
    path.write_text(
        path.read_text("utf-8") + '\n[[case]]\nname = "near"\nfacts = { "limits.shm_mib" = 16384 }\npasses = true\n'
    )
    done = called("rules", "test", str(tmp_path))
    assert done.code == 1
    assert done.out.startswith(f"{path}:19: case 'large': should find '64000 MiB', said 'passed'\n")
    chinese = called("rules", "test", str(tmp_path), "--lang", "zh")
    assert (chinese.code, chinese.out) == (
        1,
        f"{path}:19: 用例 'large': 应得出 '64000 MiB'，实际为 '通过'\n3 个用例通过，1 个失败，共 1 个页面\n",
    )


def test_pages_and_folders_are_tested_alike(called: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    other = tmp_path / "env" / "site.other.toml"
    other.write_text(PAGE.replace("site.shm", "site.other"), "utf-8")
    assert called("rules", "test", str(path)).out == "3 cases passed, 0 failed, on 1 page\n"
    assert called("rules", "test", str(path), str(other)).out == "6 cases passed, 0 failed, on 2 pages\n"
    assert called("rules", "test", str(tmp_path)).out == "6 cases passed, 0 failed, on 2 pages\n"
    monkeypatch.chdir(path.parent)
    assert called("rules", "test", path.name).out == "3 cases passed, 0 failed, on 1 page\n"


@pytest.mark.parametrize("folder", ["pages", "tables", "zh"])
def test_a_page_that_names_its_layer_may_lie_anywhere(
    called: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    page = tmp_path / folder / "site.shm.toml"
    page.parent.mkdir()
    page.write_text(f'layer = "env"\n{PAGE}', "utf-8")
    monkeypatch.chdir(page.parent)
    for place in (page.name, str(page), "."):
        assert called("rules", "test", place).out == "3 cases passed, 0 failed, on 1 page\n"
    page.write_text(PAGE, "utf-8")
    refused = called("rules", "test", page.name)
    assert (refused.code, "or write layer = ... on the page" in refused.err) == (2, True)


def test_a_page_written_for_1_0_still_loads(called: Program, tmp_path: Path) -> None:
    """What it says to guess from is not read any more, and a fact that nothing tells any more is not known."""
    written(
        tmp_path,
        "when = [",
        'open = true\nsaid = ["too little shared memory"]\nunless = ["tried.shm_larger == \'cured\'"]\nwhen = [',
    )
    assert called("rules", "test", str(tmp_path)).out == "3 cases passed, 0 failed, on 1 page\n"


def test_of_our_own_pages_one_can_be_tested(called: Program) -> None:
    rules = Path(__file__).parents[2] / "rules"
    page = called("rules", "test", str(rules / "driver" / "driver.missing.toml"))
    assert (page.code, "on 1 page" in page.out) == (0, True)
    setup = called("rules", "test", str(rules / "setup" / "driver.toml"))
    assert (setup.code, "on 1 page" in setup.out) == (0, True)


def test_cases_are_judged_in_english_whatever_the_language(called: Program) -> None:
    rules = Path(__file__).parents[2] / "rules"
    for place in (rules / "driver", rules / "setup" / "driver.toml"):
        chinese = called("rules", "test", "--lang", "zh", str(place))
        assert (chinese.code, "，0 个失败，共 " in chinese.out) == (0, True), chinese


def test_where_no_page_is_that_is_said(called: Program, tmp_path: Path) -> None:
    empty = called("rules", "test", str(tmp_path))
    assert (empty.code, empty.out) == (2, "")
    assert "no rule page is there; pages are DIR/<layer>/<id>.toml" in empty.err
    gone = called("rules", "test", str(tmp_path / "gone"))
    assert (gone.code, "no such rule page" in gone.err) == (2, True)


@pytest.mark.parametrize("words", [("read", "-", "--rules"), ("rules", "test")])
def test_pages_that_may_not_be_looked_at_are_not_left_out_in_silence(tmp_path: Path, words: tuple[str, ...]) -> None:
    shut = written(tmp_path).parent
    as_a_user = [] if os.geteuid() else [needs.program("setpriv"), "--bounding-set=-dac_override,-dac_read_search"]
    shut.chmod(0)
    try:
        for place, says in ((tmp_path, f"{shut}: Permission denied"), (shut / "site.shm.toml", "no such rule page")):
            argv = [*as_a_user, sys.executable, "-m", "gpudoctor", *words, str(place)]
            done = subprocess.run(argv, input="nothing\n", check=False, capture_output=True, text=True, timeout=600)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
            assert says in done.stderr
    finally:
        shut.chmod(0o755)


def test_the_page_of_a_site_is_explained_with_its_folder_and_without_it_that_is_said(
    called: Program, tmp_path: Path
) -> None:
    written(tmp_path)
    needs_folder = "needs its folder: `gpudoctor explain site.shm --rules FOLDER`"
    without, within = called("explain", "site.shm"), called("explain", "site.shm", "--rules", str(tmp_path))
    assert (without.code, needs_folder in without.err) == (2, True)
    assert (within.code, "site.shm" in within.out) == (0, True)
    for name, *folders in (["driver.missng"], ["no-such"], ["site.other", "--rules", str(tmp_path)]):
        assert "needs its folder" not in called("explain", name, *folders).err


def test_facts_are_listed_by_topic_by_name_and_by_meaning(called: Program) -> None:
    limits = called("explain", "facts", "limits").out.splitlines()
    assert all(line.startswith("limits.") for line in limits)
    assert any("limits.shm_mib" in line and "size of /dev/shm" in line for line in limits)
    assert "gpu.ecc_corrected " in called("explain", "facts", "corrected").out
    assert "cuda_device.shared_memory_kib" in called("explain", "facts", "shared memory").out
    assert len(called("explain", "facts").out.splitlines()) > 500
    nothing = called("explain", "facts", "zeppelin")
    assert (nothing.code, "`gpudoctor explain facts` lists them all" in nothing.err) == (2, True)


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
    assert (done.code, done.out, done.err) == (0, "4 cases passed, 0 failed, on 1 page\n", "")
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


FILLED = {
    "the problem as a heading, without values": "The driver is a beta",
    "a condition over facts": "driver.version == '999.1'",
    "the sentence to say, with facts in braces": "The driver {driver.version} is a beta",
    "the finding's sentence, word for word": "The driver 999.1 is a beta",
    "a fact": "driver.version",
    "its value where something is wrong": "999.1",
    "the nearest value that is still right": "999.2",
    "the fact's name": "driver.version",
}
BLANKS = re.compile(f'"{BLANK} ([^"]*)"')


def fill(text: str, leave: int | None = None) -> str:
    """The page with its blanks filled in, but for the one at place `leave`."""
    places = iter(range(100))

    def filled(match: re.Match[str]) -> str:
        return match[0] if next(places) == leave else f'"{FILLED.get(match[1], "words of a person")}"'

    return BLANKS.sub(filled, text)


def test_filled_in_it_is_a_page_whose_cases_hold(called: Program, tmp_path: Path) -> None:
    site = tmp_path / "our rules"
    done = called("rules", "new", "driver.beta", str(site))
    path = site / "driver" / "driver.beta.toml"
    assert done.code == 0
    assert f"$ gpudoctor rules test '{site}'" in done.out
    assert f"$ gpudoctor check --rules '{site}'" in done.out
    path.write_text(fill(path.read_text("utf-8")), "utf-8")
    tested = called("rules", "test", str(site))
    assert (tested.code, tested.out) == (0, "3 cases passed, 0 failed, on 1 page\n")
    found = called("read", "-", "--rules", str(site), stdin="Nvidia driver version: 999.1\n")
    assert "The driver 999.1 is a beta" in found.out


def test_in_chinese_it_is_the_same_page_in_other_words(called: Program, tmp_path: Path) -> None:
    assert called("rules", "new", "driver.beta", str(tmp_path), "--lang", "zh").code == 0
    text = (tmp_path / "driver" / "driver.beta.toml").read_text("utf-8")
    english = {worded: passage for passage, worded in words("zh.files").items()}
    with speaking("en"):
        same = parse_toml(rules.page("driver.beta"))
    assert parse_toml(BLANKS.sub(lambda blank: f'"{BLANK} {english[blank[1]]}"', text)) == same
    comments = [line for line in text.splitlines() if line.startswith("#") and " = " not in line]
    assert [line for line in comments if ENGLISH_SENTENCE.search(QUOTED.sub("", line))] == []
    assert not ENGLISH_SENTENCE.search("".join(BLANKS.findall(text)))


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_report_names_the_command_that_shows_a_site_s_page(called: Program, tmp_path: Path, form: str) -> None:
    site = tmp_path / "our rules"
    path = site / "driver" / "driver.beta.toml"
    path.parent.mkdir(parents=True)
    path.write_text(fill(rules.page("driver.beta")), "utf-8")
    paste = "Nvidia driver version: 999.1\n"
    found = called("read", "-", "--rules", str(site), "--format", form, stdin=paste)
    named = re.search(r"gpudoctor (explain driver\.beta [^`\n]+)", found.out)
    assert named is not None
    shown = called(*shlex.split(named[1]))
    assert (shown.code, shown.out.splitlines()[0]) == (0, "driver.beta: The driver is a beta")


@pytest.mark.parametrize("blank", range(len(BLANKS.findall(rules.page("driver.beta")))))
def test_one_blank_left_is_named(tmp_path: Path, blank: int) -> None:
    path = tmp_path / "driver" / "driver.beta.toml"
    path.parent.mkdir()
    text = rules.page("driver.beta")
    path.write_text(fill(text, leave=blank), "utf-8")
    with pytest.raises(RuleError, match=r"driver\.beta\.toml:\d+: .* is still to be filled in: ") as refused:
        rulebook.load([tmp_path])
    assert BLANKS.findall(text)[blank] in str(refused.value)


def test_what_it_teaches_in_comments_is_right_as_it_stands(tmp_path: Path) -> None:
    text = fill(rules.page("gpu.beta"))
    for head in (
        "each = ",
        "confirm = ",
        "[[sign]]",
        "match = ",
        "weight = ",
        'finding = "The words',
        "undo = ",
        "{ argv",
    ):
        assert f"# {head}" in text, head
        text = text.replace(f"# {head}", head)
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "gpu.beta.toml").write_text(text, "utf-8")
    rule = rulebook.load([tmp_path]).find("gpu.beta")
    assert rule is not None
    assert (rule.each, rule.signs[0].conclusive, rule.fixes[0].steps[1].needs) == ("gpu", False, ("root",))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Driver.Beta",), "is no name for a rule"),
        (("driver",), "is no name for a rule"),
        (("driver.beta-",), "is no name for a rule"),
        (("../driver.beta",), "is no name for a rule"),
        (("gpu.ecc",), "gpudoctor explain gpu.ecc shows it"),
        (("site.quota",), "--layer, one of host, driver"),
        (("site.quota", "--layer", "moon"), "invalid choice"),
        (("driver.beta", "/proc/none"), "/proc/none"),
    ],
)
def test_refused(called: Program, words: tuple[str, ...], says: str) -> None:
    done = called("rules", "new", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_a_page_that_is_there_is_never_written_over(called: Program, tmp_path: Path) -> None:
    site = str(tmp_path)
    assert called("rules", "new", "site.quota", "--layer", "env", site).code == 0
    again = called("rules", "new", "site.quota", "--layer", "host", site)
    assert (again.code, again.out) == (2, "")
    assert "env/site.quota.toml" in again.err


def test_where_a_page_belongs_and_what_to_type_next(tmp_path: Path) -> None:
    known = rulebook.load().rules
    assert rules.place("nvml.odd", None, tmp_path, known) == tmp_path / "driver" / "nvml.odd.toml"
    assert rules.place("nvml.odd", "gpu", tmp_path, known) == tmp_path / "gpu" / "nvml.odd.toml"
    said = rules.next_steps(Path("rules/driver/driver.beta.toml"), page_cache.home())
    assert said.splitlines()[1:] == ["  $ gpudoctor rules test", "  $ gpudoctor check"]
    named = re.findall(r"`gpudoctor (\w+)", rules.page("driver.beta"))
    assert named
    assert set(named) <= set(COMMANDS)
