#!/usr/bin/env bash
# Fine-tune pre-trained encoders on GLUE or a task of your own: on all NVIDIA GPUs, or on the CPU.
#
#   ./run_finetune.sh RUN ... --tasks all --glue FOLDER [OPTION ...]
#   ./run_finetune.sh RUN ... --train FILE --dev FILE --text COLUMN --label COLUMN [OPTION ...]
#
#   RUN ...                 runs, checkpoints, exports, fine-tuned models, or a Hugging Face BERT
#   --tasks NAME ...        all, or some of cola sst-2 mrpc sts-b qqp mnli qnli rte wnli
#   --glue FOLDER           GLUE's original files; hub: from the Hugging Face Hub
#   --train, --dev, --test  files of your own task (.tsv, .csv, .jsonl, .parquet); --text and
#                           --label name their columns, two for a pair; --regression: labels are
#                           numbers; --metric: what counts; --name: name of the task in tables
#   --protocol NAME         quick (default: minutes on a CPU), tupe, pld, electra, or a .toml file
#   --learning_rates, --seeds, --epochs, --batch ...
#                           change the protocol; RUN --help lists all settings
#   --checkpoints STEP ...  of each run: newest (default), all, or steps of pre-training
#   --from-scratch          also fine-tune the same encoders with random weights
#   --to FOLDER             folder of the results (default: RUN/finetune/PROTOCOL)
#   --keep WHICH            models to keep: best (default; the median seed of each task's best
#                           learning rate), all, none
#   --workers N             trials at once (default: one per GPU or CPU core)
#   --predict-test          write predictions of the test sets
#   --retry-failed          run failed trials again
#   --dry-run               print what would run
#
# One trial per model, task, learning rate and seed. The same command continues a stopped sweep.
# Installs what is missing into .venv (or the active environment), then runs `tupelo finetune run`.
# Relative paths that exist in the folder you call from are taken from there, others from the folder
# of this script.
set -euo pipefail
caller=$PWD
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"
source ./environment.sh

PATH_OPTIONS='glue|train|dev|test'
FLAGS='from-scratch|predict-test|retry-failed|dry-run|regression' # without a value: a RUN may follow
arguments=()

main() {
  if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' run_finetune.sh
    return
  fi
  read_arguments "$@"
  prepare_environment
  exec python -m finetune run "${arguments[@]}"
}

# Pass everything on; paths are resolved from the folder of the caller.
read_arguments() { # ARGUMENT ...
  local option=''
  while (($#)); do
    if [[ $1 =~ ^--($PATH_OPTIONS|protocol|to)= ]]; then
      set -- "${1%%=*}" "${1#*=}" "${@:2}"
    fi
    if [[ $1 == --* ]]; then
      option=$1
      [[ ! $option =~ ^--($FLAGS)$ ]] || option=''
    elif [[ $option == --to ]]; then
      set -- "$(folder_from_caller "$1")" "${@:2}"
    elif [[ -z $option || $option =~ ^--($PATH_OPTIONS)$ || $option$1 == --protocol*.toml ]]; then
      set -- "$(path_from_caller "$1")" "${@:2}"
    fi
    arguments+=("$1")
    shift
  done
}

main "$@"
