#!/bin/sh
# Slurm HealthCheckProgram: a node whose GPUs break is drained. Jobs that run there go on, no new one starts.
#
# Where it goes: on every compute node, and into slurm.conf as follows; gpudoctor on the PATH below (a link to it, or the
# file that gpudoctor pyz writes).
#     HealthCheckProgram=/etc/slurm/slurm-health-check.sh
#     HealthCheckInterval=300
#     HealthCheckNodeState=ANY,CYCLE
# Level quick only reads: it may run beside a job. slurmd runs it as root, without PATH and HOME, for 60 s at most.
#
# What the exit codes of gpudoctor mean here:
#     0  The node is sound. Nothing is done, unless RESUME is set below.
#     1  An error was found. The node is drained with the finding as the reason.
#     3, 2, 124, 126, 127: no verdict, wrong options, too slow, not installed. Nothing is done and syslog has the
#        reason: not to know is no ground to drain, and an update of gpudoctor that failed everywhere must not drain
#        the cluster.
# An interpreter that breaks ends with 1, too, so that a node is drained only where the report names a finding.
# A node that has been mended comes back by: scontrol update nodename=NODE state=resume

# Try it by hand, as root: SLURMD_NODENAME=$(hostname -s) sh slurm-health-check.sh; echo $?
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# yes: a node that gpudoctor drained is put back as soon as it is sound. A GPU that fails now and then is put back, too,
# until it fails the next job: leave it to a person unless reboots and resets mend most of what happens here.
RESUME=no

# A node that is already drained keeps its reason; only what was drained for ours may be put back.
drained=no
case $(sinfo --noheader --nodes "$SLURMD_NODENAME" --format '%T %E') in
drain*\ gpudoctor:*)
    [ "$RESUME" = yes ] || exit 0
    drained=yes
    ;;
drain*) exit 0 ;;
esac

# What the node must be beside sound, where there is such a profile (gpudoctor expect --from-here).
profile=/etc/gpudoctor/expect.toml
set -- check --level quick --lang en
[ -e "$profile" ] && set -- "$@" --expect "$profile"

report=$(timeout --kill-after=5 45 gpudoctor "$@" 2>&1)
status=$?
if [ "$status" -eq 0 ]; then
    [ "$drained" = yes ] && scontrol update nodename="$SLURMD_NODENAME" state=resume
    exit 0
fi

cause=$(printf '%s\n' "$report" | sed -n 's/.*more: gpudoctor explain \([A-Za-z0-9._-]*\)$/\1/p' | head -n 1)
# A node that neither Slurm (Gres) nor a profile gives a GPU need have none.
if [ "$cause" = host.no-gpu ] && [ ! -e "$profile" ]; then
    case $(scontrol show node "$SLURMD_NODENAME") in *Gres=*gpu*) ;; *) exit 0 ;; esac
fi
printf '%s\n' "$report" | logger -t gpudoctor -p user.warning
if [ "$status" -eq 1 ] && [ -n "$cause" ] && [ "$drained" = no ]; then
    scontrol update nodename="$SLURMD_NODENAME" state=drain reason="gpudoctor:$cause"
fi
exit 0
