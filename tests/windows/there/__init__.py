"""Tests that Windows' Python runs: `tests/windows/test_there.py` has it do so."""
