#!/usr/bin/env bash
# Fine-tune pre-trained encoders on GLUE or a task of your own: on all NVIDIA GPUs, or on the CPU.
#
#   ./run_finetune.sh RUN ... --tasks all --glue FOLDER [OPTION ...]
#   ./run_finetune.sh RUN ... --train FILE --dev FILE --text COLUMN --label COLUMN [OPTION ...]
#
#   RUN ...                 runs, checkpoints, exports, fine-tuned models, encoders of transformers
#   --tasks NAME ...        all, or some of cola sst-2 mrpc sts-b qqp mnli qnli rte wnli
#   --glue FOLDER           GLUE's original files; hub: from the Hugging Face Hub
#   --train, --dev, --test  files of your own task (.tsv, .csv, .jsonl, .parquet, .conll, .json);
#                           --text and --label name their columns, two for a pair; --regression: labels are
#                           numbers, --multi_label: a row has several
#   --protocol NAME         quick (default: minutes on a CPU), tupe, pld, electra, or a .toml file
#   --checkpoints STEP ...  of each run: newest (default), all, or steps of pre-training
#   --to FOLDER             folder of the results (default: RUN/finetune/PROTOCOL)
#   --dry-run               print what would run
#
# One trial per model, task, learning rate and seed. The same command continues a stopped sweep.
# Installs what is missing into .venv (or the active environment), then runs `tupelo finetune run`,
# whose --help lists all options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

case ${1:---help} in
  -h | --help) print_header "$checkout/run_finetune.sh" ;;
  *)
    prepare_environment
    run_tupelo finetune run "$@"
    ;;
esac
