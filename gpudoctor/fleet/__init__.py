"""Many documents folded into one diagnosis: what is wrong on which hosts, who differs, whom to take out.

``by_files``, ``by_ssh`` and ``by_slurm`` gather replies; `summary` reads each and keeps little of it; `outliers`
compares; `fold` puts the facts of all into one snapshot, which the pages of scope ``cluster`` judge.
"""
