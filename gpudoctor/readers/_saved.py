"""Documents that we wrote ourselves: strict JSON in, a snapshot out, and one line of error for anything else."""

from __future__ import annotations

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.parsing import parsed
from gpudoctor.model.snapshot import Snapshot, from_json


def saved(text: str, name: str) -> Snapshot:
    """The snapshot in `text`; raises `DocumentError`, which names the file as `name`."""
    try:
        return from_json(parsed(text))
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: not a whole snapshot ({error}); save it again with gpudoctor snapshot") from error
