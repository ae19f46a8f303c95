"""docs/SETTINGS.md says what --help says; `python -m tests.docs.test_settings` writes it."""

from pathlib import Path

from pretrain.config.settings import RunSettings, setting_fields
from pretrain.config.settings_help import type_in_words, value_in_words
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
    lines = [TOP, "| setting | default | choices | meaning |", "|---|---|---|---|"]
    fields = setting_fields(RunSettings)
    for name in sorted(fields, key=lambda name: name.rpartition(".")[0]):
        words = type_in_words(fields[name].annotation)
        choices = ", ".join(NAMES.get(name, words.split("|") if "|" in words else []))
        default = value_in_words(fields[name].default)
        shown = f"| `{name}` | {default} | {choices} | {fields[name].description} |"
        lines.append(shown.replace(" true, false ", " "))
    lines += ["", "## `model.positions`", "", "| encoding | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {kind.description} |" for name, kind in POSITION_ENCODINGS.items()]
    return "\n".join(lines) + "\n"


def test_the_page_of_settings_says_what_help_says():
    assert PAGE.read_text() == settings_page(), "run python -m tests.docs.test_settings"


if __name__ == "__main__":
    PAGE.write_text(settings_page())
