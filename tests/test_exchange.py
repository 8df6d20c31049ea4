"""The row that engines are checked against: written of a credit, computed anew, and red where one number is another."""

import json
from pathlib import Path

import pytest

from tests.credits import worked_credit
from tests.in_this_process import written
from workbench.cli import main
from workbench.credit import credit_groups
from workbench.data import load_groups
from workbench.engines.exchange import StepCredit, compare, read_rows, recompute, rows_of, write_rows
from workbench.errors import TaskError
from workbench.rewards import score_group
from workbench.training.methods import RunConfig
from workbench.ui.handlers.example import first_group

SCHEMA = Path(__file__).parents[1] / "docs" / "step-credit.schema.json"


def rows(scheme="process", **options):
    scored = worked_credit().scored
    credits = credit_groups([scored, scored], scheme, **options)
    return list(rows_of(3, credits, "grpo", 128))


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("process", {}),
        ("process", {"normalise": "batch", "gamma": 0.9}),
        ("step", {"drop_duplicates": True}),
        ("process", {"each_reward": True, "clip": 0.5}),
        ("mean_suffix", {}),
    ],
)
def test_what_is_written_gives_the_same_advantages_bit_for_bit(tmp_path, scheme, options):
    sent = rows(scheme, **options)
    write_rows(tmp_path / "rows.jsonl", iter(sent))
    read = read_rows(tmp_path / "rows.jsonl")
    assert read == sent
    assert [one.size for one in compare(read, recompute(read))] == [0.0] * len(read)


def test_a_row_by_hand():
    first = rows()[0]
    assert [(step.start, step.end, step.reward) for step in first.steps] == [(0, 3, 1.0), (4, 7, 1.0), (8, 9, 0.0)]
    lengths = [len(row.ids) for row in rows()]
    assert [row.divisor for row in rows()] == pytest.approx([1 / (len(lengths) * length) for length in lengths])


CHANGES = {
    "an advantage": lambda row: row["advantages"].__setitem__(0, row["advantages"][0] + 1e-5),
    "a step's end": lambda row: row["steps"][0].update(end=row["steps"][0]["end"] - 1),
    "a step's reward": lambda row: row["steps"][0].update(reward=0.5),
    "unscored, and not 0": lambda row: row["steps"][2].update(reward=None),
    "the mask": lambda row: row.update(mask=[0, *[1] * (len(row["ids"]) - 1)]),
    "the shift": lambda row: row.update(advantages=[0.0, *row["advantages"][:-1]]),
    "an option": lambda row: row["options"].update(gamma=0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_check_parity_is_red_where_anything_is_otherwise(tmp_path, capsys, change):
    plain = [row.model_dump() for row in rows()]
    assert main(["check-parity", written(tmp_path, *plain), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest"] == 0.0
    CHANGES[change](plain[0])
    assert main(["check-parity", written(tmp_path, *plain), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["where"][0]["batch"] == 3


def test_check_parity_scores_another_file_by_the_settings(tmp_path):
    """A log without steps: its texts are split and scored here, and its advantages compared with that credit."""
    row = {"prompt": "2 + 2 = ?", "answer": "4", "step": 1, "answer_correctness": 1.0}
    file = written(  # ±0.5 / (0.70711 + 1e-4)
        tmp_path,
        row | {"completion": "Step 1: 2 + 2 = 4\nAnswer: 4", "advantage": 0.70701},
        row | {"completion": "Step 1: 2 + 2 = 5\nAnswer: 5", "advantage": -0.70701},
    )
    flags = [
        "--method.credit.scheme",
        "outcome",
        "--method.rewards",
        '[{"name":"answer_correctness","kind":"outcome"}]',
    ]
    assert main(["check-parity", file, *flags, "--tolerance", "1e-4"]) == 0
    assert main(["check-parity", file, *flags]) == 1


def test_check_parity_reads_verifiers_traces_which_have_four_decimals(tmp_path, capsys, tiny):
    group, method = first_group(), RunConfig().method
    [credit] = credit_groups([score_group(group, method.pattern, method.rewards)], **method.credit.keywords())
    prompt = tiny.tokenizer(group.prompt)["input_ids"]
    task = {"type": "Task", "data": {"idx": 0, "prompt": group.prompt, **group.columns}}

    def write(off):
        lines = []
        for i, rollout in enumerate(group.rollouts):
            given = [round(float(a) + off * (i == 3), 4) for a in credit.of(i)]
            answer = {"message": {"role": "assistant", "content": rollout.text}, "sampled": True, "parent": 0}
            answer |= {"token_ids": list(rollout.token_ids), "mask": [True] * len(rollout), "advantages": given}
            asked = {"message": {"role": "user", "content": group.prompt}, "sampled": False, "parent": None}
            asked |= {"token_ids": prompt, "mask": [False] * len(prompt)}
            lines.append({"task": task, "group": {"id": "0"}, "traces": [{"task": task, "nodes": [asked, answer]}]})
        return main(["check-parity", written(tmp_path, *lines), "--tokenizer", "tiny", "--json"])

    assert write(0.0) == 0
    assert 1e-6 < json.loads(capsys.readouterr().out)["largest"] <= 5.1e-5
    assert write(1e-3) == 1
    assert [one["completion"] for one in json.loads(capsys.readouterr().out)["where"]] == [4]


def test_rows_are_read_as_rollouts(tmp_path):
    write_rows(tmp_path / "rows.jsonl", iter(rows()))
    groups = load_groups(tmp_path / "rows.jsonl")
    assert [len(group.rollouts) for group in groups] == [len(rows()) // 2] * 2
    assert groups[0].rollouts[0].columns["logged_advantage"] == pytest.approx(rows()[0].advantages)


def test_a_row_that_is_none_is_named(tmp_path):
    row = rows()[0].model_dump()
    with pytest.raises(TaskError, match="line 2: divisor"):
        read_rows(Path(written(tmp_path, row, row | {"divisor": "a lot"})))


def test_the_schema_is_that_of_the_row():
    assert json.loads(SCHEMA.read_text()) == StepCredit.model_json_schema()
