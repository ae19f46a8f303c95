"""The whole command on a tiny run: killed, stopped, with dead workers, and continued."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from finetune.__main__ import main
from finetune.commands.run import add_arguments, read_protocol
from finetune.report.arms import find_arms
from finetune.results.result import read_result
from finetune.results.sweep_results import read_sweep_results
from finetune.sweep.references import read_model_refs
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser
from tests.forked_command import environment
from tests.pretrain.convert.external.test_hf_bert import save as save_bert
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


class Command:
    """`python -m finetune run` on the tiny run and task."""

    def __init__(self, run, files, folder):
        self.run, self.files, self.folder = run, files, folder

    def words(self, *more):
        return [
            *("run", str(self.run), "--to", str(self.folder), "--name", "begins"),
            *("--train", str(self.files / "train.tsv"), "--dev", str(self.files / "dev.tsv")),
            *("--test", str(self.files / "test.tsv"), "--text", "text", "--label", "begins"),
            *("--batch", "8", "--epochs", "12", "--seeds", "3", "--learning-rates", "1e-3", *more),
        ]

    def start(self, *more):
        return subprocess.Popen(
            [sys.executable, "-m", "finetune", *self.words(*more)],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A test run in the background ignores interrupts, and Python would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def finish(self, *more):
        process = self.start(*more)
        output, errors = process.communicate(timeout=300)
        return process.returncode, output, errors

    def results(self):
        return {
            str(file.parent.relative_to(self.folder)): read_result(file.parent)
            for file in sorted(self.folder.rglob("result.json"))
        }

    def models(self):
        """Return the digest of each kept model's weights by the folder of its trial."""
        return {
            str(file.parents[1].relative_to(self.folder)): hashlib.sha256(
                (file.with_name("model.safetensors")).read_bytes()
            ).hexdigest()
            for file in self.folder.rglob("fine_tuned.json")
        }

    def notes(self):
        """Return the notes that were printed, each in one line."""
        return " ".join(self.output.split()).split("note: ")[1:]

    def scores(self):
        return {name: result.scores for name, result in self.results().items()}


def workers_of(process):
    """Return the ids of the worker processes."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {child: Path(f"/proc/{child}/cmdline").read_text() for child in children}
    return [int(child) for child, command in commands.items() if "spawn_main" in command]


@pytest.fixture(scope="module")
def undisturbed(run, files, tmp_path_factory):
    started = Command(run, files, tmp_path_factory.mktemp("sweep"))
    options = ("--from-scratch", "--workers", "2")
    status, started.output, started.errors = started.finish(
        *options, "--learning-rates", "1e-3", "1e30"
    )
    assert status == 0, started.errors
    return started


def test_every_trial_has_a_result_and_diverged_ones_are_listed(undisturbed):
    results = undisturbed.results()
    models = ("small-step_00000020", "small-without-pre-training")
    assert results.keys() == {
        f"begins/{model}/lr_{rate}/seed_{seed}"
        for model in models
        for rate in ("0.001", "1e+30")
        for seed in range(3)
    }
    for name, result in results.items():
        assert result.status == ("diverged" if "1e+30" in name else "finished"), result
        assert result.pretrained == ("without" not in name)
    listed = [note for note in undisturbed.notes() if " diverged (" in note]
    assert len(listed) == 2
    assert all("the loss is nan at step" in line and "seeds 0, 1, 2" in line for line in listed)
    lines = undisturbed.errors.splitlines()
    assert lines[0] == f"12 trials to {undisturbed.folder}"
    assert lines[-1].startswith("[12/12 trials] begins small")
    assert "majority class" in undisturbed.output


def test_the_results_of_a_sweep_can_be_read_as_a_table(undisturbed):
    results = read_sweep_results([undisturbed.folder])
    assert len(results.trials) == 12 and results.majority.keys() == {"begins"}
    (request,) = results.requested
    assert (request.seeds, request.learning_rates) == ([0, 1, 2], [1e-3, 1e30])
    assert {trial.row for trial in results.trials} == set(request.rows)


def test_predictions_are_beside_the_results_of_finished_runs(undisturbed):
    files = sorted(undisturbed.folder.rglob("predictions_test.json"))
    assert len(files) == 6
    rows = json.loads(files[0].read_text())
    assert [row["identity"] for row in rows] == [str(number) for number in range(8)]
    assert {row["prediction"] for row in rows} <= {0, 1}


def test_the_model_of_the_median_seed_is_kept_and_predicts_what_its_trial_predicted(
    undisturbed, files, capsys
):
    places = sorted(undisturbed.models())
    assert [place.split("/")[1] for place in places] == [
        "small-step_00000020",
        "small-without-pre-training",
    ]
    results = undisturbed.results()
    for place in places:
        seeds = [results[f"{place[:-1]}{seed}"] for seed in range(3)]
        scores = sorted(result.scores["dev"]["accuracy"] for result in seeds)
        assert results[place].scores["dev"]["accuracy"] == scores[1]
        main(["predict", str(undisturbed.folder / place), str(files / "test.tsv")])
        found = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]]
        trial = undisturbed.folder / place / "predictions_test.json"
        assert found == [row["label"] for row in json.loads(trial.read_text())]
        record = json.loads((undisturbed.folder / place / "model/fine_tuned.json").read_text())
        assert record["file"] == "train.tsv"
    last = undisturbed.output.splitlines()
    assert f"{undisturbed.folder / places[0]}/model" in " ".join(last[-4:])
    assert last[-2].startswith("use it: tupelo finetune predict ")


def test_a_fine_tuned_model_starts_another_task(undisturbed, files, tmp_path, capsys):
    model = undisturbed.folder / min(undisturbed.models()) / "model"
    task = ["--train", str(files / "train.tsv"), "--dev", str(files / "dev.tsv")]
    task += ["--label", "begins", "--name", "again", "--dry-run"]
    main(["run", str(model), *task, "--epochs", "2"])
    output = capsys.readouterr().out
    assert "models: small step 20 after begins\n" in output
    beside = undisturbed.folder.with_name("quick-epochs_2-after-begins")
    assert output.splitlines()[-1] == f"results: {beside}"
    (ref,) = read_model_refs([str(model)], ["newest"], from_scratch=False)
    weights = load_file(model / "model.safetensors")
    loaded = ref.load().weights
    assert loaded and all(name.startswith("encoder.") for name in loaded)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.items())
    moved = shutil.copytree(model, tmp_path / "moved")
    with pytest.raises(ConfigError, match="moved is not in the sweep that kept it; give .*--to"):
        main(["run", str(moved), *task])
    main(["run", str(moved), *task, "--to", str(tmp_path / "to")])
    with pytest.raises(ConfigError, match="holds 2 fine-tuned models; name the one that you mean"):
        main(["run", str(undisturbed.folder), *task, "--to", str(tmp_path / "to")])


def test_curves_are_written_for_tensorboard(undisturbed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(
        str(undisturbed.folder / "begins/small-step_00000020/lr_0.001/seed_1")
    ).Reload()
    assert [event.step for event in events.Scalars("dev/accuracy")] == list(range(1, 13))
    assert events.Scalars("train/loss")[-1].step == 12 * 8


@pytest.fixture(scope="module")
def disturbed(run, files, tmp_path_factory):
    """A sweep that was killed after its first result, and of which a worker was killed then."""
    started = Command(run, files, tmp_path_factory.mktemp("sweep"))
    process = started.start("--workers", "1")
    wait_until(started.results, process)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker outlives the sweep"
        time.sleep(0.02)
    started.first = {file: file.stat().st_mtime_ns for file in started.folder.rglob("result.json")}
    process = started.start("--workers", "1")
    running = started.folder / "begins/small-step_00000020/lr_0.001/seed_2"
    wait_until(lambda: list(running.glob("events.*")), process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    started.output, started.errors = process.communicate(timeout=120)
    started.status = process.returncode
    return started


def test_a_killed_sweep_repeats_nothing_that_was_finished(disturbed):
    done = len(disturbed.first)
    assert 1 <= done < 3
    count = "1 trial" if done == 2 else "2 trials"
    assert f"{count} to {disturbed.folder}, {done} " in disturbed.errors
    assert "over already" in disturbed.errors
    for file, changed in disturbed.first.items():
        assert file.stat().st_mtime_ns == changed


def test_a_worker_that_dies_fails_its_run_and_no_other(disturbed):
    assert disturbed.status == 1
    (listed,) = [note for note in disturbed.notes() if " failed (" in note]
    assert "the worker process was ended by SIGKILL, often for lack of memory" in listed
    assert "begins" in listed and "seed 2" in listed
    assert "--retry-failed" in disturbed.errors.splitlines()[-1]
    status = [result.status for result in disturbed.results().values()]
    assert status == ["finished", "finished", "failed"]


@pytest.mark.slow("three sweeps in a row")
def test_failed_runs_are_run_again_on_demand_and_end_as_if_nothing_had_happened(
    disturbed, undisturbed
):
    status, output, errors = disturbed.finish("--workers", "1", "--retry-failed")
    assert status == 0 and "failed" not in output
    assert errors.startswith("1 trial to")
    expected = undisturbed.scores()
    assert disturbed.scores() == {name: expected[name] for name in disturbed.scores()}
    kept = disturbed.models()
    assert len(kept) == 1 and kept.items() <= undisturbed.models().items()


@pytest.mark.slow("a sweep that is interrupted and finished; a killed one is tested above")
def test_an_interrupt_stops_the_workers_and_says_how_to_continue(run, files, tmp_path):
    started = Command(run, files, tmp_path)
    process = started.start("--workers", "1")
    wait_until(lambda: list(started.folder.rglob("events.*")), process)
    workers = workers_of(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1].startswith("Stopped; ")
    assert "of 3 trials are left. The same command continues." in errors
    assert workers and not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_dry_run_prints_the_trials_and_writes_nothing(run, files, tmp_path, capsys):
    started = Command(run, files, tmp_path / "sweep")
    main([*started.words("--checkpoints", "all", "--from-scratch"), "--dry-run"])
    output = capsys.readouterr().out
    # 2 checkpoints and new weights, 3 seeds; 64 rows are 8 steps.
    assert output.splitlines()[2].split() == ["begins", "64", "12", "96", "9", "0", "9"]
    assert "models: small step 10, small without pre-training, small step 20" in output
    assert f"to run: 9 trials, {9 * 96:,} steps, {9 * 64 * 12:,} rows" in output
    assert not started.folder.exists()


def test_a_dry_run_says_how_large_the_kept_models_will_be(
    undisturbed, run, files, tmp_path, capsys
):
    model = undisturbed.folder / min(undisturbed.models()) / "model"
    size, units = sum(file.stat().st_size for file in model.iterdir()), {"k": 1e3, "M": 1e6}
    for seeds, keep, expected in (
        ("3", "best", [(2, 2), (2, 2)]),
        ("1", "best", [(2, 2)]),
        ("3", "all", [(6, 6)]),
        ("3", "none", []),
    ):
        started = Command(run, files, tmp_path / "sweep")
        words = ("--from-scratch", "--seeds", seeds, "--keep", keep, "--dry-run")
        main(started.words(*words))
        (line,) = re.findall("^kept: .*", capsys.readouterr().out, re.M)
        found = re.findall(r"(\d+) models? \(([\d.]+) ([kM])B\)", line)
        assert [int(count) for count, *_ in found] == [count for count, _ in expected]
        sizes = [float(number) * units[unit] for _, number, unit in found]
        # Without headers and fine_tuned.json, which are 2 % of so small a model.
        assert sizes == pytest.approx([count * size for _, count in expected], rel=0.04)


def test_another_metric_of_a_sweep_that_is_over_makes_another_table_and_trains_nothing(
    run, files, tmp_path, capfd
):
    words = [
        *("run", str(run), "--train", str(files / "train.tsv"), "--label", "begins"),
        *("--to", str(tmp_path), "--epochs", "1", "--seeds", "1", "--learning-rates", "1e-3"),
    ]
    main(words)
    assert "accuracy on own." in " ".join(capfd.readouterr().out.split())
    (before,) = read_sweep_results([tmp_path]).trials
    main([*words, "--metric", "Matthews"])
    output, errors = capfd.readouterr()
    assert "0 trials to" in errors and "Matthews on own." in " ".join(output.split())
    (after,) = read_sweep_results([tmp_path]).trials
    assert after.result.scores == before.result.scores
    assert list(before.result.scores["dev"])[0] == "accuracy"
    assert list(after.result.scores["dev"])[0] == "matthews"


def test_a_metric_that_earlier_results_lack_is_refused_before_anything_is_written(
    run, files, tmp_path
):
    """As in the folder of a version that knew fewer metrics."""
    words = [
        *("run", str(run), "--train", str(files / "train.tsv"), "--label", "begins"),
        *("--to", str(tmp_path), "--epochs", "1", "--seeds", "1", "--learning-rates", "1e-3"),
    ]
    main(words)
    (file,) = tmp_path.rglob("result.json")
    result = json.loads(file.read_text())
    del result["scores"]["dev"]["matthews"]
    file.write_text(json.dumps(result))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    for more in (["--dry-run"], []):
        with pytest.raises(ConfigError, match="seed_0 has no matthews: .* or --metric of accuracy"):
            main([*words, "--metric", "matthews", *more])
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == before


def test_predictions_without_a_test_file_are_remarked(run, files, tmp_path, capsys):
    words = ["--train", str(files / "train.tsv"), "--label", "begins", "--predict-test"]
    main(["run", str(run), *words, "--to", str(tmp_path), "--dry-run"])
    assert "own: no test file, nothing is predicted" in capsys.readouterr().err


def test_a_bert_that_loses_its_segments_is_remarked_where_texts_come_in_pairs(tmp_path, capsys):
    save_bert(tmp_path / "bert")
    rows = [f"{n}\tcat {n}\tdog {n}\t{'xy'[n % 2]}\n" for n in range(60)]
    (tmp_path / "train.tsv").write_text("".join(["id\ttext\tother\tlabel\n", *rows]))
    task = ["run", str(tmp_path / "bert"), "--train", str(tmp_path / "train.tsv"), "--dry-run"]
    for columns, count in ((["text", "other"], 1), (["text"], 0)):
        main([*task, "--from-scratch", "--text", *columns])
        lines = capsys.readouterr().err.splitlines()
        notes = [line for line in lines if "the row of the second segment is left out" in line]
        assert len(notes) == count and all(note.startswith("bert: token types") for note in notes)


def test_the_default_folder_is_that_of_run_and_protocol(run, files, capsys):
    words = ["--train", str(files / "train.tsv"), "--label", "begins", "--dry-run"]
    for place in (run, run / "checkpoints/step_00000010"):
        main(["run", str(place), *words, "--epochs", "2"])
        folder = capsys.readouterr().out.splitlines()[-1]
        assert folder == f"results: {run}/finetune/quick-epochs_2"


def test_it_is_also_where_the_checkpoint_is_named_from_the_folder_around_it(
    run, files, capsys, monkeypatch
):
    words = ["--train", str(files / "train.tsv"), "--label", "begins", "--dry-run"]
    for folder, place in (("checkpoints", "step_00000010"), ("checkpoints/step_00000010", ".")):
        monkeypatch.chdir(run / folder)
        main(["run", place, *words])
        assert capsys.readouterr().out.splitlines()[-1] == f"results: {run}/finetune/quick"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "rte"], "--tasks needs --glue"),
        (["--tasks", "rtee", "--glue", "x"], "no task 'rtee'.*RTE"),
        (
            ["--tasks", "rte", "--glue", "x", "--label", "y"],
            "--label belongs to a task of your own",
        ),
        (["--tasks", "rte", "--glue", "x", "--text", "y"], "--text belongs to a task of your own"),
        ([], "no task: give --tasks all --glue FOLDER, or your own"),
        (["--train", "x.tsv", "--glue", "y"], "--glue belongs to --tasks"),
        (["--train", "x.tsv", "--text", "a", "b", "c"], "texts"),
        (["--train", "x.tsv", "--metric", "acc"], "metric='acc' does not exist.*accuracy"),
        (["--tasks", "rte", "--glue", "x", "--metric", "f1"], "--metric belongs to a task of your"),
        (["--train", "x.tsv", "--workers", "0"], "--workers 0: give 1 or more"),
        (["--train", "x.tsv", "--protocl", "y"], "there is no --protocl; did you mean --protocol"),
        (["--train", "x.tsv", "--epochs", "0"], "epochs='0'"),
        (["--protocol", "{files}/p.toml", "--train", "x.tsv"], "epochs_of names 'MLNI', .*MNLI"),
        (["--train", "{files}/train.tsv", "--label", "begin"], "no column 'begin'.*begins"),
        (["--train", "x.tsv", "--both-orders", "STSB"], "both_orders names 'STSB', .*STS-B"),
        (
            ["--train", "{files}/train.tsv", "--label", "begins", "--both-orders", "own"],
            "both_orders names own, whose examples are single texts; name tasks of pairs",
        ),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line(run, files, words, message):
    (files / "p.toml").write_text("[epochs_of]\nMLNI = 3\n")
    with (
        pytest.raises(ConfigError, match=message)
        if "column" not in message
        else pytest.raises(ValueError, match=message)
    ):
        main(["run", str(run), *(word.format(files=files) for word in words)])


def protocol_of(file, *words):
    parser = CommandParser()
    add_arguments(parser)
    return read_protocol(
        parser.parse_args(["run", "--train", "x.tsv", "--protocol", str(file), *words])
    )


def test_a_protocol_may_name_a_task_of_ones_own_by_its_name_or_the_one_it_has_without(tmp_path):
    for name, words in (("own", []), ("mine", ["--name", "mine"])):
        file = tmp_path / f"{name}.toml"
        file.write_text(f"[epochs_of]\n{name} = 7\n")
        assert protocol_of(file, *words).epochs_on(name) == 7


def test_a_protocol_may_name_several_tasks_of_ones_own_and_others_have_a_note(tmp_path, capsys):
    file = tmp_path / "p.toml"
    file.write_text("[epochs_of]\nreviews_a = 7\nreviews_b = 9\n")
    for name, epochs, other in (("reviews_a", 7, "reviews_b"), ("reviews_b", 9, "reviews_a")):
        assert protocol_of(file, "--name", name).epochs_on(name) == epochs
        note = f"protocol {file}: epochs_of names '{other}', which is not a task of this command"
        assert capsys.readouterr().err == f"{note}; did you mean {name}?\n"


def test_what_is_no_model_or_no_single_folder_is_refused(run, files, tmp_path):
    task = ["--train", str(files / "train.tsv"), "--label", "begins"]
    with pytest.raises(ConfigError, match="--to FOLDER"):
        main(["run", str(run), str(run), *task])
    with pytest.raises(ConfigError, match="holds no pre-trained model"):
        main(["run", str(tmp_path), *task])
    with pytest.raises(ConfigError, match="no checkpoint of step 15; it has: 10, 20"):
        main(["run", str(run), "--checkpoints", "15", *task])


def test_a_folder_that_holds_something_else_is_refused_before_anything_is_read(run, tmp_path):
    absent = ["--train", str(tmp_path / "absent.tsv"), "--label", "begins"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpeg").touch()
    for folder, found in ((tmp_path / "photos", "cat.jpeg"), (run, "checkpoints")):
        with pytest.raises(ConfigError, match=f"{folder} holds {found} and no sweep; choose a new"):
            main(["run", str(run), "--to", str(folder), *absent])
    with pytest.raises(ConfigError, match=r"cat.jpeg is a file; choose another folder \(--to FOLD"):
        main(["run", str(run), "--to", str(tmp_path / "photos/cat.jpeg"), *absent])


@pytest.mark.parametrize("left", ["grid.lock", "majority.json"])
def test_a_sweep_whose_record_was_removed_is_continued(run, files, tmp_path, left, capsys):
    (tmp_path / left).write_text("{}")
    (tmp_path / "begins").mkdir()
    task = ["--train", str(files / "train.tsv"), "--label", "begins", "--dry-run"]
    main(["run", str(run), "--to", str(tmp_path), *task])
    assert f"results: {tmp_path}" in capsys.readouterr().out


def test_a_model_that_is_missing_is_named_before_the_examples_are_read(run, tmp_path):
    absent = ["--train", str(tmp_path / "absent.tsv"), "--to", str(tmp_path / "to")]
    with pytest.raises(ConfigError, match="no checkpoint of step 15; it has: 10, 20"):
        main(["run", str(run), "--checkpoints", "15", *absent])
    with pytest.raises(ConfigError, match=f"{tmp_path} holds no pre-trained model"):
        main(["run", str(run), str(tmp_path), *absent])
    with pytest.raises(
        ConfigError, match="no model: give a run folder, .*, such as: tupelo finetune"
    ):
        main(["run", *absent])


def test_runs_of_the_same_name_go_by_their_folders(run, command, tmp_path):
    """As the seeds of an arm do; a model that is alone of its name keeps it."""
    twin = command.train(tmp_path / "twin", "--name", "small", "--seed", "1")
    other = command.train(tmp_path / "other", "--name", "third", "--seed", "1")
    places = [str(run), str(twin), str(other)]
    found = read_model_refs(places, ["newest"], from_scratch=False)
    assert [model.name for model in found] == [run.name, "twin", "third"]
    assert [
        model.name for model in read_model_refs([str(run)], ["newest"], from_scratch=False)
    ] == ["small"]


def test_a_model_keeps_the_name_that_it_has_in_its_sweep(run, files, command, tmp_path, capsys):
    """Whichever other runs are named beside it, so that no trial of it is repeated."""
    twin = command.train(tmp_path / "twin", "--name", "small", "--seed", "1")
    task = [
        *("--train", str(files / "train.tsv"), "--label", "begins", "--to", str(tmp_path / "to")),
        *("--epochs", "1", "--seeds", "1", "--learning-rates", "1e-3"),
    ]
    main(["run", str(run), *task])
    main(["run", str(run), str(twin), *task, "--dry-run"])
    output = capsys.readouterr().out
    assert "models: small step 20, twin step 20\n" in output
    assert "to run: 1 trials" in output
    main(["run", str(run), str(twin), *task])
    found = read_sweep_results([tmp_path / "to"])
    assert {trial.row.model for trial in found.trials} == {"small", "twin"}
    (arm,) = find_arms([trial.row for trial in found.trials], found.trials)
    assert sorted(row.model for row in arm.seeds) == ["small", "twin"]
    main(["run", str(twin), *task, "--dry-run"])
    assert "models: twin step 20\n" in capsys.readouterr().out


def test_folders_of_the_same_name_are_distinguished_by_folders_of_results(
    run, files, command, tmp_path
):
    twin = command.train(tmp_path / "seeds" / run.name, "--name", "small", "--seed", "1")
    words = ["--train", str(files / "train.tsv"), "--label", "begins", "--to", str(tmp_path / "to")]
    with pytest.raises(ConfigError, match=f"have the same name '{run.name}': fine-tune them"):
        main(["run", str(run), str(twin), *words, "--dry-run"])


def test_an_unknown_command_is_named_with_the_nearest(capsys):
    with pytest.raises(ConfigError, match="no command 'rum'; did you mean run?"):
        main(["rum"])
    main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in ("run", "tasks", "table", "submission"))
