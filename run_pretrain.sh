#!/usr/bin/env bash
# Pre-train on this machine: on its NVIDIA GPUs with the deepspeed launcher, or else on the CPU.
#
#   ./run_pretrain.sh [OPTION ...]           the comparison: bert_a, bert_r, tupe_r and
#                                            tupe_r_pld, into runs/NAME, with a report
#   ./run_pretrain.sh RECIPE [OPTION ...]    one run: a recipe, a .toml file, or, to resume, a run
#                                            folder
#
#   --corpus SOURCE ...     text files or folders, or [KIND:]PLACE[:key=value]..., see
#                           tupelo data build --help
#   --section.name VALUE    change a setting; RECIPE --help lists all of them
#   --name NAME             of the comparison (default: compare-DATE-TIME), or of the run
#   --arms RECIPE ...       compare these recipes, the baseline first; or one sweep
#   --seeds N ...           a count (3) or a list (4 8 9)
#   --hours H               train each run for H hours
#   --smoke                 test in a minute that everything works: tiny arms, a small text
#   --run-folder FOLDER     where the run of a RECIPE goes (default: runs/NAME)
#   --resume                resume the run, or the comparison of that --name
#   --elastic               resume the run on another number of GPUs, or with another
#                           --engine.ds_config: losses equal within rounding
#   --lengthen stretch      resume the run with more --steps or --hours; restart: with a new
#                           warm-up and decay
#   --dry-run               make every check of a start, print size, time and cost, train nothing
#   --gpus N                use N GPUs of each host (default: all)
#   --hostfile FILE         use the machines in this DeepSpeed host file
#
# Installs what is missing into .venv (or the active environment), then runs `tupelo train RECIPE`
# or, for the comparison, `tupelo sweep`. Relative paths that exist in the folder you call from are
# taken from there, others from the folder of this script.
set -euo pipefail
caller=$PWD
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"
source ./environment.sh

SOURCE_OPTIONS='corpus|data\.corpus'
LIST_OPTIONS="$SOURCE_OPTIONS|arms|seeds"
FLAGS='smoke|resume|dry-run'
PATH_OPTIONS='data\.shards|data\.tokenizer|engine\.ds_config|initial_weights|hostfile|arms|records'
command=(sweep) options=() names_arms=''

main() {
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' run_pretrain.sh
    return
  fi
  if [[ ${1:--} != -* ]]; then
    command=(train "$(path_from_caller "$1")")
    shift
  fi
  read_options "$@"
  if [[ -n $names_arms && ${#command[@]} == 1 ]]; then
    fail '--arms names no recipe; name those to compare, such as: --arms bert_a tupe_r'
  fi
  prepare_environment
  exec python -m tupelo "${command[@]}" "${options[@]}"
}

# Everything is passed on; paths are resolved from the folder of the caller.
read_options() { # ARGUMENT ...
  local option='' value=''
  while (($#)); do
    if [[ $1 =~ ^--($SOURCE_OPTIONS|$PATH_OPTIONS|run-folder)= ]]; then
      set -- "${1%%=*}" "${1#*=}" "${@:2}"
    fi
    refuse_misplaced "$1"
    if [[ $1 == -* ]]; then
      option=$1 value=''
    elif takes_no_more "$option" "$value"; then
      fail "$1 comes first: ./run_pretrain.sh $1 ...; recipes to compare come after --arms"
    elif [[ $option =~ ^--($PATH_OPTIONS)$ ]]; then
      set -- "$(path_from_caller "$1")" "${@:2}"
    elif [[ $option =~ ^--($SOURCE_OPTIONS)$ ]]; then
      set -- "$(sources_from_caller "$option" "$1")" "${@:2}"
    elif [[ $option == --run-folder ]]; then
      set -- "$(folder_from_caller "$1")" "${@:2}"
    fi
    if [[ $option != --arms ]]; then
      options+=("$1")
    elif [[ $1 == --arms ]]; then
      names_arms=yes
    else
      command+=("$1")
    fi
    [[ $1 == -* ]] || value=$1
    shift
  done
}

refuse_misplaced() { # ARGUMENT
  if [[ ${command[0]} == train && $1 =~ ^--(arms|seeds|smoke|budget|records|at-once)(=|$) ]]; then
    fail "${1%%=*} belongs to a comparison, whose recipes come after --arms: ./run_pretrain.sh --arms ${command[1]}"
  fi
}

# Whether a word after this option of a comparison belongs to none.
takes_no_more() { # OPTION VALUE
  [[ ${command[0]} == sweep && ! $1 =~ ^--($LIST_OPTIONS)$ ]] &&
    [[ -n $2 || $1 == *=* || $1 =~ ^--($FLAGS)$ ]]
}

# --data.corpus has several, separated by commas.
sources_from_caller() { # OPTION SOURCES
  local one sources=("$2") found=()
  [[ $1 != --data.corpus ]] || IFS=, read -ra sources <<<"$2"
  for one in "${sources[@]}"; do
    found+=("$(source_from_caller "$one")")
  done
  local IFS=,
  echo "${found[*]}"
}

# A source is [KIND:]PLACE[:key=value]...; only its PLACE can be a path.
source_from_caller() { # SOURCE
  local kind='' place=$1 keys=''
  if [[ ! -e $caller/$1 ]]; then
    while [[ $place =~ ^(.+)(:[a-z]+=[^:/]*)$ ]]; do
      place=${BASH_REMATCH[1]} keys=${BASH_REMATCH[2]}$keys
    done
    [[ ! $place =~ ^([a-z]+:)(.+)$ ]] || kind=${BASH_REMATCH[1]} place=${BASH_REMATCH[2]}
  fi
  echo "$kind$(path_from_caller "$place")$keys"
}

main "$@"
