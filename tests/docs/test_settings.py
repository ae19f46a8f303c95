"""docs/SETTINGS.md says what --help says; `python -m tests.docs.test_settings` writes it."""

from pathlib import Path

from data_prep.command_line import setting_fields, type_in_words, value_in_words
from pretrain.config.settings import EncodingSettings, RunSettings
from pretrain.engine.optimizers import OPTIMIZERS
from pretrain.model.objectives.catalog import OBJECTIVES
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.schedules.layer_drop import KEEP_RATIOS
from pretrain.schedules.learning_rate import DECAYS

PAGE = Path(__file__).parents[2] / "docs" / "SETTINGS.md"
NAMES = {  # of settings whose values are entries of a dict
    "model.positions": POSITION_ENCODINGS,
    "layer_drop.schedule": KEEP_RATIOS,
    "learning_rate.schedule": DECAYS,
    "optimizer.kind": ["auto", *OPTIMIZERS],
    "objective": OBJECTIVES,
}
TOP = """# Settings

Written by `python -m tests.docs.test_settings` from what `tupelo train RECIPE --help` prints, with
the defaults of a recipe that sets nothing. `--model.norm post` on the command line is
`model.norm = "post"` in a recipe.
"""


def settings_page():
    """Return the page: a table of all settings, and one of the position encodings."""
    fields = setting_fields(RunSettings)
    of_encodings = {f"model.{name}" for name in EncodingSettings.model_fields}
    ordered = sorted(fields, key=lambda name: name.rpartition(".")[0])
    lines = [TOP, *table({name: fields[name] for name in ordered if name not in of_encodings})]
    lines += ["", "## `model.positions`", "", "| encoding | what it is | its settings |"]
    lines += ["|---|---|---|"]
    for name, kind in POSITION_ENCODINGS.items():
        own = ", ".join(f"`{setting}`" for setting in kind.own_settings)
        lines.append(f"| `{name}` | {kind.description} | {own} |")
    lines += ["", *table({name: fields[name] for name in ordered if name in of_encodings})]
    return "\n".join(lines) + "\n"


def table(fields):
    """Return a row for each setting."""
    lines = ["| setting | default | choices | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        words = type_in_words(field.annotation)
        choices = ", ".join(NAMES.get(name, words.split("|") if "|" in words else []))
        shown = f"| `{name}` | {value_in_words(field.default)} | {choices} | {field.description} |"
        lines.append(shown.replace(" true, false ", " "))
    return lines


def test_the_page_of_settings_says_what_help_says():
    assert PAGE.read_text() == settings_page(), "run python -m tests.docs.test_settings"


def test_a_run_has_few_settings():
    assert len(setting_fields(RunSettings)) - len(EncodingSettings.model_fields) <= 80


if __name__ == "__main__":
    PAGE.write_text(settings_page())
