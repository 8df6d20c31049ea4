"""A run as a folder for an engine: its check passes as it is written, and is red where anything is changed."""

import importlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import get_scheduler

import workbench as wb
from tests.configs import short_run
from workbench.credit import credit_groups
from workbench.engines.exchange import rows_of
from workbench.engines.export import export_run
from workbench.errors import ConfigError
from workbench.rewards import score_group
from workbench.schema import Group, Rollout
from workbench.steps import token_texts

TASK = wb.load_task("chain-arithmetic")
TARGETS = ("verl", "tinker")
ALONE = """
import os, sys
sys.modules |= dict.fromkeys(("verl", "tinker"))
sys.path.insert(0, sys.argv[1])
import workbench.credit.assign, workbench.rewards.protocol, workbench.steps.split
assert os.path.samefile(workbench.__file__, sys.argv[1] + "/workbench/__init__.py")
for folder in sys.argv[1:]:
    if not (child := os.fork()):  # which has the first folder's copies already
        os.chdir(folder)
        sys.path.insert(0, folder)
        BODY
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""
CHECK = "import check; print(check.main())"


def answers_to(example):
    """Right; wrong in the end, after words that are in no step; a tag alone, which has no score; cut off; empty."""
    lines = []
    value = example.columns["start"]
    for number, (sign, operand) in enumerate(example.columns["operations"], start=1):
        result = {"+": value + int(operand), "-": value - int(operand), "*": value * int(operand)}[sign]
        lines.append(f"Step {number}: {value} {sign} {operand} = {result}")
        value = result
    right = "\n".join([*lines, f"Answer: {value}"])
    return [right, f"Well.\n{right}1", f"{lines[0]}\nStep 2:\nAnswer: 0", "\n".join(lines[:2]), ""]


def credits_of(config, tokenizer, answered):
    """Groups of (prompt, columns, the answers' ids) as a run of this configuration stores them."""
    sampling = {"mask_truncated_completions": config.grpo.mask_truncated_completions}
    groups = []
    for prompt, columns, answers in answered:
        rollouts = [
            Rollout(tuple(ids), tuple(token_texts(tokenizer, ids)), finished=ids[-1] == tokenizer.eos_token_id)
            for ids in answers
        ]
        group = Group(prompt, tuple(rollouts), columns=columns, sampling=sampling)
        groups.append(score_group(group, config.grpo.pattern, config.grpo.rewards))
    return credit_groups(groups, **config.grpo.credit.keywords())


def run_in(folders, body=CHECK):
    """What ``body`` prints in each folder, in a process that imports nothing else of this package, and no engine."""
    command = [sys.executable, "-c", ALONE.replace("BODY", body), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


def export(config, tokenizer, folder, target):
    """Export with two groups, in which all but the fourth answer have an end token."""
    answered = []
    for example in (TASK[0], TASK[1]):
        ids = [tokenizer(text)["input_ids"] for text in answers_to(example)]
        ends = [[*row, *[tokenizer.eos_token_id] * (number != 3)] for number, row in enumerate(ids)]
        answered.append((example.prompt, example.columns, ends))
    return export_run(config, credits_of(config, tokenizer, answered), folder, target)


def exported(folder, tiny, target, **method):
    config = short_run(method={"sampling": {"num_generations": 5}} | method)
    export(config, tiny.tokenizer, folder, target)
    return folder


GATED = {"credit": {"scheme": "step", "outcome_weight": 0.5, "gate": "outcome"}, "loss_type": "grpo"}
MASKED = {"credit": {"gamma": 0.9, "clip": 1}, "mask_truncated_completions": True, "loss_type": "dr_grpo"}


@pytest.fixture(scope="module")
def as_written(tmp_path_factory, tiny):
    """A folder for each engine."""
    return {target: exported(tmp_path_factory.mktemp("written") / target, tiny, target) for target in TARGETS}


def test_the_check_of_what_is_exported_passes(tmp_path, tiny, as_written):
    others = [
        exported(tmp_path / target / method["loss_type"], tiny, target, **method)
        for target in TARGETS
        for method in (GATED, MASKED)
    ]
    said = run_in([*as_written.values(), *others])
    assert said.count("10 completions") == 6
    assert said.count("\n0\n") == 6, said


def test_schemes_are_carried_bit_for_bit(tmp_path, tiny):
    """Rewards of 0 and 1 are float32 already, so that sending them as such rounds nothing."""
    code = (
        "import core, check; table, mask = check.encoded(); "
        "print(check.credit_apart(core.advantages(table, [row['group'] for row in check.ROWS])))"
    )
    schemes = ("outcome", "rescaled", "min")
    folders = [exported(tmp_path / scheme, tiny, "tinker", credit={"scheme": scheme}) for scheme in schemes]
    assert run_in(folders, code) == "0.0\n" * 3


def in_text(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def in_parity(change):
    def changed(folder):
        parity = json.loads((folder / "parity.json").read_text())
        change(parity["rows"][0])
        (folder / "parity.json").write_text(json.dumps(parity))

    return changed


CHANGES = {
    "the pattern": in_text("settings.json", "|Answer", "|Result"),
    "an option": in_text("settings.json", '"gamma": 1.0', '"gamma": 0.9'),
    "a weight": in_text("settings.json", '"weight": 1.0', '"weight": 0.5'),
    "a reward": in_text("rewards/reward_1.py", "return 1", "return 0.9"),
    "one number": in_parity(lambda row: row["advantages"].__setitem__(2, row["advantages"][2] + 1e-5)),
    "a mask": in_parity(lambda row: row.update(mask=[0, *[1] * (len(row["ids"]) - 1)])),
    "a divisor": in_parity(lambda row: row.update(divisor=row["divisor"] * 1.001)),
    "shifted advantages": in_parity(lambda row: row.update(advantages=[0.0, *row["advantages"][:-1]])),
    "0 for no score": in_parity(lambda row: row["steps"][0].update(reward=None)),
    "a step's end": in_parity(lambda row: row["steps"][0].update(end=row["steps"][0]["end"] - 1)),
    "verl: the divisor": in_text("verl.yaml", "loss_agg_mode: token-mean", "loss_agg_mode: seq-mean-token-sum"),
    "verl: a normaliser after it": in_text("verl.yaml", "batch_normalize: false", "batch_normalize: true"),
    "verl: a KL in the reward": in_text("verl.yaml", "use_kl_in_reward: false", "use_kl_in_reward: true"),
    "tinker: the divisor": in_text("settings.json", '"loss_type": "dapo"', '"loss_type": "grpo"'),
    "tinker: the shift": in_text("train.py", "len(prompt_ids) - 1", "len(prompt_ids)"),
}


def test_the_check_is_red_where_anything_is_changed(tmp_path, as_written):
    changed = {
        (target, what): tmp_path / f"{target} {what}"
        for target in TARGETS
        for what in CHANGES
        if what.partition(": ")[0] not in {*TARGETS} - {target}
    }
    for (target, what), folder in changed.items():
        shutil.copytree(as_written[target], folder, ignore=shutil.ignore_patterns("workbench", "policy", "*.parquet"))
        CHANGES[what](folder)
    said = run_in([as_written["verl"], *changed.values()])
    unchanged, *status = (line for line in said.splitlines() if line in "01")
    assert unchanged == "0"
    assert dict(zip(changed, status, strict=True)) == dict.fromkeys(changed, "1")


def test_a_zero_a_missing_score_and_no_step_stay_apart(as_written):
    """A row by hand: tokens 0 to 2 are in no step, a step of reward 0, one without a score, and the outcome."""
    code = (
        "import core; scored = core.Scored([(3, 4), (5, 5)], [0.0, None], 0.0, None); "
        "row = core.encode(7, scored); marked = [t for t, x in enumerate(row) if x]; "
        "print(core.decode(row) == (7, scored), marked, sum(row) < 1e-25); "
        "filled = core.advantages([row, [0.0] * 8, row], ['a', 'pad', 'a']); print(filled.shape, filled.any())"
    )
    assert run_in([as_written["verl"]], code) == "True [2, 4, 5, 7] True\n(3, 8) False\n"


@pytest.fixture
def script(tmp_path, tiny, monkeypatch):
    """What exports a run and imports its ``train.py``, to which the client of ``tests/protocol`` is ``tinker``."""

    def imported(config):
        export(config, tiny.tokenizer, tmp_path / "out", "tinker")
        monkeypatch.syspath_prepend(str(tmp_path / "out"))
        return importlib.import_module("train")

    for name in ("train", "core", "rewards", "rewards.reward_1", "rewards.reward_2"):
        monkeypatch.setitem(sys.modules, name, None)  # so that it is taken out again afterwards
        del sys.modules[name]
    monkeypatch.setitem(sys.modules, "tinker", importlib.import_module("tests.protocol.tinker"))
    return imported


@pytest.mark.parametrize("every", [1, 2])
def test_the_tinker_script_trains_on_a_server_and_sends_what_the_run_would(tmp_path, tiny, script, capsys, every):
    """Two steps on ``tests/protocol``, which holds a second implementation of the protocol's losses."""
    method = {"num_iterations": every, "sampling": {"max_completion_length": 48}, "credit": {"scheme": "outcome"}}
    config = short_run(method=method)
    script(config).main(f"file://{tmp_path}")
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["step 1", "step 2", "tinker"]
    assert (tmp_path / "final").exists()
    training = sys.modules["tinker"].ServiceClient.last.training
    assert training.adam.param_groups[0]["lr"] == config.optimiser.learning_rate / 2
    rows = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    asked, data = rows[:2] if every == 2 else rows[2:4], training.sent[-1]
    prompts = [tiny.tokenizer(row["prompt"])["input_ids"] for row in asked for _ in range(4)]
    targets = [one.loss_fn_inputs["target_tokens"].data for one in data]
    answers = [row[len(prompt) - 1 :] for row, prompt in zip(targets, prompts, strict=True)]
    answered = [(row["prompt"], row["columns"], answers[4 * i : 4 * i + 4]) for i, row in enumerate(asked)]
    credits = credits_of(config, tiny.tokenizer, answered)
    assert any(credit.advantages.any() for credit in credits)
    for prompt, one, row in zip(prompts, data, rows_of(0, credits, "dapo", 48), strict=True):
        expected = [*[0.0] * (len(prompt) - 1), *np.multiply(row.advantages, row.divisor)]
        assert one.loss_fn_inputs["advantages"].data == pytest.approx(expected, rel=1e-6)


def test_the_tinker_script_s_learning_rate_is_transformers_own(script):
    train = script(short_run())
    train.TRAINING |= {"steps": 7, "warmup_steps": 2, "learning_rate": 1.0}
    for name, kind in (("linear", "linear"), ("cosine", "cosine"), ("constant", "constant_with_warmup")):
        train.TRAINING["lr_scheduler_type"] = name
        optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        [rate] = get_scheduler(kind, optimiser, num_warmup_steps=2, num_training_steps=7).lr_lambdas
        assert [train.rate(step) for step in range(7)] == pytest.approx([rate(step) for step in range(7)])


@pytest.mark.parametrize(
    ("target", "carried", "left"),
    [
        ("tinker", ["method.sampling.max_completion_length"], ["method.beta", "method.sampling.top_k"]),
        ("verl", ["method.beta", "method.sampling.top_k", "method.credit.scheme"], ["method.sampling.stop"]),
    ],
)
def test_settings_are_carried_or_said_not_to_be(tmp_path, tiny, target, carried, left):
    config = short_run(
        policy={"lora": {"r": 4, "dropout": 0.1}},
        optimiser={"lr_scheduler_type": "polynomial"},
        method={"beta": 0.1, "sampling": {"num_generations": 5, "top_k": 7, "stop": ["\n\n"]}},
    )
    said = {line.partition(":")[0] for line in export(config, tiny.tokenizer, tmp_path / "out", target)}
    assert {"policy.lora.dropout", "optimiser.lr_scheduler_type", *left} <= said
    assert not {"policy.lora.r", "optimiser.learning_rate", "run.steps", *carried} & said


def test_rows_and_settings_are_verl_s(tmp_path, tiny):
    method = {"num_iterations": 2, "beta": 0.1, "sampling": {"num_generations": 5, "top_k": 7}}
    config = short_run(policy={"lora": {"r": 4}}, run={"eval_steps": 2, "eval_prompts": 3}, method=method)
    export(config, tiny.tokenizer, tmp_path / "out", "verl")
    text = (tmp_path / "out" / "verl.yaml").read_text()
    lines = ("lora_rank: 4", "top_k: 7", "use_kl_loss: true", "total_training_steps: 1", "ppo_epochs: 2")
    assert [line for line in lines if line not in text] == []
    rows, tests = (pq.read_table(tmp_path / "out" / f"{name}.parquet").to_pylist() for name in ("train", "test"))
    assert (len(rows), len(tests), tests[0]["extra_info"]["split"]) == (1000, 3, "test")
    columns = json.loads(rows[0]["extra_info"]["columns"])
    assert rows[0]["reward_model"]["ground_truth"] == columns["answer"]
    assert rows[0]["prompt"][0]["content"].startswith(f"Start with {columns['start']}")


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"credit": {"drop_duplicates": True}}, "drop_duplicates"),
        ({"credit": {"normalise": "batch"}}, "normalise: batch"),
        ({"pattern": {"regex": "32", "kind": "tokens"}}, "method.pattern.kind"),
        ({"loss_type": "sapo"}, "method.loss_type"),
        ({"rewards": [{"name": "b", "kind": "step", "belief": {}}]}, "'b' is no function"),
    ],
)
def test_a_run_whose_credit_would_be_another_there_is_refused(tmp_path, method, said):
    with pytest.raises(ConfigError, match=said):
        export_run(short_run(method=method), [], tmp_path / "out", "tinker")
    assert not (tmp_path / "out").exists()
