"""Backups of an environment: copied before a run, so that it can be put back without the network."""
