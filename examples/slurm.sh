#!/usr/bin/env bash
# Pre-train under Slurm, a rank per GPU; a job that reaches its time limit saves and queues again.
#
#   source .venv/bin/activate            # Slurm passes this shell's environment on
#   sbatch examples/slurm.sh RUN_FOLDER RECIPE [OPTION ...]
#   sbatch --nodes=2 examples/slurm.sh runs/wiki tupe_large --corpus /data/wiki.jsonl.zst
#
# All machines need the same environment and a shared folder to work in. Five minutes before the
# limit, or on `scancel --signal=USR1 JOB`, every rank finishes its step, a checkpoint is saved and
# the job queues again; an error ends it.
#SBATCH --job-name=tupelo
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
set -euo pipefail

if [[ -z ${SLURM_JOB_ID:-} || $# -lt 2 ]]; then
  sed -n '2,/^#SBATCH/s/^#\( \|$\)//p' "$0" >&2
  exit 2
fi
folder=$1
shift

read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

# Since Slurm 22.05 srun does not take it from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

train() {
  if [[ -e $folder/run.json ]]; then
    shift
    set -- train "$folder" --resume "$@"
  else
    srun --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" tupelo prepare "$@" || return
    set -- train "$@" --run-folder "$folder"
  fi
  # shellcheck disable=SC2016 # each task has variables of its own
  srun --kill-on-bad-exit bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
    export WORLD_SIZE=$SLURM_NTASKS LOCAL_WORLD_SIZE=$((SLURM_NTASKS / SLURM_NNODES))
    exec tupelo "$@"' rank "$@"
}

status=0
train "$@" || status=$?
# 138 is USR1 before training began: shards that are half built are continued too.
if ((status == 138)) || { ((status == 0)) && [[ ! -e $folder/result.json ]]; }; then
  echo "stopped before its end; the job queues again"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
