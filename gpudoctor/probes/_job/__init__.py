"""A command while it runs: its processes, its control group, the machine's memory, /dev/shm and disk, read cheaply."""
