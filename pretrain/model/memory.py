"""The memory of a training pass, predicted: weights, gradients, what is kept for the backward pass.

Counted are the tensors that PyTorch saves, in the order of `Block.forward`, and the largest of
those that come on top for a moment. Compiled blocks keep a little less. The prediction chooses the
size that is tried first; the device decides (engine/micro_batches.py).
"""

from dataclasses import dataclass
from typing import Literal

from pretrain.config.settings import DEFAULT_OBJECTIVE, ElectraSettings, ModelSettings
from pretrain.kernels.cross_entropy import SLICE_BYTES
from pretrain.model.cost import parameters_by_group
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objective_base import Network
from pretrain.model.objectives import objective_named
from pretrain.model.positions import POSITION_ENCODINGS, PositionEncoding

FP32_BYTES = 4

# fp32 tensors NSS of a learned bias at the end of the forward pass and in its backward pass: the
# product of the positions, its reset, their gradients and what is summed over layers and batch.
BIAS_TENSORS = 6

# fp32 tensors of the size of a slice of logits that `cross_entropy.py` holds at a time.
SLICE_TENSORS = 2


@dataclass(frozen=True)
class PassMemory:
    """Bytes of the forward and backward passes of a rank, as a function of their rows."""

    model: ModelSettings
    execution: ExecutionPlan
    length: int  # tokens of a row
    predictions: int  # of a row
    weight_bytes: int  # of a weight, and of a number that a norm gets
    product_bytes: int  # of a number of the matrix products
    device: Literal["cpu", "cuda"]
    objective: str = DEFAULT_OBJECTIVE
    electra: ElectraSettings | None = None

    def of_rows(self, rows: int) -> int:
        """Return the peak: weights, all gradients, activations, and the largest temporaries."""
        networks = objective_named(self.objective).networks(self.model, self.electra)
        waiting, peaks = 0, []
        for network in reversed(networks):
            memory = _NetworkMemory(self, network)
            kept = memory.of_biases() + rows * (memory.kept_in_front() + memory.kept_by_blocks())
            # The backward pass begins with the head, whose tensors are gone when it reaches a
            # block; those of the networks that follow wait.
            head = memory.kept_by_head(rows)
            moments = (head + memory.moment_of_head(rows), memory.moment_of_block(rows))
            peaks.append(waiting + kept + max(moments))
            waiting += kept + head
        return self._of_weights() + max(peaks)

    def _of_weights(self) -> int:
        groups = parameters_by_group(self.model, self.objective, self.electra)
        # Autocast keeps a copy of each weight until its gradient is computed.
        cast = self.product_bytes if self.product_bytes != self.weight_bytes else 0
        return groups["total"] * (2 * self.weight_bytes + cast)


class _NetworkMemory:
    """Bytes that one network of an objective keeps, and the largest of those for a moment."""

    def __init__(self, whole: PassMemory, network: Network) -> None:
        self.network, self.model, self.execution = network, network.model, whole.execution
        self.length, self.device = whole.length, whole.device
        self.weight_bytes, self.product_bytes = whole.weight_bytes, whole.product_bytes
        self.embedding_width = whole.model.width
        self.predictions = whole.predictions if network.predicts_words else whole.length

    def of_biases(self) -> int:
        model = self.model
        if not POSITION_ENCODINGS[model.positions].has_attention_bias:
            return 0
        per_pair = BIAS_TENSORS * FP32_BYTES
        if self.execution.attention == "sdpa":  # it saves the bias that is cast in each layer
            per_pair += model.num_layers * self.product_bytes
        return model.num_heads * self.length**2 * per_pair

    def kept_by_blocks(self) -> int:
        """Return the bytes of a row; the last block is mapped at the predictions only."""
        model = self.model
        if self.execution.recomputes_blocks:
            is_narrow = self.execution.bf16_residual_stream
            between = self.product_bytes if is_narrow else self.weight_bytes
            return self.length * model.num_layers * model.width * between
        attention, mapping = self._attention_per_token(), self._mapping_per_token()
        whole = model.num_layers * attention + (model.num_layers - 1) * mapping
        return self.length * whole + self.predictions * mapping

    def _attention_per_token(self) -> int:
        """Return what a block keeps up to the mixed values."""
        model, size = self.model, self.product_bytes
        kept = self._norm_per_token() + 4 * size * model.width  # q, k, v and mixed values
        if self.execution.attention in ("eager", "fused"):
            tensors = size + (size + self._mask_bytes(size)) * (model.attention_dropout > 0)
            return kept + tensors * model.num_heads * self.length
        if self.execution.attention == "folded":
            # Twice as wide, beside the tensor that v is a part of, and a corrected output in fp32.
            kept += (8 * size + FP32_BYTES) * model.width
        elif self._transforms_query_key():
            kept += 2 * size * model.width  # q and k beside the tensor that v is a part of
        return kept + FP32_BYTES * model.num_heads  # the logsumexp

    def _mapping_per_token(self) -> int:
        """Return what a block keeps after the mixed values."""
        model = self.model
        kept = self._norm_per_token() + 2 * self.product_bytes * model.feedforward_width
        if model.dropout:
            kept += 2 * self._mask_bytes(self.product_bytes) * model.width
        return kept

    def _norm_per_token(self) -> int:
        return (self.weight_bytes + self.product_bytes) * self.model.width

    def kept_in_front(self) -> int:
        """Return the bytes of a row that the embeddings and their projection keep."""
        mask = self._mask_bytes(self.weight_bytes) * (self.model.dropout > 0)
        embedded = self.embedding_width * (self.weight_bytes + mask)
        projects = self.model.width != self.embedding_width
        projected = self.product_bytes * (self.embedding_width + self.model.width)
        return self.length * (embedded + projects * projected)

    def kept_by_head(self, rows: int) -> int:
        """Return what the head keeps of its inputs."""
        positions, width = rows * self.predictions, self.embedding_width
        if not self.network.predicts_words:
            return positions * (3 * self.product_bytes * width + 2 * FP32_BYTES)
        hidden = (2 * self.weight_bytes + 4 * self.product_bytes) * width
        return positions * (hidden + self.product_bytes * self.model.vocabulary_size)

    def moment_of_head(self, rows: int) -> int:
        """Return its largest temporary."""
        width, vocabulary = self.embedding_width, self.model.vocabulary_size
        if not self.network.predicts_words:
            return rows * self.length * self.product_bytes * width
        logits = rows * self.predictions * vocabulary
        slices = SLICE_TENSORS * min(SLICE_BYTES[self.device], FP32_BYTES * logits)
        return max(slices, self.product_bytes * vocabulary * width)

    def moment_of_block(self, rows: int) -> int:
        """Return what the backward pass of a block adds: gradients of scores, or of the bias."""
        model, attention, mapping = self.model, 0, 0
        if self.execution.recomputes_blocks:
            attention, mapping = self._attention_per_token(), self._mapping_per_token()
        has_bias = POSITION_ENCODINGS[model.positions].has_attention_bias
        tensors = {"eager": 2, "fused": 1, "sdpa": int(has_bias)}.get(self.execution.attention, 0)
        scores = tensors * model.num_heads * self.length * self.product_bytes
        return rows * self.length * (attention + max(mapping, scores))

    def _transforms_query_key(self) -> bool:
        kind = POSITION_ENCODINGS[self.model.positions]
        hooks = (kind.query_key_terms, kind.rotation)
        return hooks != (PositionEncoding.query_key_terms, PositionEncoding.rotation)

    def _mask_bytes(self, size: int) -> int:
        """Return the bytes of an element of a dropout mask: a CPU keeps it in its input's type."""
        return 1 if self.device == "cuda" else size
