#!/usr/bin/env bash
# Set up the environment if needed, then check and test everything; stops at the first failure.
#
#   ./run_tests.sh                 the whole suite, in two processes
#   ./run_tests.sh ARGUMENT ...    the arguments go to pytest: -k shards, tests/pretrain, -m gpu
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ./environment.sh

run() {
  printf '+ %s\n' "$*"
  "$@"
}

prepare_environment test
export OMP_NUM_THREADS=1 # tiny tensors: more threads only fight each other
(($#)) || set -- -n 2 --dist worksteal
run ruff check .
run ruff format --check .
run mypy
run pytest "$@"
