"""The suite GLUE: nine tasks, and its averages.

Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", ICLR 2019.
"""

from finetune.tasks.suite import AverageRule, Suite, by_name
from finetune.tasks.task import Task

SENTENCES = ("sentence1", "sentence2")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")

# Labels are in the order of the Hub's numbers. The first metric is the one in TUPE's Table 2.
TASKS = by_name(
    Task(
        *("CoLA", BINARY, ("matthews",), ("sentence",)),
        headless_columns=("source", "label", "star", "sentence"),
        hub="cola",
    ),
    Task("SST-2", BINARY, ("accuracy",), ("sentence",), hub="sst2"),
    Task(
        *("MRPC", BINARY, ("accuracy", "f1"), ("#1 String", "#2 String"), "Quality"),
        hub="mrpc",
        hub_texts=SENTENCES,
    ),
    Task("STS-B", (), ("pearson", "spearman"), SENTENCES, "score", highest=5.0, hub="stsb"),
    Task(
        *("QQP", BINARY, ("accuracy", "f1"), ("question1", "question2"), "is_duplicate"),
        identity="id",
        # Questions that contain line breaks: fragments of rows, without a label.
        skips_broken_rows=True,
        hub="qqp",
    ),
    Task(
        "MNLI",
        ("entailment", "neutral", "contradiction"),
        *(("accuracy",), SENTENCES, "gold_label"),
        development=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
        titles={"dev_matched": "MNLI-m", "dev_mismatched": "MNLI-mm"},
        unlabelled="-",  # the annotators did not agree
        hub="mnli",
        hub_texts=("premise", "hypothesis"),
    ),
    Task("QNLI", ENTAILMENT, ("accuracy",), ("question", "sentence"), hub="qnli"),
    Task("RTE", ENTAILMENT, ("accuracy",), SENTENCES, hub="rte"),
    Task("WNLI", BINARY, ("accuracy",), SENTENCES, hub="wnli"),
)

GLUE = Suite(
    "GLUE",
    TASKS,
    {
        # Wang et al. 2019, Sec. 4: a task's score is the mean of its metrics.
        "glue": AverageRule(
            "as GLUE counts it (MNLI's two sets are one task)", tuple(TASKS), "mean", "task"
        ),
        # Sec. 4.1: accuracy on MRPC and QQP, Pearson's correlation on STS-B.
        "tupe": AverageRule(
            "as TUPE's Table 2 counts it (every column but WNLI)",
            tuple(name for name in TASKS if name != "WNLI"),
            "first",
            "development set",
        ),
    },
    hub="nyu-mll/glue",
)
