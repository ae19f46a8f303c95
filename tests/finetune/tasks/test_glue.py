import pytest

from finetune.tasks.glue import GLUE
from pretrain.config.errors import ConfigError


def test_glue_has_nine_tasks_in_its_order():
    assert " ".join(GLUE.tasks) == "CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("cola", "CoLA"), ("sst2", "SST-2"), ("SST_2", "SST-2"), ("stsb", "STS-B"), ("MNLI", "MNLI")],
)
def test_case_and_hyphens_of_a_name_do_not_matter(spelling, name):
    assert GLUE.named(spelling) is GLUE.tasks[name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("colla", "'colla'; did you mean CoLA[?]; one of CoLA, SST-2, MRPC"),
        ("stb", "did you mean STS-B[?]"),
        ("qqqq-qq", "no task 'qqqq-qq'"),
        ("mnli-m", "development set of MNLI, not a task; give MNLI"),
        ("MNLI-mm", "development set of MNLI, not a task; give MNLI"),
        ("AX", "no training set; give MNLI"),
    ],
)
def test_a_task_name_misspelt_is_answered_with_the_nearest(name, message):
    with pytest.raises(ConfigError, match=message):
        GLUE.named(name)
