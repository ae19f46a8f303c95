import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.config.settings import REPLACED_TOKEN_DETECTION, ElectraSettings
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.memory import PassMemory
from pretrain.model.positions import POSITION_ENCODINGS
from tests.pretrain.model.tracked_memory import peak_of_pass
from tests.selection import mostly_slow

ROWS, LENGTH, PREDICTIONS = 16, 512, 77
FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
AUTOCAST = (FP32, BF16)


def settings(*words):
    base = ("--model.num_layers", "6", "--model.attention_dropout", "0")
    return load_settings("tupe_base", [*base, *words]).model


def predicted_and_counted(monkeypatch, model, execution, types, rows=ROWS, **objective):
    """Return what is predicted and what a pass holds, both in bytes, of a CPU's dropout masks."""
    weights, products = types
    counted = peak_of_pass(
        monkeypatch,
        model,
        execution,
        rows=rows,
        length=LENGTH,
        predictions=PREDICTIONS,
        weights=weights,
        products=products,
        **objective,
    )
    sizes = weights.itemsize, products.itemsize
    memory = PassMemory(model, execution, LENGTH, PREDICTIONS, *sizes, "cpu", **objective)
    return memory.of_rows(rows), counted


@pytest.mark.parametrize(("norm", "dropout"), [("pre", "0.1"), ("post", "0")])
@pytest.mark.parametrize(
    ("weights", "products"), mostly_slow([AUTOCAST, (FP16, FP16), (FP32, FP32)], "other types")
)
@pytest.mark.parametrize("attention", ["eager", "sdpa", "triton"])
def test_the_prediction_is_what_a_pass_holds(
    monkeypatch, attention, weights, products, norm, dropout
):
    """Counted storage by storage, on tensors without memory."""
    model = settings("--model.norm", norm, "--model.dropout", dropout)
    execution, types = ExecutionPlan(attention), (weights, products)
    predicted, counted = predicted_and_counted(monkeypatch, model, execution, types)
    assert predicted == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize("positions", POSITION_ENCODINGS)
@pytest.mark.parametrize("attention", mostly_slow(["sdpa", "eager"], "another backend"))
def test_every_encoding_is_predicted(monkeypatch, positions, attention):
    model = settings("--model.positions", positions, "--model.attention_dropout", "0.1")
    execution = ExecutionPlan(attention)
    predicted, counted = predicted_and_counted(monkeypatch, model, execution, AUTOCAST)
    assert predicted == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "recomputes", "tolerance"), [(4, False, 0.1), (ROWS, False, 0.1), (32, True, 0.15)]
)
@pytest.mark.parametrize("share", [1 / 3, 1.0])
def test_a_generator_and_its_discriminator_are_predicted(
    monkeypatch, share, rows, recomputes, tolerance
):
    model = settings("--model.num_layers", "12", "--model.dropout", "0.1")
    predicted, counted = predicted_and_counted(
        monkeypatch,
        model,
        ExecutionPlan("sdpa", recomputes_blocks=recomputes),
        AUTOCAST,
        rows,
        objective=REPLACED_TOKEN_DETECTION,
        electra=ElectraSettings(generator_width=share),
    )
    assert predicted == pytest.approx(counted, rel=tolerance)


def test_folded_attention_is_predicted(monkeypatch):
    model, execution = settings("--model.positions", "tupe-a"), ExecutionPlan("folded")
    predicted, counted = predicted_and_counted(monkeypatch, model, execution, AUTOCAST)
    assert predicted == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize(
    ("attention", "is_narrow"),
    [("eager", False), ("sdpa", False), ("triton", False), ("triton", True)],
)
def test_recomputed_blocks_are_predicted(monkeypatch, attention, is_narrow):
    model = settings("--model.num_layers", "12", "--model.dropout", "0.1")
    execution = ExecutionPlan(attention, recomputes_blocks=True, bf16_residual_stream=is_narrow)
    predicted, counted = predicted_and_counted(monkeypatch, model, execution, AUTOCAST, rows=32)
    assert predicted == pytest.approx(counted, rel=0.15)


def test_a_mask_of_dropout_takes_a_byte_on_a_gpu():
    """torch's operator for CUDA returns booleans, one for each number that may be dropped."""

    def memory(dropout):
        model = settings("--model.dropout", dropout)
        return PassMemory(model, ExecutionPlan("sdpa"), LENGTH, PREDICTIONS, 4, 2, "cuda")

    tokens, predictions, width = ROWS * LENGTH, ROWS * PREDICTIONS, 768
    masks = width * (tokens + 5 * 2 * tokens + 2 * predictions)  # embeddings, blocks, the last one
    assert memory("0.1").of_rows(ROWS) - memory("0").of_rows(ROWS) == masks
