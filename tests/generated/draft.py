"""A snapshot in the making: facts told, lacking or out of sight, as probes would put them."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.core.fact import Absent, Fact, Known, Row, Rows, Unread
from gpudoctor.core.snapshot import Snapshot, Target


def frozen(value: Any) -> Any:
    """Lists as facts hold them."""
    return tuple(frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


class Draft:
    """The facts of one machine while they are written down."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.groups: dict[str, list[dict[str, Fact]] | Absent | Unread] = {}

    def tell(self, source: str, values: Mapping[str, Any]) -> None:
        """Known facts; None stands for a fact that `source` says is not there."""
        for name, value in values.items():
            self.facts[name] = Absent(source) if value is None else Known(frozen(value), source)

    def lack(self, why: str, names: str) -> None:
        """Facts known not to be there: names with spaces between; a name without a dot is a group."""
        self._without(Absent(why), names)

    def blind(self, why: str, names: str) -> None:
        """Facts that nobody could read."""
        self._without(Unread(why), names)

    def _without(self, state: Absent | Unread, names: str) -> None:
        for name in names.split():
            if "." in name:
                self.facts[name] = state
            else:
                self.groups[name] = state

    def rows(self, group: str, source: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A group's rows; None stands for a column that the thing does not have."""
        self.groups[group] = [row(source, values) for values in rows]

    def each(self, group: str) -> list[dict[str, Fact]]:
        """The rows of a group, to be changed in place; none where it has none."""
        rows = self.groups.get(group)
        return rows if isinstance(rows, list) else []

    def value(self, name: str) -> Any:
        """A fact's value, None where it is not known."""
        fact = self.facts.get(name)
        return fact.value if isinstance(fact, Known) else None

    def snapshot(self, name: str, level: str) -> Snapshot:
        groups: dict[str, Rows] = {}
        for group, rows in self.groups.items():
            groups[group] = tuple[Row, ...](dict(each) for each in rows) if isinstance(rows, list) else rows
        return Snapshot(Target("local", name, "/opt/venv/bin/python", level), dict(self.facts), groups)


def row(source: str, values: Mapping[str, Any]) -> dict[str, Fact]:
    """One row of facts."""
    return {
        column: Absent("this machine does not tell it") if value is None else Known(frozen(value), source)
        for column, value in values.items()
    }
