"""Many machines: links between hosts, the preflight of a job, and a fleet."""
