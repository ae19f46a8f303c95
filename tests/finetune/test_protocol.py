"""Protocols hold the values of the papers, and say which value is wrong."""

import pytest

from finetune.protocol import PROTOCOLS, load_protocol
from pretrain.config.errors import ConfigError


def test_tupe_is_the_fine_tuning_column_of_its_table_1():
    tupe = load_protocol("tupe")
    assert tupe.learning_rates == (2e-5, 3e-5, 4e-5, 5e-5)
    assert (tupe.batch, tupe.warmup_ratio, tupe.sequence_length) == (32, 0.06, 512)
    assert (tupe.schedule, tupe.epsilon, tupe.betas) == ("warmup_linear", 1e-6, (0.9, 0.999))
    assert (tupe.max_gradient_norm, tupe.weight_decay) == (1.0, 0.01)
    assert (tupe.dropout, tupe.attention_dropout) == (0.1, 0.1)
    assert tupe.seeds == 5  # Sec. 4.1
    five = {"MNLI", "QQP", "QNLI"}  # footnote a
    for task in ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"):
        assert tupe.epochs_on(task) == (5 if task in five else 10)


def test_pld_is_what_its_appendix_d_says():
    pld = load_protocol("pld")
    assert (pld.batch, pld.warmup_ratio, pld.epochs, pld.seeds) == (32, 0.1, 5, 5)
    assert (pld.schedule, pld.epochs_of) == ("warmup_linear", {})


def test_electra_is_the_table_of_its_appendix_and_where_that_is_silent_its_code():
    electra = load_protocol("electra")
    assert (electra.learning_rates, electra.layer_decay) == ((1e-4,), 0.8)
    assert (electra.schedule, electra.warmup_ratio) == ("warmup_linear", 0.1)
    assert (electra.epsilon, electra.betas, electra.weight_decay) == (1e-6, (0.9, 0.999), 0)
    assert (electra.dropout, electra.attention_dropout, electra.batch) == (0.1, 0.1, 32)
    assert electra.seeds == 10  # Sec. 3.1
    ten = {"RTE", "STS-B"}
    for task in ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"):
        assert electra.epochs_on(task) == (10 if task in ten else 3)
        assert electra.orders_on(task) == (2 if task in {"MRPC", "STS-B"} else 1)
    assert (electra.sequence_length, electra.max_gradient_norm) == (128, 1.0)


def test_every_protocol_can_be_read_and_is_called_after_its_file():
    names = sorted(file.stem for file in PROTOCOLS.glob("*.toml"))
    assert names == ["electra", "pld", "quick", "tupe"]
    assert [load_protocol(name).name for name in names] == names


def test_a_changed_protocol_has_another_name_and_a_grown_one_has_not():
    assert load_protocol("quick", {"seeds": "7", "learning_rates": ["1e-5"]}).name == "quick"
    changed = load_protocol("quick", {"epochs": "4", "betas": ["0.8", "0.99"], "batch": "32"})
    assert (changed.name, changed.epochs) == ("quick-epochs_4-betas_0.8_0.99", 4)
    assert changed.epochs_on("MNLI") == 4


def test_a_protocol_of_ones_own_is_written_as_a_sweep_and_may_extend_another(tmp_path):
    base, mine, older = (tmp_path / f"{name}.toml" for name in ("base", "mine", "older"))
    base.write_text("tune.learning_rate = [0.1, 0.2]\n[settings]\nepochs = 2\nbatch = 8\n")
    mine.write_text(
        'extends = "base"\nsettings = {batch = 4, max_gradient_norm = "none"}\nseeds = 7'
    )
    found = load_protocol(str(mine), {"epochs": "3"})
    assert (found.name, found.seeds, found.batch) == ("mine-epochs_3", 7, 4)
    assert (found.learning_rates, found.max_gradient_norm) == ((0.1, 0.2), None)
    older.write_text("epochs = 2\nbatch = 8\nlearning_rates = [0.1, 0.2]\n")
    same = load_protocol(str(older)).model_copy(update={"name": "base"})
    assert same == load_protocol(str(base))
    for text in ('extends = "base"\nepochs = 3', "settings = 3", "tune = 3"):
        mine.write_text(text)
        with pytest.raises(ConfigError, match="and .tune. are tables; all but seeds is in them"):
            load_protocol(str(mine))


@pytest.mark.parametrize(
    ("place", "changes", "message"),
    [
        ("tupee", {}, "no protocol 'tupee'; did you mean tupe.; one of electra, pld, quick, tupe"),
        ("quick", {"epochs": "0"}, "protocol quick: epochs='0': input should be greater than"),
        ("quick", {"batch": "many"}, "batch='many': input should be a valid integer"),
        ("quick", {"learning_rates": ["1e-4", "-1"]}, r"learning_rates=\(0.0001, -1.0\)"),
        ("quick", {"learning_rates": ["1e-4", "1e-4"]}, "each of them once"),
        ("quick", {"batches": 3}, "there is no setting batches; did you mean batch?"),
        ("quick", {"layer_decay": "0"}, "layer_decay='0': input should be greater than 0"),
    ],
)
def test_what_is_wrong_is_named(place, changes, message):
    with pytest.raises(ConfigError, match=message):
        load_protocol(place, changes)
