"""The one place where the version is written."""

__version__ = "1.1.0"
