"""Small models with large random weights, batches for them, and the loss in plain PyTorch."""

import torch
import torch.nn.functional as F

from data_prep.masking import IGNORED
from pretrain.config.recipe import load_settings
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

LENGTH, WORDS, PREDICTED = 12, 40, 3


def small_model(*words, layers=3, spread=0.3):
    """Return a masked language model in evaluation mode whose blocks change their inputs much."""
    shape = ("--model.num_layers", str(layers), "--model.vocabulary_size", str(WORDS))
    settings = load_settings("tiny_cpu", [*shape, *words])
    torch.manual_seed(0)
    model = MaskedLanguageModel(settings.model).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += spread * torch.randn_like(parameter)
    return model.eval()


def batches(*numbers_of_rows, filled=0):
    """Return batches of random rows; nothing is predicted in the last `filled` rows."""
    torch.manual_seed(1)
    made = []
    for rows in numbers_of_rows:
        ids = torch.randint(0, WORDS, (rows, LENGTH))
        columns = torch.rand(rows, LENGTH).argsort(1)[:, :PREDICTED]
        positions = (columns + torch.arange(rows)[:, None] * LENGTH).flatten()
        made.append(MaskedBatch(ids, positions, torch.randint(0, WORDS, (rows * PREDICTED,))))
    if filled:
        made[-1].labels_M.view(-1, PREDICTED)[-filled:] = IGNORED
    return made


def states_and_loss(model, made):
    """Return x_0 .. x_L of all rows at once, and the mean loss, by a plain forward pass."""
    encoder = model.encoder
    ids = torch.cat([batch.ids_BS for batch in made])
    x = encoder.embedding_norm(encoder.positions.add_to_embeddings(encoder.token_embeddings(ids)))
    terms = encoder.positions.terms(ids.shape[1], device="cpu")
    states = [x]
    for block in encoder.blocks:
        states.append(block(states[-1], terms))
    last = states[-1] if encoder.final_norm is None else encoder.final_norm(states[-1])
    labels = torch.full(ids.shape, IGNORED)
    first = 0
    for batch in made:
        rows = len(batch.ids_BS)
        labels[first : first + rows].view(-1)[batch.positions_M] = batch.labels_M
        first += rows
    logits = model.head(last.flatten(0, 1), encoder.token_embeddings.weight)
    return states, F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)
