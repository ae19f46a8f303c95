"""What is refused before any arm of a sweep is trained."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.files.program import shell_command
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings, flat
from pretrain.data.shards import existing_shards, num_held_out_sequences, shards_folder
from pretrain.launching.sweeps.arms import MASKING, Arm
from pretrain.launching.sweeps.folder import OTHERS
from pretrain.reports.words import listed
from pretrain.schedules.layer_drop import check_layer_drop


def refuse_names(arms: Sequence[Arm], *, num_seeds: int) -> None:
    """Refuse a name of two arms, or of something else in the folder of a sweep.

    Raises:
        ConfigError: there is one.
    """
    names = [arm.name for arm in arms]
    for arm in arms:
        if names.count(arm.name) > 1:
            raise ConfigError(f"two arms are called {arm.name}; give each a name of its own")
        if num_seeds == 1 and arm.name in OTHERS:
            raise ConfigError(
                f"an arm cannot be called {arm.name}: a comparison has {listed(OTHERS)} "
                "in its folder; rename the recipe"
            )


def refuse_layer_drop(arms: Sequence[Arm]) -> None:
    """Refuse layer drop that an arm has too few blocks for.

    Raises:
        ConfigError: one has.
    """
    for arm in arms:
        try:
            check_layer_drop(arm.settings.layer_drop, arm.settings.model.num_layers)
        except ConfigError as error:
            raise ConfigError(f"{arm.name}: {error}") from None


def refuse_equal_arms(arms: Sequence[Arm]) -> None:
    """Refuse an arm twice.

    Raises:
        ConfigError: two have the same settings.
    """
    found: dict[RunSettings, str] = {}
    for arm in arms:
        settings = arm.settings.model_copy(update={"name": ""})
        if settings in found:
            raise ConfigError(
                f"{found[settings]} and {arm.name} have the same settings, so they are one "
                "arm; change one, or remove it (an option of the command line changes all)"
            )
        found[settings] = arm.name


def refuse_incomparable_losses(arms: Sequence[Arm]) -> None:
    """Refuse, before hours of training, arms that a comparison refuses after them.

    Raises:
        ConfigError: their objectives, or what a held-out loss is measured on, differ.
    """
    first = arms[0]
    for arm in arms[1:]:
        if arm.settings.objective != first.settings.objective:
            raise ConfigError(
                f"{first.name} has objective={first.settings.objective} and {arm.name} "
                f"{arm.settings.objective}, so their held-out losses cannot be compared; train "
                "each by a sweep of its own with the same --budget flops=AMOUNT, fine-tune "
                "them, and compare scores: "
                f"{shell_command('finetune', 'table', 'RUN', 'RUN', '--axis', 'flops')}"
            )
        differing = _differing_in_evaluation(first.settings, arm.settings)
        if differing:
            raise ConfigError(
                f"{first.name} and {arm.name} differ in {listed(differing)}, so their held-out "
                f"losses cannot be compared; give all arms the same, with --{differing[0]}"
            )


def _differing_in_evaluation(first: RunSettings, other: RunSettings) -> list[str]:
    """Return the settings that differ, and that a held-out loss depends on besides the model.

    See `held_out_fingerprint`.
    """
    values, others = flat(first.model_dump()), flat(other.model_dump())
    names = [*MASKING, *(name for name in values if name.startswith("electra."))]
    places = [_shards_place(settings) for settings in (first, other)]
    if places[0] != places[1] or None in places:
        of_data = [name for name in values if name.startswith("data.") and name not in MASKING]
        names = [*of_data, "model.vocabulary_size", *names]
    differing = [name for name in names if values[name] != others[name]]
    if first.evaluation.rows != other.evaluation.rows:
        rows = [_held_out_rows(settings) for settings in (first, other)]
        differing += ["evaluation.rows"] if rows[0] != rows[1] else []
    return differing


def _shards_place(settings: RunSettings) -> Path | None:
    """Return the folder of the shards; None: the text is still to be named."""
    has_text = settings.data.corpus or settings.data.shards is not None
    return shards_folder(settings) if has_text else None


def _held_out_rows(settings: RunSettings) -> int:
    shards = existing_shards(settings)
    return settings.evaluation.rows if shards is None else num_held_out_sequences(shards, settings)
