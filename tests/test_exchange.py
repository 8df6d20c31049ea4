"""The row that engines are checked against: written of a credit, computed anew, and red where one number is another."""

import json
from pathlib import Path

import pytest

from tests.credits import worked_credit
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
    written = rows(scheme, **options)
    write_rows(tmp_path / "rows.jsonl", iter(written))
    read = read_rows(tmp_path / "rows.jsonl")
    assert read == written
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
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, plain)))
    assert main(["check-parity", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest"] == 0.0
    CHANGES[change](plain[0])
    file.write_text("\n".join(map(json.dumps, plain)))
    assert main(["check-parity", str(file), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["apart"] >= 1
    assert said["where"][0]["batch"] == 3


def test_check_parity_scores_another_file_by_the_settings(tmp_path, capsys):
    """A log without steps: its texts are split and scored here, and its advantages compared with that credit."""
    texts = ["Step 1: 2 + 2 = 4\nAnswer: 4", "Step 1: 2 + 2 = 5\nAnswer: 5"]
    row = {"prompt": "2 + 2 = ?", "answer": "4", "step": 1, "answer_correctness": 1.0}
    advantages = [0.70701, -0.70701]  # ±0.5 / (0.70711 + 1e-4)
    file = tmp_path / "completions.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({**row, "completion": text, "advantage": advantage})
            for text, advantage in zip(texts, advantages, strict=True)
        )
    )
    flags = [
        "--method.credit.scheme",
        "outcome",
        "--method.rewards",
        '[{"name":"answer_correctness","kind":"outcome"}]',
    ]
    assert main(["check-parity", str(file), *flags, "--tolerance", "1e-4"]) == 0
    assert "equal" in capsys.readouterr().out
    assert main(["check-parity", str(file), *flags]) == 1


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
        file = tmp_path / "traces.jsonl"
        file.write_text("\n".join(map(json.dumps, lines)))
        return main(["check-parity", str(file), "--tokenizer", "tiny", "--json"])

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
    file = tmp_path / "rows.jsonl"
    row = rows()[0].model_dump()
    file.write_text(json.dumps(row) + "\n" + json.dumps({**row, "divisor": "a lot"}))
    with pytest.raises(TaskError, match="line 2: divisor"):
        read_rows(file)


def test_the_schema_is_that_of_the_row():
    assert json.loads(SCHEMA.read_text()) == StepCredit.model_json_schema()
