"""What a launch records about its code and surroundings, against git itself."""

import pytest

from pretrain.train.recording.provenance import RECORDED_VARIABLES, code, environment, num_hosts
from tests.pretrain.train.recording.conftest import FILE, git


def test_a_machine_without_git_can_train(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert environment()["commit"] == "unknown: git is not installed"


def test_a_clean_checkout_has_its_commit(checkout):
    found = code(checkout)
    assert git(checkout, "rev-parse", "HEAD").startswith(found["commit"])
    assert found["uncommitted"] == ""


def test_changed_code_is_named_and_counted(checkout):
    (checkout / FILE).write_text("first = 2\nsecond = 2\n")
    found = code(checkout)
    assert found["commit"].endswith("-dirty")
    assert FILE in found["uncommitted"]
    assert found["uncommitted"].endswith(" 1 file changed, 2 insertions(+), 1 deletion(-)")


def test_no_variable_that_is_recorded_can_hold_a_secret():
    for name in RECORDED_VARIABLES:
        assert not {"TOKEN", "KEY", "SECRET", "PASSWORD"} & set(name.split("_")), name
    recorded = environment({"LD_PRELOAD": "/lib/x.so", "HF_TOKEN": "a1B2", "HOME": "/home/me"})
    assert recorded["variables"] == {"LD_PRELOAD": "/lib/x.so"}


def test_code_that_lies_in_the_checkout_of_something_else_has_no_commit(checkout):
    installed = checkout / "environment" / "site-packages"
    installed.mkdir(parents=True)
    assert code(installed)["commit"].startswith("unknown: error: pathspec")


@pytest.mark.parametrize(
    ("variables", "hosts"), [({}, 1), ({"LOCAL_WORLD_SIZE": "8"}, 2), ({"LOCAL_SIZE": "4"}, 4)]
)
def test_launchers_tell_how_many_machines_there_are(variables, hosts):
    assert num_hosts(16, variables) == hosts
