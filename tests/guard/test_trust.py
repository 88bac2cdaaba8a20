"""What is run or believed never comes from where another user can write: each attack beside its sound twin."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.app.commands import rules
from gpudoctor.core import files, shipped
from gpudoctor.core.errors import UsageError
from gpudoctor.diagnosis import expect, page_cache, rulebook
from gpudoctor.diagnosis.history import Shelf, of_this_machine
from gpudoctor.fixes.permissions import journals_folder
from tests.diagnosis.history.test_shelf import diagnosis
from tests.diagnosis.test_rules_errors import fill
from tests.guard.strangers import NAME, give, open_folder, program, stranger

__all__ = ["open_folder"]


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_warned", set())


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with one page of a site's own."""
    folder = tmp_path / "site"
    page = folder / "driver/driver.beta.toml"
    page.parent.mkdir(parents=True)
    page.write_text(fill(rules.page("driver.beta")), "utf-8")
    return folder


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    place = folder / "ours.toml"
    place.write_text('profile = "ours"\n[expect]\n"gpu.count" = 8\n', "utf-8")
    return place


# ------------------------------------------------------------------------------------------------- the check itself


def test_what_is_ours_or_root_s_is_sound_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for place in (
        tmp_path,
        file,
        tmp_path / "not/there",
        Path("/usr/bin"),
        Path("/proc/self/status"),
        Path("/dev/null"),
    ):
        assert files.doubt(place) is None


def test_a_folder_that_all_can_write_to_is_doubted_also_far_above_unless_it_is_sticky(open_folder: Path) -> None:
    (open_folder / "a").mkdir()
    (open_folder / "a/file").write_text("x")
    found = files.doubt(open_folder / "a/file")
    assert str(found) == f"{open_folder} can be written to by every user"
    assert found
    assert found.cure == f"chmod go-w {open_folder}"
    open_folder.chmod(0o1777)
    (open_folder / "mine").write_text("x")
    assert files.doubt(open_folder / "mine") is None
    assert files.doubt(open_folder), "but what is read from the folder itself could be anybody's"


def test_what_belongs_to_another_user_is_doubted_and_a_link_of_theirs_even_to_our_own_file(tmp_path: Path) -> None:
    stranger()
    file = tmp_path / "file"
    file.write_text("x")
    assert str(files.doubt(give(file))) == f"{file} belongs to user {NAME}"
    (tmp_path / "sound").write_text("x")
    (tmp_path / "link").symlink_to("sound")
    assert str(files.doubt(give(tmp_path / "link"))) == f"{tmp_path / 'link'} belongs to user {NAME}"


def test_a_link_counts_where_it_leads(tmp_path: Path, open_folder: Path) -> None:
    (open_folder / "theirs").write_text("x")
    (tmp_path / "link").symlink_to(open_folder / "theirs")
    (tmp_path / "sound").write_text("x")
    (tmp_path / "other").symlink_to("sound")
    (tmp_path / "loop").symlink_to("loop")
    assert str(files.doubt(tmp_path / "link")) == f"{open_folder} can be written to by every user"
    assert files.doubt(tmp_path / "other") is None
    assert files.doubt(tmp_path / "loop") is None  # who opens it is told


def test_the_group_that_a_user_has_alone_may_write_and_others_may_not(tmp_path: Path) -> None:
    uid = stranger()
    file = tmp_path / "file"
    file.write_text("x")
    tmp_path.chmod(0o755)
    os.chown(file, uid, os.getgid())
    file.chmod(0o664)
    assert files.foreign(file)
    os.chown(file, 0, 1)
    found = files.foreign(file)
    assert found
    assert found.whose == "group daemon"
    os.chown(file, 0, 0)  # with umask 002, and images that let the root group write
    assert files.foreign(file) is None


def test_folders_that_we_make_are_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files.make_private(tmp_path / "a/b/c")
        files.make_private(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


# ------------------------------------------------------------------------------------------- compiled copies, caches


@pytest.mark.full
def test_no_compiled_copy_of_a_site_s_page_is_used_or_made(site: Path, tmp_path: Path) -> None:
    """The attack on 1.0.0: whoever could write to the cache put a command of its own into a fix."""
    cache = tmp_path / "home/gpudoctor"
    report = tmp_path / "report.txt"
    report.write_text("Nvidia driver version: 999.1\n")
    words = ["read", str(report), "--rules", str(site), "--json"]
    before = program(words, {"XDG_CACHE_HOME": str(cache.parent)})
    fix = {"title": "Planted", "steps": [{"argv": ["planted"], "touches": "system"}]}
    for copy in cache.glob("fixes-*"):
        copy.write_text(json.dumps({"driver/driver.beta.toml": [fix]}))
    after = program(words, {"XDG_CACHE_HOME": str(cache.parent)})
    assert "Planted" not in after.out
    assert after.out == before.out
    assert "driver.beta" in after.out
    assert {path.name for path in cache.iterdir()} == {"pages"}, "copies of our own pages alone"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Path) -> Iterator[Path]:
    """Pages of a checkout, and an empty cache for their compiled copies."""
    monkeypatch.setattr(page_cache, "home", lambda: site)
    monkeypatch.setattr(shipped, "data", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page_cache._digest.cache_clear()
    yield tmp_path / "cache/gpudoctor/pages"
    page_cache._digest.cache_clear()


def test_a_checkout_s_copies_are_for_this_user_alone_and_named_by_content(checkout: Path, site: Path) -> None:
    assert page_cache.compiled(None, "made", lambda _: {"a": 1}) == {"a": 1}
    (copy,) = checkout.iterdir()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert checkout.stat().st_mode & 0o777 == 0o700
    assert page_cache.compiled(None, "made", lambda _: {"a": 2}) == {"a": 1}, "read from the copy"
    page = site / "driver/driver.beta.toml"
    times = page.stat()
    page.write_text(page.read_text("utf-8").replace("beta", "bete"), "utf-8")
    os.utime(page, ns=(times.st_atime_ns, times.st_mtime_ns))
    page_cache._digest.cache_clear()
    assert page_cache.compiled(None, "made", lambda _: {"a": 3}) == {"a": 3}, "same size, same time, other content"


@pytest.mark.parametrize("whose", ["another user's", "in a folder that all can write to"])
def test_a_copy_that_others_could_have_written_is_parsed_anew_and_not_believed(checkout: Path, whose: str) -> None:
    page_cache.compiled(None, "made", lambda _: {"sound": True})
    (copy,) = checkout.iterdir()
    copy.write_text('{"planted": true}')
    if whose == "another user's":
        stranger()
        give(copy)
    else:
        checkout.chmod(0o777)
    assert page_cache.compiled(None, "made", lambda _: {"sound": True}) == {"sound": True}


def test_root_leaves_the_cache_of_another_user_s_home_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where sudo keeps HOME, or XDG_CACHE_HOME."""
    stranger()
    home = tmp_path / "home"
    (home / ".cache/gpudoctor").mkdir(parents=True)
    give(home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    own = Path("~root").expanduser()
    assert files.cache_folder() == own / ".cache/gpudoctor"
    assert files.config_folder() == own / ".config/gpudoctor"
    assert files.default_folder() == own / ".local/state/gpudoctor"
    give(home, 0)
    assert files.cache_folder() == home / ".cache/gpudoctor"


# ------------------------------------------------------------------------------------------------ history, journals


def test_a_run_that_another_user_left_is_none(tmp_path: Path) -> None:
    stranger()
    shelf = Shelf(tmp_path / "history/node")
    shelf.keep(diagnosis("sound"), "1.0")
    (run,) = shelf.runs()
    give(run.place)
    assert shelf.runs() == []
    give(run.place, 0)
    assert [one.id for one in shelf.runs()] == [run.id]


def test_a_history_in_a_folder_of_others_is_neither_read_nor_kept(
    open_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert of_this_machine({"GPUDOCTOR_STATE": str(open_folder)}) is None
    assert of_this_machine({"GPUDOCTOR_STATE": str(open_folder)}) is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"no history is read or kept: {open_folder} can be written to by every user" in said
    open_folder.chmod(0o700)
    assert of_this_machine({"GPUDOCTOR_STATE": str(open_folder)})
    assert not capsys.readouterr().err


def test_a_check_goes_on_without_such_a_history(open_folder: Path) -> None:
    env = {"GPUDOCTOR_STATE": str(open_folder), "GPUDOCTOR_HISTORY": "on"}
    done = program(["check", "--level", "quick", "--json"], env)
    assert done.code in (0, 1)
    assert json.loads(done.out)["schema"] == "gpudoctor/1"
    assert done.err.startswith("gpudoctor: no history is read or kept: ")
    assert list(open_folder.iterdir()) == []


def test_journals_in_a_folder_of_another_user_are_refused(tmp_path: Path) -> None:
    stranger()
    folder = tmp_path / "state"
    (folder / "20260101-000000").mkdir(parents=True)
    (folder / "20260101-000000/run.json").write_text("{}")
    assert journals_folder({"GPUDOCTOR_STATE": str(folder)}) == folder
    give(folder)
    done = program(["fix", "--undo", "20260101-000000"], {"GPUDOCTOR_STATE": str(folder)})
    assert done.code == 2
    assert f"GPUDOCTOR_STATE: {folder} belongs to user {NAME}, who could plant records there" in done.err


# ---------------------------------------------------------------------------------------- pages, profiles, TMPDIR


@pytest.mark.parametrize(
    ("name", "mode", "group", "says"),
    [
        ("driver/driver.beta.toml", 0o666, 0, "{at} can be written to by every user.*: chmod go-w {at}"),
        ("driver", 0o1777, 0, "--rules {site}: {at} can be written to by every user"),
        ("", 0o775, 1, "can be written to by group daemon"),
    ],
)
def test_pages_that_others_can_write_to_are_refused(site: Path, name: str, mode: int, group: int, says: str) -> None:
    if group:
        stranger()
    assert rulebook.load([site]).find("driver.beta")
    os.chown(site / name, 0, group)
    (site / name).chmod(mode)
    with pytest.raises(UsageError, match=says.format(at=site / name, site=site)):
        rulebook.load([site])


def test_pages_of_one_other_user_are_taken_by_name_and_that_is_said(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger()
    rulebook.load([site])
    assert not capsys.readouterr().err
    assert rulebook.load([give(site)]).find("driver.beta")
    said = capsys.readouterr().err
    assert said == f"gpudoctor: --rules {site}: {site} belongs to user {NAME}, who can change what it says\n"


def test_a_page_by_a_link_to_another_user_s_file_is_said(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stranger()
    page = site / "driver/driver.beta.toml"
    theirs = site.parent / "theirs.toml"
    shutil.move(page, theirs)
    page.symlink_to(give(theirs))
    rulebook.load([site])
    assert f"{theirs} belongs to user {NAME}" in capsys.readouterr().err


def test_a_profile_that_all_can_write_to_is_refused_and_one_that_extends_it(profile: Path) -> None:
    mine = profile.with_name("mine.toml")
    mine.write_text('profile = "mine"\nextends = "ours.toml"\n', "utf-8")
    assert [expect.load(str(one)).name for one in (profile, mine)] == ["ours", "mine"]
    profile.chmod(0o666)
    with pytest.raises(UsageError, match=f"--expect {profile}: {profile} can be written to by every user"):
        expect.load(str(profile))
    with pytest.raises(UsageError, match=r"ours\.toml can be written to by every user"):
        expect.load(str(mine))


def test_temporary_files_are_not_made_where_others_can_exchange_them(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(open_folder))
    files.secure_tmpdir()
    assert "TMPDIR" not in os.environ
    assert f"TMPDIR is not used: {open_folder} can be written to by every user" in capsys.readouterr().err
    open_folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(open_folder))
    files.secure_tmpdir()
    assert os.environ["TMPDIR"] == str(open_folder)
    assert not capsys.readouterr().err
