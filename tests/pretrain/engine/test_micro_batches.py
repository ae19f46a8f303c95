import gc
import json
import math
import subprocess
import sys
import weakref

import pytest
import torch

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks
from pretrain.engine import memory_trial, micro_batches
from pretrain.engine.footprint import optimizer_state_bytes
from pretrain.engine.memory_trial import GpuMemory
from pretrain.engine.micro_batches import SHARE, choose_micro_batches, predicted_micro_batches
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.model.execution_plan import PLAIN
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from tests.faults.comparison import differences
from tests.pretrain.conftest import ROOT, lines, two_ranks
from tests.selection import mostly_slow

LIMIT = 100 * 2**20
WORDS = ("--batch.global_sequences", "24", "--batch.micro_sequences", "auto")


class FakeGpu(GpuMemory):
    """A CPU with the memory of a GPU: a pass takes a MiB for each row, or runs out of memory."""

    def __init__(self, most_rows, free=LIMIT, bytes_per_row=2**20):
        super().__init__()
        self.most_rows, self.free, self.bytes_per_row = most_rows, free, bytes_per_row
        self.tried, self.released = [], 0

    def free_bytes(self):
        return self.free

    def least_free_bytes(self, num_gpus):
        return self.free

    def begin(self):
        pass

    def peak_bytes(self):
        return self.bytes_per_row * self.tried[-1]

    def release(self):
        self.released += 1

    def watch(self, model):
        def enter(module, inputs):
            self.tried.append(len(inputs[0]))
            if len(inputs[0]) > self.most_rows:
                raise torch.OutOfMemoryError("CUDA out of memory")

        model.register_forward_pre_hook(enter)


def case(*words, name="zero0_fp32", world_size=1):
    settings = load_settings("tiny_cpu", [*WORDS, "--model.dropout", "0.1", *words])
    config = fill_ds_config(read_ds_config(name, "cpu"), settings, world_size=world_size)
    return settings, with_fitted_buckets(config, settings)


def chosen(monkeypatch, gpu, *words, name="zero0_fp32"):
    """Return the choice, after checking that nothing of the trial remains."""
    settings, config = case(*words, name=name)
    torch.manual_seed(settings.seed)
    model = MaskedLanguageModel(settings.model)
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    places = [parameter.data_ptr() for parameter in model.parameters()]
    state = torch.get_rng_state()
    gpu.watch(model)
    monkeypatch.setitem(memory_trial.TRIED, "cpu", gpu)
    try:
        return choose_micro_batches(model, settings, config, Ranks(0, 1, "cpu"))
    finally:
        assert torch.equal(torch.get_rng_state(), state)
        assert [parameter.data_ptr() for parameter in model.parameters()] == places
        assert all(parameter.grad is None for parameter in model.parameters())
        for key, weight in model.state_dict().items():
            torch.testing.assert_close(weight, before[key], rtol=0, atol=0)
        assert gpu.released == len(gpu.tried)


@pytest.mark.parametrize("name", ["zero0_fp32", "zero1_fp16", "zero2_bf16", "zero0_bf16_autocast"])
@pytest.mark.parametrize("drop", [(), ("--layer_drop.schedule", "progressive")])
def test_a_rank_that_runs_out_of_memory_tries_the_next_divisor(monkeypatch, name, drop):
    gpu = FakeGpu(most_rows=7)
    found = chosen(monkeypatch, gpu, *drop, name=name)
    assert gpu.tried == [24, 12, 8, 6]
    assert (found.sequences, found.per_step) == (6, 4)
    assert "the most that fit" in found.reason and "measured, of 100.0 MiB free" in found.reason


def test_a_pass_that_failed_holds_nothing_when_its_memory_is_released(monkeypatch):
    """As a frame in a cycle with its error would, until Python collects it at some time."""
    settings, _ = case()
    model, held = MaskedLanguageModel(settings.model), []

    def fail(module, inputs):
        error = torch.OutOfMemoryError("CUDA out of memory")
        error.frame, tensor = {"error": error}, torch.zeros(4)
        error.frame["tensor"] = tensor
        held.append(weakref.ref(tensor))
        raise error

    model.register_forward_pre_hook(fail)
    gpu = FakeGpu(most_rows=0)
    monkeypatch.setattr(gpu, "release", lambda: held.append(held[0]()))
    types = memory_trial.Precision(torch.float32, None)
    batch = memory_trial.full_batch(settings, 1, 2)
    gc.disable()
    try:
        assert memory_trial.measured_pass(model, batch, None, types, "cpu", gpu) == math.inf
    finally:
        gc.enable()
    assert held[1] is None


def test_what_a_dry_run_has_cached_itself_is_free(monkeypatch):
    """The products by which it measures the rate of a GPU that has no datasheet: a GiB."""
    cached = [2**30]
    monkeypatch.setattr(torch.cuda, "empty_cache", cached.clear)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda gpu: (2**33 - sum(cached) - gpu, 2**33))
    assert GpuMemory().least_free_bytes(8) == 2**33 - 1


def test_the_optimizer_that_comes_later_needs_its_share_too(monkeypatch):
    state = optimizer_state_bytes(*case(), 1)
    gpu = FakeGpu(most_rows=24, bytes_per_row=(SHARE * LIMIT - state / 2) / 12)
    assert chosen(monkeypatch, gpu).sequences == 8
    assert gpu.tried == [24, 12, 8]


def test_a_prediction_spares_the_trials_that_would_fail(monkeypatch):
    settings, config = case()
    ranks = Ranks(0, 1, "cpu")
    memory = micro_batches._Candidates(settings, config, ranks, PLAIN, LIMIT)
    gpu = FakeGpu(most_rows=24, free=int(memory.predicted(8) / SHARE) + 1, bytes_per_row=1)
    assert chosen(monkeypatch, gpu).sequences == 8
    assert gpu.tried == [8]
    monkeypatch.setitem(memory_trial.TRIED, "cpu", gpu)
    assert predicted_micro_batches(settings, config, ranks, PLAIN).sequences == 8


def test_a_gpu_gets_no_more_tokens_than_it_can_use(monkeypatch):
    settings, config = case("--batch.global_sequences", "32768")
    memory = micro_batches._Candidates(settings, config, Ranks(0, 1, "cuda"), PLAIN, 2**40)
    found = memory.chosen(memory.to_try()[0], "")
    assert (found.sequences, found.per_step) == (2048, 16)  # 65,536 tokens of rows of 32
    assert found.reason.startswith("more than 65,536 tokens a pass gain nothing")


def test_a_row_that_does_not_fit_is_refused_with_what_to_do(monkeypatch):
    with pytest.raises(ConfigError, match="a pass of 1 sequence.*does not fit.*recompute_blocks"):
        chosen(monkeypatch, FakeGpu(most_rows=0))


def test_draws_per_micro_batch_are_said_to_depend_on_the_machine(monkeypatch):
    words = ("--layer_drop.schedule", "progressive")
    found = chosen(monkeypatch, FakeGpu(most_rows=12), *words)
    assert "layer drop draws for each of the 2" in found.reason
    per_step = (*words, "--layer_drop.draw_per", "step", "--layer_drop.draws", "4")
    gpu = FakeGpu(most_rows=24)
    found = chosen(monkeypatch, gpu, *per_step)
    assert gpu.tried == [6]  # of the 24 rows, those that share a draw
    assert "layer drop" not in found.reason


def test_a_cpu_takes_its_share_without_a_trial_where_it_fits(monkeypatch):
    settings, config = case()
    model = MaskedLanguageModel(settings.model)
    ranks = Ranks(0, 1, "cpu")
    FakeGpu(most_rows=0).watch(model)  # a pass would fail
    assert choose_micro_batches(model, settings, config, ranks).sequences == 24
    needed = micro_batches._Candidates(settings, config, ranks, PLAIN, 0).predicted(3)
    monkeypatch.setattr(micro_batches, "free_memory_bytes", lambda root: math.ceil(needed / SHARE))
    found = choose_micro_batches(model, settings, config, ranks)
    assert (found.sequences, found.per_step) == (3, 8)


def test_a_number_that_is_given_is_taken(monkeypatch):
    settings, config = case("--batch.micro_sequences", "3")
    model = MaskedLanguageModel(settings.model)
    FakeGpu(most_rows=0).watch(model)
    monkeypatch.setitem(memory_trial.TRIED, "cpu", FakeGpu(most_rows=0))
    found = choose_micro_batches(model, settings, config, Ranks(0, 1, "cpu"))
    assert (found.sequences, found.per_step, found.reason) == (3, 8, "as set")


def test_a_resume_keeps_the_number_of_before_and_says_so(monkeypatch):
    settings, config = case()
    model, ranks = MaskedLanguageModel(settings.model), Ranks(0, 1, "cpu")
    gpu = FakeGpu(most_rows=24)
    gpu.watch(model)
    monkeypatch.setitem(memory_trial.TRIED, "cpu", gpu)
    found = choose_micro_batches(model, settings, config, ranks, before=6)
    assert (found.sequences, found.per_step, found.reason) == (6, 4, "as before the resume")
    assert gpu.tried == []
    assert predicted_micro_batches(settings, config, ranks, PLAIN, before=6) == found
    other_ranks = predicted_micro_batches(settings, config, ranks, PLAIN, before=7)
    assert other_ranks.sequences == 24


def trained(command, folder, number, rows, *words, launcher):
    """Train on ranks with so little memory, and return the run folder."""
    words = [
        *command.words("--run-folder", folder, "--batch.global_sequences", 24, "--steps", 6),
        *("--batch.micro_sequences", number, "--model.dropout", 0.1, *words),
        *("--log_every_steps", 1, "--layer_drop.schedule", "constant"),
    ]
    process = command.start(map(str, words), launcher, ROWS_OF_RANKS=rows)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    return folder


PROGRAM = "tests.pretrain.engine.limited_gpu"


@pytest.mark.parametrize("name", mostly_slow(["zero2_fp32", "zero3_bf16"], "one more stage"))
def test_ranks_take_what_fits_on_all_and_train_as_with_that_number(command, tmp_path, name):
    """Bit for bit: dropout, layer drop, order and weights; one rank is short of memory."""
    words = ("--engine.ds_config", name)
    both = two_ranks("torchrun", PROGRAM)
    found = trained(command, tmp_path / "auto", "auto", "6 3", *words, launcher=both)
    given = trained(command, tmp_path / "given", "3", "12 12", *words, launcher=both)
    assert differences(found, given) == []
    launch = lines(found, "launches.jsonl")[0]["micro_batches"]
    assert (launch["sequences"], launch["per_step"]) == (3, 4)
    assert launch["reason"].startswith("the most that fit")
    filled = [json.loads((run / "ds_config.json").read_text()) for run in (found, given)]
    assert filled[0] == filled[1]
    assert json.loads((found / "run.json").read_text())["batch"]["micro_sequences"] == "auto"


@pytest.mark.slow("test_resume.py has the choice itself")
def test_a_resume_takes_the_number_of_before_and_elastic_a_new_one(command, tmp_path):
    alone = (sys.executable, "-m", PROGRAM)
    run = trained(command, tmp_path / "run", "auto", "12", launcher=alone)
    longer = ("--lengthen", "stretch", "--steps")
    for words, rows, expected in (
        (("--resume", *longer, "8"), "24", 12),
        (("--elastic", *longer, "10"), "24", 24),
        (("--elastic",), "6", 6),
    ):
        if words == ("--elastic",):
            (run / "result.json").unlink()  # as if it had been killed before
        process = command.start(["train", str(run), *words], alone, ROWS_OF_RANKS=rows)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]
        chosen = lines(run, "launches.jsonl")[-1]["micro_batches"]
        assert chosen["sequences"] == expected
        assert (chosen["reason"] == "as before the resume") == ("--resume" in words)
        assert (
            json.loads((run / "ds_config.json").read_text())["train_micro_batch_size_per_gpu"]
            == expected
        )


COMPILED_PROGRAM = """
import json
from torch._dynamo.utils import counters
from pretrain.distributed.ranks import start_ranks
from pretrain.engine import launch, memory_trial
from pretrain.train.benchmark import RandomBatches
from tests.pretrain.engine.test_micro_batches import FakeGpu, case
class LargeGpu(FakeGpu):
    def peak_bytes(self):
        return 2**20
memory_trial.TRIED["cpu"] = LargeGpu(most_rows=24)
settings, config = case(
    "--engine.compile_blocks", "on", "--layer_drop.schedule", "constant", name="zero1_bf16"
)
engine = launch.build_engine(settings, config, start_ranks())
graphs = [counters["stats"]["unique_graphs"]]
engine.train_step([(RandomBatches(settings, 24)[0], [1.1, 1.0])], 1e-3)
print(json.dumps([*graphs, counters["stats"]["unique_graphs"]]))
"""


@pytest.mark.slow("compiles two blocks and the loss")
def test_what_the_trial_compiles_is_what_the_run_executes():
    """So that a trial costs one pass. The weights have changed place and type in between."""
    finished = subprocess.run(
        [sys.executable, "-c", COMPILED_PROGRAM], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    after_trial, after_step = json.loads(finished.stdout.splitlines()[-1])
    assert after_trial == after_step == 3  # a block, the last one, the loss
