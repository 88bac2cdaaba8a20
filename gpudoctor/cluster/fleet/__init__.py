"""Many documents folded into one diagnosis: what is wrong on which hosts, who differs, whom to take out.

- `sources`: gathers replies, from files or over ssh and srun (`remote`)
- `reading`, `summary`: a reply's documents, and the few facts and findings that are kept of each host
- `findings`: the hosts' findings merged by id, hosts that differ from the others, and drain commands
- `fold`: all of it in one snapshot, judged by the pages of scope ``cluster``
"""
