"""Protocols hold the values of the papers, and say which value is wrong."""

import pytest

from finetune.protocol import PROTOCOLS, Protocol, load_protocol
from finetune.tasks.glue import GLUE
from pretrain.config.errors import ConfigError

ADAM = {"epsilon": 1e-6, "betas": (0.9, 0.999), "schedule": "warmup_linear"}
DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1}


@pytest.mark.parametrize(
    ("name", "values", "epochs"),
    [
        (
            "tupe",  # the fine-tuning column of its Table 1, the seeds of Sec. 4.1
            ADAM
            | DROPOUT
            | {"learning_rates": (2e-5, 3e-5, 4e-5, 5e-5), "batch": 32, "warmup_ratio": 0.06}
            | {"sequence_length": 512, "max_gradient_norm": 1.0, "weight_decay": 0.01, "seeds": 5},
            dict.fromkeys(GLUE.tasks, 10) | dict.fromkeys(("MNLI", "QQP", "QNLI"), 5),  # footnote a
        ),
        (
            "pld",  # its appendix D
            {"batch": 32, "warmup_ratio": 0.1, "seeds": 5, "schedule": "warmup_linear"},
            dict.fromkeys(GLUE.tasks, 5),
        ),
        (
            "electra",  # the table of its appendix, where that is silent its code; Sec. 3.1
            ADAM
            | DROPOUT
            | {"learning_rates": (1e-4,), "batch": 32, "warmup_ratio": 0.1, "layer_decay": 0.8}
            | {"sequence_length": 128, "max_gradient_norm": 1.0, "weight_decay": 0, "seeds": 10}
            | {"both_orders": ("MRPC", "STS-B")},
            dict.fromkeys(GLUE.tasks, 3) | dict.fromkeys(("RTE", "STS-B"), 10),
        ),
    ],
)
def test_the_values_of_a_protocol_are_those_of_its_paper(name, values, epochs):
    found = load_protocol(name)
    assert {setting: getattr(found, setting) for setting in values} == values
    assert {task: found.epochs_on(task) for task in GLUE.tasks} == epochs


def test_every_protocol_can_be_read_and_is_called_after_its_file():
    names = sorted(file.stem for file in PROTOCOLS.glob("*.toml"))
    assert names == ["electra", "pld", "quick", "tupe"]
    assert [load_protocol(name).name for name in names] == names


def test_a_changed_protocol_has_another_name_and_a_grown_one_has_not():
    assert load_protocol("quick", {"seeds": "7", "learning_rates": ["1e-5"]}).name == "quick"
    changed = load_protocol("quick", {"epochs": "4", "betas": ["0.8", "0.99"], "batch": "32"})
    assert (changed.name, changed.epochs) == ("quick-epochs_4-betas_0.8_0.99", 4)
    assert changed.epochs_on("MNLI") == 4
    lower = Protocol(epochs_of={"sst2": 1}, both_orders=("stsb",))  # as --tasks may name them
    assert (lower.epochs_on("SST-2"), lower.orders_on("STS-B"), lower.orders_on("RTE")) == (1, 2, 1)


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
    mine.write_text('extends = "tupe"\nseeds = 2')  # one of ours
    assert load_protocol(str(mine)).learning_rates == load_protocol("tupe").learning_rates
    for text in ('extends = "base"\nepochs = 3', "settings = 3", "tune = 3"):
        mine.write_text(text)
        with pytest.raises(ConfigError, match="and .tune. are tables; all but seeds is in them"):
            load_protocol(str(mine))
    mine.write_text("[tune]\nlearning_rates = [1e-3]")
    with pytest.raises(ConfigError, match="tune. has learning_rates; give it learning_rate alone"):
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
