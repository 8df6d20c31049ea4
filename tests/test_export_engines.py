"""A run as a folder for an engine: its check passes as it is written, and is red where anything is changed."""

import json
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import workbench as wb
from tests.configs import short_run
from workbench.credit import credit_groups
from workbench.engines.export import export_run
from workbench.errors import ConfigError
from workbench.rewards import score_group
from workbench.schema import Group, Rollout
from workbench.steps import token_texts

TASK = wb.load_task("chain-arithmetic")
ALONE = """
import os, runpy, sys
import numpy, pydantic, regex
sys.modules["verl"] = None
for folder in sys.argv[1:]:
    if not (child := os.fork()):  # which has the libraries already
        os.chdir(folder)
        sys.path.insert(0, folder)
        import workbench
        assert os.path.samefile(workbench.__file__, "workbench/__init__.py")
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


def credits_of(config, tokenizer):
    """Two groups as a run of this configuration stores them; all but the fourth answer have an end token."""
    groups, credit = [], config.grpo.credit
    for example in (TASK[0], TASK[1]):
        rollouts = []
        for number, text in enumerate(answers_to(example)):
            ids = [*tokenizer(text)["input_ids"], *[tokenizer.eos_token_id] * (number != 3)]
            rollouts.append(Rollout(tuple(ids), tuple(token_texts(tokenizer, ids)), finished=number != 3))
        sampling = {"mask_truncated_completions": config.grpo.mask_truncated_completions}
        group = Group(example.prompt, tuple(rollouts), columns=example.columns, sampling=sampling)
        groups.append(score_group(group, config.grpo.pattern, config.grpo.rewards))
    return credit_groups(groups, **credit.keywords())


def run_in(folders, body=CHECK):
    """What ``body`` prints in each folder, in a process that imports nothing else of this package, and no engine."""
    command = [sys.executable, "-c", ALONE.replace("BODY", body), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


def exported(tmp_path, tiny, **method):
    config = short_run(method={"sampling": {"num_generations": 5}} | method)
    export_run(config, credits_of(config, tiny.tokenizer), tmp_path / "out")
    return tmp_path / "out"


GATED = {"credit": {"scheme": "step", "outcome_weight": 0.5, "gate": "outcome"}, "loss_type": "grpo"}
MASKED = {"credit": {"gamma": 0.9, "clip": 1}, "mask_truncated_completions": True, "loss_type": "dr_grpo"}


def test_the_check_of_what_is_exported_passes(tmp_path, tiny):
    methods = {"process": {}, "gated": GATED, "masked": MASKED}
    said = run_in([exported(tmp_path / name, tiny, **method) for name, method in methods.items()])
    assert said.count("10 completions") == 3
    assert said.count("\n0\n") == 3, said


def test_schemes_are_carried_bit_for_bit(tmp_path, tiny):
    """Rewards of 0 and 1 are float32 already, so that sending them as such rounds nothing."""
    code = (
        "import core, check; table, mask = check.encoded(); "
        "print(check.credit_apart(core.advantages(table, [row['group'] for row in check.ROWS])))"
    )
    schemes = ("outcome", "rescaled", "min")
    folders = [exported(tmp_path / scheme, tiny, credit={"scheme": scheme}) for scheme in schemes]
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
}


@pytest.fixture(scope="module")
def as_written(tmp_path_factory, tiny):
    return exported(tmp_path_factory.mktemp("verl"), tiny)


def test_the_check_is_red_where_anything_is_changed(tmp_path, as_written):
    for number, change in enumerate(CHANGES.values()):
        shutil.copytree(as_written, tmp_path / str(number))
        change(tmp_path / str(number))
    said = run_in(tmp_path / str(number) for number in range(len(CHANGES)))
    status = dict(zip(CHANGES, (line for line in said.splitlines() if line in "01"), strict=True))
    assert status == dict.fromkeys(CHANGES, "1")


def test_a_zero_a_missing_score_and_no_step_stay_apart(as_written):
    """A row by hand: tokens 0 to 2 are in no step, a step of reward 0, one without a score, and the outcome."""
    code = (
        "import core; scored = core.Scored([(3, 4), (5, 5)], [0.0, None], 0.0, None); "
        "row = core.encode(7, scored); marked = [t for t, x in enumerate(row) if x]; "
        "print(core.decode(row) == (7, scored), marked, sum(row) < 1e-25); "
        "filled = core.advantages([row, [0.0] * 8, row], ['a', 'pad', 'a']); print(filled.shape, filled.any())"
    )
    assert run_in([as_written], code) == "True [2, 4, 5, 7] True\n(3, 8) False\n"


def test_rows_are_verl_s_and_settings_are_carried_or_said_not_to_be(tmp_path, tiny):
    config = short_run(
        policy={"lora": {"r": 4, "dropout": 0.1}},
        run={"eval_steps": 2, "eval_prompts": 3},
        method={"num_iterations": 2, "beta": 0.1, "sampling": {"num_generations": 5, "top_k": 7, "stop": ["\n\n"]}},
    )
    left = export_run(config, credits_of(config, tiny.tokenizer), tmp_path / "out")
    said = {line.partition(":")[0] for line in left}
    assert {"policy.lora.dropout", "method.sampling.stop", "optimiser.lr_scheduler_type"} <= said
    assert not {"policy.lora.r", "method.beta", "method.credit.scheme", "run.steps"} & said
    text = (tmp_path / "out" / "verl.yaml").read_text()
    for line in ("lora_rank: 4", "top_k: 7", "use_kl_loss: true", "total_training_steps: 1", "ppo_epochs: 2"):
        assert line in text
    [row, *_] = (rows := pq.read_table(tmp_path / "out" / "train.parquet").to_pylist())
    [test, *others] = pq.read_table(tmp_path / "out" / "test.parquet").to_pylist()
    assert len(rows) == 1000
    assert len(others) == 2
    assert row["extra_info"]["plain"]
    columns = json.loads(row["extra_info"]["columns"])
    assert row["reward_model"]["ground_truth"] == columns["answer"]
    assert row["prompt"][0]["content"].startswith(f"Start with {columns['start']}")
    assert test["extra_info"]["split"] == "test"


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
        export_run(short_run(method=method), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()
