"""One rank of a job on one host of the tests: ``across_rank.py PYTHON SECONDS``; torchrun's variables tell who it is.

Prints its answer as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from gpudoctor.kernels.across_hosts import Member, run
from gpudoctor.target.local import Local

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
target = Local("standard", sys.argv[1])
me = Member(rank, world, int(os.environ["LOCAL_RANK"]), target.name, store)
answer = run(target, me, seconds=float(sys.argv[2]))
sys.stdout.write(json.dumps(answer.to_json()))
