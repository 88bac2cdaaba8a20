"""Measurements that cost GPU time: whether a GPU computes right, how fast, and which layer is at fault where it fails.

- `child`: the kernels themselves, one file each, run in a child process by the interpreter being diagnosed
- `specs`: the list of all kernels; `runner`: one rung (folder of ``child``) on one device, in child processes
- `ladder`: all rungs of all devices, the lowest first; `facts`: their measurements as facts
- `across_hosts`, `canary`: collectives and training steps over the hosts of a job
"""
