#!/bin/sh
# Slurm Prolog and Epilog: no job starts on a node whose GPUs are broken, and a job that breaks them is its last.
#
# Where it goes: on every compute node, and into slurm.conf as follows; gpudoctor on the PATH below (a link to it, or the
# file that gpudoctor pyz writes).
#     Prolog=/etc/slurm/slurm-prolog.sh
#     Epilog=/etc/slurm/slurm-prolog.sh
#     PrologFlags=Alloc
#     BatchStartTimeout=60
# With Alloc it runs on all nodes of a job before its first step; slurmd runs it as root, without PATH and HOME. It takes
# about a second, and 35 at most: a PrologEpilogTimeout below that would drain the node without a word.
#
# What the exit codes of gpudoctor mean here:
#     0  The node is sound. The job starts.
#     1  An error was found. The node is drained with the finding as the reason, and the Prolog fails, so that Slurm
#        takes the job from the node and queues it again (held, unless SchedulerParameters=nohold_on_prolog_fail).
#     3, 2, 124, 126, 127: no verdict, wrong options, too slow, not installed. The job starts and syslog has the
#        reason: that nothing is known of a node is no ground to refuse it, and an update of gpudoctor that failed
#        everywhere must not drain the cluster.
# An interpreter that breaks ends with 1, too, so that a node is drained only where the report names a finding.
# A node that has been mended comes back by: scontrol update nodename=NODE state=resume

# Try it by hand, as root: SLURMD_NODENAME=$(hostname -s) sh slurm-prolog.sh; echo $?
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# What the node must be beside sound, where there is such a profile (gpudoctor expect --from-here).
profile=/etc/gpudoctor/expect.toml
set -- check --level quick --lang en
[ -e "$profile" ] && set -- "$@" --expect "$profile"

report=$(timeout --kill-after=5 30 gpudoctor "$@" 2>&1)
status=$?
[ "$status" -eq 0 ] && exit 0

cause=$(printf '%s\n' "$report" | sed -n 's/.*more: gpudoctor explain \([A-Za-z0-9._-]*\)$/\1/p' | head -n 1)
# A node that neither Slurm (Gres) nor a profile gives a GPU need have none.
if [ "$cause" = host.no-gpu ] && [ ! -e "$profile" ]; then
    case $(scontrol show node "$SLURMD_NODENAME") in *Gres=*gpu*) ;; *) exit 0 ;; esac
fi
if [ "$status" -ne 1 ] || [ -z "$cause" ]; then
    printf '%s\n' "$report" | logger -t gpudoctor -p user.warning
    exit 0
fi

printf '%s\n' "$report"
scontrol update nodename="$SLURMD_NODENAME" state=drain reason="gpudoctor:$cause"
[ "$SLURM_SCRIPT_CONTEXT" = epilog_slurmd ] && exit 0 # an Epilog that fails would put its own reason there
exit 1
