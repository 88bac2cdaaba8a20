"""The target's Python environment, read from its files."""
