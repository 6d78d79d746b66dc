#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command inside a private Slurm of one node, which ends with the command:
#
#   tests/launchers/slurm.sh srun -n 2 python train.py
#   tests/launchers/slurm.sh sbatch --wait job.sh
#
# It needs root, for slurmd, and slurmctld, slurmd, srun and munged (Debian: slurm-wlm, munge). No
# system service has to run, and none is used: keys, sockets, state and logs lie in a temporary
# folder, which is removed at the end; nothing is written elsewhere.
# SLURM_LOGS=1 prints the daemons' logs where the command fails.
set -eu
[ $# -gt 0 ] || { echo "usage: $0 command ..." >&2; exit 2; }
# Debian has the daemons in sbin.
PATH="$PATH:/usr/sbin:/sbin"
for tool in munged slurmctld slurmd srun; do
  command -v $tool >/dev/null || { echo "$0: there is no $tool here (Debian: slurm-wlm, munge)" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "$0: slurmd needs root" >&2; exit 3; }

place=$(mktemp -d)
daemons=
status=1
finish() {
  trap '' INT TERM HUP
  [ -z "${SLURM_CONF:-}" ] || timeout 3 scancel --user=root >/dev/null 2>&1 || :
  for id in $daemons; do kill "$id" 2>/dev/null || :; done
  for id in $daemons; do wait "$id" 2>/dev/null || :; done
  if [ "$status" != 0 ] && [ -n "${SLURM_LOGS:-}" ]; then tail -n 40 "$place"/*.log >&2 || :; fi
  rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# munged refuses a key or a socket that others could change, which /tmp's mode looks like: --force.
mkdir -m 700 "$place/state" "$place/spool"
chmod 755 "$place"
head -c 128 /dev/urandom >"$place/munge.key"
chmod 600 "$place/munge.key"
munged --foreground --force --key-file="$place/munge.key" --socket="$place/munge.socket" \
  --pid-file="$place/munged.pid" --log-file="$place/munged.log" --seed-file="$place/munged.seed" \
  >"$place/munged.out.log" 2>&1 &
daemons="$!"

node=$(hostname -s)
set_ports() { # two free ports
  python3 - <<'P'
import socket
probes = [socket.socket() for _ in range(2)]
for probe in probes:
    probe.bind(("127.0.0.1", 0))
print(*(probe.getsockname()[1] for probe in probes))
P
}
ports=$(set_ports)
cat >"$place/slurm.conf" <<C
ClusterName=altorch
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge.socket
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
TmpFS=$place
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=10 State=UP
C
export SLURM_CONF="$place/slurm.conf"

wait_for() { # command ...: for 20 seconds at most
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "$0: Slurm has not started: $*" >&2; return 1; }
    sleep 0.2
  done
}
wait_for test -S "$place/munge.socket"
slurmctld -D >"$place/slurmctld.out.log" 2>&1 &
daemons="$! $daemons"
wait_for scontrol ping
slurmd -D -N "$node" >"$place/slurmd.out.log" 2>&1 &
daemons="$! $daemons"
wait_for sh -c "sinfo --noheader --format=%t | grep -q idle"

# The caller's own Slurm job, if this runs in one, is not this Slurm's.
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\)=.*/\1/p'); do
  case $name in SLURM_CONF | SLURM_LOGS) ;; *) unset "$name" ;; esac
done
"$@" &
running=$!
status=0
wait "$running" || status=$?
exit "$status"
