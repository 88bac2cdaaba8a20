"""Documents of hosts as the program writes them: a sound machine's facts, some of them changed, judged."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from gpudoctor.app import pipeline
from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Fact, Known, Row, Rows, listed
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.views import document as view
from tests.generated.sound import sound

BOOK = rulebook.load()
LOST: dict[str, Fact] = {"kernel_log.fallen_off": Known(("0000:3a:00.0",), "/dev/kmsg")}


@lru_cache(maxsize=1)
def machine() -> Snapshot:
    """A sound machine with eight GPUs, looked at by level standard."""
    found = (one for one in sound(7) if not one.circumstances and one.machine.level == "standard")
    return next(one.snapshot for one in found if len(_gpus(one.snapshot)) == 8)


def driver() -> str:
    """The version of its driver."""
    found = machine().get("driver.version")
    assert isinstance(found, Known)
    return str(found.value)


def _gpus(snapshot: Snapshot) -> tuple[Row, ...]:
    return listed(snapshot.rows("gpu"))


def document(
    host: str, facts: Mapping[str, Fact] | None = None, gpu: Mapping[str, Fact] | None = None, **groups: Rows
) -> str:
    """What gpudoctor check --json prints there; `gpu` changes columns of every GPU."""
    base = machine()
    gpus = tuple({**row, **(gpu or {})} for row in _gpus(base))
    snapshot = replace(
        base,
        target=replace(base.target, kind="local", name=host),
        facts={**base.facts, **(facts or {})},
        groups={**base.groups, "gpu": gpus, **groups},
    )
    return view.render(pipeline.diagnose(snapshot, BOOK))


def folded(texts: Iterable[str], whole: FleetContext | None = None) -> Diagnosis:
    """One diagnosis of these, each a reply as a file holds it."""
    folding = FleetFold(BOOK)
    for number, text in enumerate(texts, 1):
        folding.add(Reply(text, name=f"file{number}"))
    return folding.diagnosis(whole or FleetContext())


def hosts(count: int, **facts: Mapping[str, Fact]) -> list[str]:
    """``n1`` to ``n<count>``; a keyword's facts are of the host of that name."""
    return [document(f"n{number}", facts.get(f"n{number}")) for number in range(1, count + 1)]
