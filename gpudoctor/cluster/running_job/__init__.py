"""A running job: what each of its ranks does, and for whom the others wait.

::

    processes -> looks over some seconds -> rows of ranks -> groups by where they wait -> Snapshot -> rules -> Diagnosis

- `looking`: the ranks of this machine, as rows
- `hosts`: the rows of many machines
- `job_diagnosis`: rows to a diagnosis: which rank the others wait for
- `following`: a job looked at again and again, for the interface
- `recorded`: what NCCL, torch and the kernel recorded of a job
"""
