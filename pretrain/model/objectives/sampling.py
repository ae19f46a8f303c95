"""Words drawn from a masked language model, for the input of a discriminator.

A word is the place where the cumulated probabilities pass a number that is uniform in [0, 1), which
is a draw of the softmax at temperature 1, as Gumbel noise on the logits is, with one random number
for a prediction instead of one for each word. This number is a hash of the masked row and the
column: the masks of a row are others in each epoch and with each seed, so the draws are too, and no
generator is needed. So they depend neither on ranks, batches and dropout nor on where a run was
resumed. Shape letters: B rows, S tokens of a row, M predicted positions, D width, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pretrain.model.heads import MaskedLanguageModelHead
from pretrain.model.kernels.cross_entropy import SLICE_BYTES

# Constants of splitmix64 (Steele, Lea and Flood 2014), as signed 64-bit numbers.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


@torch.no_grad()
def sampled_words(
    head: MaskedLanguageModelHead, hidden_MD: Tensor, token_embeddings_VD: Tensor, uniform_M: Tensor
) -> Tensor:
    """Return ids_M drawn from the softmax of the logits; no gradient flows through them.

    The bias is added in fp32, as in the loss: beside a bias of log-frequencies, bf16 would round
    the probability of a rare word by 3 %. `uniform_M` are numbers in [0, 1), and `hidden_MD` is
    what `transform` of the head returned.
    """
    bias_V = head.output_bias.float()
    slice_bytes = SLICE_BYTES.get(hidden_MD.device.type, SLICE_BYTES["cuda"])
    rows = max(1, slice_bytes // (4 * len(token_embeddings_VD)))
    return torch.cat(
        [
            _passed(F.linear(hidden_RD, token_embeddings_VD).float() + bias_V, uniform_R)
            for hidden_RD, uniform_R in zip(
                torch.split(hidden_MD, rows), torch.split(uniform_M, rows), strict=True
            )
        ]
    )


def _passed(logits_RV: Tensor, uniform_R: Tensor) -> Tensor:
    """Return the first word whose cumulated probability is above the number, of each row."""
    cumulated_RV = (logits_RV - logits_RV.amax(1, keepdim=True)).exp_().cumsum_(1)
    target_R1 = uniform_R.unsqueeze(1) * cumulated_RV[:, -1:]
    words_R1 = torch.searchsorted(cumulated_RV, target_R1, right=True)
    return words_R1.squeeze(1).clamp(max=logits_RV.shape[1] - 1)  # a product may be rounded up


def uniform_of_rows(ids_BS: Tensor, positions_M: Tensor) -> Tensor:
    """Return a number in [0, 1) for each position, a hash of its row's tokens and its column.

    A flat position is `row * S + column`.
    """
    length = ids_BS.shape[1]
    columns_S = torch.arange(length, device=ids_BS.device)
    rows_B = _mixed(ids_BS + (columns_S + 1) * _GOLDEN).sum(1)
    mixed_M = _mixed(rows_B[positions_M // length] + (positions_M % length) * _GOLDEN)
    return ((mixed_M & (2**24 - 1)).double() / 2**24).float()


def _mixed(state: Tensor) -> Tensor:
    """Return the output function of splitmix64, in the wrapping arithmetic of int64."""
    state = (state ^ _shifted(state, 30)) * _FIRST
    state = (state ^ _shifted(state, 27)) * _SECOND
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, bits: int) -> Tensor:
    """Return the unsigned shift to the right."""
    shifted: Tensor = (state >> bits) & (2 ** (64 - bits) - 1)
    return shifted
