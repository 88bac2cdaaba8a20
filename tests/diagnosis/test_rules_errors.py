"""What is said of a page that is wrong: the file, the line, the case, what does not fit, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_pages_and_folders_are_tested_alike(called: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    other = tmp_path / "env" / "site.other.toml"
    other.write_text(PAGE.replace("site.shm", "site.other"), "utf-8")
    assert called("rules", "test", str(path)).out == "3 cases passed, 0 failed, on 1 pages\n"
    assert called("rules", "test", str(path), str(other)).out == "6 cases passed, 0 failed, on 2 pages\n"
    assert called("rules", "test", str(tmp_path)).out == "6 cases passed, 0 failed, on 2 pages\n"
    monkeypatch.chdir(path.parent)
    assert called("rules", "test", path.name).out == "3 cases passed, 0 failed, on 1 pages\n"


def test_a_page_written_for_1_0_still_loads(called: Program, tmp_path: Path) -> None:
    """What it says to guess from is not read any more, and a fact that nothing tells any more is not known."""
    written(
        tmp_path,
        "when = [",
        'open = true\nsaid = ["too little shared memory"]\nunless = ["tried.shm_larger == \'cured\'"]\nwhen = [',
    )
    assert called("rules", "test", str(tmp_path)).out == "3 cases passed, 0 failed, on 1 pages\n"


def test_of_our_own_pages_one_can_be_tested(called: Program) -> None:
    rules = Path(__file__).parents[2] / "rules"
    page = called("rules", "test", str(rules / "driver" / "driver.missing.toml"))
    assert (page.code, "on 1 pages" in page.out) == (0, True)
    setup = called("rules", "test", str(rules / "setup" / "driver.toml"))
    assert (setup.code, "on 1 pages" in setup.out) == (0, True)


def test_where_no_page_is_that_is_said(called: Program, tmp_path: Path) -> None:
    empty = called("rules", "test", str(tmp_path))
    assert (empty.code, empty.out) == (2, "")
    assert "no rule page is there; pages are DIR/<layer>/<id>.toml" in empty.err
    gone = called("rules", "test", str(tmp_path / "gone"))
    assert (gone.code, "no such rule page" in gone.err) == (2, True)


def test_facts_are_listed_by_topic_by_name_and_by_meaning(called: Program) -> None:
    limits = called("explain", "facts", "limits").out.splitlines()
    assert all(line.startswith("limits.") for line in limits)
    assert any("limits.shm_mib" in line and "size of /dev/shm" in line for line in limits)
    assert "gpu.ecc_corrected " in called("explain", "facts", "corrected").out
    assert "cuda_device.shared_memory_kib" in called("explain", "facts", "shared memory").out
    assert len(called("explain", "facts").out.splitlines()) > 500
    nothing = called("explain", "facts", "zeppelin")
    assert (nothing.code, "`gpudoctor explain facts` lists them all" in nothing.err) == (2, True)
