#!/usr/bin/env bash
# What only a GPU can show, in nine and a half minutes: right or wrong by minute 4, tokens a second
# by 6, a run that was killed and resumed by 8.5.
#
#   benchmarks/gpu.sh [FOLDER]             results in FOLDER (default: gpu_results)
#   benchmarks/gpu.sh --dry-run [FOLDER]   the same in small, on a CPU
#   benchmarks/gpu.sh --pack FOLDER        what a machine without a network needs (Python 3.12 with
#                                          torch and the like); there: bash FOLDER/gpu.sh [FOLDER]
#
# Each part writes FOLDER/PART.txt, most FOLDER/PART.json; results.tgz is renewed after each phase.
# A part gets what time is left. The exit status is 1 if one failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) caller=$PWD began=$SECONDS dry=
say() { printf '[%3d s] %s\n' $((SECONDS - began)) "$*"; }

pack() { # FOLDER
  mkdir -p "$1/wheels" && git -C "$here/.." archive --format=tar HEAD | gzip -9 >"$1/tupelo.tgz"
  cp "$here/gpu.sh" "$1/"
  local name wanted=()
  for name in annotated-types hjson pydantic pydantic_core sentencex \
    typing_extensions typing-inspection zstandard; do
    wanted+=("$(grep -i "^$name==" "$here/../constraints.txt")")
  done
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 -d "$1/wheels" \
    --platform=manylinux_2_{39,35,34,31,28,27,26,24,17,5}_x86_64 --platform=manylinux{2014,1}_x86_64 "${wanted[@]}" &&
    DS_BUILD_OPS=0 DS_ACCELERATOR=cpu python3 -m pip wheel -q --no-deps --no-build-isolation \
      -w "$1/wheels" "$(grep '^deepspeed==' "$here/../constraints.txt")" && du -sh "$1"
}

part() { # NAME SECONDS COMMAND ...; not longer than what is left of 570 s
  local name=$1 limit=$2 from=$SECONDS status=0 left=$((570 - SECONDS + began))
  shift 2
  [[ ! $dry ]] || left=600 limit=600 # a machine that does other work, too
  ((left > 20)) || { say "$name: left out, no time" && echo "$name" >>"$work/failed"; return; }
  ((limit < left)) || limit=$left
  # The shell lets what it runs side by side ignore SIGINT, at which pytest prints its results.
  timeout -s INT -k 10 "$limit" env --default-signal=INT "$@" >"$out/$name.txt" 2>&1 || status=$?
  say "$name: status $status after $((SECONDS - from)) of $limit s"
  ((status == 0)) || echo "$name" >>"$work/failed"
}

phase() { # TITLE; shows the ends of the parts before, and saves all results
  local name
  for name in "${shown[@]}"; do
    echo "--- ${name%:*}" && tail -n "${name#*:}" "$out/${name%:*}.txt" 2>/dev/null | cut -c1-200
  done
  shown=()
  tar czf "$work/results.tgz" -C "$out" --exclude=results.tgz . && mv "$work/results.tgz" "$out"
  say "phase $1"
}

case ${1:-} in
  --pack) pack "${2:?FOLDER}" || exit 1; exit ;;
  --dry-run) dry=yes && shift ;;
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
esac
out=$(cd "$caller" && mkdir -p "${1:-gpu_results}" && cd "${1:-gpu_results}" && pwd) || exit 1
work=$(mktemp -d) shown=() && trap 'rm -rf "$work"' EXIT && trap 'exit 130' INT TERM
if [[ -f $here/tupelo.tgz ]]; then
  mkdir "$work/code" "$work/site" && cd "$work/code" && tar xzf "$here/tupelo.tgz" || exit 1
  python3 -m pip install -q --no-index --no-deps --target "$work/site" "$here"/wheels/*.whl || exit 1
  export PYTHONPATH=$work/site:$PWD
else
  cd "$here/.." && source ./environment.sh && prepare_environment test && began=$SECONDS || exit 1
  export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
fi
python=$(command -v python3) && PATH=$(dirname "$python"):$PATH # ninja is beside it
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 OMP_NUM_THREADS=4
# Caches that the phases share. Asking for GPUs must not start CUDA: tests fork afterwards.
export TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton
export PYTORCH_NVML_BASED_CUDA_CHECK=1
shape=12,768,512,64 quarter=12,768,512,16 steps=800 small=() losses=20 deadline=100 vocabulary=30528
pytest=("$python" -m pytest -q --tb=short -p no:cacheprovider)
tests=(-n5 --dist worksteal tests/pretrain/engine/test_gpu.py tests/tupelo/test_loaded_encoder.py)
first=(-m gpu -n4 tests/pretrain/engine/test_gpu.py -k 'follow_the_formula and 64-dtype or never_waits')
precisions=(fp32 bf16 fp16 bf16-fused fp16-fused)
variants=(tupe-r bert-a hugging-face drop dropout drop-dropout sdpa)
if [[ $dry ]]; then
  export CUDA_VISIBLE_DEVICES='' TRITON_INTERPRET=1 OMP_NUM_THREADS=1
  shape=2,64,32,4 quarter=$shape steps=32 losses=3 deadline=600 vocabulary=1024 tests[0]=--collect-only
  first=(tests/pretrain/model/kernels/test_triton_attention.py -k are_those_of_the_formula)
  precisions=(fp32 bf16) variants=(tupe-r bert-a hugging-face drop)
  small=(--data.max_words 60000 --data.sequence_length 32 --model.max_sequence_length 32
    --model.num_layers 4 --model.width 64 --model.num_heads 2 --model.feedforward_width 256
    --model.vocabulary_size 1024 --batch.global_sequences 8 --evaluation.rows 16
    --log_every_steps 1 --learning_rate.peak 3e-3)
else
  nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit --format=csv,noheader || exit 1
  CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} && export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*} # one
  ip link set lo up 2>/dev/null
  [[ ! -d /usr/local/cuda ]] || export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda} # nvcc in PATH may be a script
  export TORCH_EXTENSIONS_DIR=$work/extensions NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
fi
steps_py=("$python" benchmarks/steps.py --shape $shape --vocabulary $vocabulary)

phase 'A: is anything wrong with everything?'
part preflight 75 "${pytest[@]}" "${first[@]}"
shown=(preflight:9)

phase 'B: right numbers, and what compiles; side by side, nothing is timed'
mkdir "$work/run"
export TORCHINDUCTOR_COMPILE_THREADS=3
recipe=$PWD/benchmarks/gpu/killed_run.toml
part prepare 170 env -C "$work/run" "$python" -m tupelo prepare "$recipe" "${small[@]}" &
part fused_adam 170 "$python" -c "
from pretrain.distributed.deepspeed_library import fused_adam
'$dry' or fused_adam()" &
part warm 175 "${steps_py[@]}" --warm --variants "${variants[@]:0:4}" &
[[ $dry ]] || part warm_more 175 "${steps_py[@]}" --warm --variants "${variants[@]:4}" &
part precisions 178 "$python" benchmarks/steps.py --shape $quarter --vocabulary $vocabulary \
  --variants "${precisions[@]}" --losses $losses --json "$out/precisions.json" &
part gpu_tests 168 "${pytest[@]}" -m gpu "${tests[@]}" &
wait
shown=(prepare:2 fused_adam:2 warm:6 precisions:9 gpu_tests:25)
unset TORCHINDUCTOR_COMPILE_THREADS && export OMP_NUM_THREADS=$([[ $dry ]] && echo 1 || echo 8)

phase 'C: speed, alone'
[[ $dry ]] || exec nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv -lms 500 \
  >"$out/clocks.csv" &
clocks=$!
part steps 130 "${steps_py[@]}" --rounds 8 --deadline $deadline --variants "${variants[@]}" --json "$out/steps.json"
[[ $dry ]] || kill $clocks
shown=(steps:14)

phase 'D: a run that is killed and resumed'
part killed_run 150 "$python" benchmarks/gpu/killed_run.py "$work/run" $steps "${small[@]}"
cp "$work/run"/killed_run.json "$work/run"/run/{metrics,evals,launches}.jsonl "$out" 2>/dev/null
shown=(killed_run:34)

phase 'E: where the time goes'
part profile 60 "$python" -m tupelo profile "$recipe" "${small[@]}" --to "$work/profile"
shown=(profile:40)

phase end
if [[ -s $work/failed ]]; then
  say "failed: $(tr '\n' ' ' <"$work/failed")" && exit 1
fi
