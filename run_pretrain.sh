#!/usr/bin/env bash
# Pre-train on this machine: on its NVIDIA GPUs with the deepspeed launcher, or else on the CPU.
#
#   ./run_pretrain.sh [OPTION ...]           the comparison: bert_a, bert_r, t5, tupe_r
#                                            and tupe_r_pld, into runs/NAME, with a report
#   ./run_pretrain.sh RECIPE [OPTION ...]    one run: a recipe, a .toml file, or, to resume, a run
#                                            folder
#
#   --corpus SOURCE ...     the text, see tupelo data build --help
#   --section.name VALUE    change a setting; RECIPE --help lists all of them
#   --name NAME             of the comparison (default: compare-DATE-TIME), or of the run
#   --arms RECIPE ...       compare these recipes, the baseline first; or one sweep
#   --seeds N ...           a count (3) or a list (4 8 9)
#   --hours H               train each run for H hours
#   --smoke                 test in a minute that everything works: tiny arms, a small text
#   --resume                resume the run; a comparison prints what continues it
#   --elastic               resume the run on another number of GPUs
#   --dry-run               make every check of a start, print size, memory and FLOPs, train nothing
#   --gpus N                use N GPUs of each host (default: all)
#   --hostfile FILE         use the machines in this DeepSpeed host file
#
# Installs what is missing into .venv (or the active environment), then runs `tupelo train RECIPE`
# or, for the comparison, `tupelo sweep`, whose --help lists all options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

case ${1:--} in
  -h | --help)
    print_header "$checkout/run_pretrain.sh"
    exit
    ;;
  -*) ;;
  *)
    prepare_environment
    run_tupelo train "$@"
    ;;
esac
arms=() options=() option=''
for word in "$@"; do
  [[ $word != -* ]] || option=$word
  case $option in
    --arms=*) arms+=("${word#--arms=}") option=--arms ;;
    --arms) [[ $word == --arms ]] || arms+=("$word") ;;
    --smoke) arms+=(smoke) option='' ;;
    *) options+=("$word") ;;
  esac
done
[[ " $* " != *" --arms"* || ${#arms[@]} -gt 0 ]] || fail '--arms names no recipe, such as: --arms bert_a tupe_r'
prepare_environment
run_tupelo sweep ${arms[@]+"${arms[@]}"} ${options[@]+"${options[@]}"}
