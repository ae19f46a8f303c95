import argparse

import pytest

from finetune.commands import tasks as task_list
from finetune.tasks.glue import GLUE
from pretrain.config.errors import ConfigError
from tests.finetune.small_glue import write_small_glue


def listed(capsys, *words):
    parser = argparse.ArgumentParser()
    task_list.add_arguments(parser)
    task_list.main(parser.parse_args(list(words)))
    lines = capsys.readouterr().out.splitlines()
    return {line.split()[0]: line for line in lines[2:11]}, lines[11:]


def test_every_task_is_listed_with_metrics_labels_and_files(capsys):
    rows, remarks = listed(capsys)
    assert list(rows) == list(GLUE.tasks)
    words = {name: row.split() for name, row in rows.items()}
    assert " ".join(words["MRPC"]) == "MRPC 0, 1 accuracy, f1 train.tsv, dev.tsv, test.tsv"
    assert "matthews" in words["CoLA"] and {"pearson,", "spearman"} < set(words["STS-B"])
    assert "a number" in rows["STS-B"]
    assert "entailment, neutral, contradiction" in rows["MNLI"]
    assert rows["MNLI"].endswith("test_mismatched.tsv, diagnostic.tsv")
    assert remarks == []


def test_examples_are_counted_and_what_is_wrong_stands_below(capsys, tmp_path):
    glue = write_small_glue(tmp_path)
    (glue / "RTE/dev.tsv").unlink()
    rows, remarks = listed(capsys, "--glue", str(glue))
    assert rows["CoLA"].endswith(" train 3, dev 1, test 1")
    assert rows["MNLI"].endswith(
        "train 3, dev_matched 1, dev_mismatched 1, test_matched 1, test_mismatched 1, test_ax 1"
    )
    assert rows["RTE"].endswith(" -")
    assert [line for line in remarks if line.startswith(f"* RTE: {glue}/RTE: dev.tsv missing")]
    assert [line for line in remarks if line.startswith("* QQP: ") and "2 broken rows" in line]


def test_a_folder_that_is_not_there_ends_the_command(capsys, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        listed(capsys, "--glue", str(tmp_path / "nowhere"))
