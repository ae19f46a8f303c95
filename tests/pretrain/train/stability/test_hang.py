"""A step that hangs."""


def test_a_hang_that_keeps_the_lock_of_the_interpreter_prints_the_stacks(command, tmp_path):
    words = command.words("--run-folder", tmp_path / "run")
    module = "tests.pretrain.train.stability.run_with_fault"
    status, _, errors = command.run(words, module=module, FAULT="hang:0:7")
    assert status == 0  # it continued
    _, _, stacks = errors.partition("Timeout (0:00:03)!")
    assert "in faulty_step" in stacks and "in _take_steps" in stacks
