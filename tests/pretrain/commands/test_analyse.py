"""`tupelo analyse` on small runs: the files that it writes, and what it refuses."""

import csv
import json
import shutil

import pytest
import torch
from PIL import Image

from pretrain.__main__ import main
from pretrain.analysis.catalog import ANALYSES
from pretrain.analysis.subjects import Scope, read_subjects
from pretrain.checkpoint.format import load_weights
from pretrain.config.errors import ConfigError

ALL = (
    *("--checkpoint.keep_last", "none", "--checkpoint.every_steps", "4"),
    *("--steps", "8", "--evaluation.every_steps", "8"),
)
# A run that may rewind writes its weights before the first step.
FROM_THE_START = ("--trouble.on_not_finite", "rewind")


@pytest.fixture(scope="session")
def runs(command, tmp_path_factory):
    """Runs of two encodings; that of BERT-A has a checkpoint of step 0."""
    folder = tmp_path_factory.mktemp("runs")
    bert = ("--model.positions", "bert-a", "--model.norm", "post")
    command.train(folder / "bert_a", *ALL, *bert, *FROM_THE_START)
    command.train(folder / "tupe_r", *ALL)
    return folder


def table(file):
    with file.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


WORDS = {
    "positions": ("tupe_r",),
    "gradients": ("bert_a", "tupe_r"),
    "layers": ("bert_a", "tupe_r"),
    "terms": ("bert_a",),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_each_analysis_writes_pictures_and_tables(runs, tmp_path, name):
    few_rows = ("--rows", "10") if ANALYSES[name].reads_rows else ()
    words = ["analyse", name, *(str(runs / run) for run in WORDS[name]), *few_rows]
    main([*words, "--to", str(tmp_path / "one")])
    pictures = sorted((tmp_path / "one").glob("*.png"))
    tables = sorted((tmp_path / "one").glob("*.csv"))
    assert pictures and tables
    for picture in pictures:
        with Image.open(picture) as image:
            assert image.width == 1200
    if ANALYSES[name].over_training:
        steps = {row["step"] for file in tables for row in table(file)}
        assert steps == {"0", "4", "8"}
    if name == "layers":  # which draws random signs
        main([*words, "--to", str(tmp_path / "two")])
        for file in (*pictures, *tables):
            assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_without_a_folder_the_files_lie_in_the_first_run(runs, tmp_path):
    run = shutil.copytree(runs / "tupe_r", tmp_path / "tupe_r")
    main(["analyse", "positions", str(run), "--checkpoint", "4"])
    (picture,) = (run / "analysis" / "positions").glob("*.png")
    assert picture.name == "positions_tupe_r.png"
    (step,) = {row["step"] for row in table(picture.parent / "heads.csv")}
    assert step == "4"


def test_the_weights_at_the_start_are_those_that_the_run_began_with(runs, tmp_path):
    run = shutil.copytree(runs / "bert_a", tmp_path / "run")
    (subject,) = read_subjects([run], Scope(rows=10, over_training=True))
    assert subject.steps == (0, 4, 8)
    written = load_weights(run / "checkpoints" / "step_00000000")
    shutil.rmtree(run / "checkpoints" / "step_00000000")
    torch.testing.assert_close(dict(subject.model(0).state_dict()), written, rtol=0, atol=0)


@torch.no_grad()
def test_model_and_rows_have_the_loss_that_the_run_recorded(runs):
    recorded = json.loads((runs / "bert_a" / "evals.jsonl").read_text().splitlines()[-1])
    (subject,) = read_subjects([runs / "bert_a"], Scope(rows=64))
    assert subject.steps == (recorded["step"],)
    model, batches = subject.model(recorded["step"]), subject.batches()
    losses = [float(model(*batch)) * batch.num_predictions() for batch in batches]
    predictions = sum(batch.num_predictions() for batch in batches)
    assert sum(losses) / predictions == pytest.approx(recorded["loss"], rel=1e-5)


def test_rows_limit_what_is_read(runs):
    subjects = read_subjects([runs / "bert_a", runs / "tupe_r"], Scope(rows=6))
    for subject in subjects:
        (batch,) = subject.batches()
        assert len(batch.ids_BS) == 6
        assert batch.num_predictions() == 6 * 5  # 15 % of 32 tokens, at least
    ids = [subject.batches()[0].ids_BS for subject in subjects]
    assert torch.equal(*ids)


def refusal(*words):
    with pytest.raises(ConfigError) as refused:
        main(["analyse", *map(str, words)])
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_bad_input_is_refused_in_one_line(runs, tmp_path):
    run = runs / "tupe_r"
    assert "NAME='gradient' does not exist; did you mean gradients?" in refusal("gradient", run)
    assert "--rows: 0: not a whole number" in refusal("layers", run, "--rows", 0)
    for words in (("--rows", 4), ("--shards", tmp_path)):
        message = refusal("positions", run, *words)
        assert f"{words[0]}={words[1]} has no effect" in message
    assert "is not a run folder" in refusal("layers", tmp_path)
    assert "is named twice" in refusal("layers", run, runs / "bert_a" / ".." / "tupe_r")
    missing = refusal("positions", run, "--checkpoint", 5)
    assert "has no checkpoint of step 5; it has: 4, 8" in missing
    empty = shutil.copytree(run, tmp_path / "empty")
    shutil.rmtree(empty / "checkpoints")
    assert "has no checkpoint yet" in refusal("positions", empty)
    assert "there are no shards in" in refusal("layers", run, "--shards", tmp_path / "none")
    other = refusal("positions", runs / "bert_a")
    assert "adds no bias to the attention" in other and "one of bert-r, tupe-a" in other
    assert "does not add positions to the words" in refusal("terms", run)


def test_the_shards_of_another_tokenizer_are_refused(runs, tmp_path):
    run = shutil.copytree(runs / "tupe_r", tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["tokenizer"]["sha256"] = "0" * 64
    (run / "manifest.json").write_text(json.dumps(manifest))
    message = refusal("layers", run)
    assert "have another tokenizer than it was trained with" in message and "--shards" in message


def test_runs_of_one_name_are_distinguished_by_the_folders_above_them(runs, tmp_path):
    places = [shutil.copytree(runs / "tupe_r", tmp_path / arm / "seed1") for arm in ("a", "b")]
    labels = [subject.label for subject in read_subjects(places, Scope(rows=4))]
    assert labels == ["a-seed1", "b-seed1"]
