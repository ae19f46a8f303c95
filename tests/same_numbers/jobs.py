"""The commands that are run with both codes: they build, train and predict within seconds."""

import itertools
import json
import random

# NAME becomes the name of the job, which is its folder; OLD the folder of the old code's results.
TRAIN = (
    "train tiny_cpu --run-folder NAME/run --data.shards shards/rows --model.vocabulary_size 256 "
    "--steps 12 --log_every_steps 1 --evaluation.every_steps 6 --checkpoint.every_steps 6 "
    "--loggers none --learning_rate.peak 0.01"
)
POSITIONS = (
    *("bert-a", "bert-r", "bert-ad", "tupe-a", "tupe-r", "tupe-a-tie-cls", "tupe-r-tie-cls"),
    *("shaw", "tupe-a-table", "tupe-r-parametric", "t5", "alibi", "rope", "nope"),
)
DROP = "--model.num_layers 4 --layer_drop.schedule progressive --layer_drop.draw_per"
BERT_A = "--model.positions bert-a --model.norm post"
ELECTRA = "--objective replaced_token_detection --electra.generator_width 0.5"
RUNS = {
    "dropout": "--model.dropout 0.1 --model.attention_dropout 0.1",
    "accumulation": "--batch.micro_sequences 1 --data.masking spans",
    "bf16": "--engine.ds_config zero1_bf16_autocast",
    "plain": "--engine.cpu_kernels off --engine.recompute_blocks true --engine.attention eager",
    "electra": f"{ELECTRA} {BERT_A}",
    "electra-drop": f"{ELECTRA} {DROP} micro_batch",
    "pld": f"{DROP} micro_batch {BERT_A} --layer_drop.compat deepspeed --learning_rate.decay_steps "
    "3 --learning_rate.schedule warmup_linear_decay_exp --learning_rate.decay_rate 0.9",
    "uniform": f"{DROP} step --layer_drop.depth_profile uniform --layer_drop.rescale false",
    "stages": "--model.num_layers 4 --layer_drop.schedule stages",
    "reference": "--model.cls_reset reference --model.position_projection_bias true "
    "--optimizer.bias_correction false --optimizer.relative_rate 8",
    "words": "--data.masking words --learning_rate.schedule warmup_cosine",
}
for positions, norm in itertools.product(POSITIONS, ("pre", "post")):
    RUNS[f"{positions}-{norm}"] = f"--model.positions {positions} --model.norm {norm}"
RUNS |= {"drop": f"{DROP} micro_batch", "drop-bert-a": f"{DROP} micro_batch {BERT_A}"}
for stage, ranks in itertools.product(range(4), (1, 2)):
    drop = f"{DROP} micro_batch --model.dropout 0.1 --batch.micro_sequences 2"
    RUNS[f"zero{stage}-{ranks}"] = f"{drop} --engine.ds_config zero{stage}_fp32"

BUILD = "data build --data.valid_fraction 0.1 --corpus text.txt"
TUNE = "--learning_rates 0.003 --seeds 2 --epochs 3 --batch 8 --to NAME/sweep"
PREDICT = "task.tsv --to NAME/predictions.csv"
JOBS = {
    "shards": [
        f"{BUILD} --data.sequence_length 32 --model.vocabulary_size 256 --to NAME/rows",
        f"{BUILD} lines.jsonl:weight=1.5 --data.tokenizer byte-bpe --data.sequence_length 32 "
        "--model.vocabulary_size 400 --data.lowercase=false --to NAME/bytes",
    ],
    **{name: [f"{TRAIN} {words}"] for name, words in RUNS.items()},
    "resumed": ["cut drop/run NAME/run", "train NAME/run --resume --data.shards OLD/shards/rows"],
    "exports": [
        "export tupe-r-pre/run --to NAME/tupe-r",
        "export bert-a-post/run --to NAME/bert",
        "export electra-drop/run --to NAME/electra",
        "logits NAME/logits.safetensors AutoModel:NAME/tupe-r AutoModelForMaskedLM:NAME/tupe-r "
        "AutoModel:NAME/bert AutoModelForMaskedLM:NAME/bert AutoModelForPreTraining:NAME/electra",
    ],
    "classes": [
        f"finetune run tupe-r-post/run --train task.tsv --test task.tsv --text a --label c {TUNE}",
        f"finetune predict NAME/sweep {PREDICT}",
    ],
    "pairs": [
        f"finetune run electra/run --train task.tsv --text a b --label n --regression {TUNE}",
        f"finetune predict NAME/sweep {PREDICT}",
    ],
    "opened-runs": ["compare OLD/bert-a-pre/run OLD/tupe-r-pre/run"],
    "opened-run": [
        "cut OLD/zero1-1/run NAME/run",
        "train NAME/run --resume --data.shards OLD/shards/rows",
    ],
    "opened-ranks": [
        "cut OLD/zero2-2/run NAME/run",
        "train NAME/run --elastic --data.shards OLD/shards/rows",
    ],
    "opened-shards": [f"{TRAIN} --data.shards OLD/shards/bytes --model.vocabulary_size 400"],
    "opened-export": [f"{TRAIN} --initial_weights OLD/exports/tupe-r"],
    "opened-model": [f"finetune predict OLD/classes/sweep {PREDICT}"],
}


def write_texts(folder):
    """Write what both codes read: documents, and pairs of texts with a class and a number."""
    random_numbers = random.Random(0)
    words = ["".join(random_numbers.choices("abcdefghijklmnop", k=4)) for _ in range(60)]
    texts = [" ".join(random_numbers.choices(words, k=8)) + "." for _ in range(1400)]
    documents = [" ".join(texts[start : start + 10]) for start in range(0, 1000, 10)]
    pairs = list(zip(texts[1000:1200], texts[1200:], strict=True))
    rows = [f"{a}\t{b}\t{'a' < a[0] < 'h'}\t{a.count('a') - b.count('a')}" for a, b in pairs]
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "lines.jsonl").write_text("\n".join(json.dumps({"text": a}) for a, _ in pairs))
    (folder / "task.tsv").write_text("\n".join(["a\tb\tc\tn", *rows]) + "\n")
