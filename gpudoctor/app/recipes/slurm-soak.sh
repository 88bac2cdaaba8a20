#!/bin/sh
# Slurm HealthCheckProgram and Prolog: nodes without a job are worked hard once a day, and free at once for the next one.
#
# Where it goes: on every compute node, and into slurm.conf as follows; gpudoctor on the PATH below (a link to it, or the
# file that gpudoctor pyz writes), and in PYTHON an interpreter with torch.
#     HealthCheckProgram=/etc/slurm/slurm-soak.sh
#     HealthCheckInterval=600
#     HealthCheckNodeState=IDLE
#     Prolog=/etc/slurm/slurm-soak.sh
#     PrologFlags=Alloc
# Beside slurm-health-check.sh and slurm-prolog.sh: put both Prologs into a folder (Prolog=/etc/slurm/prolog.d/*), this
# one first, and have one HealthCheckProgram run both scripts; the soak is left out where the node is not idle.
# slurmd runs it as root. As HealthCheckProgram it starts the soak and returns; as Prolog it ends it, which takes a second.
#
# What the exit codes of gpudoctor mean here:
#     0  The node is sound. Nothing is done.
#     1  An error was found. The node is drained with the finding as the reason.
#     143  A job wanted the node: the soak is tried again as soon as the node is idle.
#     3, 2, 126, 127: no verdict, wrong options, not installed. Nothing is done and syslog has the reason.
# An interpreter that breaks ends with 1, too, so that a node is drained only where the report names a finding.

# Try it by hand, as root: SLURMD_NODENAME=$(hostname -s) sh slurm-soak.sh; sleep 60
#                          SLURM_SCRIPT_CONTEXT=prolog_slurmd sh slurm-soak.sh
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

MINUTES=20
EVERY=1440 # minutes from one soak of a node to its next
PYTHON=/usr/bin/python3
folder=/var/lib/gpudoctor
running=$folder/soak.pid
last=$folder/soak.last

if [ "$SLURM_SCRIPT_CONTEXT" = prolog_slurmd ]; then # a job has the node
    pid=$(cat "$running" 2>/dev/null) || exit 0
    tries=0
    # The number may be another's by now. Without a command line a program starts (it is the soak), or has ended (Z).
    # What a broken driver holds ends by no signal: the job goes on after 30 s.
    while [ "$tries" -lt 300 ] && grep -q '^State:[[:space:]]*[A-WY]' "/proc/$pid/status" 2>/dev/null &&
        { tr '\0' ' ' <"/proc/$pid/cmdline"; echo; } 2>/dev/null | grep -Eq '^ *$|gpudoctor[^ ]* soak |soak[^ ]* run $'; do
        if [ "$tries" -eq 0 ]; then kill -TERM "$pid"; fi
        if [ "$tries" -eq 100 ]; then kill -KILL "$pid"; fi
        tries=$((tries + 1))
        sleep 0.1
    done
    exit 0
fi

if [ "$1" != run ]; then
    [ -n "$(find "$last" -mmin "-$EVERY" 2>/dev/null)" ] && exit 0
    mkdir -p "$folder"
    setsid flock --nonblock "$folder/soak.lock" sh "$0" run </dev/null >/dev/null 2>&1 &
    exit 0
fi

report=$(mktemp)
gpudoctor soak --minutes "$MINUTES" --python "$PYTHON" --lang en -o "$report" >"$report.log" 2>&1 &
pid=$!
echo "$pid" >"$running"
# A job that came before this file was there has found nothing to end.
case $(sinfo --noheader --nodes "$SLURMD_NODENAME" --format %T) in idle*) ;; *) kill -TERM "$pid" ;; esac
touch "$last"
wait "$pid"
status=$?
rm -f "$running"
[ "$status" -gt 128 ] && rm -f "$last"
cause=$(sed -n 's/.*more: gpudoctor explain \([A-Za-z0-9._-]*\)$/\1/p' "$report" | head -n 1)
if [ "$status" -ne 0 ] && [ "$status" -le 128 ]; then
    cat "$report" "$report.log" | logger -t gpudoctor -p user.warning
fi
rm -f "$report" "$report.log"
if [ "$status" -eq 1 ] && [ -n "$cause" ]; then
    scontrol update nodename="$SLURMD_NODENAME" state=drain reason="gpudoctor:$cause"
fi
exit 0
