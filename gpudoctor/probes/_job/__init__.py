"""A running command or job on this machine, read cheaply from outside; it is never stopped.

- `processes`: a command's processes and their memory; `shared_resources`: its cgroup, memory, /dev/shm, disk
- `members`: which processes belong to a job, and which are its ranks; `waiting`: what a process waits for
- `stacks`: Python stacks by py-spy; `nccl_records`: NCCL's RAS, torch's flight recorder; `traffic`: network counters
"""
