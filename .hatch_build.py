"""Compile the rulebook and tables while the wheel is built, so that an installed gpudoctor never parses TOML."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRules(BuildHookInterface):  # type: ignore[type-arg]
    """Adds ``gpudoctor/rules/rules.json`` and a file a table to wheels; editable installs compile on first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Check every page on the way: a wheel with a broken page cannot be built."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from gpudoctor.rulebook.compiled import compiled_copies

        scratch = Path(tempfile.mkdtemp())
        for name, content in compiled_copies(Path(self.root) / "rules").items():
            file = scratch / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content, separators=(",", ":")), "utf-8")
            build_data["force_include"][str(file)] = f"gpudoctor/rules/{name}"
