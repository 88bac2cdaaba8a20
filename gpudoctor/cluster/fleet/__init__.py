"""Many documents folded into one diagnosis: what is wrong on which hosts, who differs, whom to take out.

`asking` gathers replies, from files or by `remote`; `reading` and `summary` keep little of each; `findings` folds what
they found and compares hosts; `fold` puts the facts of all into one snapshot, which pages of scope ``cluster`` judge.
"""
