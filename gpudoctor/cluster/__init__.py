"""Many machines: links between hosts, the preflight of a job, a running job, and a fleet."""
