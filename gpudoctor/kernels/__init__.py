"""Measurements that cost GPU time: whether a GPU computes right, how fast, and which layer is at fault where it fails.

``child`` holds the measurements, one file each, run in a child process by the interpreter being diagnosed; its folders
are the rungs of the ladder. `specs` knows them all, `runner` asks one child, `ladder` climbs and reads back as
measurements what `facts` made facts of; `across` measures collectives over the hosts of a job.
"""
