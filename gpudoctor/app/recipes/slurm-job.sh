#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
# A job step that starts only when all its nodes are fit for it.
#
# Where it goes: it is a batch script; sbatch slurm-job.sh python train.py, with the resources above as they are needed.
# Each rank checks its node, then all ranks the network between them. Rank 0 prints the report to the job's output.
# srun hands every rank the same random GPUDOCTOR_JOB_KEY, by which they authenticate each other's messages.
#
# What the exit codes of the step mean here:
#     2  The preflight was asked wrongly (127: there is no gpudoctor), and the command did not run.
#     0 and others  The nodes are sound and the command ran: its own exit code.
#     1  No-go, and the command did not run. The report names the nodes, and the line that drains them for the
#        administrator. To leave them out meanwhile: sbatch --exclude=NODES.
#     3  No verdict, and the command did not run: something that a verdict needs could not be read, and the report
#        says what. It is the user's own job: to start it in spite of that, submit the command without gpudoctor.
# A command may itself end with 1, 2 or 3; the report says whether it was started.

: "${GPUDOCTOR_JOB_KEY:=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"
export GPUDOCTOR_JOB_KEY
exec srun gpudoctor preflight --level quick -- "$@"
