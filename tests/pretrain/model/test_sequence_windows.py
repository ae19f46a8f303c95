"""Layer drop by sequences against a loop over rows, each of which runs alone."""

import numpy
import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.config.settings import LayerDropSettings
from pretrain.model.branch_scale import SequenceDraw
from pretrain.model.execution_plan import PLAIN
from pretrain.model.objectives.catalog import build_objective
from pretrain.schedules.layer_drop import keep_probabilities, kept_shares

ROWS, LENGTH, PREDICTIONS, LAYERS = 7, 12, 3, 4
DRAWS = [
    SequenceDraw(share, 0.0, place, True)
    for share, place in ((1.0, 0.5), (0.75, 0.95), (0.3, 0.1), (0.6, 0.7))
]
KEPT = [7, 5, 2, 4]  # rows of 7 in these windows


def model_of(*words, execution=PLAIN):
    settings = load_settings(
        "tiny_cpu",
        [
            *("--model.num_layers", str(LAYERS), "--model.vocabulary_size", "64"),
            *("--model.max_sequence_length", str(LENGTH), "--data.sequence_length", str(LENGTH)),
            *("--model.dropout", "0", "--model.attention_dropout", "0", *words),
        ],
    )
    torch.manual_seed(3)
    model = build_objective(settings.model, settings.objective, settings.electra, execution)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def batch():
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, 64, (ROWS, LENGTH), generator=generator)
    columns = torch.stack(
        [torch.randperm(LENGTH, generator=generator)[:PREDICTIONS] for _ in range(ROWS)]
    )
    positions = (columns + LENGTH * torch.arange(ROWS)[:, None]).flatten()
    return ids, columns, positions, ids.flatten()[positions]


def scales_of_row(row):
    """Return the scales with which a batch of this row alone has the same result."""
    return [
        ROWS / count if (row - int(draw.place * ROWS)) % ROWS < count else 0.0
        for draw, count in zip(DRAWS, KEPT, strict=True)
    ]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["tupe-r", "shaw"])
def test_loss_and_gradients_are_those_of_rows_that_run_alone(positions, norm):
    words = ("--model.positions", positions, "--model.norm", norm)
    model, alone = model_of(*words), model_of(*words)
    ids, columns, positions_M, labels_M = batch()
    loss = model(ids, positions_M, labels_M, DRAWS)
    loss.backward()
    losses = [
        alone(ids[[row]], columns[row], ids[row, columns[row]], scales_of_row(row))
        for row in range(ROWS)
    ]
    torch.stack(losses).mean().backward()
    assert loss.item() == pytest.approx(sum(one.item() for one in losses) / ROWS, rel=1e-6)
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_all_states_are_those_of_rows_that_run_alone_also_where_rows_are_padded():
    encoder = model_of("--model.positions", "tupe-r").encoder.eval()
    ids, _, _, _ = batch()
    lengths = torch.tensor([12, 5, 7, 12, 3, 9, 12], dtype=torch.int32)
    states = encoder(ids, DRAWS, lengths)
    for row in range(ROWS):
        length = int(lengths[row])
        expected = encoder(ids[[row], :length], scales_of_row(row))[0]
        torch.testing.assert_close(states[row, :length], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("execution", ["recomputes_blocks", "compiles_blocks"])
def test_recomputed_and_compiled_blocks_give_the_same(execution, monkeypatch):
    import dataclasses

    if execution == "compiles_blocks":
        compiled = torch.nn.Module.compile
        monkeypatch.setattr(
            torch.nn.Module, "compile", lambda self, **_: compiled(self, backend="eager")
        )
    plan = dataclasses.replace(PLAIN, **{execution: True})
    model, plain = model_of(execution=plan), model_of()
    _, _, positions_M, labels_M = batch()
    losses = []
    for each in (model, plain):
        losses.append(each(batch()[0], positions_M, labels_M, DRAWS))
        losses[-1].backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_every_row_is_kept_equally_often_and_the_scale_makes_the_mean_full_depth():
    share, places = 0.3, 700
    counts = numpy.zeros(ROWS)
    for number in range(places):
        draw = SequenceDraw(share, 0.0, number / places, True)
        first, count = draw.window(ROWS)
        counts[[(first + step) % ROWS for step in range(count)]] += draw.scale(ROWS)
    assert counts / places == pytest.approx(numpy.ones(ROWS))


@pytest.mark.parametrize("rows", [1, 4, 8, 32, 33, 64, 96, 255, 512])
def test_the_rows_of_all_blocks_together_are_rounded_not_those_of_each(rows):
    for theta in (0.5, 0.7, 0.9, 1.0):
        for profile in ("linear", "uniform"):
            drop = LayerDropSettings(
                schedule="constant", draw_per="sequence", depth_profile=profile
            )
            exact = keep_probabilities(theta, 12, drop)
            kept = kept_shares(theta, 12, drop, rows)
            group = -(-rows // 32)
            if rows > 1:  # at least one row of each block
                # A group that is not whole ends with the rows.
                cut = 12 * (-rows % group)
                assert abs(sum(kept) - sum(exact)) * rows <= group / 2 + cut + 1e-6
            for share, nominal in zip(kept, exact, strict=True):
                assert abs(share - nominal) * rows < group + 1e-6 or rows == 1
                assert share * rows == pytest.approx(round(share * rows)) and share > 0
                assert round(share * rows) % group == 0 or share == 1 or group * 32 > rows
            if theta == 1.0:
                assert kept == [1.0] * 12
