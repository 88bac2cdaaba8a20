"""Plants the faults and prints which test noticed each; exit status 1 where too few were noticed."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from queue import Queue
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
_LIST = Path(__file__).with_name("mutants.toml")
_BESIDE = (".venv-*", ".nvidia-driver", ".cloud-init")
"""What tests need and git ignores: the copy links to it."""
_MOST_FILES = 6
"""Test files that are run because they look likely."""
_PASSED, _MISUSED, _NO_TESTS = 0, 4, 5
"""pytest's exit statuses; it is misused by a hint that names a test which is gone."""
_NOTICED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One fault. `file` is where it was written; where the file has moved, the text is looked for everywhere."""

    name: str
    file: str
    find: str
    replace: str
    kind: str
    caught_by: str = ""


class Caught(NamedTuple):
    """The first test that failed, or why none did; `broken` where the fault could not be planted or judged."""

    test: str = ""
    why: str = ""
    broken: bool = False


class MisplacedError(Exception):
    """The text to be replaced is not there exactly once."""


def mutants() -> tuple[Mutant, ...]:
    """All faults, in the order of the list."""
    return tuple(Mutant(**row) for row in tomllib.loads(_LIST.read_text("utf-8"))["mutant"])


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=ROOT).stdout


class Copy:
    """A checkout of its own in `folder`, with a virtual environment of its own that imports it from any folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        _git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(self.root))
        for name in filter(None, _git("ls-files", "-z").split("\0")):
            self._take(name)
        for pattern in _BESIDE:
            for place in ROOT.glob(pattern):
                (self.root / place.name).symlink_to(place.resolve())
        self.python = self._environment()
        self._serial = 0

    def _take(self, name: str) -> None:
        """The file as it is in the working tree, committed or not."""
        source, goal = ROOT / name, self.root / name
        if os.path.lexists(source):
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, goal, follow_symlinks=False)

    def _environment(self) -> Path:
        """Its interpreter: a copy of the environment that runs this, made of hard links where that can be."""
        if sys.prefix == sys.base_prefix:
            raise SystemExit("run it by the Python of a virtual environment, which is copied")
        home = self.root / ".venv"
        shutil.copytree(sys.prefix, home, symlinks=True, copy_function=_linked)
        for place in [*home.glob("bin/*"), *home.glob("lib/python*/site-packages/*.pth")]:
            if place.is_symlink() or not place.is_file() or place.stat().st_size > 1 << 16:
                continue
            text = place.read_bytes()
            mine = text.replace(sys.prefix.encode(), str(home).encode()).replace(bytes(ROOT), bytes(self.root))
            if mine != text:
                mode = place.stat().st_mode
                place.unlink()  # the other end of the link stays as it is
                place.write_bytes(mine)
                place.chmod(mode)
        python = home / "bin/python"
        asked = [str(python), "-c", "import gpudoctor; print(gpudoctor.__file__)"]
        where = subprocess.run(asked, check=True, capture_output=True, text=True, cwd="/").stdout
        if not where.startswith(str(self.root)):
            raise SystemExit(f"the copy's Python imports {where.strip()}, not the copy in {self.root}")
        return python

    def place(self, mutant: Mutant) -> Path:
        """The file that holds the text, exactly once; raises `MisplacedError`."""
        named = self.root / mutant.file
        places = [named] if named.is_file() else self._product()
        counts = {place: place.read_text("utf-8").count(mutant.find) for place in places}
        found = [place for place, count in counts.items() if count]
        if len(found) != 1 or counts[found[0]] != 1:
            raise MisplacedError(f"its text is {sum(counts.values())} times in {mutant.file}")
        return found[0]

    def _product(self) -> list[Path]:
        folders = (self.root / "gpudoctor", self.root / "rules")
        return [place for folder in folders for end in ("py", "toml") for place in folder.rglob(f"*.{end}")]

    def try_(self, mutant: Mutant, whole: bool) -> Caught:
        """Plant it, run the tests that may notice it until one does, and take it out again."""
        try:
            place = self.place(mutant)
        except MisplacedError as error:
            return Caught(why=str(error), broken=True)
        before, stat = place.read_bytes(), place.stat()
        after = before.decode().replace(mutant.find, mutant.replace)
        self._serial += 1
        try:
            place.write_text(after, "utf-8", newline="")
            moment = int(stat.st_mtime) + 10 * self._serial  # Python knows stale byte code by whole seconds and size
            os.utime(place, (moment, moment))
            stages = _stages(str(place.relative_to(self.root)), mutant.caught_by, whole)
            noticed = next(filter(None, map(self._pytest, stages)), "")
        finally:
            place.write_bytes(before)
            os.utime(place, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        if noticed and self._pytest(["-n0", noticed]):
            return Caught(why=f"{noticed} fails without it as well", broken=True)
        return Caught(noticed, "" if noticed else "no test noticed it")

    def _pytest(self, words: Sequence[str]) -> str:
        """The first test that fails, by pytest's name for it; empty where none does."""
        argv = [str(self.python), "-m", "pytest", "-x", "-p", "no:cacheprovider", *words]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, cwd=self.root, stdin=subprocess.DEVNULL
        )
        gone = done.returncode == _MISUSED and "not found" in done.stderr
        if gone or done.returncode in (_PASSED, _NO_TESTS):
            return ""
        found = _NOTICED.search(done.stdout)
        return found[1] if found else f"pytest ended with {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"


def _stages(file: str, hint: str, whole: bool) -> Iterator[Sequence[str]]:
    """Words for pytest, one run after the other: the hint, the files that look likely, and where asked everything."""
    if hint:
        yield ["-n0", hint]
    yield ["-n0", *likely(file)]
    if whole:
        yield []


def _linked(source: str, goal: str) -> None:
    try:
        os.link(source, goal, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, goal, follow_symlinks=False)


@lru_cache(maxsize=1)
def _tests() -> dict[str, str]:
    """The text of every test file by its place."""
    return {str(place.relative_to(ROOT)): place.read_text("utf-8") for place in sorted(ROOT.glob("tests/**/test_*.py"))}


def likely(file: str) -> list[str]:
    """The test files that speak most of that file: by its name, of its module or page, of its folder."""
    place = Path(file)
    stem, module, folder = (
        re.escape(".".join(one.parts)) for one in (Path(place.stem), place.with_suffix(""), place.parent)
    )
    said = re.compile(rf"\b{module}\b|\bfrom {folder} import [^\n]*\b{stem}\b|\b{stem}\.(?:py|toml)\b|[\"']{stem}[\"']")
    of_pages = re.compile(
        r"\bcommands(?:\.| import )rules\b|\brules test\b" if place.parts[0] == "rules" else rf"\b{folder}\b"
    )
    topics = {part.strip("_").removesuffix("s") for part in place.parts[1:-1]}
    scores = {
        name: 100 * (place.stem.strip("_") in name)
        + 10 * len(said.findall(text))
        + len(of_pages.findall(text))
        + sum(topic in name for topic in topics)
        for name, text in _tests().items()
    }
    return sorted(filter(scores.get, scores), key=lambda name: -scores[name])[:_MOST_FILES]


def _chosen(names: Sequence[str]) -> list[Mutant]:
    every = mutants()
    doubled = [name for name, count in Counter(one.name for one in every).items() if count > 1]
    if doubled:
        raise SystemExit(f"two faults are called {doubled[0]}")
    found = [one for one in every if not names or {one.name, one.name.partition(".")[0]} & {*names}]
    if not found:
        raise SystemExit(f"there is no fault or room {', '.join(names)}")
    return found


def main() -> int:
    """Plant them all; the exit status."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="this fault, or those of this room")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="faults at a time, each in a copy of its own")
    parser.add_argument("--whole", action="store_true", help="run every test where the likely ones notice nothing")
    parser.add_argument("--at-least", metavar="N", type=int, help="how many must be noticed (default: all)")
    options = parser.parse_args()
    wanted = _chosen(options.only)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        free: Queue[Copy] = Queue()
        for number in range(options.jobs):
            free.put(Copy(Path(folder, str(number))))

        def one(mutant: Mutant) -> Caught:
            copy = free.get()
            try:
                return copy.try_(mutant, options.whole)
            finally:
                free.put(copy)

        caught = 0
        for mutant, found in zip(wanted, pool.map(one, wanted), strict=True):
            caught += bool(found.test)
            said = "caught" if found.test else "BROKEN" if found.broken else "MISSED"
            print(f"{said}  {mutant.name:30} {mutant.kind:20} {found.test or found.why}", flush=True)
    print(f"{caught} of {len(wanted)} caught")
    return int(caught < (len(wanted) if options.at_least is None else options.at_least))


if __name__ == "__main__":
    raise SystemExit(main())
