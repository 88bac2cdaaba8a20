"""Special values in conditions and table look-ups: an absent value, a version, and the error "cannot be judged"."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from gpudoctor.core import versions
from gpudoctor.core.fact import Reason


class CannotJudge(Exception):  # noqa: N818 - an answer, not an error
    """Raised inside an expression by an unread fact, or by a look-up whose table has no row."""

    def __init__(self, what: str, why: str, reason: Reason = Reason.UNSPECIFIED) -> None:
        """`what` cannot be judged (a fact, group or table), `why` not, and the typed reason."""
        super().__init__(what, why)
        self.what = what
        self.why = why
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Nothing:
    """An absent fact inside an expression: false and empty; every comparison with it is false, ``!=`` too, and reckoned
    with, it stays absent.
    """

    def _false(self, _other: object) -> bool:
        """Every comparison with an absent value is false."""
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _false
    __eq__ = __ne__ = _false
    __hash__ = None  # type: ignore[assignment]

    def _nothing(self, _other: object) -> Nothing:
        """Arithmetic with an absent value gives the absent value."""
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _nothing

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __str__(self) -> str:
        return "none"

    @property
    def major(self) -> Nothing:
        """The absent value itself: the major number of an absent version is absent."""
        return self

    minor = major


NOTHING = Nothing()


class Version(str):
    """A version in an expression: prints as written, compares by PEP 440 with versions and quoted text."""

    __slots__ = ()

    def _compare(self, other: object, compare: Callable[[Any, Any], bool]) -> bool:
        """The PEP 440 comparison; False against an absent value; raises `CannotJudge` where a side is no version."""
        if isinstance(other, Nothing):
            return False
        left, right = versions.parse(self), versions.parse(str(other))
        if left is None or right is None:
            raise CannotJudge(f"{self} against {other}", "not both are versions")
        return compare(left, right)

    def __lt__(self, other: object) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: object) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> bool:
        return self._compare(other, operator.ge)

    def __eq__(self, other: object) -> bool:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> bool:
        return self._compare(other, operator.ne)

    __hash__ = str.__hash__

    @property
    def major(self) -> int:
        """The first number: 12 of 12.8; raises `CannotJudge` where the text is no version."""
        return self._release(0)

    @property
    def minor(self) -> int:
        """The second number, 0 where there is none: 8 of 12.8; raises `CannotJudge` where the text is no version."""
        return self._release(1)

    def _release(self, place: int) -> int:
        """That part of the release numbers, 0 beyond the last; raises `CannotJudge` where the text is no version."""
        parsed = versions.parse(self)
        if parsed is None:
            raise CannotJudge(str(self), "not a version")
        return parsed.release[place] if place < len(parsed.release) else 0
