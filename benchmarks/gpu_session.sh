#!/usr/bin/env bash
# Show on this machine's GPU what only a GPU can show: that results are right, then how fast.
#
#   benchmarks/gpu_session.sh [FOLDER] [--minutes 20]    what is left to do; results in FOLDER
#                                                        (default: gpu_results in the checkout)
#   benchmarks/gpu_session.sh --dry-run [FOLDER]         every part in small, on a CPU
#
# May be stopped at any time and called again: what passed is not repeated. FOLDER/summary.md is a
# table of all results. Uses the environment that ./run_pretrain.sh makes, with the tests' packages;
# PYTHON=python3 uses that Python as it is, on a machine without a network.
set -euo pipefail
caller=$PWD
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
source ./environment.sh

if [[ -n ${PYTHON:-} ]]; then
  # ninja, which builds FusedAdam, is beside it.
  programs=$(dirname "$(command -v "$PYTHON")") && export PATH=$programs:$PATH
else
  prepare_environment test
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} TOKENIZERS_PARALLELISM=false
exec "${PYTHON:-python}" benchmarks/gpu_session --caller "$caller" "$@"
