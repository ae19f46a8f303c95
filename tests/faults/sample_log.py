"""The samples that a run has consumed: a log that a wrapped trainer writes.

A line is written when an optimizer step has been taken, with a digest of each row as the model
gets it (ids after masking, places and labels of the predictions). A row with the masks of another
epoch is another sample. The log is only ever appended to, by one file for each launch and
rank; what of it counts is decided afterwards: a launch counts up to the step at which the next
launch resumed.
"""

import hashlib
import json
import os

import numpy


def digests(batch):
    """Return a digest of each row of a MaskedBatch, wherever it lies in the batch."""
    rows, length = batch.ids_BS.shape
    starts = numpy.arange(rows)[:, None] * length
    positions = batch.positions_M.numpy().reshape(rows, -1) - starts
    labels = batch.labels_M.numpy().reshape(rows, -1)
    parts = zip(batch.ids_BS.numpy(), positions, labels, strict=True)
    return [
        hashlib.blake2b(
            b"|".join(part.astype(numpy.int64).tobytes() for part in row), digest_size=8
        ).hexdigest()
        for row in parts
    ]


def log_samples(file, before_step):
    """Make this process log what its trainer consumes, and call `before_step` in it."""
    from pretrain.engine.engine import Engine
    from pretrain.train.trainer import Trainer

    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    train, train_step = Trainer.train, Engine.train_step
    progress = []

    def write(record):
        os.write(log, (json.dumps(record) + "\n").encode())

    def logged_train(self):
        progress[:] = [self.progress]
        write({"first_step": self.progress.step})
        train(self)

    def logged_step(self, micro_batches, *arguments, **options):
        step, taken = progress[0].step, []
        before_step(step)

        def watched():
            for item in micro_batches:
                taken.append(digests(item[0]))
                yield item

        result = train_step(self, watched(), *arguments, **options)
        write({"step": step, "micro_batches": taken})
        return result

    Trainer.train, Engine.train_step = logged_train, logged_step


def read_launch(files):
    """Return the first step of a launch, None before it, and the samples of each finished step.

    `files` are the logs of its ranks in their order, which take turns, a micro-batch each.
    """
    ranks = [_read(file) for file in files]
    common = set.intersection(*(set(steps) for _, steps in ranks)) if ranks else ()
    samples = {}
    for step in sorted(common):
        turns = zip(*(steps[step] for _, steps in ranks), strict=True)
        samples[step] = [sample for turn in turns for part in turn for sample in part]
    return ranks[0][0] if ranks else None, samples


def behind_the_weights(launches):
    """Return the samples of the steps that count: of each launch those before the next resumed."""
    counted = {}
    for first_step, samples in launches:
        if first_step is not None:
            kept = {step: found for step, found in counted.items() if step < first_step}
            counted = kept | samples
    return counted


def _read(file):
    first_step, steps = None, {}
    for line in file.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the kill cut it short
        record = json.loads(line)
        if "first_step" in record:
            first_step = record["first_step"]
        else:
            steps[record["step"]] = record["micro_batches"]
    return first_step, steps
