"""Every noun shows itself: as escaped HTML in a notebook, as text in a terminal, by the views registered for it."""

import re
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

import workbench as wb
from tests.credits import make_credit, make_rollout, worked_credit
from workbench import views
from workbench.checks import Difficulty, preflight, probe, split_step_demo
from workbench.checks.clinic import check_rewards
from workbench.checks.reward_check import check_reward
from workbench.credit import compare_credits
from workbench.policies.step_values import StepValues
from workbench.rundir import RunDir

EVIL = "<img src=x onerror=alert(1)>\u202e"


def evil_credit():
    return make_credit([make_rollout([EVIL, "b"]), make_rollout(["c", EVIL])], [[1], [1]], [[1.0], [0.0]])


def nouns():
    """One of each, holding what a hostile model might write."""
    group, pattern, rewards = split_step_demo()
    hostile = evil_credit()
    evil_group = wb.group_of(EVIL, [EVIL + "\n1", "b\n0"], correct=EVIL)
    labelled = wb.group_of("q", ["1", "0"])

    def number(prompts, completions, **columns):
        return [float(text) for text in completions]

    number.__name__ = EVIL
    rollouts = [
        type(r)(r.token_ids, r.texts, True, columns={"correct": t})
        for r, t in zip(labelled.rollouts, (True, False), strict=True)
    ]
    values = (((1.0,),), ((0.1,),), ((2,),), ((2,),), 0.5, 2, 0, 0.5, EVIL, wb.StepPattern(r"\n", "ends"))
    checked = check_reward([type(labelled)("q", tuple(rollouts))], number)
    return {
        "steps": wb.split_steps(f"Step 1: {EVIL}\nStep 2: b", wb.StepPattern(r"(?m)^Step \d+:")),
        "example": wb.Example(EVIL, {"answer": EVIL}),
        "rollout": make_rollout([EVIL]),
        "group": evil_group,
        "scored": hostile.scored,
        "credit": hostile,
        "explanation": hostile.explain(0, 0),
        "comparison": compare_credits(hostile, hostile),
        "probes": probe(group, pattern, rewards, schemes=["process"]),
        "preflight": preflight([group], pattern, rewards),
        "clinic": check_rewards([number]),
        "difficulty": Difficulty([1], [2]),
        "reward_check": checked,
        "step_values": StepValues(*values),
        "task": wb.load_task("chain-arithmetic"),
    }


NOUNS = nouns()


@pytest.fixture(scope="module")
def shell():
    made = InteractiveShell()
    views.register(made)
    yield made
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", NOUNS)
def test_a_registered_shell_shows_it_as_text_and_richly_without_a_models_markup(name, shell):
    data, _ = shell.display_formatter.format(NOUNS[name])
    assert data["text/plain"] == views.text(NOUNS[name])
    drawn, html = (
        re.sub(r"workbench-\w+-[0-9a-f]{8}", "", text) for text in (data["text/html"], views.html(NOUNS[name]))
    )
    assert drawn == html
    assert "<img" not in html
    assert "<style>" in html


def test_an_explanation_in_a_terminal_adds_up():
    # The first row's steps 1 1 0 in a pool of mean 4/9 and std sqrt(5/18): (5/9 + 5/9 - 4/9) / (0.5270463 + 0.0001).
    lines = views.text(worked_credit().explain(0, 0)).splitlines()
    assert lines[0] == "Rollout 1, token 0: advantage +1.264671"
    assert [line.split()[-1] for line in lines[2:]] == ["1.054", "1.054", "-0.843", "1.265"]


def test_importing_in_ipython_registers_the_views():
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as Shell\n"
        "shell = Shell.instance()\n"
        "import sys, workbench as wb\n"
        "assert 'numpy' not in sys.modules, 'registering loads nothing'\n"
        "steps = wb.split_steps('ab', wb.StepPattern('x'))\n"
        "print(sorted(shell.display_formatter.format(steps)[0]))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['text/html', 'text/plain']"


def test_a_credits_rows_and_json_are_the_same_numbers():
    # The first row's steps 1 1 0 in a pool of mean 4/9 and std sqrt(5/18), as in test_credit.
    credit = worked_credit()
    first = credit.rows(0)
    assert [row["reward"] for row in first] == [1.0, 1.0, 0.0]
    assert [round(row["normalised"], 3) for row in first] == [1.054, 1.054, -0.843]
    assert [row["advantage"] for row in first] == [float(credit.of(0)[row["last_token"]]) for row in first]
    whole = credit.to_json()["rollouts"][0]
    assert (whole["steps"], whole["advantages"]) == (first, credit.of(0).tolist())


def test_an_opened_run_has_its_view_its_curves_and_its_sentences(tmp_path):
    RunDir.create(tmp_path, wb.RunConfig(name="opened"))
    run = wb.open_run("opened", tmp_path)
    assert "opened" in views.html(run)
    assert (run.sentences(), wb.list_runs(tmp_path)) == ([], [run])
    with pytest.raises(ValueError, match="nothing to draw"):
        run.figure()
