"""Tests that Windows' Python runs: `tests/windows/test_same.py` has it do so."""
