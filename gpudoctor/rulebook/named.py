"""What a page names once and uses in many places: ``let.lost = "[g.address for g in gpu if ...]"``.

Such a name stands for its expression, wherever the page has one: in conditions, and between the braces of sentences.
It may use the names above it. Everything behind this module sees the page with each name spelled out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor import pages
from gpudoctor.expression import parse
from gpudoctor.model.catalog import Catalog
from gpudoctor.model.errors import RuleError
from gpudoctor.model.pattern import pattern
from gpudoctor.rulebook.spot import Spot

_CONDITIONS = frozenset(("when", "unless", "subjects"))
_SENTENCES = frozenset(["title", "finding", "why", "text", "argv", "makes", "undo", "signs", "steps"])
"""Keys of a page, or of its translation, under which expressions stand between braces."""
_HOLE = pattern(r"\{([^{}]+)\}")
_CAPTURED = pattern(r"\(\?P<(\w+)>")

_RETIRED = frozenset(["said", "open"])
"""What pages written for 1.0 may still hold, and nothing reads."""


def page_of(path: Path) -> dict[str, Any]:
    """The page as TOML gave it, its names spelled out; raises `RuleError`, also for a name that nothing uses."""
    raw = {key: part for key, part in pages.toml(path).items() if key not in _RETIRED}
    if "let" not in raw:
        return raw
    page = Spot(path)
    names = Names(raw, page)
    spelled = names.spelled_out(raw)
    if idle := [name for name in names.meant if name not in names.used]:
        raise page.key(f"let.{idle[0]}").broken(f"let.{idle[0]}: nothing on the page uses it")
    return spelled


class Names:
    """The names that a page gives, and what each stands for; raises `RuleError` for what is no name or expression."""

    def __init__(self, raw: Mapping[str, Any], page: Spot) -> None:
        self.meant: dict[str, str] = {}
        self.used: set[str] = set()
        self._page = page
        self._sentences = _SENTENCES | ({"confirm"} if raw.get("scope") == "cluster" else set())
        given = raw.get("let", {})
        if not isinstance(given, Mapping):
            raise page.key("let").broken(f'let is written let.name = "an expression", not {given!r}')
        for name, expression in given.items():
            if not name.isidentifier():
                raise page.text(name).broken(f"let.{name}: a name is letters, digits and _")
            if not isinstance(expression, str):
                raise page.key(f"let.{name}").broken(f"let.{name} is text, in quotes, not {expression!r}")
            try:
                self.meant[name] = self._spelled(expression)
            except RuleError as error:
                raise page.key(f"let.{name}").broken(f"let.{name}: {error}") from error

    def spelled_out(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The page, or its translation, with what each name stands for in its place; cases have no expressions."""

        def of(part: Any, key: str) -> Any:
            if isinstance(part, Mapping):
                return {name: of(value, key if key == "makes" else name) for name, value in part.items()}
            if isinstance(part, list):
                return [of(value, key) for value in part]
            return self._text(part, key) if isinstance(part, str) else part

        return {key: value if key in ("case", "let") else of(value, key) for key, value in raw.items()}

    def _text(self, text: str, key: str) -> str:
        try:
            if key in _CONDITIONS:
                return self._spelled(text)
            return _HOLE.sub(lambda hole: self._filled(hole[1]), text) if key in self._sentences else text
        except RuleError as error:
            raise self._page.text(text).broken(f"in {text!r}: {error}") from error

    def _filled(self, hole: str) -> str:
        """One hole of a sentence; what is no expression may be what a pattern captures, or for the checks to refuse."""
        expression, mark, otherwise = hole.partition("|")
        try:
            used = any(self._uses(expression))
        except RuleError:
            used = False
        if not used:
            return f"{{{hole}}}"
        spelled = self._spelled(expression)
        if odd := next((sign for sign in "{|}" if sign in spelled), ""):
            raise RuleError(f"{{{hole}}}: what is named there holds {odd!r}, which means something in a sentence")
        return f"{{{spelled} {mark}{otherwise}}}" if mark else f"{{{spelled}}}"

    def _spelled(self, expression: str) -> str:
        """The expression with what each name stands for, in parentheses, in its place."""
        data = expression.strip().encode()
        lines = [0, *(at + 1 for at, byte in enumerate(data) if byte == ord("\n"))]
        for node in sorted(self._uses(expression), key=lambda node: (node.lineno, node.col_offset), reverse=True):
            self.used.add(node.id)
            at = lines[node.lineno - 1] + node.col_offset
            data = data[:at] + f"({self.meant[node.id]})".encode() + data[at + len(node.id) :]
        return data.decode()

    def _uses(self, expression: str) -> Iterator[ast.Name]:
        """Where the names stand; raises `RuleError` where one is a loop's variable, too."""
        for node in ast.walk(parse(expression)):
            if isinstance(node, ast.Name) and node.id in self.meant:
                if isinstance(node.ctx, ast.Store):
                    raise RuleError(f"{node.id} is a name of this page, and cannot be a loop's variable as well")
                yield node


def check_names(raw: Mapping[str, Any], known: Catalog, page: Spot) -> None:
    """Raise `RuleError` for a name of the page that means something else already."""
    from gpudoctor.expression import BUILTINS
    from gpudoctor.knowledge import LOOKUPS

    taken = {
        "there are facts": {name.partition(".")[0] for name in known.specs},
        "there is a function": {*BUILTINS, *LOOKUPS},
        "a sign captures a group": {name for sign in raw.get("sign", ()) for name in _CAPTURED.findall(sign["match"])},
    }
    for name in raw.get("let", {}):
        if what := next((what for what, names in taken.items() if name in names), ""):
            raise page.key(f"let.{name}").broken(f"let.{name}: {what} of that name")
