#!/bin/sh
# torchrun that starts the training only when all nodes are fit for it.
#
# Where it goes: start it on every node, as torchrun itself, with the same RENDEZVOUS and NODES everywhere:
#     export GPUDOCTOR_JOB_KEY="$(cat job.key)"
#     RENDEZVOUS=node1:29400 NODES=2 GPUS=8 sh torchrun.sh python train.py
# job.key, a random secret of this job (openssl rand -hex 16), is the same on every node: by it the ranks authenticate
# each other's messages. Without it the key is made of the job's id and address, which others may know.
# Each rank checks its node, then all ranks the network between them; then it becomes the command, with the ranks,
# the environment and the rendezvous that torchrun gave it. Rank 0 prints the report.
#
# gpudoctor ends with 1 for no-go and with 3 where there is no verdict. The command does not run then, and torchrun
# reports the ranks as failed. With --max-restarts the check is made again before each start.

exec torchrun \
    --nnodes="$NODES" --nproc-per-node="${GPUS:-gpu}" \
    --rdzv-backend=c10d --rdzv-endpoint="$RENDEZVOUS" --rdzv-id="${JOB:-train}" \
    --no-python gpudoctor preflight --level quick -- "$@"
