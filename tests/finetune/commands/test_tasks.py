import argparse

from finetune.commands import tasks as task_list
from finetune.tasks.glue import GLUE
from tests.finetune.small_glue import write_small_glue


def listed(monkeypatch, capsys, *words):
    monkeypatch.setenv("COLUMNS", "120")
    parser = argparse.ArgumentParser()
    task_list.add_arguments(parser)
    task_list.main(parser.parse_args(list(words)))
    lines = capsys.readouterr().out.splitlines()
    rows, name = {}, ""
    for line in lines[2:]:  # a cell may have several lines
        name = name if line.startswith(" ") else line.split()[0]
        rows[name] = f"{rows.get(name, '')} {line}"
    return {name: row.split() for name, row in rows.items()}, lines


def test_every_task_is_listed_with_metrics_and_labels(capsys, monkeypatch):
    rows, _ = listed(monkeypatch, capsys)
    assert list(rows) == list(GLUE.tasks)
    assert " ".join(rows["MRPC"]) == "MRPC 0, 1 accuracy, f1"
    assert " ".join(rows["STS-B"]) == "STS-B a number pearson, spearman"


def test_examples_are_counted_and_what_is_wrong_stands_below(capsys, monkeypatch, tmp_path):
    glue = write_small_glue(tmp_path)
    (glue / "RTE/dev.tsv").unlink()
    rows, lines = listed(monkeypatch, capsys, "--glue", str(glue))
    assert rows["CoLA"][-6:] == ["train", "3,", "dev", "1,", "test", "1"]
    assert {"dev_matched", "dev_mismatched", "test_ax"} <= set(rows["MNLI"])
    assert rows["RTE"][-1] == "-"
    assert [line for line in lines if line.startswith(f"note: RTE: {glue}/RTE: dev.tsv missing")]
    assert [line for line in lines if line.startswith("note: QQP: ") and "2 broken rows" in line]
