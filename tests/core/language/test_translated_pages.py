"""Rule pages in another language: the same finding in other words, and English where a page has changed since."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.app.commands.rules import snapshot_of
from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.errors import RuleError
from gpudoctor.core.language import speaking
from gpudoctor.core.rule import Case, Rule
from gpudoctor.diagnosis import page_cache, rulebook
from gpudoctor.diagnosis.expression import NOT_KNOWN
from gpudoctor.diagnosis.judge import judge_rule
from gpudoctor.diagnosis.rulebook.compiled import setups, translations
from gpudoctor.diagnosis.rulebook.compiling import stale
from gpudoctor.views._terminal import width
from tests.conftest import Program

HAN = re.compile(r"[\u4e00-\u9fff]")
PAGE = "driver/driver.missing.toml"


def _books() -> tuple[rulebook.Rulebook, rulebook.Rulebook]:
    with speaking("zh"):
        chinese = rulebook.load()
    return rulebook.load(), chinese


ENGLISH, CHINESE = _books()
TRANSLATIONS = translations(page_cache.home(), "zh")
TRANSLATED = sorted(TRANSLATIONS)


def _by_origin(book: rulebook.Rulebook) -> dict[str, Rule]:
    return {rule.origin: rule for rule in (*book.rules, *book.cluster)}


def _firing(rule: Rule) -> list[Case]:
    return [case for case in rulebook.cases_of(rule) if case.finds is not None]


def _found(rule: Rule, case: Case) -> Finding:
    snapshot = snapshot_of(case)
    return next(one for one in judge_rule(rule, snapshot) if isinstance(one, Finding))


@pytest.mark.parametrize("origin", [origin for origin in TRANSLATED if not origin.startswith("setup/")])
def test_every_case_that_fires_says_in_chinese_what_it_says_in_english(origin: str) -> None:
    english, chinese = _by_origin(ENGLISH)[origin], _by_origin(CHINESE)[origin]
    for case in _firing(english):
        theirs, ours = _found(english, case), _found(chinese, case)
        assert HAN.search(ours.title)
        assert HAN.search(ours.why)
        assert (NOT_KNOWN in ours.title, NOT_KNOWN in ours.why) == (NOT_KNOWN in theirs.title, NOT_KNOWN in theirs.why)
        assert {(item.fact, item.index) for item in ours.evidence} == {(i.fact, i.index) for i in theirs.evidence}
        assert _commands(ours) == _commands(theirs)
        assert (ours.id, ours.severity, ours.confidence) == (theirs.id, theirs.severity, theirs.confidence)


def _commands(finding: Finding) -> list[list[tuple[object, ...]]]:
    return [[(step.argv, step.needs, step.touches, step.makes) for step in fix.steps] for fix in finding.fixes]


def test_no_translation_of_ours_is_stale() -> None:
    assert stale(page_cache.home()) == []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A site's folder with one page of its own and its translation."""
    page = (page_cache.home() / PAGE).read_text("utf-8").replace("driver.missing", "driver.gone")
    translation = (page_cache.home() / "zh" / PAGE).read_text("utf-8")
    for place, text in (("driver/driver.gone.toml", page), ("zh/driver/driver.gone.toml", translation)):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text, "utf-8")
    yield tmp_path
    shutil.rmtree(tmp_path)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def _title(site: Path) -> str:
    with speaking("zh"):
        rule = rulebook.load([site]).find("driver.gone")
    assert rule
    return rule.title


def test_a_page_that_has_changed_is_english_until_its_translation_follows(site: Path, called: Program) -> None:
    assert _title(site) == "没有安装 NVIDIA 驱动"
    _edit(site / "driver/driver.gone.toml", "The GPU is there, and nothing speaks to it.", "Nothing speaks to the GPU.")
    assert _title(site) == "No NVIDIA driver installed"
    tested = called("rules", "test", str(site))
    assert tested.code == 0
    digest = re.search(r'zh/driver/driver.gone.toml: its page has changed.*with of = "(\w+)"', tested.out)
    assert digest
    _edit(site / "zh/driver/driver.gone.toml", 'of = "', f'of = "{digest[1]}" # ')
    assert _title(site) == "没有安装 NVIDIA 驱动"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{pci.nvidia_count} 块", "几块", "does not say pci.nvidia_count"),
        ("{pci.nvidia_count}", "{pci.nvidia_count + gpu.count}", "has gpu.count, which its original has not"),
        ("{pci.nvidia_count}", "{round(pci.nvidia_count)}", "has round, which its original has not"),
        ('title = "安装驱动"', 'title = "安装驱动"\nsteps = ["重启"]', "no fix 0 steps 0 to translate"),
        ('why = "', 'wy = "', "'wy'"),
        ('misses = "', 'misses = ""\n# "', "misses is missing"),
        ('of = "d37f7583"', "", "is missing: the digest of the words"),
    ],
)
def test_a_translation_that_says_more_or_less_than_its_page_is_refused(
    site: Path, old: str, new: str, says: str, called: Program
) -> None:
    translation = site / "zh/driver/driver.gone.toml"
    if old.startswith("of = "):
        old = translation.read_text("utf-8").splitlines()[0]
    _edit(translation, old, new)
    with pytest.raises(RuleError, match=re.escape(says)):
        _title(site)
    refused = called("rules", "test", str(site))
    assert (refused.code, says in refused.err) == (2, True)


def test_a_translation_without_a_page_is_refused(site: Path) -> None:
    (site / "driver/driver.gone.toml").rename(site / "driver/driver.away.toml")
    _edit(site / "driver/driver.away.toml", "driver.gone", "driver.away")
    with pytest.raises(RuleError, match="there is no page"):
        _title(site)


USUAL = (
    *("driver.missing", "driver.version-mismatch", "driver.module-not-loaded", "driver.module-not-built"),
    *("driver.nouveau", "driver.secure-boot", "driver.too-old-for-gpu", "driver.device-nodes", "driver.uvm"),
    *("container.no-gpu", "container.toolkit", "container.shm", "torch.driver-too-old", "torch.missing"),
    *("env.visible-devices", "gpu.memory-held"),
)
"""Of the causes that a page calls usual those that reports name most, beside all that are called common."""
AROUND = ("torch.cuda-unavailable", "torch.no-kernel-image", "nvml.failed", "workload.none", "workload.fits")
"""What those causes explain, and what a sound machine is told: no report of them is half English."""


def test_the_forty_commonest_causes_are_translated_and_what_stands_around_them() -> None:
    every = (*ENGLISH.rules, *ENGLISH.cluster)
    common = [rule for rule in every if rule.prevalence == "common"]
    usual = [rule for rule in ENGLISH.rules if rule.id in USUAL]
    assert len({rule.id for rule in (*common, *usual)}) >= 40
    assert len(usual) == len(USUAL)
    around = [rule for rule in ENGLISH.rules if rule.id in AROUND]
    assert [rule.origin for rule in (*common, *usual, *around) if rule.origin not in TRANSLATED] == []


def test_the_cures_that_they_share_are_translated() -> None:
    rules = [rule for origin, rule in _by_origin(ENGLISH).items() if origin in TRANSLATED]
    shared = {fix.setup for rule in rules for fix in rule.fixes}
    assert {f"setup/{page}.toml" for page in setups() if page in shared} <= set(TRANSLATED)


@pytest.mark.parametrize("origin", TRANSLATED)
def test_translations_are_written_as_chinese_is(origin: str) -> None:
    """Full-width punctuation behind Chinese, a blank between Chinese and Latin letters, and no blank beside either."""
    for text in TRANSLATIONS[origin]["sentences"]:
        plain = re.sub(r"\{[^{}]*\}", "{}", text)
        assert not re.search(r"[\u4e00-\u9fff][,;:!?](?!\S*[/=])|[\u4e00-\u9fff]\(", plain), plain
        assert not re.search(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", plain), plain
        assert not re.search(r"[，。；：、（）] | [，。；：、）]", plain), plain


def test_titles_are_no_wider_than_those_of_english() -> None:
    widest = max(len(rule.title) for rule in ENGLISH.rules)
    assert [rule.title for rule in CHINESE.rules if width(rule.title) > widest] == []
