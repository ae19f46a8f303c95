"""What is known of a fine-tuned model besides its weights: an entry of its config.json."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from data_prep.removed import without_removed
from finetune.results.model_folder import FINE_TUNED
from finetune.tasks.task import Kind
from finetune.training.targets import Spans, Target, Values, target_of_labels
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings
from pretrain.convert.exports.hf_format import RECORD, ExportRecord, configuration
from pretrain.convert.stock_models import BERT, StockModel, stock_model

CLASSIFIER = {"classifier.dense": "bert.pooler.dense", "classifier.output": "classifier"}


class KeptRecord(ExportRecord):
    """Encoder, head, task and labels; its sequence length is the one to which rows are cut."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    task: str
    texts: tuple[str, ...] = Field(min_length=1, max_length=2)  # columns
    label: str  # column
    labels: tuple[str, ...]  # none: a regression
    kind: Kind | None = None  # of the task; None: of one label, or a regression
    centre: float = 0.0  # of the numbers of a regression, and
    spread: float = Field(1.0, gt=0)  # their unit: see `Values`
    may_be_none: bool = False  # whether a text may have no answer
    pretrained_length: int = Field(ge=3)  # of the longest row of pre-training
    model: ModelSettings

    @field_validator("model", mode="before")
    @classmethod
    def _read_older_settings(cls, model: Any) -> Any:
        return without_removed({"model": model})["model"]

    @model_validator(mode="after")
    def _check_labels(self) -> "KeptRecord":
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError("labels: two or more, each of them once, or none")
        return self

    @property
    def target(self) -> Target:
        """Return how predictions are derived from logits."""
        if self.kind == "answers":
            return Spans(self.may_be_none)
        if not self.labels:
            return Values(self.centre, self.spread)
        return target_of_labels(self.labels, self.kind)

    @property
    def stock(self) -> StockModel | None:
        """Return the model of transformers that is the same; None: it has none.

        An ELECTRA has one too: its encoder is BERT's, and this head.
        """
        if stock_model(self.model, DEFAULT_OBJECTIVE) is None:
            return None
        target = self.target
        layers = {target.head: target.head} if target.is_of_tokens else CLASSIFIER
        name = f"BertFor{target.architecture}"
        return BERT._replace(architecture=name, head_layers=layers, head_weights={})

    @property
    def architecture(self) -> str | None:
        """Return the class of transformers that loads it; None: the code of its folder does."""
        if not isinstance(self.model.transformers, dict):
            return self.stock.architecture if self.stock else None
        from transformers.models.auto import modeling_auto

        words = re.sub(r"(?<!^)(?=[A-Z])", "_", self.target.architecture).upper()
        kinds = getattr(modeling_auto, f"MODEL_FOR_{words}_MAPPING_NAMES")
        return str(kinds[self.model.transformers["model_type"]])

    def configuration(self) -> dict[str, Any]:
        """Return the content of config.json."""
        content = self.model.transformers
        if not isinstance(content, dict):
            content = configuration(self.model, self)
            del content[RECORD]  # it marks what can be pre-trained further
        names = self.labels or (("start", "end") if self.kind == "answers" else (self.label,))
        return {
            **content,
            "architectures": [self.architecture or f"TupeloFor{self.target.architecture}"],
            "problem_type": self.target.problem or None,
            "id2label": {str(number): name for number, name in enumerate(names)},
            "label2id": {name: number for number, name in enumerate(names)},
            FINE_TUNED: self.model_dump(mode="json"),
        }


class KeptConfiguration(BaseModel):
    """What is read of config.json."""

    tupelo_fine_tuned: KeptRecord
    id2label: dict[str, str] = {}  # of a classifier, perhaps with new names
