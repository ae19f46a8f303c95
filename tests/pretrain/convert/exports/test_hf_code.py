"""The code that goes with an export does what people do with a BERT, or says that it cannot."""

import inspect
import re

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
)

from pretrain.convert.exports.hf_format import CODE_FILES
from pretrain.convert.model import ENCODER_ALONE
from pretrain.convert.pretrained import load_pretrained
from tests.pretrain.convert.exports.loading import loaded, rows
from tests.selection import mostly_slow

INPUTS = ["input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds"]
OUTPUTS = ["output_attentions", "output_hidden_states", "return_dict"]
ANSWERS = ["start_positions", "end_positions"]
# Those with a term of each kind that is not part of the bias.
KINDS = mostly_slow(("tupe-r", "bert-ad", "shaw", "rope"), "further kinds of terms")


@pytest.mark.parametrize(
    ("auto_class", "between"),
    [(AutoModel, []), (AutoModelForMaskedLM, ["labels"]), (AutoModelForQuestionAnswering, ANSWERS)],
)
def test_the_arguments_are_those_of_bert_in_its_order(exported, auto_class, between):
    model = loaded(auto_class, exported("tupe-r"))
    names = list(inspect.signature(model.forward).parameters)
    assert names == [*INPUTS, *between, *OUTPUTS]


def test_an_encoder_saved_without_its_head_is_one_of_transformers_again(exported, tmp_path):
    folder = exported("bert-a", "post")
    loaded(AutoModel, folder).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert load_pretrained(tmp_path).objective == ENCODER_ALONE


def test_the_file_of_the_model_names_every_file_that_it_needs():
    """Transformers 4 copies no others beside it."""
    text = CODE_FILES["modeling_tupelo.py"].read_text()
    named = re.findall(r"^from (?:|pretrain\.model)\.(\w+) import", text, re.M)
    assert {f"{name}.py" for name in named} | {"modeling_tupelo.py"} == set(CODE_FILES)


@pytest.mark.parametrize("positions", KINDS)
@torch.no_grad()
def test_eager_attention_is_that_of_torch_and_its_weights_are_returned(exported, positions):
    ids, mask = rows()
    model = loaded(AutoModel, exported(positions))
    eager = loaded(AutoModel, exported(positions), attn_implementation="eager")
    expected = model(ids, mask).last_hidden_state[mask.bool()]
    for output in (
        eager(ids, mask, output_attentions=True),
        model(ids, mask, None, None, None, True),
    ):
        states = output.last_hidden_state[mask.bool()]
        torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)  # sums of two layers
        assert [weights.shape for weights in output.attentions] == [(3, 4, 20, 20)] * 2
        for weights in output.attentions:
            torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 20))
            assert (weights[0, :, :, mask[0] == 0] == 0).all()


@torch.no_grad()
def test_segments_positions_and_masks_that_say_nothing_are_accepted_and_others_refused(exported):
    ids, mask = rows()
    model = loaded(AutoModel, exported("tupe-r"))
    zeros, order = torch.zeros_like(ids), torch.arange(20)[None]
    said = model(ids, mask, token_type_ids=zeros, position_ids=order).last_hidden_state
    assert torch.equal(said, model(ids, mask).last_hidden_state)
    with pytest.raises(ValueError, match="without segments: leave token_type_ids out"):
        model(ids, mask, token_type_ids=zeros + 1)
    with pytest.raises(ValueError, match="at the positions 0, 1, 2, ...: leave position_ids out"):
        model(ids, mask, position_ids=order.flip(1))
    with pytest.raises(ValueError, match="padding comes after the text"):
        model(ids, mask.flip(1))
    with pytest.raises(ValueError, match=r"the shape \(3, 1, 20\); give \(batch, tokens\)"):
        model(ids, mask[:, None])


@pytest.mark.parametrize("positions", KINDS)
def test_recomputed_blocks_give_the_same_gradients(exported, positions):
    options = {"use_reentrant": True}  # as transformers 4 asks for
    ids, mask = rows()
    gradients = []
    for recompute in (False, True):
        model = loaded(AutoModelForMaskedLM, exported(positions)).train()
        if recompute:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        torch.manual_seed(1)  # of dropout
        model(ids, mask, labels=ids).loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    plain, recomputed = gradients
    torch.testing.assert_close(recomputed, plain, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_a_tagger_is_a_linear_map_of_the_states(exported):
    ids, mask = rows()
    model = loaded(AutoModelForTokenClassification, exported("tupe-r"), num_labels=5)
    labels = (ids % 5).where(mask.bool(), torch.tensor(-100))
    output = model(ids, mask, labels=labels)
    states = loaded(AutoModel, exported("tupe-r"))(ids, mask).last_hidden_state
    expected = states @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(output.logits, expected, rtol=1e-4, atol=1e-5)
    counted = mask.bool()
    loss = F.cross_entropy(expected[counted], (ids % 5)[counted])
    torch.testing.assert_close(output.loss, loss, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_an_answer_has_the_logits_of_its_start_and_end(exported):
    ids, mask = rows()
    model = loaded(AutoModelForQuestionAnswering, exported("tupe-r"))
    starts, ends = torch.tensor([2, 5, 500]), torch.tensor([3, 500, 7])  # 500: cut off
    output = model(ids, mask, start_positions=starts, end_positions=ends)
    states = loaded(AutoModel, exported("tupe-r"))(ids, mask).last_hidden_state
    start_BS, end_BS = (states @ model.qa_outputs.weight.T + model.qa_outputs.bias).unbind(-1)
    torch.testing.assert_close(output.start_logits, start_BS, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(output.end_logits, end_BS, rtol=1e-4, atol=1e-5)
    start_loss = -(start_BS.log_softmax(-1)[0, 2] + start_BS.log_softmax(-1)[1, 5]) / 2
    end_loss = -(end_BS.log_softmax(-1)[0, 3] + end_BS.log_softmax(-1)[2, 7]) / 2
    expected = (start_loss + end_loss) / 2
    torch.testing.assert_close(output.loss, expected, rtol=1e-4, atol=1e-5)
    assert len(model(ids, return_dict=False)) == 2


@pytest.mark.parametrize("positions", KINDS)
@torch.no_grad()
def test_a_graph_of_one_length_holds_for_every_number_of_rows(exported, positions):
    model = loaded(AutoModelForMaskedLM, exported(positions))
    rows_of_any_number = {0: torch.export.Dim("batch", max=64)}
    shapes = {"input_ids": rows_of_any_number, "attention_mask": rows_of_any_number}
    graph = torch.export.export(model, rows(), dynamic_shapes=shapes).module()
    for number in (1, 5):
        ids, mask = rows(number)
        expected = model(ids, mask).logits[mask.bool()]
        found = graph(ids, mask).logits[mask.bool()]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
