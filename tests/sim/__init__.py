"""Simulated machines: our own driver libraries and a root laid out from a scenario, the real program over both."""
