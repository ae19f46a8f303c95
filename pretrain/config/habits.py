"""Names that other programs have for our options: what a user types by habit.

Hugging Face's Trainer, Megatron-LM, fairseq, nanoGPT. A name of a setting without its section, such
as --dropout, needs no line here.
"""

LENGTH, BATCH = "--data.sequence_length", "--batch.global_sequences"
PRECISION = "--engine.ds_config, whose JSON sets precision and ZeRO stage"

# In small letters, with "-" for "_" -> what to use. Options in it exist in the parser that says so.
HABITS: dict[str, str] = {
    **dict.fromkeys(("lr", "learning-rate", "peak-lr", "max-lr"), "--learning_rate.peak"),
    **dict.fromkeys(
        ("lr-scheduler", "lr-scheduler-type", "lr-decay-style", "scheduler", "lr-schedule"),
        "--learning_rate.schedule",
    ),
    **dict.fromkeys(
        ("warmup", "warmup-steps", "warmup-proportion", "num-warmup-steps", "lr-warmup-iters"),
        "--learning_rate.warmup_ratio, a share of the steps",
    ),
    **dict.fromkeys(
        ("batch-size", "batch", "bs", "b", "train-batch-size", "global-batch-size"), BATCH
    ),
    **dict.fromkeys(
        ("micro-batch-size", "per-device-train-batch-size", "per-gpu-batch-size", "micro-batch"),
        "--batch.micro_sequences",
    ),
    **dict.fromkeys(
        ("gradient-accumulation-steps", "accumulation-steps", "grad-accum"),
        f"{BATCH} and --batch.micro_sequences, from which it follows",
    ),
    **dict.fromkeys(
        ("max-steps", "num-steps", "train-steps", "train-iters", "max-iters"), "--steps"
    ),
    **dict.fromkeys(
        ("epochs", "epoch", "num-epochs", "num-train-epochs", "max-epochs"), "--steps or --hours"
    ),
    **dict.fromkeys(("time", "max-time", "duration"), "--hours"),
    **dict.fromkeys(
        ("output-dir", "output", "out-dir", "out", "o", "save-dir", "to"), "--run-folder"
    ),
    **dict.fromkeys(("run-name", "experiment"), "--name"),
    **dict.fromkeys(
        ("seq-length", "max-seq-length", "seq-len", "max-length", "block-size", "context-length"),
        LENGTH,
    ),
    **dict.fromkeys(("layers", "num-hidden-layers", "n-layer", "depth"), "--model.num_layers"),
    **dict.fromkeys(("hidden-size", "d-model", "n-embd", "hidden"), "--model.width"),
    **dict.fromkeys(("heads", "num-attention-heads", "n-head"), "--model.num_heads"),
    **dict.fromkeys(("ffn-hidden-size", "intermediate-size"), "--model.feedforward_width"),
    "vocab-size": "--model.vocabulary_size",
    "position-embedding-type": "--model.positions",
    **dict.fromkeys(("pld", "layer-drop", "progressive-layer-drop"), "--layer_drop.schedule"),
    **dict.fromkeys(("hidden-dropout", "hidden-dropout-prob"), "--model.dropout"),
    **dict.fromkeys(("fp16", "bf16", "precision", "mixed-precision", "amp", "dtype"), PRECISION),
    **dict.fromkeys(("zero-stage", "zero", "deepspeed", "deepspeed-config"), PRECISION),
    **dict.fromkeys(
        ("data", "dataset", "data-dir", "data-path", "train-file", "train-data", "text", "input"),
        "--corpus",
    ),
    **dict.fromkeys(("mlm-probability", "mask-prob"), "--data.masked_probability"),
    **dict.fromkeys(
        ("checkpoint", "ckpt", "resume-from", "resume-from-checkpoint", "load", "restore"),
        "the folder of the run as RECIPE, with --resume",
    ),
    **dict.fromkeys(
        ("init-checkpoint", "pretrained", "model-name-or-path", "init-from"), "--initial_weights"
    ),
    **dict.fromkeys(("save-steps", "save-interval", "save-every"), "--checkpoint.every_steps"),
    "save-total-limit": "--checkpoint.keep_last",
    **dict.fromkeys(("eval-steps", "eval-interval", "eval-every"), "--evaluation.every_steps"),
    **dict.fromkeys(("logging-steps", "log-interval", "log-every"), "--log_every_steps"),
    **dict.fromkeys(("num-workers", "workers", "dataloader-num-workers"), "--data.loader_workers"),
    **dict.fromkeys(("optimizer", "optim"), "--optimizer.kind"),
    "wd": "--optimizer.weight_decay",
    "adam-betas": "--optimizer.betas",
    **dict.fromkeys(("adam-epsilon", "adam-eps", "eps"), "--optimizer.epsilon"),
    **dict.fromkeys(
        ("max-grad-norm", "clip-grad", "grad-clip", "gradient-clipping", "clip-norm"),
        "--optimizer.max_gradient_norm",
    ),
    **dict.fromkeys(
        ("gradient-checkpointing", "activation-checkpointing"), "--engine.recompute_blocks"
    ),
    **dict.fromkeys(("compile", "torch-compile"), "--engine.compile_blocks"),
    "arms": "the command sweep, which takes several recipes: tupelo sweep RECIPE RECIPE ...",
}
