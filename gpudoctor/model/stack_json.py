"""A torch stack as a document, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.fact import Json
from gpudoctor.model.plan import text, texts
from gpudoctor.model.stack import GPU, MACHINE, Need, Reason, Remedy, Stack, Standing, Wishes

SCHEMA = "gpudoctor-stack/1"
_TEXTS = (*MACHINE[1:], "torch")


def to_json(stack: Stack) -> dict[str, Json]:
    """A document that `from_json` takes back."""
    return {
        "schema": SCHEMA,
        "wishes": cast(Json, _wishes_to_json(stack.wishes)),
        "torch": stack.torch,
        "packages": cast(Json, [list(item) for item in stack.packages]),
        "libraries": cast(Json, [list(item) for item in stack.libraries]),
        "needs": [
            {"what": need.what, "needed": need.needed, "have": need.have, "met": need.met} for need in stack.needs
        ],
        "commands": {tool: cast(Json, [list(argv) for argv in argvs]) for tool, argvs in stack.commands.items()},
        "files": dict(stack.files),
        "heading": stack.heading,
        "reasons": [
            {"candidate": item.candidate, "standing": item.standing, "because": item.because} for item in stack.reasons
        ],
        "remarks": list(stack.remarks),
        "smallest": [_remedy_to_json(item) for item in stack.smallest],
        "downloads_mib": stack.downloads_mib,
        "sources": list(stack.sources),
        "offers": {name: list(values) for name, values in stack.offers.items()},
        "makes": dict(stack.makes),
    }


def _wishes_to_json(wishes: Wishes) -> dict[str, Json]:
    gpus = [{"name": gpu.name, "compute_capability": gpu.compute_capability, "count": gpu.count} for gpu in wishes.gpus]
    return {
        "gpus": cast(Json, gpus),
        **{name: getattr(wishes, name) for name in (*_TEXTS, "tool", "emit")},
        "extras": list(wishes.extras),
        "wants": list(wishes.wants),
        "said": cast(Json, sorted(wishes.said)),
    }


def from_json(raw: object) -> Stack:
    """The inverse of `to_json`; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != SCHEMA:
            raise DocumentError(f"schema {str(document['schema'])[:40]!r} is not {SCHEMA}")
        size = document.get("downloads_mib")
        return Stack(
            wishes=_wishes(document["wishes"]),
            torch=text(document["torch"]),
            packages=_pairs(document.get("packages", ())),
            libraries=_pairs(document.get("libraries", ())),
            needs=tuple(
                Need(text(n["what"]), text(n["needed"]), text(n["have"]), bool(n["met"]))
                for n in document.get("needs", ())
            ),
            commands={
                str(tool): tuple(texts(argv) for argv in argvs) for tool, argvs in document.get("commands", {}).items()
            },
            files={str(name): text(content) for name, content in document.get("files", {}).items()},
            heading=text(document.get("heading", "")),
            reasons=tuple(_reason(item) for item in document.get("reasons", ())),
            remarks=texts(document.get("remarks", ())),
            smallest=tuple(_remedy(item) for item in document.get("smallest", ())),
            downloads_mib=None if size is None else float(size),
            sources=texts(document.get("sources", ())),
            offers={str(name): texts(values) for name, values in document.get("offers", {}).items()},
            makes={str(name): value for name, value in document.get("makes", {}).items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole stack: {type(error).__name__} {error}") from error


def _wishes(raw: object) -> Wishes:
    try:
        document = cast("Mapping[str, Any]", raw)
        return Wishes(
            gpus=tuple(
                GPU(text(gpu["name"]), text(gpu.get("compute_capability", "")), int(gpu.get("count", 1)))
                for gpu in document.get("gpus", ())
            ),
            **{name: text(document.get(name, "")) for name in _TEXTS},
            tool=text(document.get("tool", "pip")),
            emit=text(document.get("emit", "command")),
            extras=texts(document.get("extras", ())),
            wants=texts(document.get("wants", ())),
            said=frozenset(texts(document.get("said", ()))),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not whole wishes for a stack: {type(error).__name__} {error}") from error


def _reason(raw: Mapping[str, Any]) -> Reason:
    if raw["standing"] not in get_args(Standing):
        raise ValueError(f"{str(raw['standing'])[:40]!r} is neither chosen, fits nor rejected")
    return Reason(text(raw["candidate"]), raw["standing"], text(raw["because"]))


def _remedy_to_json(remedy: Remedy) -> dict[str, Json]:
    words = {"field": remedy.field, "value": remedy.value, "text": remedy.text, "least": remedy.least}
    return {**words, "also": cast(Json, [_remedy_to_json(item) for item in remedy.also])}


def _remedy(raw: Mapping[str, Any]) -> Remedy:
    return Remedy(
        text(raw["field"]),
        text(raw["value"]),
        text(raw["text"]),
        text(raw.get("least", "")),
        tuple(_remedy(item) for item in raw.get("also", ())),
    )


def _pairs(raw: Sequence[Sequence[Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((text(name), text(value)) for name, value in raw)
