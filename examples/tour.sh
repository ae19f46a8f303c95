#!/usr/bin/env bash
# The commands of README and docs once, in small (not import, data import): a few minutes on two cores, no
# download.
#
#   examples/tour.sh [FOLDER]      a new folder for its files; default: a temporary one
#
# Uses the `tupelo` of the active environment, or the program that TUPELO names, such as
# .venv/bin/tupelo. The encoders are tiny and learn nothing, on the CPU: this shows the commands.
set -euo pipefail

unset CDPATH
export CUDA_VISIBLE_DEVICES=
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tupelo=${TUPELO:-tupelo}
command -v "$tupelo" >/dev/null ||
  { echo "error: no $tupelo on PATH; source .venv/bin/activate, or TUPELO=PATH $0" >&2 && exit 1; }
tupelo=$(realpath -s "$(command -v "$tupelo")")
folder=${1:-$(mktemp -d)}
[[ -n ${1:-} ]] || trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"
cd "$folder"

# Data and shape of everything below.
SMALL=(--data.valid_fraction 0.1 --model.vocabulary_size 256)
REVIEWS=(--text title body --label stars --learning_rates 1e-3 --seeds 1 --epochs 1 --batch 16)

main() {
  write_files
  title "Help"
  run tupelo --version
  run tupelo recipes
  run tupelo train --help
  look_ahead
  prepare_data
  pretrain
  look_at_runs
  fine_tune
  convert
  shell_scripts
  title "All commands ran; their files are in $folder"
}

look_ahead() {
  title "Before a run"
  run tupelo train tupe_base --dry-run --corpus my_texts --engine.ds_config auto
  run tupelo train tiny_cpu --hours 24 --dry-run --measure 2 --corpus my_texts "${SMALL[@]}"
}

prepare_data() {
  title "Text to shards"
  local options=(--data.sequence_length 32 --data.valid_fraction 0.1)
  run tupelo data build --to data/mine --corpus my_texts/ wiki.jsonl:weight=2 "${options[@]}" \
    --model.vocabulary_size 256
  run tupelo data build --to data/both --corpus my_texts/:weight=2 more.txt "${options[@]}" \
    --data.tokenizer data/mine/tokenizer.json
  run tupelo data verify data/mine
  run tupelo data show data/mine --rows 1
  rm data/mine/train-00000.h5
  run tupelo data repair data/mine
}

pretrain() {
  title "Pre-training"
  run tupelo prepare tiny_cpu --corpus my_texts "${SMALL[@]}"
  run tupelo train tiny_cpu --corpus my_texts "${SMALL[@]}" --name first
  run tupelo train runs/first --resume
  run tupelo sweep tiny_cpu small_bert.toml --name arms --corpus my_texts "${SMALL[@]}"
}

look_at_runs() {
  title "Looking at runs"
  run tupelo train runs/first --resume --dry-run
  run tupelo compare runs/arms/*-seed*/ --target 5.5 --report report
  run tupelo analyse positions runs/first
  run tupelo profile tiny_cpu --corpus my_texts "${SMALL[@]}" --steps 2
  run tupelo fill-mask runs/first "The boats are [MASK] one after the other."
}

fine_tune() {
  title "Fine-tuning"
  run tupelo finetune run runs/first --train reviews.csv --dev reviews.csv "${REVIEWS[@]}" \
    --regression
  run tupelo finetune table runs/first --to scores
  run tupelo finetune predict runs/first reviews.csv --to stars.csv
  run tupelo finetune run runs/first --train reviews.csv "${REVIEWS[@]}" --name topics --multi_label \
    --class_weights balanced
  run tupelo finetune run runs/first --train words.conll --dev words.conll --name tags --epochs 1
}

convert() {
  title "Export and import"
  run tupelo export runs/first --to my_model
  run tupelo train tiny_cpu --initial_weights my_model --data.tokenizer my_model/tokenizer.json \
    --corpus more.txt "${SMALL[@]}" --name further
  run tupelo train tiny_cpu --model.transformers distilbert --corpus my_texts "${SMALL[@]}" \
    --name distil
  run tupelo export runs/distil --to my_distil
  run tupelo train adapt --model.folder my_distil --corpus more.txt --data.sequence_length 32 \
    --data.valid_fraction 0.1 --steps 2
  run tupelo fill-mask my_model "The boats are [MASK] one after the other."
}

shell_scripts() {
  [[ -e $checkout/.venv/bin/tupelo || -n ${VIRTUAL_ENV:-} ]] || return 0
  title "The scripts of the checkout"
  run ./run_pretrain.sh tiny_cpu --data.shards data/both --model.vocabulary_size 256 \
    --run-folder scripts/run
  run ./run_finetune.sh scripts/run --train reviews.csv "${REVIEWS[@]}" --regression
}

title() { printf '\n== %s\n' "$1"; }

run() { # COMMAND ARGUMENT ...
  printf '\n+ %s\n' "$*" >&2
  case $1 in
    tupelo) "$tupelo" "${@:2}" ;;
    ./*) "$checkout/$1" "${@:2}" ;;
  esac
}

write_files() {
  local number stars
  mkdir my_texts
  for number in {1..300}; do
    printf 'Boat %d is moved after boat %d, never two of them at once.\n\n' "$number" $((number * 7))
  done >my_texts/boats.txt
  for number in {1..300}; do
    printf '{"text": "Ship %d waits in harbour %d until it is its turn."}\n' "$number" $((number * 3))
  done >wiki.jsonl
  sed 's/oat/arge/g' my_texts/boats.txt >more.txt
  printf '%s\n' 'extends = "tiny_cpu"' '[model]' 'positions = "bert-a"' >small_bert.toml
  {
    echo title,body,stars
    for number in {1..60}; do
      stars=$((number % 5))
      printf 'Boat %d,"It moved, %d times",%d\n' "$number" "$stars" "$stars"
    done
  } >reviews.csv
  for number in {1..60}; do
    printf 'Boat O\nBell%d B-SHIP\nmoves O\n\n' "$number"
  done >words.conll
}

main
