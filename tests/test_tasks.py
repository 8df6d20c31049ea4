"""The embedded task, its teacher, and tasks read from files."""

import json
import re
from pathlib import Path

import pytest

from workbench.data import chain_arithmetic, load_task
from workbench.errors import TaskError
from workbench.rewards.builtin.steps import calculator_notes


def test_a_chain_is_worked_as_its_prompt_says():
    chain = chain_arithmetic.Chain(7, (("add", 5), ("multiply by", 2), ("subtract", 4)))
    assert chain.prompt() == "Start with 7, add 5, multiply by 2, subtract 4.\n"
    assert chain.prompt("tags").endswith("subtract 4. Use tags.\n")
    assert chain.values == (12, 24, 20)
    answer = "Step 1: 7 + 5 = 12\nStep 2: 12 * 2 = 24\nStep 3: 24 - 4 = 20"
    assert chain_arithmetic.render(chain, chain.values) == f"{answer}\nAnswer: 20"
    tags = chain_arithmetic.render(chain, chain.values, "tags")
    assert tags == f"<reasoning>\n{answer}\n</reasoning>\n<answer>20</answer>"
    wrong = "Step 1: 7 + 5 = 13\nStep 2: 13 * 2 = 26\nStep 3: 26 - 4 = 22\nAnswer: 22"  # goes on from a wrong value
    assert chain_arithmetic.render(chain, [13, 26, 22]) == wrong


@pytest.mark.parametrize("held_out", [False, True])
def test_problems_stay_in_range_and_on_their_side_of_the_split(held_out):
    for index in range(200):
        rng_example = chain_arithmetic.example(index, held_out=held_out)
        assert rng_example == chain_arithmetic.example(index, held_out=held_out)
        operations = rng_example.columns["operations"]
        assert 4 <= len(operations) <= 8
        value = rng_example.columns["start"]
        for symbol, operand in operations:
            value = {"+": value + int(operand), "-": value - int(operand), "*": value * int(operand)}[symbol]
            assert 0 <= value <= 99
            assert 2 <= int(operand) <= 9
        assert rng_example.columns["answer"] == str(value)


def test_training_and_held_out_prompts_are_disjoint():
    train = {chain_arithmetic.example(i).prompt for i in range(1000)}
    held_out = {chain_arithmetic.example(i, held_out=True).prompt for i in range(1000)}
    assert not train & held_out


@pytest.mark.parametrize("name", ["chain-arithmetic", "chain-arithmetic-tags"])
def test_an_embedded_task_checks_its_own_answers(name):
    task = load_task(name)
    row = task[3]
    style = "<answer>{}</answer>" if name.endswith("tags") else "Answer: {}"
    assert task.answer_is_right(style.format(row.columns["answer"]), row.columns)
    assert not task.answer_is_right(style.format("100"), row.columns)
    assert re.compile(task.pattern.regex)
    assert len(task) == 100_000
    assert len(task.held_out) == 1_000
    assert task[-1] == task[len(task) - 1]
    with pytest.raises(IndexError, match="100000 of 100000"):
        task[100_000]


def test_gsm8k_comes_along_with_its_own_answers_right():
    task = load_task("gsm8k")
    assert (len(task), len(task.held_out)) == (1500, 300)
    assert set(task[0].columns) == {"question", "answer", "solution"}
    assert (task[0].columns["answer"], task[0].columns["solution"][-8:]) == ("72", "\n#### 72")
    assert task[0].prompt == task[0].columns["question"]
    assert task.answer_is_right("48 + 24 is\n#### 72.00", task[0].columns)
    assert not task.answer_is_right("#### 27", task[0].columns)
    for example in [*task.examples, *task.held_out]:
        assert task.answer_is_right(example.columns["solution"], example.columns)
        steps = example.columns["solution"].split("\n")
        assert all(calculator_notes("", step) in (1.0, None) for step in steps), steps


USER = [{"role": "user", "content": "2?"}]


@pytest.mark.parametrize(
    ("rows", "held_out", "can_check"),
    [
        ([{"prompt": "1 + 1 =", "answer": 2}, {"prompt": USER, "answer": 4}], [(USER, "4")], True),
        ([{"prompt": "1 + 1 =", "answer": 2}], [], True),  # the only row is not measured on
        ([{"prompt": "1 + 1 =", "answer": 2}, {"prompt": "2 + 2 =", "answer": None}], [("2 + 2 =", None)], False),
        ([{"prompt": "1 + 1 =", "answer": 2}, {"prompt": "2 + 2 ="}], [("2 + 2 =", None)], False),
    ],
)
def test_a_file_is_a_task_whose_last_rows_are_held_out(tmp_path, rows, held_out, can_check):
    file = tmp_path / "mine.jsonl"
    file.write_text("\n\n".join(map(json.dumps, rows)))
    task = load_task(str(file))
    assert [(row.prompt, row.columns) for row in task.examples] == [("1 + 1 =", {"answer": "2"})]
    assert [(row.prompt, row.columns.get("answer")) for row in task.held_out] == held_out
    assert task.can_check == can_check
    assert [reward.name for reward in task.rewards] == ["sums_hold", "answer_correctness"] * can_check
    assert (task.scheme, task.outcome_weight) == ("process", float(can_check))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Puts rows where data sets are taken from as from the Hub, which itself is out of reach."""
    import datasets
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def put(file, rows):
        path = tmp_path / "owner" / "sums" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return put


def test_a_data_set_of_the_hub_is_a_task(hub):
    hub("train.jsonl", [{"prompt": f"{n} + 1 =", "answer": n + 1, "level": n / 2} for n in range(30)])
    task = load_task("hub:owner/sums")
    assert (task.name, len(task), len(task.held_out)) == ("hub:owner/sums", 27, 3)  # the last tenth
    assert (task[2].prompt, task[2].columns) == ("2 + 1 =", {"answer": "3", "level": 1.0})
    assert [example.prompt for example in task.held_out] == ["27 + 1 =", "28 + 1 =", "29 + 1 ="]
    assert [reward.name for reward in task.rewards] == ["sums_hold", "answer_correctness"]


def test_answers_worked_as_gsm8ks_bring_its_rewards_and_the_split_of_the_hub_is_kept(hub):
    rows = [{"question": f"{n} + 1?", "answer": f"{n} + 1 = <<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"} for n in range(4)]
    hub("main/train.jsonl", rows)
    hub("main/test.jsonl", rows[:1])
    files = [{"split": split, "path": f"main/{split}.jsonl"} for split in ("train", "test")]
    card = json.dumps([{"config_name": "main", "data_files": files}])
    Path("owner/sums/README.md").write_text(f"---\nconfigs: {card}\n---\n")
    task, gsm8k = load_task("hub:owner/sums"), load_task("gsm8k")
    assert (task.pattern, task.rewards, task.checker) == (gsm8k.pattern, gsm8k.rewards, gsm8k.checker)
    assert (len(task), len(task.held_out), task[3].prompt) == (4, 1, "3 + 1?")
    assert task.answer_is_right("so\n#### 4", task[3].columns)
    assert load_task("hub:owner/sums/main")[3] == task[3]


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch):
    asked = []

    def repo_info(self, name, **how):
        asked.append(name)
        raise TimeoutError

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", repo_info)
    monkeypatch.setattr("datasets.get_dataset_config_names", lambda *_, **how: pytest.fail("which tries for 27 s"))
    with pytest.raises(TaskError, match="'owner/elsewhere'"):
        load_task("hub:owner/elsewhere")
    assert asked == ["owner/elsewhere"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no task or file called 'nothing'; tasks are chain-arithmetic"),
        ("hub:sums", "names no data set of the Hub; the form is hub:OWNER/NAME"),
        ("hub:../sums", "names no data set of the Hub"),
        ("hub:owner/none", "hub:owner/none: the data set cannot be loaded .*check its name and the network"),
        ("hub:owner/sums/socratic", "'socratic' not found. Available: .'default'."),
    ],
)
def test_a_data_set_that_is_not_there_is_said(hub, name, message):
    hub("train.jsonl", [{"prompt": "1 + 1 =", "answer": 2}])
    with pytest.raises(TaskError, match=message):
        load_task(name)


def test_rows_of_the_hub_are_mapped_filtered_and_drawn_by_split(hub):
    for split, first in (("train", 0), ("test", 30), ("validation", 60)):
        rows = [{"q": f"{n} + 1 =", "truth": {"value": n + 1}, "level": n % 3} for n in range(first, first + 30)]
        hub(f"{split}.jsonl", rows)
    how = {"columns": {"prompt": "q", "answer": "truth.value"}, "filter": "level == 2"}
    task = load_task("hub:owner/sums", **how, rows=4, held_out_split="validation")
    assert (len(task), len(task.held_out), task.skipped) == (4, 10, {"filter": 40})
    assert (task.held_out[0].prompt, task.held_out[0].columns["answer"]) == ("62 + 1 =", "63")
    assert all(int(example.prompt.split()[0]) % 3 == 2 for example in task.examples)
    with pytest.raises(TaskError, match=r"has no split 'tran'; did you mean 'train'\?; its splits are train, "):
        load_task("hub:owner/sums", split="tran")


def test_a_row_of_the_hub_without_a_prompt_is_named(hub):
    hub("train.jsonl", [{"text": "1 + 1 ="}])
    with pytest.raises(TaskError, match="hub:owner/sums training row 1: every row must be an object with a 'prompt'"):
        load_task("hub:owner/sums")[0]
