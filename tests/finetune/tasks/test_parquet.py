"""Tables as pandas, datasets and other programs write them into Parquet."""

import pyarrow
import pytest
from pyarrow import parquet

from finetune.tasks.custom import OwnTask, read_own


def own(folder, columns, **settings):
    parquet.write_table(pyarrow.table(columns), folder / "train.parquet", row_group_size=3)
    return OwnTask(train=folder / "train.parquet", dev=folder / "train.parquet", **settings)


TEXTS = pyarrow.array(["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pyarrow.array(["x", "y", "y", "x"]).dictionary_encode(), ("x", "y")),
        (pyarrow.array([10, 9, 9, 10], pyarrow.int8()), ("9", "10")),
        (pyarrow.array([0.5, 1.5, 1.5, 0.5], pyarrow.float32()), ("0.5", "1.5")),
        (pyarrow.array([True, False, False, True]), ("false", "true")),
    ],
)
def test_labels_of_every_type_are_classes_in_order(tmp_path, labels, expected):
    data = read_own(own(tmp_path, {"text": TEXTS.dictionary_encode(), "label": labels, "n": TEXTS}))
    assert data.task.labels == expected
    assert [example.texts for example in data.train] == [("a",), ("b",), ("c",), ("d",)]
    spelled = [str(value).lower() for value in labels.to_pylist()]
    assert [expected[example.label] for example in data.train] == spelled
