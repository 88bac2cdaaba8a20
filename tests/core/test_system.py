"""Commands to type: what a shell makes of them is what was meant."""

from __future__ import annotations

import shlex
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.core.system import is_of_windows, program_name, shell_line, signal_name


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8), min_size=1, max_size=4))
def test_a_posix_shell_takes_the_same_words(argv: list[str]) -> None:
    line = shell_line(argv)
    assert is_of_windows(argv) or shlex.split(line) == argv


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["C:\\venv\\Scripts\\python.exe", "-m", "pip"], "C:\\venv\\Scripts\\python.exe -m pip"),
        (["C:\\a b\\python.exe", "-m", "pip"], '& "C:\\a b\\python.exe" -m pip'),
        (["uv", "pip", "install", "--python", "D:/x", "torch>=2"], 'uv pip install --python D:/x "torch>=2"'),
        (["D:\\py.exe", "-c", 'print("$HOME,`")'], 'D:\\py.exe -c "print(`"`$HOME,```")"'),
        (["D:\\py.exe", "a,b", ""], 'D:\\py.exe "a,b" ""'),
        (["D:\\O'Neil 模型\\x.exe", "100%", "^", "“"], '& "D:\\O\'Neil 模型\\x.exe" 100% "^" "`“"'),
        (["winget", "install", "--id", "A.B+.x64", "a b"], 'winget install --id A.B+.x64 "a b"'),
        ([".venv\\Scripts\\python.exe", "-m", "pip"], ".venv\\Scripts\\python.exe -m pip"),
    ],
)
def test_powershell_takes_paths_of_a_drive(argv: list[str], line: str) -> None:
    assert shell_line(argv) == line


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("/usr/bin/python3.12", "python3.12"),
        ("uv", "uv"),
        ("C:\\Program Files\\Python\\Python.exe", "python"),
        ("D:/miniconda3/condabin/conda.bat", "conda"),
        ("/srv/odd\\pip", "odd\\pip"),
    ],
)
def test_a_program_is_known_by_its_name(word: str, name: str) -> None:
    assert program_name(word) == name


def test_signals_have_the_names_that_they_have_here() -> None:
    numbered = {number: signal.Signals(number).name for number in range(1, 32)}
    assert {number: signal_name(number) for number in numbered} == numbered
    assert (signal_name(0), signal_name(40)) == ("signal 0", "signal 40")
