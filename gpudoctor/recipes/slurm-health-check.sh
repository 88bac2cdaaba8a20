#!/bin/sh
# Slurm HealthCheckProgram: a node whose GPUs break is drained. Jobs that run there go on, no new one starts.
#
# Where it goes: on every compute node, and into slurm.conf as
#     HealthCheckProgram=/etc/slurm/gpudoctor-health-check.sh
#     HealthCheckInterval=300
#     HealthCheckNodeState=ANY,CYCLE
# Level quick only reads: it may run beside a job. slurmd runs it as root, without PATH and HOME, for 60 s at most.
#
# What the exit codes of gpudoctor mean here:
#     0  The node is sound. Nothing is done; whoever drained a node puts it back.
#     1  An error was found. The node is drained with the finding as the reason.
#     3, 2, 124, 126, 127: no verdict, wrong options, too slow, not installed. Nothing is done and syslog has the
#        reason: not to know is no ground to drain, and an update of gpudoctor that failed everywhere must not drain
#        the cluster.
# An interpreter that breaks ends with 1, too, so that a node is drained only where the report names a finding.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# A node that is already drained keeps its reason.
case $(sinfo --noheader --nodes "$SLURMD_NODENAME" --format %T) in
drain*) exit 0 ;;
esac

report=$(timeout --kill-after=5 45 gpudoctor check --level quick 2>&1)
status=$?
[ "$status" -eq 0 ] && exit 0

cause=$(printf '%s\n' "$report" | sed -n 's/.*more: gpudoctor explain \([a-z0-9.-]*\)$/\1/p' | head -n 1)
printf '%s\n' "$report" | logger -t gpudoctor -p user.warning
if [ "$status" -eq 1 ] && [ -n "$cause" ]; then
    scontrol update nodename="$SLURMD_NODENAME" state=drain reason="gpudoctor:$cause"
fi
exit 0
