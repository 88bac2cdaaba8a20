"""Many machines: `links` between hosts, the `preflight` of a job, a `running_job`, and a `fleet`."""
