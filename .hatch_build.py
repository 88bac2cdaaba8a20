"""Compile the rulebook and tables while the wheel is built, so that an installed gpudoctor never parses TOML."""

from __future__ import annotations

import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRules(BuildHookInterface):  # type: ignore[type-arg]
    """Adds pages and tables to wheels as ``gpudoctor/rules``, and compiled copies; of translations the copies alone.

    An editable install reads ``rules`` and compiles on first use.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Check every page on the way: a wheel with a broken page cannot be built."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from gpudoctor.core.language import OTHERS, words
        from gpudoctor.diagnosis.rulebook.compiling import compiled_copies

        rules = Path(self.root) / "rules"
        for page in rules.rglob("*"):
            place = page.relative_to(rules)
            if page.is_file() and place.parts[0] not in OTHERS:
                build_data["force_include"][str(page)] = f"gpudoctor/rules/{place.as_posix()}"
        scratch = Path(tempfile.mkdtemp())
        for name in (f"{language}{part}" for language in OTHERS for part in ("", ".files", ".notes")):
            written = json.dumps(dict(words(name)), separators=(",", ":"), ensure_ascii=False).encode()
            (scratch / f"{name}.json.z").write_bytes(zlib.compress(written, 9))
            build_data["force_include"][str(scratch / f"{name}.json.z")] = f"gpudoctor/core/language/{name}.json.z"
        for name, content in compiled_copies(rules).items():
            file = scratch / name
            file.parent.mkdir(parents=True, exist_ok=True)
            written = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
            is_packed = name not in ("rules.json", "signs.json", "probes.json")  # which every check reads
            file.write_bytes(zlib.compress(written, 9) if is_packed else written)
            build_data["force_include"][str(file)] = f"gpudoctor/rules/{name}{'.z' * is_packed}"
