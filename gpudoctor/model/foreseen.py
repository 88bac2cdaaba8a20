"""What a plan would come to: the findings of the machine as it would be once its steps are done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudoctor.model.fact import Json


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Ids of errors and warnings, judged on what the steps make true.

    `cleared` were found and no longer are; `stays` are found still; `new` are found then and not now; `unjudged` were
    found and can be judged only when the machine is read again.
    """

    cleared: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``Judged on what these steps make true: cleared torch.cpu-build; nothing new.``"""
        parts = [
            f"cleared {_listed(self.cleared)}" if self.cleared else "",
            f"stays {_listed(self.stays)}" if self.stays else "",
            f"to be read again {_listed(self.unjudged)}" if self.unjudged else "",
            f"new {_listed(self.new)}" if self.new else "nothing new",
        ]
        return f"Judged on what these steps make true: {'; '.join(part for part in parts if part)}."

    def to_json(self) -> dict[str, Json]:
        """Its four lists."""
        return {name: list(getattr(self, name)) for name in ("cleared", "stays", "new", "unjudged")}


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(ids)
