"""Names that other programs have for the options of `python -m finetune run`; see pretrain's."""

# In small letters, with "-" for "_" -> what to use.
HABITS: dict[str, str] = {
    **dict.fromkeys(("lr", "learning-rate", "lrs", "peak-lr"), "--learning-rates"),
    **dict.fromkeys(("seed", "random-seed", "num-seeds"), "--seeds, the number of trials"),
    **dict.fromkeys(("epoch", "num-epochs", "num-train-epochs", "max-epochs"), "--epochs"),
    **dict.fromkeys(("steps", "max-steps"), "--epochs"),
    **dict.fromkeys(
        ("batch-size", "bs", "b", "train-batch-size", "per-device-train-batch-size"), "--batch"
    ),
    **dict.fromkeys(
        ("model", "model-name-or-path", "run", "init-checkpoint"),
        "its folder or name without an option, in front of --tasks or --train",
    ),
    **dict.fromkeys(("checkpoint", "ckpt", "step"), "--checkpoints"),
    **dict.fromkeys(("output-dir", "output", "out-dir", "out", "o", "run-folder"), "--to"),
    **dict.fromkeys(
        ("data-dir", "data", "dataset", "glue-dir"),
        "--glue FOLDER with --tasks, or --train FILE for a task of your own",
    ),
    **dict.fromkeys(("task", "task-name"), "--tasks"),
    **dict.fromkeys(("train-file", "train-data"), "--train"),
    **dict.fromkeys(("validation-file", "validation", "valid", "dev-file", "eval"), "--dev"),
    **dict.fromkeys(("test-file", "predict-file"), "--test"),
    **dict.fromkeys(("text-column", "text-column-name", "texts", "column"), "--text"),
    **dict.fromkeys(("label-column", "label-column-name", "labels", "target"), "--label"),
    **dict.fromkeys(("metrics", "metric-for-best-model", "eval-metric", "metric-name"), "--metric"),
    **dict.fromkeys(("max-seq-length", "max-length", "seq-length", "seq-len"), "--sequence-length"),
    **dict.fromkeys(
        ("warmup", "warmup-steps", "warmup-proportion"), "--warmup-ratio, a share of the steps"
    ),
    **dict.fromkeys(("lr-scheduler", "lr-scheduler-type", "scheduler"), "--schedule"),
    **dict.fromkeys(("fp16", "bf16", "dtype", "mixed-precision"), "--precision"),
    "wd": "--weight-decay",
    **dict.fromkeys(("layerwise-lr-decay", "layer-lr-decay", "llrd"), "--layer-decay"),
    **dict.fromkeys(("max-grad-norm", "clip-grad", "grad-clip"), "--max-gradient-norm"),
    **dict.fromkeys(("adam-epsilon", "eps"), "--epsilon"),
    **dict.fromkeys(("num-workers", "jobs", "num-proc", "gpus"), "--workers"),
    **dict.fromkeys(("do-predict", "predict"), "--predict-test"),
    "resume": "the same command again, which continues, with --retry-failed after failures",
    **dict.fromkeys(("overwrite-output-dir", "overwrite", "force"), "another folder: --to"),
}
