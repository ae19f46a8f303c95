#!/usr/bin/env bash
# Everything that only an NVIDIA GPU can show, in one command of less than ten minutes.
#
#   benchmarks/gpu_session.sh [FOLDER]     results as JSON and text (default: gpu_results)
#
# Uses the active environment, or python3. Each part has a time limit and does not depend on the
# others; the last lines list those that failed. Needs no data: tokens are random.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "${1:-gpu_results}"
folder=$(cd "${1:-gpu_results}" && pwd)
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
failed=()

part() { # NAME SECONDS COMMAND ...
  local name=$1 limit=$2 started=$SECONDS
  shift 2
  printf '\n== %s (at most %d s)\n' "$name" "$limit"
  timeout "$limit" "$@" 2>&1 | tee "$folder/$name.txt" || failed+=("$name")
  printf '== %s took %d s\n' "$name" $((SECONDS - started))
}

python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
  echo 'error: PyTorch finds no NVIDIA GPU here' >&2
  exit 1
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$folder/gpu.txt"

part tests 200 python3 -m pytest -q -m gpu -p no:cacheprovider tests/pretrain
part attention 60 python3 benchmarks/attention.py --json "$folder/attention.json"
part step_time 130 python3 benchmarks/step_time.py --one-precision --steps 20 --json "$folder/step_time.json"
part position_cost 80 python3 benchmarks/position_cost.py --json "$folder/position_cost.json"
part layer_drop 60 python3 benchmarks/layer_drop.py --stages 0 1 --shapes 12,768,512,64 \
  --json "$folder/layer_drop.json"
part profile 45 python3 -m pretrain profile tupe_base --full-depth --to "$folder/profile" \
  --model.attention_dropout 0 --model.dropout 0 \
  --batch.global_sequences 64 --batch.micro_sequences 64 --engine.ds_config zero0_bf16_autocast

if ((${#failed[@]})); then
  printf '\nnot finished: %s; what they printed is in %s\n' "${failed[*]}" "$folder"
  exit 1
fi
printf '\nall parts finished in %d s; results in %s\n' "$SECONDS" "$folder"
