#!/usr/bin/env bash
# Pre-train on this machine: on its NVIDIA GPUs with the deepspeed launcher, or else on the CPU.
#
#   ./run_pretrain.sh [OPTION ...]           the comparison: bert_a, tupe_r, tupe_r_pld, one
#                                            after the other into runs/NAME, and a report
#   ./run_pretrain.sh RECIPE [OPTION ...]    one run: the name of a recipe, a .toml file, or,
#                                            to resume it, the folder of a run
#
#   --corpus SOURCE ...     text to learn from, instead of the recipe's: files or folders, or
#                           [KIND:]PLACE[:key=value]..., see python -m data_prep build --help
#   --section.name VALUE    change a setting of the recipe; RECIPE --help lists all of them
#   --name NAME             of the comparison (default: compare-DATE-TIME), or of the run
#   --run-folder FOLDER     where the run of a RECIPE goes (default: runs/NAME)
#   --resume                resume the run, or the comparison of that --name
#   --elastic               resume the run of a RECIPE folder on another number of GPUs, or with
#                           another --engine.ds_config: equal within rounding
#   --lengthen stretch      resume the run of a RECIPE folder with more --steps or --hours; restart:
#                           with a new warm-up and decay
#   --dry-run               print settings, size and cost, and train nothing
#   --gpus N                use N GPUs, of each host (default: all)
#   --hostfile FILE         use the machines in this DeepSpeed host file
#
# The first start installs what is needed into .venv, unless an environment is active.
# Relative paths: what exists in the folder you call from is taken from there, everything else
# belongs to the folder of this script (so runs/NAME means the same from everywhere).
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"
source ./environment.sh

ARMS=(bert_a tupe_r tupe_r_pld)
SOURCE_SETTINGS='corpus|data\.corpus'
PATH_SETTINGS='data\.shards|data\.tokenizer|engine\.ds_config|initial_weights'
recipe='' name='' run_folder='' hostfile='' gpus='' resume='' lengthen='' dry_run='' settings=() launcher=()
trainer='' stopped='' interrupted=''

main() {
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' run_pretrain.sh
    return
  fi
  if [[ ${1:--} != -* ]]; then
    recipe=$(path_from_caller "$1")
    shift
  fi
  read_options "$@"
  check_options
  prepare_environment
  trap 'exit 130' INT
  if [[ -n $recipe ]]; then
    run_recipe
  else
    run_comparison
  fi
}

# What is not an option of this script goes into settings, for the trainer.
read_options() { # ARGUMENT ...
  local option=''
  while (($#)); do
    if [[ $1 =~ ^--(name|run-folder|gpus|hostfile|lengthen|$SOURCE_SETTINGS|$PATH_SETTINGS)= ]]; then
      set -- "${1%%=*}" "${1#*=}" "${@:2}"
    fi
    case $1 in
      --name | --run-folder | --gpus | --hostfile | --lengthen)
        (($# > 1)) || fail "$1 needs a value; ./run_pretrain.sh --help explains it"
        ;;&
      --name) name=$2 && shift ;;
      --run-folder) run_folder=$(path_from_caller "$2") && shift ;;
      --gpus) gpus=$2 && shift ;;
      --hostfile) hostfile=$(path_from_caller "$2") && shift ;;
      --lengthen) lengthen=$2 && shift ;;
      --resume | --elastic) resume=$1 ;;
      --dry-run | -h | --help) dry_run=$1 ;;
      -*) option=$1 && settings+=("$1") ;;
      *)
        [[ $option =~ ^--($PATH_SETTINGS)$ ]] && set -- "$(path_from_caller "$1")" "${@:2}"
        [[ $option =~ ^--($SOURCE_SETTINGS)$ ]] && set -- "$(source_from_caller "$1")" "${@:2}"
        settings+=("$1")
        ;;
    esac
    shift
  done
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

check_options() {
  [[ -z $gpus || $gpus =~ ^[1-9][0-9]*$ ]] || fail "--gpus $gpus: give a number of GPUs, such as 1"
  [[ -z $hostfile || -f $hostfile ]] || fail "--hostfile $hostfile: there is no such file"
  if [[ -n $gpus && -z $hostfile ]]; then
    local found
    found=$(count_gpus)
    ((gpus <= found)) ||
      fail "--gpus $gpus: there are $found NVIDIA GPUs here (nvidia-smi --list-gpus); ask for fewer, or leave --gpus out"
  fi
  [[ -z $recipe ]] || return 0
  [[ $resume != --elastic ]] || fail "--elastic needs the folder of a run; the arms of a comparison stay as they are"
  [[ -z $lengthen ]] || fail "--lengthen needs the folder of a run; the arms of a comparison stay as they are"
  [[ -z $run_folder ]] || fail "--run-folder needs a RECIPE; a comparison is named with --name"
  [[ $name =~ ^[[:alnum:]._-]*$ ]] || fail "--name '$name': use letters, digits, and . _ - only"
  [[ -z $resume || -n $name ]] || fail "--resume needs a RECIPE, or the --name of the comparison"
  [[ -z $resume || -d runs/$name ]] || fail "there is no comparison runs/$name to resume; see runs/"
  [[ -n $resume || -n $dry_run || -z $name ]] || ! has_begun ||
    fail "runs/$name holds a comparison; continue it with --resume --name $name, or choose another name"
}

run_recipe() {
  [[ -z $name ]] || settings+=(--name "$name")
  if [[ -n $dry_run ]]; then
    exec python -m pretrain train "$recipe" "${settings[@]}" "$dry_run"
  fi
  prepare_data "$recipe" "${settings[@]}"
  choose_launcher
  run_launched train "$recipe" "${settings[@]}" \
    ${run_folder:+--run-folder "$run_folder"} ${resume:+"$resume"} ${lengthen:+--lengthen "$lengthen"}
}

run_comparison() {
  local arm number=0
  if [[ -n $dry_run ]]; then
    for arm in "${ARMS[@]}"; do
      python -m pretrain train "$arm" "${settings[@]}" "$dry_run"
    done
    return
  fi
  name=${name:-compare-$(date +%Y%m%d-%H%M%S)}
  [[ -z $resume ]] || restore_settings
  prepare_data "${ARMS[0]}" "${settings[@]}"
  save_settings
  trap 'echo "Stopped. Continue with: ./run_pretrain.sh --resume --name $name" >&2' EXIT
  choose_launcher
  for arm in "${ARMS[@]}"; do
    number=$((number + 1))
    printf '[%d/%d] %s: ' "$number" "${#ARMS[@]}" "$arm"
    train_arm "$arm" "runs/$name/$arm"
  done
  python -m pretrain compare "${ARMS[@]/#/runs/$name/}" --report "runs/$name/report"
  trap - EXIT
  printf 'Report: %s | curves: %s --logdir %s | again: %s\n' "runs/$name/report" \
    "$(command -v tensorboard)" "runs/$name" "./run_pretrain.sh --resume --name $name"
}

has_begun() {
  compgen -G "runs/$name/*/run.json" >/dev/null
}

# A comparison is fair only if arms that start after an interruption get the settings of the first.
restore_settings() {
  local before=()
  [[ -e runs/$name/settings ]] || return 0
  mapfile -d '' -t before <"runs/$name/settings"
  ((${#settings[@]})) || settings=("${before[@]}")
  [[ "${settings[*]}" == "${before[*]}" ]] || ! has_begun ||
    fail "runs/$name was started with other settings (${before[*]:-none}); give these, or none"
}

save_settings() {
  mkdir -p "runs/$name"
  : >"runs/$name/settings"
  # Without the condition, printf would write one empty setting where there is none.
  ((${#settings[@]} == 0)) || printf '%s\0' "${settings[@]}" >"runs/$name/settings"
}

train_arm() { # ARM FOLDER
  local again=''
  if [[ -e $2/result.json ]]; then
    echo "finished before"
    return
  elif [[ -e $2/run.json ]]; then
    echo "resuming in $2"
    again=--resume
  else
    echo "starting in $2"
  fi
  run_launched train "$1" "${settings[@]}" --run-folder "$2" ${again:+"$again"}
  [[ -z $stopped ]] || exit 0
  # The deepspeed launcher reports success when its workers are killed by a signal.
  [[ -e $2/result.json ]] || fail "$1 ended without a result; see its last messages above"
}

prepare_data() { # ARGUMENT ...
  local status=0
  launcher=(python -m pretrain)
  run_launched prepare "$@" || status=$?
  [[ -z $stopped ]] || echo "stopped; the same command continues from here" >&2
  [[ -z $stopped && $status == 0 ]] || exit "$((status > 0 ? status : 1))"
}

# Runs a command of the trainer to its end and passes on to it what asks this script to stop. It
# gets a process group of its own: of Ctrl-C the launcher would kill it after 30 s, saved or not.
run_launched() { # ARGUMENT ...
  local status signal
  set -m
  (
    # A queue may signal every process: only the ranks may act on it. On more machines than this
    # one the runner of deepspeed must act on it too.
    [[ ${launcher[0]} != deepspeed || -n $hostfile ]] || trap '' TERM USR1
    exec "${launcher[@]}" "$@" </dev/null
  ) &
  trainer=$!
  set +m
  # shellcheck disable=SC2064 # the name of the signal is for now
  for signal in TERM USR1 INT; do trap "pass_on $signal" "$signal"; done
  while true; do
    status=0 interrupted=''
    wait "$trainer" || status=$?
    [[ -n $interrupted ]] || break # else it has ended the waiting, not the trainer
  done
  trap - TERM USR1
  trap 'exit 130' INT
  return "$status"
}

pass_on() { # SIGNAL
  local below ranks=()
  stopped=yes interrupted=yes
  below=$(children "$trainer")
  if [[ ${launcher[0]} != deepspeed || -n $hostfile ]]; then
    ranks=("$trainer")
  elif grep -qsF deepspeed.launcher.launch "/proc/$below/cmdline"; then
    read -ra ranks <<<"$(children "$below")"
  fi
  if ((${#ranks[@]})); then
    kill -s "$1" "${ranks[@]}" 2>/dev/null || true
  else
    kill -s KILL -- "-$trainer" 2>/dev/null || true # the launcher has not started a rank yet
  fi
}

children() { # PROCESS
  cat "/proc/$1/task/$1/children" 2>/dev/null | sed 's/ $//' || true
}

choose_launcher() {
  if [[ -n $gpus$hostfile ]] || (($(count_gpus))); then
    launcher=(deepspeed ${gpus:+--num_gpus "$gpus"} ${hostfile:+--hostfile "$hostfile"}
      --module pretrain)
  else
    launcher=(python -m pretrain)
  fi
}

main "$@"
