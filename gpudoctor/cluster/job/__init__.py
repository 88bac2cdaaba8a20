"""The pre-training check of a job: its ranks meet at rank 0, its machines are checked and measured in pairs.

::

    place -> member -> meeting -> MeetingResults -> Snapshot of scope cluster -> rules -> Diagnosis

Every rank is a `member` that comes to the `meeting`, which rank 0 holds: on the job's own port, so that the way there
is tested as well. The meeting asks machines to connect to each other and to measure in `rounds` of disjoint pairs, and
names who is to blame by `culprits`. It never waits without end: each stage has its seconds, and the whole has a budget.
"""
