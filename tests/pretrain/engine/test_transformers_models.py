"""Models of transformers in our trainer, against a plain loop of transformers and torch."""

import copy
import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForMaskedLM, AutoTokenizer
from transformers import PreTrainedTokenizerFast as FastTokenizer

import tupelo
from data_prep.text.text_encoder import SENTENCES
from data_prep.tokenizer.describe import TokenizerError
from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import as_json
from pretrain.config.settings.transformers_config import with_configuration, with_special_ids
from pretrain.convert import initial_weights
from pretrain.convert.exports.hf_format import write_pretrained
from pretrain.convert.external.transformers_folder import read_transformers_model
from pretrain.convert.initial_weights import fitting_weights
from pretrain.convert.pretrained import Pretrained, load_pretrained
from pretrain.distributed.ranks import start_ranks
from pretrain.engine.execution import Machine, plan_execution
from pretrain.engine.footprint import needed_bytes, rank_bytes
from pretrain.engine.launch import check_rescale
from pretrain.engine.micro_batches import RandomBatches
from pretrain.model.cost import parameters_by_group, training_cost
from pretrain.model.execution_plan import PLAIN
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.transformers_encoder import our_name
from pretrain.schedules.learning_rate import learning_rate_at
from tests.pretrain.conftest import lines
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.test_engine import run_case

SHAPE = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"max_position_embeddings": 34}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FEEDFORWARD = {"intermediate_size": 64}
FAMILIES = {
    "bert": FEEDFORWARD | {"tie_word_embeddings": False},
    "roberta": FEEDFORWARD,
    "roformer": FEEDFORWARD,  # whose table of positions is frozen
    "xlm-roberta": FEEDFORWARD,
    "distilbert": {"hidden_dim": 64},
    "modernbert": FEEDFORWARD,
    "deberta-v2": FEEDFORWARD,
    "electra": FEEDFORWARD | {"embedding_size": 16},
}


def whole_model(kind, **changes):
    config = CONFIG_MAPPING[kind](**{**SHAPE, **IDS, **FAMILIES[kind], **changes})
    for name in ("dropout", "attention_dropout"):  # of all names
        for one in vars(config):
            if one.endswith(name) or one.endswith("dropout_prob"):
                setattr(config, one, 0.0)
    torch.manual_seed(3)
    return AutoModelForMaskedLM.from_config(config)


@pytest.fixture
def saved(tmp_path):
    """Save a model with a tokenizer of its special tokens."""

    def save(whole, *, mask="[MASK]"):
        special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *([mask] if mask else [])]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=special)
        tokenizer.train_from_iterator(["abcdefghijklmnop. " * 3], trainer)
        names = dict(zip(("pad", "cls", "sep", "unk", "mask"), special, strict=False))
        fast = FastTokenizer(
            tokenizer_object=tokenizer, **{f"{role}_token": name for role, name in names.items()}
        )
        fast.save_pretrained(tmp_path / "folder")
        whole.save_pretrained(tmp_path / "folder")
        return tmp_path / "folder"

    return save


def settings_of(folder, *words):
    return load_settings(
        "adapt",
        [
            *("--model.folder", str(folder), "--steps", str(case.STEPS)),
            *("--data.sequence_length", str(case.LENGTH), "--learning_rate.peak", "0.01"),
            *("--batch.global_sequences", "8", "--batch.micro_sequences", "2"),
            *("--optimizer.max_gradient_norm", "0.5", "--optimizer.weight_decay", "0.1", *words),
        ],
    )


def plain_loop(whole, settings):
    """Train with nothing but transformers and torch; return losses and weights by our names."""
    whole, losses = copy.deepcopy(whole).train(), []
    groups = [
        {"params": [w for w in whole.parameters() if (w.ndim > 1) == decays], "weight_decay": decay}
        for decays, decay in ((True, 0.1), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, betas=settings.optimizer.betas, eps=1e-6)
    for step in range(case.STEPS):
        total = 0.0
        for place in range(case.PLACES):
            batch = case.micro_batch(step, place)
            labels = torch.full_like(batch.ids_BS, -100)
            labels.view(-1)[batch.positions_M] = batch.labels_M
            loss = whole(input_ids=batch.ids_BS, labels=labels).loss / case.PLACES
            loss.backward()
            total += loss.item()
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, settings.learning_rate, case.STEPS)
        optimizer.step()
        optimizer.zero_grad()
    named = whole.named_parameters(remove_duplicate=False)
    return losses, {our_name(name, whole): weight.detach() for name, weight in named}


@pytest.mark.ranks
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_step_is_that_of_a_plain_loop_and_a_resumed_engine_the_same(kind, saved, tmp_path):
    """At ZeRO stages 0, 2 and 3, with tied weights, accumulation and clipping."""
    whole = whole_model(kind)
    folder = saved(whole)
    settings, ranks = settings_of(folder), start_ranks()
    losses, weights = plain_loop(whole, settings)
    for name in ("zero0_fp32", "zero2_fp32", "zero3_fp32"):
        found = case.whole_and_resumed(settings, ranks, name, tmp_path / name)
        assert found["losses"] == pytest.approx(losses, abs=1e-6), name
        assert found["resumed"] == found["losses"][3:], name
        for key, value in found["weights"].items():  # Adam makes whole steps of small gradients
            torch.testing.assert_close(torch.tensor(value), weights[key], rtol=0, atol=1e-5)


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["zero2_fp32", "zero3_fp32"])
@pytest.mark.parametrize("kind", ["roberta", "roformer"])
def test_two_ranks_train_as_one_and_tied_or_frozen_weights_stay_so(kind, name, tmp_path):
    words = ("--model.transformers", kind, "--layer_drop.rescale", "false")
    plain = case.reference(case.case_settings(*words))
    found = run_case(2, tmp_path, [name], *words)[name]
    assert found["losses"] == pytest.approx(plain.losses, rel=2e-6)  # sums in another order
    assert found["resumed"] == found["losses"][3:]
    assert found["weights"].keys() == plain.weights.keys()  # one of two names


def test_a_deep_copy_of_a_model_skips_the_same_blocks():
    model = tupelo.build(tupelo.settings("tiny_cpu", {"model.transformers": "bert"})).train()
    batch = torch.randint(5, 99, (2, 16)), torch.arange(8), torch.randint(5, 99, (8,))
    skipped = model(*batch, [0.0, 1.0])
    assert skipped != model(*batch, [1.0, 1.0])
    assert copy.deepcopy(model)(*batch, [0.0, 1.0]) == skipped


def test_an_adapted_model_is_evaluated_before_and_after_and_exported_as_it_came(
    saved, command, tmp_path
):
    """From a folder to a folder: without code of ours, with equal weights, tied as they were."""
    folder, run = saved(whole_model("roberta")), tmp_path / "run"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tupelo": {"name": "before"}}))
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{'abc' * n} def. ghi jkl mno." * 9 for n in range(1, 30)))
    words = [
        *("train", "adapt", "--model.folder", folder, "--corpus", text, "--run-folder", run),
        *("--steps", 8, "--data.sequence_length", 16, "--batch.global_sequences", 8),
        *("--evaluation.every_steps", 8, "--evaluation.rows", 8, "--learning_rate.peak", 0.01),
        *("--layer_drop.schedule", "progressive", "--layer_drop.rescale", "false"),
    ]
    status, _, errors = command.run([*map(str, words)])
    assert status == 0, errors[-3000:]
    before, after = lines(run, "evals.jsonl")
    assert (before["step"], after["step"]) == (0, 8) and after["loss"] < before["loss"]
    exported = tmp_path / "exported"
    status, printed, errors = command.run(["export", str(run), "--to", str(exported)])
    assert status == 0 and "stock roberta" in printed, errors[-3000:]
    assert len({file.stat().st_mode for file in exported.iterdir() if file.is_file()}) == 1
    card = (exported / "README.md").read_text()
    assert '"norm"' not in card and f"{before['loss']:.3f} nats, at step 0" in card
    theirs = AutoModelForMaskedLM.from_pretrained(exported)
    assert theirs.lm_head.decoder.weight is theirs.roberta.embeddings.word_embeddings.weight
    trained, again = load_pretrained(run), load_pretrained(exported)
    assert trained.sequence_length == again.sequence_length == 33
    rows = [len(trained.text_encoder.ids(*pair, max_length=16)) for pair in SENTENCES]
    assert f"in {64 * (sum(rows) + 16):,} logits" in card  # compared on rows of training
    assert again.name == "exported" and "tupelo" not in (exported / "config.json").read_text()
    torch.testing.assert_close(trained.weights, again.weights, rtol=0, atol=0)
    started = fitting_weights(settings_of(folder, "--initial_weights", str(run))).weights
    assert all(torch.equal(trained.weights[name], started[name]) for name in started)
    rows = AutoTokenizer.from_pretrained(exported)(["ab cd", "ghi [MASK]."])["input_ids"]
    assert rows == [trained.text_encoder.ids(text) for text in ("ab cd", "ghi [MASK].")]


def test_flops_are_those_that_torch_counts_and_tied_weights_count_once(saved):
    """Of 2 sequences of 16 tokens, with a block that runs and one that does not, 6 predictions."""
    settings = settings_of(saved(whole_model("roberta")))
    attached = settings_of(saved(whole_model("roberta")), "--model.positions", "rope")
    block = 16 * (4 * 32 * 32 + 2 * 32 * 64 + 2 * 16 * 32)
    head = 6 * (32 * 32 + 32 * 64)
    for model in (settings.model, attached.model):
        cost = training_cost(model, 16)
        found = cost.of_pass(rows=2, predictions=6, kept=[1, 0], ranks=1)
        assert found == 6 * (2 * block + head)
    # Projections of distances, once in a pass.
    whole = whole_model("deberta-v2", relative_attention=True, pos_att_type=["p2c", "c2p"])
    with FlopCounterMode(display=False) as counted:
        whole(input_ids=torch.full((8, 16), 5))
    cost = training_cost(settings_of(saved(whole)).model, 16)
    found = cost.of_pass(rows=8, predictions=8 * 16, kept=[1, 1], ranks=1)
    assert found == 3 * counted.get_total_flops()
    total = sum(weight.numel() for weight in whole_model("roberta").parameters())
    assert parameters_by_group(settings.model)["total"] == total


@pytest.mark.parametrize("kind", ["roberta", "megatron-bert"])
def test_memory_is_that_of_the_logits_that_its_head_computes(kind):
    """Of the predictions where the head is known, else of all tokens; of two vocabularies."""
    needed, computed = [], []
    for size in (64, 4096):
        words = ["--model.transformers", kind, "--model.vocabulary_size", str(size)]
        settings = load_settings("tiny_cpu", words)
        config = read_ds_config("zero0_fp32", "cpu")
        run = (settings, fill_ds_config(config, settings, world_size=1), 1)
        needed.append(needed_bytes(*run, PLAIN, 8) - rank_bytes(*run))
        model = build_objective(settings.model)
        (output,) = (part for part in model.modules() if getattr(part, "out_features", 0) == size)
        output.register_forward_hook(lambda *given: computed.append(given[-1].nbytes))
        model(*RandomBatches(settings, 8)[0])
    assert needed[1] - needed[0] == pytest.approx(computed[1] - computed[0], rel=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data.sequence_length", "64"), "is longer than model.max_sequence_length=33"),
        (("--model.num_layers", "3"), "has 2: it is trained as it is"),
        (("--model.norm", "post"), "model.norm has no effect with a model of transformers"),
        (("--objective", "replaced_token_detection"), "has no objective="),
        (("--model.transformers", "bert"), "both name a model"),
        (("--layer_drop.schedule", "progressive"), "rescale=true needs blocks that add"),
    ],
)
def test_what_does_not_go_with_such_a_model_is_refused(saved, words, message):
    with pytest.raises(ConfigError, match=message):
        check_rescale(settings_of(saved(whole_model("roberta")), *words))


def test_models_without_a_head_and_tokenizers_without_a_mask_are_refused(saved):
    whole = whole_model("roberta")
    folder = saved(whole)
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    assert load_pretrained(folder).objective == "encoder_alone"
    with pytest.raises(ConfigError, match="has no head for masked words"):
        fitting_weights(settings_of(folder))
    with pytest.raises(TokenizerError, match="mask"):
        load_pretrained(saved(whole, mask=None))
    with pytest.raises(ConfigError, match="absent': there is no such folder$"):
        settings_of(folder / "absent")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model.transformers", "nope"), "no type or config.json"),
        (("--model.transformers", "bart"), "has a decoder"),
        (("--trust-remote-code",), "no type or config.json"),
    ],
)
def test_a_type_that_cannot_be_trained_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        build_objective(load_settings("adapt", ["--initial_weights", "theirs", *words]).model)


def test_dropout_is_what_is_given_though_a_file_has_a_whole_number(saved):
    folder = saved(whole_model("bert"))
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('dropout_prob": 0.0', 'dropout_prob": 0'))
    model = settings_of(folder, "--model.dropout", ".25").model
    assert (model.dropout, model.transformers["hidden_dropout_prob"]) == (0.25, 0.25)


def test_a_run_of_a_new_model_starts_another_with_another_dropout(monkeypatch):
    words = ["--model.transformers", "roberta", "--initial_weights", "run"]
    settings = load_settings("tiny_cpu", words)
    # The ids of a tokenizer are known when the data are open.
    config = with_special_ids(settings.model.transformers, {"pad": 0, "cls": 2, "sep": 3})
    model = settings.model.model_copy(update={"transformers": config})
    there = Pretrained(model, {}, None, "run", "run", 7, 16)
    monkeypatch.setattr(initial_weights, "load_pretrained", lambda place: there)
    assert fitting_weights(load_settings("tiny_cpu", [*words, "--model.dropout", "0.3"])) is there


def test_another_folder_takes_the_place_of_the_model_of_a_run(saved, tmp_path):
    deeper = settings_of(saved(whole_model("bert", num_hidden_layers=3)))
    (tmp_path / "run.json").write_text(as_json(deeper))
    other = saved(whole_model("bert", hidden_act="relu"))
    found = load_settings(tmp_path, ["--model.folder", str(other)])
    assert found.model == settings_of(other).model


def test_an_export_of_a_model_with_token_types_gives_them(saved, tmp_path):
    for kind, types in (("bert", [0, 0, 0, 1, 1]), ("distilbert", None)):
        folder = saved(whole_model(kind))
        write_pretrained(tmp_path / kind, read_transformers_model(folder, as_it_is=True))
        found = AutoTokenizer.from_pretrained(tmp_path / kind)("a", "b")
        assert found.get("token_type_ids") == types


def test_a_model_that_mixes_the_texts_of_a_batch_is_refused(saved, monkeypatch):
    model = build_objective(settings_of(saved(whole_model("bert"))).model)
    model.check(16)
    inner = model.encoder.whole.forward

    def mixed(input_ids):
        found = inner(input_ids=input_ids)
        found.logits = found.logits + found.logits.mean(0)
        return found

    monkeypatch.setattr(model.encoder.whole, "forward", mixed)
    with pytest.raises(ConfigError, match="mixes the texts of a batch"):
        model.check(16)


def test_code_of_a_folder_runs_only_where_it_is_trusted(saved):
    folder = saved(whole_model("bert"))
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForMaskedLM": "mine.MineModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(
        "from transformers import BertConfig, BertForMaskedLM\n"
        "class Mine(BertConfig):\n    model_type = 'mine'\n"
        "class MineModel(BertForMaskedLM):\n    config_class = Mine\n"
    )
    with pytest.raises(ConfigError, match="read that code, and give --trust-remote-code"):
        settings_of(folder)
    settings = settings_of(folder, "--trust-remote-code")
    stored = {**settings.model.transformers, "trust_remote_code": False}
    with pytest.raises(ValueError, match="read that code, and give --trust-remote-code"):
        with_configuration({"folder": str(folder), "transformers": stored})
    plan = plan_execution(settings, Machine("cpu", torch.float32, 0))
    assert "mine.py" in plan.describe() and "logits of all tokens" in plan.describe()
    built = dict(build_objective(settings.model).named_parameters())
    assert fitting_weights(settings).weights.keys() == built.keys()
