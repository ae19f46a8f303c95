import pytest

from finetune.tasks.glue import GLUE
from pretrain.config.errors import ConfigError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("cola", "CoLA"), ("sst2", "SST-2"), ("SST_2", "SST-2"), ("stsb", "STS-B"), ("MNLI", "MNLI")],
)
def test_case_and_hyphens_of_a_name_do_not_matter(spelling, name):
    assert GLUE.named(spelling) is GLUE.tasks[name]


def test_a_name_that_is_none_is_answered_with_all():
    with pytest.raises(ConfigError, match="no task 'mnli-m'; one of CoLA, SST-2, MRPC, STS-B, QQP"):
        GLUE.named("mnli-m")
