"""The share of minimal pairs, such as BLiMP's, that trained encoders solve.

    python paper/minimal_pairs.py runs/relative/*-seed? --pairs blimp/data --first 50 > pairs.csv

The score of a sentence is its pseudo-log-likelihood (Salazar et al., ACL 2020, Eq. 1): the sum over
its tokens of the log-probability of the token where it alone is masked. A pair is solved where the
good sentence has the higher score; ties are not solved. The pairs are files of JSON Lines with
`sentence_good` and `sentence_bad` (Warstadt et al., TACL 2020), one file a paradigm.

Prints in percent the mean over paradigms, then each paradigm, of every run: a table for
`python paper/build.py collect RUNS --scores pairs.csv`.
"""

import argparse
import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tupelo

FRAME = 2  # [CLS] and [SEP]
NAME = "BLiMP"


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("runs", nargs="+", type=Path, help="what tupelo.load takes")
    options.add_argument("--pairs", type=Path, required=True, help="a folder of NAME.jsonl")
    options.add_argument("--first", type=int, help="so many pairs of each file; default: all")
    arguments = options.parse_args()
    files = sorted(arguments.pairs.glob("*.jsonl"))
    if not files:
        raise SystemExit(f"{arguments.pairs} holds no .jsonl file of minimal pairs")
    paradigms = {file.stem: read_pairs(file, arguments.first) for file in files}
    table = csv.writer(sys.stdout)
    table.writerow(("run", "column", "score"))
    for run in arguments.runs:
        shares = solved(run, paradigms)
        table.writerow((run.resolve().name, NAME, statistics.fmean(shares.values())))
        table.writerows((run.resolve().name, f"{NAME} {name}", one) for name, one in shares.items())


def read_pairs(file: Path, most: int | None) -> list[tuple[str, str]]:
    """Return the good and the bad sentence of each of the first `most` lines.

    Raises:
        KeyError: a line has no such sentences.
    """
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:most]]
    return [(row["sentence_good"], row["sentence_bad"]) for row in rows]


def solved(run: Path, paradigms: dict[str, list[tuple[str, str]]]) -> dict[str, float]:
    """Return the share of the pairs of each paradigm that a run solves, in percent.

    Raises:
        SystemExit: a sentence has no token: its score would be 0, the highest that there is.
    """
    encoder = tupelo.load(run)
    mask = int(encoder.encode("[MASK]").ids[0, 1])
    found = {}
    for name, pairs in paradigms.items():
        batch = encoder.encode([sentence for pair in pairs for sentence in pair])
        if batch.lengths.min() <= FRAME:
            raise SystemExit(f"{name} has a sentence without a token; remove it")
        rows = [ids[:length] for ids, length in zip(batch.ids, batch.lengths, strict=True)]
        scores = [pseudo_log_likelihood(encoder.model, ids, mask) for ids in rows]
        is_solved = [good > bad for good, bad in zip(scores[::2], scores[1::2], strict=True)]
        found[name] = 100 * statistics.fmean(is_solved)
    return found


@torch.no_grad()
def pseudo_log_likelihood(model: Any, ids_S: Tensor, mask: int) -> float:
    """Return the sum of the log-probabilities of the tokens of a sentence, each masked alone.

    Args:
        model: a masked language model of `tupelo.load`.
        ids_S: [CLS] first and [SEP] last, which are not predicted.
        mask: the id of [MASK].
    """
    columns_M = torch.arange(1, len(ids_S) - 1)
    rows_M = torch.arange(len(columns_M))
    masked_MS = ids_S.repeat(len(columns_M), 1)
    masked_MS[rows_M, columns_M] = mask
    logits_MV = model.eval().logits(masked_MS, rows_M * len(ids_S) + columns_M).float()
    return float(logits_MV.log_softmax(-1)[rows_M, ids_S[1:-1]].sum())


if __name__ == "__main__":
    main()
