"""Backups of an environment: copied before a run, so that it can be put back without the network.

`backup` makes, checks and restores them, `store` keeps the contents of files, `tree` lists a folder, `environment`
tells where a Python's packages are and what is installed.
"""
