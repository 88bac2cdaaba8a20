"""Commands to type: what a shell makes of them is what was meant."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.core.system import shell_line


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8), min_size=1, max_size=4))
def test_a_posix_shell_takes_the_same_words(argv: list[str]) -> None:
    line = shell_line(argv)
    assert any(word[1:2] == ":" for word in argv) or shlex.split(line) == argv


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["C:\\venv\\Scripts\\python.exe", "-m", "pip"], "C:\\venv\\Scripts\\python.exe -m pip"),
        (["C:\\a b\\python.exe", "-m", "pip"], '& "C:\\a b\\python.exe" -m pip'),
        (["uv", "pip", "install", "--python", "D:/x", "torch>=2"], 'uv pip install --python D:/x "torch>=2"'),
        (["D:\\py.exe", "-c", 'print("$HOME,`")'], 'D:\\py.exe -c "print(`"`$HOME,```")"'),
        (["D:\\py.exe", "a,b", ""], 'D:\\py.exe "a,b" ""'),
    ],
)
def test_powershell_takes_paths_of_a_drive(argv: list[str], line: str) -> None:
    assert shell_line(argv) == line
