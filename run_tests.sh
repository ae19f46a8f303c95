#!/usr/bin/env bash
# Set up the environment if needed, then run lint, types and tests; stops at the first failure.
#
#   ./run_tests.sh                 every promise once, minutes: tests marked slow are left out
#   ./run_tests.sh --all           the slow tests too, those with programs that use exports (the
#                                  extra "clients"), and a dry run of benchmarks/gpu.sh
#   ./run_tests.sh ARGUMENT ...    the arguments go to pytest: -k shards, tests/pretrain, -m gpu
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$checkout"

run() {
  printf '+ %s\n' "$*"
  "$@"
}

selection=() extras=test all=''
if [[ ${1:-} == --all ]]; then
  selection=(-m 'not gpu') extras=test,clients all=yes
  shift
fi
prepare_environment "$extras"
export OMP_NUM_THREADS=1 # tiny tensors: more threads only fight each other
[[ " $* " == *" -m gpu "* ]] || export CUDA_VISIBLE_DEVICES= # the others are written for a CPU
(($#)) || set -- -n 2 --dist worksteal --durations 10
run ruff check .
run ruff format --check .
run mypy
for scripts in benchmarks benchmarks/{against_hugging_face,gpu} paper; do
  run env MYPYPATH="$scripts" mypy "$scripts"/*.py # they import each other by name
done
run pytest ${selection[@]+"${selection[@]}"} "$@"
[[ -z $all ]] || run benchmarks/gpu.sh --dry-run "$(mktemp -d)"
