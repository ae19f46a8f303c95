"""The YAML header of a model card, which the Hugging Face Hub reads."""

from collections.abc import Sequence

from huggingface_hub import EvalResult, ModelCardData

from data_prep.shards.manifest import LANGUAGE, Manifest

# Of manifests: how the licences of sources begin or read, and what the Hub calls them.
WIKIPEDIA, WIKIPEDIA_LICENCE = "CC BY-SA 4.0 (Wikipedia)", "cc-by-sa-4.0"
OF_THE_HUB = "see the card of "
OTHER_LICENCE = "that-of-the-training-data"


def card_header(
    manifest: Manifest, scores: Sequence[Sequence[str]], *, name: str, is_discriminator: bool
) -> str:
    """Return the lines between the rules at the top of a card.

    Args:
        manifest: of the training data.
        scores: rows of `score_rows`.
        name: of the model.
        is_discriminator: whether it is that of an ELECTRA, or predicts words.
    """
    licences = manifest.licence.split("; ")
    is_wikipedia = set(licences) == {WIKIPEDIA}
    stated = manifest.settings.get("language")
    language = stated if isinstance(stated, str) and LANGUAGE.fullmatch(stated) else None
    results = [_result(*row) for row in scores if row[4] != "diverged"]
    header = ModelCardData(
        library_name="transformers",
        pipeline_tag=None if is_discriminator else "fill-mask",
        language=language,
        license=WIKIPEDIA_LICENCE if is_wikipedia else "other",
        license_name=None if is_wikipedia else OTHER_LICENCE,
        datasets=[
            licence.removeprefix(OF_THE_HUB)
            for licence in licences
            if licence.startswith(OF_THE_HUB)
        ]
        or None,
        tags=["electra" if is_discriminator else "masked-language-model", "pre-training", "tupelo"],
        model_name=name if results else None,
        eval_results=results or None,
    )
    return header.to_yaml()


def _result(
    protocol: str, task: str, split: str, metric: str, score: str, seeds: str, rate: str
) -> EvalResult:
    """Return a score of fine-tuning as an entry of the Hub's model-index."""
    return EvalResult(
        task_type="text-classification",
        task_name=f"fine-tuned on {task}",
        dataset_type=task.lower(),
        dataset_name=task,
        dataset_split=split,
        metric_type=metric,
        metric_value=round(float(score) / 100, 6),
        metric_name=f"{metric}, median of {seeds} seeds ({protocol}, learning rate {rate})",
    )
