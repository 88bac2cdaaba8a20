#!/bin/sh
# Slurm Prolog: a job does not start on a node whose GPUs are broken.
#
# Where it goes: on every compute node, and into slurm.conf as
#     Prolog=/etc/slurm/gpudoctor-prolog.sh
#     PrologFlags=Alloc
# With Alloc it runs on all nodes of a job before its first step; slurmd runs it as root, without PATH and HOME.
#
# What the exit codes of gpudoctor mean here:
#     0  The node is sound. The job starts.
#     1  An error was found. The node is drained with the finding as the reason, and the Prolog fails, so that Slurm
#        takes the job from the node and queues it again (held, unless SchedulerParameters=nohold_on_prolog_fail).
#     3, 2, 124, 126, 127: no verdict, wrong options, too slow, not installed. The job starts and syslog has the
#        reason: that nothing is known of a node is no ground to refuse it, and an update of gpudoctor that failed
#        everywhere must not drain the cluster.
# An interpreter that breaks ends with 1, too, so that a node is drained only where the report names a finding.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

report=$(timeout --kill-after=5 30 gpudoctor check --level quick 2>&1)
status=$?
[ "$status" -eq 0 ] && exit 0

cause=$(printf '%s\n' "$report" | sed -n 's/.*more: gpudoctor explain \([a-z0-9.-]*\)$/\1/p' | head -n 1)
if [ "$status" -ne 1 ] || [ -z "$cause" ]; then
    printf '%s\n' "$report" | logger -t gpudoctor -p user.warning
    exit 0
fi

printf '%s\n' "$report"
scontrol update nodename="$SLURMD_NODENAME" state=drain reason="gpudoctor:$cause"
exit 1
