from pretrain.run_record import environment


def test_a_machine_without_git_can_train(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert environment()["commit"] == "unknown: git is not installed"
