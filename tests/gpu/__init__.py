"""Tests that need a real NVIDIA GPU: ``python -m pytest -m gpu``. All others run without one."""
