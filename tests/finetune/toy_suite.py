"""A suite of two tasks: all that is written to add one."""

from finetune.tasks.suite import AverageRule, Suite, by_name
from finetune.tasks.task import Task
from tests.finetune.small_glue import write_rows


def submission(task, rows):
    return "".join(f"{index}: {prediction}\n" for index, prediction in rows)


TASKS = by_name(
    Task(
        "Vowel",
        ("no", "yes"),
        ("accuracy", "f1"),
        ("text",),
        "starts",
        development=("dev", "dev_long"),
        titles={"dev_long": "Vowel-l"},
    ),
    Task(
        "Count",
        (),
        ("spearman", "pearson"),
        ("first", "second"),
        "words",
        highest=10.0,
        test_files={"test": ("hidden.tsv",)},
    ),
)
TOY = Suite(
    "Toy",
    TASKS,
    {
        "toy": AverageRule("as Toy counts it", tuple(TASKS), "mean", "task"),
        "toy-sets": AverageRule("each set alone", tuple(TASKS), "first", "development set"),
    },
    submission=submission,
)


def write_toy(folder):
    """Write the files of both tasks and return the folder."""
    words = ["apple tree", "bee hive", "under way", "cat", "egg", "dog days are", "ice", "fog"]
    for split in ("train", "dev", "dev_long"):
        rows = [(word, "yes" if word[0] in "aeiou" else "no") for word in words]
        write_rows(folder / f"vowel/{split}.tsv", [("text", "starts"), *rows])
    write_rows(folder / "vowel/test.tsv", [("text",), ("owl",), ("bat",)])
    for split in ("train", "dev"):
        rows = [(word, "and so on", str(3 + len(word.split()))) for word in words]
        write_rows(folder / f"Count/{split}.tsv", [("first", "second", "words"), *rows])
    write_rows(folder / "Count/hidden.tsv", [("index", "first", "second"), ("7", "a", "b c")])
    return folder
