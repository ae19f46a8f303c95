"""Exports loaded by transformers, and rows for them."""

import torch


def loaded(auto_class, folder, **options):
    """Return the model of a folder in evaluation mode, with new weights drawn from seed 0."""
    torch.manual_seed(0)
    return auto_class.from_pretrained(folder, trust_remote_code=True, **options).eval()


def rows(number=3, length=20):
    """Return random ids and the attention mask of rows, the first of which is padded."""
    generator = torch.Generator().manual_seed(length)
    ids_BS = torch.randint(5, 60, (number, length), generator=generator)
    mask_BS = torch.ones_like(ids_BS)
    mask_BS[0, 2 * length // 3 :] = 0
    return ids_BS, mask_BS
