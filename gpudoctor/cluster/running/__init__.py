"""A running job: what each of its ranks does, and for whom the others wait.

::

    processes -> looks over some seconds -> rows of ranks -> groups by where they wait -> Snapshot -> rules -> Diagnosis

`looking` looks at this machine's ranks, `grouping` finds by their rows alone whom the others wait for, and `hosts`
brings the rows of many machines together.
"""
