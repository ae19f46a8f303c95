"""The command as users start it, and its behaviour when a check itself fails."""

import contextlib
import os
import shutil
import sys
import time

import pytest

from pretrain.__main__ import main
from pretrain.commands.doctor import describe, run_checks, summary
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import as_json
from pretrain.doctor.check import Check, CheckResult, run_check
from pretrain.doctor.checks import CHECKS, RUN_CHECKS
from pretrain.doctor.hanging_starts import SET_BY_LAUNCHERS
from pretrain.doctor.packages import PACKAGE_CHECKS
from tests.pretrain.conftest import ROOT

AUTOMATIC_STAGE = ("--engine.ds_config", "auto")


def fails(context):
    raise KeyError("no such thing")


def test_a_check_that_fails_itself_is_a_problem_and_does_not_hide_the_others(capsys):
    result = run_check(Check("broken", fails), None)
    assert result.status == "problem" and "KeyError: 'no such thing'" in result.message
    assert "test_doctor.py" in result.fix
    fit = Check("fit", lambda _: CheckResult("ok", "well"))
    assert [one.status for one in run_checks((Check("broken", fails), fit), None)] == [
        "problem",
        "ok",
    ]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["ok", "fit", "well"]


def test_a_result_is_a_line_and_what_to_do_is_another():
    assert describe("disk", CheckResult("ok", "free")).split() == ["ok", "disk", "free"]
    first, second = describe("disk", CheckResult("problem", "full", "rm it")).splitlines()
    assert first.startswith("problem") and second.strip() == "-> rm it"
    assert "2 checks, 1 problem(s), 0 warning(s)" in summary(
        [CheckResult("ok", ""), CheckResult("problem", "", "x")]
    )


def test_every_check_has_a_title_of_its_own():
    titles = [check.title for check in (*PACKAGE_CHECKS, *CHECKS, *RUN_CHECKS)]
    assert len(set(titles)) == len(titles)


def test_this_machine_is_found_fit_for_a_run(command, shards, tmp_path):
    words = ("doctor", "tiny_cpu", "--data.shards", str(shards), "--run-folder", str(tmp_path))
    status, output, errors = command.run(words)
    assert status == 0, output + errors
    assert "This machine is fit for runs." in output and not errors
    for check in (*PACKAGE_CHECKS, *CHECKS, *RUN_CHECKS):
        assert f" {check.title} " in output
    assert list(tmp_path.iterdir()) == []


def test_a_stale_lock_and_an_impossible_recipe_end_it_with_status_1(tmp_path, monkeypatch, capsys):
    (tmp_path / "operation").mkdir()
    lock = tmp_path / "operation" / "lock"
    lock.touch()
    os.utime(lock, (time.time() - 90,) * 2)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    for name in SET_BY_LAUNCHERS:  # DeepSpeed leaves them in a process that has used it
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "tiny_cpu", "--ranks", "3", "--run-folder", str(tmp_path)])
    assert ended.value.code == 1
    output = capsys.readouterr().out
    assert "batch.global_sequences=8 does not divide by 3 ranks" in output
    assert "-> take 6 or 9" in output
    assert f"-> rm {lock} " in output and "1 min" in output
    assert "2 problem(s)" in output


def test_settings_for_several_ranks_are_checked_by_one_process(tmp_path, capsys):
    with contextlib.suppress(SystemExit):  # the machine of the test may have problems
        main(["doctor", "tiny_cpu", "--ranks", "2", "--run-folder", str(tmp_path)])
    output = capsys.readouterr().out
    assert "8 rows a step in 1 micro-batch(es) on 2 rank(s)" in output


def test_an_existing_run_is_described_as_its_resume_will_execute_it(tmp_path, capsys):
    (tmp_path / "run.json").write_text(as_json(load_settings("tiny_cpu", AUTOMATIC_STAGE)))
    (tmp_path / "ds_config.json").write_text('{"zero_optimization": {"stage": 1}}')
    with contextlib.suppress(SystemExit):
        main(["doctor", str(tmp_path), "--ranks", "2"])
    assert "ZeRO stage 1 (as before the resume)" in capsys.readouterr().out


def test_without_the_packages_it_says_which_are_missing_and_stops(command, tmp_path):
    """A checkout whose pyproject.toml asks for versions that do not exist."""
    for name in ("pretrain", "data_prep"):
        shutil.copytree(ROOT / name, tmp_path / name)
    text = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(text.replace('"torch>=2.6"', '"torch>=99"'))
    blocked = "import sys; sys.modules['torch'] = None; sys.argv[0] = 'pretrain'; "
    started = (
        f"sys.path.insert(0, {str(tmp_path)!r}); import pretrain.__main__ as m; m.main(['doctor'])"
    )
    status, output, errors = command.run(
        (), launcher=(sys.executable, "-I", "-c", blocked + started)
    )
    assert status == 1 and not errors
    assert "(not torch>=99)" in output
    assert output.splitlines()[-1] == "The other checks need these packages."


def test_no_ranks_are_refused():
    with pytest.raises(ConfigError, match="--ranks 0: give the number of processes"):
        main(["doctor", "--ranks", "0"])
