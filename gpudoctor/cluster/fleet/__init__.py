"""Many documents folded into one diagnosis: what is wrong on which hosts, who differs, whom to take out.

`asking` gathers replies, from files or by `remote`; `reading` and `summary` keep little of each; `outliers` compares;
`fold` puts the facts of all into one snapshot, which the pages of scope ``cluster`` judge.
"""
