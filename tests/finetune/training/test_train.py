"""A run is the plain computation, the same every time, and ends when nothing can be learned."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, f1_score

from finetune.training import train as train_module
from finetune.training.batches import training_batches
from finetune.training.train import Diverged, FineTuning, build_task_model
from tests.finetune.fine_tuning_case import Notes, numbers, protocol, tiny_pretrained, tiny_task

CPU = torch.device("cpu")


def fine_tuning(rules=None, data=None, *, learning_rate=1e-3, seed=0):
    rules, data = rules or protocol(), data or tiny_task()
    model = build_task_model(tiny_pretrained(), rules, target=data.target, seed=seed)
    return FineTuning(model, data, rules, learning_rate=learning_rate, seed=seed, device=CPU)


@pytest.mark.parametrize("regression", [False, True])
def test_a_step_is_gradient_clipping_and_adamw_of_torch(regression):
    rules = protocol(
        dropout=0.0, attention_dropout=0.0, max_gradient_norm=0.1, weight_decay=0.5, epsilon=1e-3
    )
    run = fine_tuning(rules, tiny_task(regression=regression), learning_rate=0.01)
    plain = copy.deepcopy(run.model)
    batch = run.data.train.rows.batch(numbers(0, 1, 2, 3))
    labels = run.data.train.labels[:4]
    logits = plain(*batch)
    if regression:
        scaled = torch.tensor([(label - 1.0) / 0.8 for label in labels])
        loss = ((logits[:, 0] - scaled) ** 2).mean()
    else:
        loss = F.nll_loss(logits.log_softmax(-1), torch.tensor(labels))
    loss.backward()
    assert torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1) > 0.1  # or nothing is clipped
    steps = 2 * math.ceil(43 / 8)
    torch.optim.AdamW(
        [
            {"params": [each], "weight_decay": 0.5 if each.ndim > 1 else 0.0}
            for each in plain.parameters()
        ],
        lr=0.01 / round(0.06 * steps),  # the first step of the warm-up
        eps=1e-3,
    ).step()
    found = run.train_step(batch, labels, epoch=0, place=0)
    assert found.item() == pytest.approx(loss.item(), abs=1e-6)
    ours, theirs = (dict(model.named_parameters()) for model in (run.model, plain))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_the_learning_rate_rises_over_the_warm_up_and_falls_to_zero():
    run = fine_tuning(protocol(warmup_ratio=0.25, epochs=4), learning_rate=0.8)
    steps, rates = 4 * 6, []
    for epoch in range(4):
        rates += [run.learning_rate(epoch, place) for place in range(6)]
    expected = [0.8 * (step + 1) / 6 for step in range(6)]
    expected += [0.8 * (steps - step) / (steps - 6) for step in range(6, steps)]
    assert rates == pytest.approx(expected)


def test_a_repeated_run_has_the_same_losses_and_scores_bit_for_bit():
    notes, outcomes = [Notes() for _ in range(3)], []
    for number, (note, seed) in enumerate(zip(notes, (0, 0, 1), strict=True)):
        torch.manual_seed(99 + number)  # what happened before does not matter
        outcomes.append(fine_tuning(seed=seed).run(note, note.read, predicts_test=True))
    assert notes[0].points == notes[1].points != notes[2].points
    assert outcomes[0] == outcomes[1]
    assert notes[0].rows == 86 + 2 * 30 + 9


def test_the_rows_of_each_step_are_those_of_the_order_and_dropout_that_of_the_step(monkeypatch):
    monkeypatch.setattr(train_module, "FETCH_STEPS", 1)
    run, again, notes = fine_tuning(), fine_tuning(), Notes()
    run.run(notes, notes.read)
    train, found = again.data.train, []
    for epoch in range(2):
        order = training_batches(train.rows.lengths, 8, seed=0, epoch=epoch)
        for place, rows in enumerate(order):
            torch.rand(3)  # another part of the program draws
            labels = [train.labels[row] for row in rows]
            loss = again.train_step(train.rows.batch(rows), labels, epoch=epoch, place=place)
            found.append(float(loss))
    assert found == [*notes.points["train/loss"].values()]


def test_an_easy_task_is_learned_and_scored_after_each_epoch():
    rules = protocol(epochs=8, dropout=0.0, attention_dropout=0.0)
    data, notes = tiny_task(num_train=200), Notes()
    run = fine_tuning(rules, data, learning_rate=5e-3)
    outcome = run.run(notes, notes.read, predicts_test=True)
    assert [*notes.points["dev/accuracy"]] == list(range(1, 9))
    assert notes.points["dev/accuracy"][8] == outcome.scores["dev"]["accuracy"]
    assert not outcome.is_constant
    assert len(outcome.predictions["test"]) == 9
    predicted = run.logits(data.development["dev"]).argmax(1)
    labels = data.development["dev"].labels
    assert outcome.scores["dev"] == {
        "accuracy": pytest.approx(accuracy_score(labels, predicted)),
        "f1": pytest.approx(f1_score(labels, predicted)),
    }
    assert outcome.scores["dev"]["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("value", "message"),
    [(math.nan, "the loss is nan at step 1; try a smaller"), (math.inf, "outputs are not finite")],
)
def test_a_loss_or_an_output_that_is_not_finite_ends_the_run(value, message):
    run = fine_tuning()
    with torch.no_grad():
        run.model.classifier.output.bias[0] = value
    with pytest.raises(Diverged, match=message):
        if math.isnan(value):
            run.run(Notes(), [].append)
        run.logits(run.data.development["dev"])


def test_bf16_rounds_and_keeps_the_weights_in_fp32():
    losses = []
    for precision in ("fp32", "bf16"):
        notes, run = Notes(), fine_tuning(protocol(precision=precision, epochs=1))
        run.run(notes, notes.read)
        losses.append([*notes.points["train/loss"].values()])
        assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.03)  # bf16 has 8 bits
