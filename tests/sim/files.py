"""A tree that is being written in memory: the lists of a scenario's ``host`` section."""

from __future__ import annotations

import base64
from typing import Any


class Files:
    """Files, links, folders and device nodes by absolute path; every method returns it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = set()
        self.devices: dict[str, str] = {}

    def add(self, path: str, content: str | bytes) -> Files:
        self.files[path] = content.encode() if isinstance(content, str) else content
        return self

    def link(self, path: str, goal: str) -> Files:
        self.links[path] = goal
        return self

    def folder(self, path: str) -> Files:
        self.folders.add(path)
        return self

    def device(self, path: str, word: str) -> Files:
        """`word` is ``major:minor mode``."""
        self.devices[path] = word
        return self

    def program(self, path: str) -> Files:
        """A file that is only there; what it answers is a matter of ``commands``."""
        return self.add(path, "")

    def drop(self, *paths: str) -> Files:
        """Take away these paths and all below them."""
        for kind in (self.files, self.links, self.devices):
            for path in [path for path in kind if any(path == gone or path.startswith(f"{gone}/") for gone in paths)]:
                del kind[path]
        self.folders = {
            path for path in self.folders if not any(path == gone or path.startswith(f"{gone}/") for gone in paths)
        }
        return self

    def section(self) -> dict[str, Any]:
        """The lists, with contents that are no text in base64."""
        texts: dict[str, str] = {}
        raw: dict[str, str] = {}
        for path, content in self.files.items():
            try:
                texts[path] = content.decode()
            except UnicodeDecodeError:
                raw[path] = base64.b64encode(content).decode()
        return {
            "files": texts,
            "bytes": raw,
            "links": self.links,
            "folders": sorted(self.folders),
            "devices": self.devices,
        }
