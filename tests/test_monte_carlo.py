"""Monte-Carlo step values: exact where continuations are known, and the shared batch against one row at a time."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache

from workbench.cli import main
from workbench.config import SamplingConfig
from workbench.credit import credit_group
from workbench.data import load_task
from workbench.policies import monte_carlo
from workbench.policies.load import Policy
from workbench.policies.monte_carlo import Prefix, monte_carlo_reward, sample_from_steps, step_values
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import sample_group, sample_rows
from workbench.policies.step_values import StepValues, estimate, label_rows
from workbench.rewards import RewardConfig, score_group
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern

LETTERS = "?abRWx;."  # ids 0 to 7; "." ends a completion
PATTERN = StepPattern(regex=";", kind="ends")


class LetterTokenizer:
    """One letter a token."""

    pad_token_id, eos_token_id, chat_template = 0, LETTERS.index("."), None

    def __call__(self, text):
        return {"input_ids": [LETTERS.index(letter) for letter in text]}

    def decode(self, ids):
        return "".join(LETTERS[i] for i in ids)


class LetterModel:
    """After ";" it says R with the chance that the letter before it has, else W, and then ends."""

    RIGHT = {"a": 1.0, "b": 0.0, "x": 0.5}  # noqa: RUF012

    def __init__(self):
        self.device, self.training = torch.device("cpu"), False
        self.config = PretrainedConfig()
        self.generation_config = SimpleNamespace(eos_token_id=LetterTokenizer.eos_token_id)
        self.prefilled = []

    def eval(self):
        return self

    def train(self, mode):
        return self

    def forward(self):
        raise AssertionError("only its signature is looked at")

    def __call__(self, tokens, attention_mask, past_key_values, use_cache, logits_to_keep):
        cache = past_key_values or DynamicCache()
        if past_key_values is None:
            self.prefilled += [
                [i for i, on in zip(r, m, strict=True) if on]
                for r, m in zip(tokens.tolist(), attention_mask.tolist(), strict=True)
            ]
        states = tokens[:, None, :, None].float()  # the cache holds the ids themselves
        keys, _ = cache.update(states, states, 0)
        logits = torch.full((len(tokens), 1, len(LETTERS)), -torch.inf)
        for row, ids in enumerate(keys[:, 0, :, 0].long().tolist()):
            text = "".join(LETTERS[i] for i in ids)
            if text[-1] == ";":
                chance = self.RIGHT[text[-2]]
                for letter, p in (("R", chance), ("W", 1 - chance)):
                    logits[row, 0, LETTERS.index(letter)] = math.log(p) if p else -torch.inf
            else:
                logits[row, 0, LETTERS.index(".")] = 0.0
        return SimpleNamespace(logits=logits, past_key_values=cache)


def letters(*completions: str) -> Group:
    rollouts = tuple(
        Rollout(tuple(LETTERS.index(c) for c in text), tuple(text), finished=text.endswith(".")) for text in completions
    )
    return Group("?", rollouts, {"answer": "R"}, sampling={"max_completion_length": 12})


def right(prompts, completions, answer, **columns):
    return [float(text.endswith(one)) for text, one in zip(completions, answer, strict=True)]


@pytest.fixture
def letter_policy():
    return Policy("letters", LetterModel(), LetterTokenizer())


def test_values_on_a_policy_whose_continuations_are_known(letter_policy):
    # After "a;" always R, after "b;" never; the last step's value is its completion's own outcome.
    values = step_values(letter_policy, letters("a;b;R.", "b;a;W.", "a;a;a;"), PATTERN, right, k=3)
    assert values.values == ((1.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0))
    assert values.counts == ((3, 3, 1), (3, 3, 1), (3, 3, 1))
    assert values.successes == ((3, 0, 1), (0, 3, 0), (3, 3, 0))
    agreed = pytest.approx(0.147902, abs=1e-6)  # of Beta(3.5, 0.5): sqrt(3.5 * 0.5 / 16 / 5)
    assert values.errors == ((agreed, agreed, 0.0), (agreed, agreed, 0.0), (agreed, agreed, 0.0))
    assert values.start == pytest.approx(1 / 3)
    assert values.progress()[0] == pytest.approx([2 / 3, -1.0, 1.0])
    assert (
        values.labels("hard")
        == values.labels("soft")
        == [[True, False, True], [False, True, False], [True, True, False]]
    )


def test_a_prefix_is_the_prompt_and_the_sampled_ids_and_is_computed_once(letter_policy):
    for _ in range(2):  # the first time shows what kind of state the model keeps
        letter_policy.model.prefilled.clear()
        step_values(letter_policy, letters("a;b;R.", "a;W.", "a;b;W."), PATTERN, right, k=4)
    assert sorted(letter_policy.tokenizer.decode(ids) for ids in letter_policy.model.prefilled) == ["?a;", "?a;b;"]


def test_estimates_of_a_coin_and_their_standard_errors(letter_policy):
    values = step_values(letter_policy, letters("x;R."), PATTERN, right, k=400, seed=1)
    (value, own), (error, _) = values.values[0], values.errors[0]
    assert own == 1.0
    assert abs(value - 0.5) < 4 * error
    assert error == pytest.approx(math.sqrt(value * (1 - value) / 399), rel=0.01)  # a coin's, with many tosses
    again = step_values(letter_policy, letters("x;R."), PATTERN, right, k=400, seed=1)
    assert (again.values, again.errors) == (values.values, values.errors)
    assert step_values(letter_policy, letters("x;R."), PATTERN, right, k=400, seed=2).values != values.values


@pytest.mark.parametrize(
    ("outcomes", "value", "error"),
    [
        # Beta(2.5, 2.5): 2.5 * 2.5 / 25 / 6 = 0.041667, whose root is 0.2041; Beta(4.5, 0.5): 2.25 / 25 / 6 = 0.015.
        ([1.0, 0.0, 1.0, 0.0], 0.5, 0.204124),
        ([1.0, 1.0, 1.0, 1.0], 1.0, 0.122474),
        ([0.0, 0.0, 0.0, 0.0], 0.0, 0.122474),
        # mean 1; squared deviations sum to 4; 4 / 3 / 4 = 0.3333, whose root is 0.5774
        ([2.0, 0.0, 2.0, 0.0], 1.0, 0.577350),
        ([2.0, 2.0], 2.0, None),
        ([0.7], 0.7, None),
        ([], None, None),
    ],
)
def test_estimate_by_hand(outcomes, value, error):
    assert estimate(outcomes) == (value, error if error is None else pytest.approx(error, abs=1e-6))


def test_soft_labels_count_successes_whatever_a_success_is_worth(letter_policy):
    def worth_two(prompts, completions, **columns):
        return [2.0 if text.endswith("R") else 0.0 for text in completions]

    values = step_values(letter_policy, letters("b;a;R."), PATTERN, worth_two, k=8)
    shares = [wins / count for wins, count in zip(values.successes[0], values.counts[0], strict=True)]
    assert values.labels() == [[share > 0.5 for share in shares]]
    assert values.values == (tuple(2 * share for share in shares),)


def test_unscored_outcomes_are_left_out(letter_policy):
    def unknown(prompts, completions, **columns):
        return [None if text.endswith("W") else 1.0 for text in completions]

    values = step_values(letter_policy, letters("b;a;R."), PATTERN, unknown, k=2)
    assert values.values == ((None, 1.0, 1.0),)
    assert values.counts == ((0, 2, 1),)
    assert values.labels() == [[None, True, True]]
    assert label_rows(letters("b;a;R."), values) == []


def test_continuations_have_what_is_left_of_the_length(letter_policy):
    # "a;" leaves 1 of 3 tokens: an R that is not ended; "a;b;" is past the length and has only its own outcome
    sampling = SamplingConfig(max_completion_length=3)
    group = letters("a;b;R.")
    found = sample_from_steps(letter_policy, ["?"], [group.rollouts[0].token_ids], [[1, 3, 5]], sampling, k=2, seed=0)
    assert {place: [row.token_ids for row in rows] for place, rows in found.items()} == {(0, 0): [[3], [3]]}
    assert not any(row.finished for row in found[0, 0])


# --- with the embedded policy -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain_group(tiny):
    return sample_group(tiny, load_task("chain-arithmetic")[1], num_generations=3, max_completion_length=112, seed=4)


CHAIN = load_task("chain-arithmetic").pattern


def test_the_shared_batch_is_what_single_rows_sample(tiny, chain_group, monkeypatch):
    sampling = SamplingConfig(max_completion_length=112)
    ends = score_group(chain_group, CHAIN, []).step_ends
    ids = [rollout.token_ids for rollout in chain_group.rollouts]

    def continuations():
        found = sample_from_steps(tiny, [chain_group.prompt] * 3, ids, ends, sampling, k=2, seed=5)
        return {place: [row.token_ids for row in rows] for place, rows in found.items()}

    batched = continuations()
    for (i, k), rows in batched.items():
        prefix = (*encode_prompt(tiny.tokenizer, chain_group.prompt), *ids[i][: ends[i][k] + 1])
        left = 112 - ends[i][k] - 1
        for j, row in enumerate(rows):
            alone = sample_rows(
                tiny.model,
                [prefix],
                sampling,
                eos_token_ids=tiny.eos_token_ids,
                pad_token_id=tiny.tokenizer.pad_token_id,
                seed=Prefix(prefix, left).generator(5).initial_seed(),
                first_row=j,
                total_rows=2,
                limits=[left],
            )
            assert alone[0].token_ids == row
    monkeypatch.setattr(monte_carlo, "ROWS", 3)
    assert continuations() == batched


def test_values_as_rewards_and_as_labels(tiny, chain_group):
    events = []
    values = step_values(tiny, chain_group, CHAIN, k=2, seed=0, on_progress=events.append)
    assert events[-1]["done"] == events[-1]["total"]
    assert events[-1]["tokens"] == values.tokens
    credit = credit_group(values.as_scores(chain_group))
    assert [tuple(row) for row in credit.scored.step_rewards] == list(values.values)
    assert values.as_scores(chain_group, "progress").step_rewards == values.progress()
    mixed = score_group(chain_group, values.pattern, [values.as_reward(weight=2.0), "answer_correctness"])
    assert mixed.outcomes == [row[-1] for row in values.values]
    assert StepValues.from_json(json.loads(json.dumps(values.to_json()))) == values

    labels = values.labels("hard")
    steps = [[text.strip() for text in texts] for texts in values.step_texts(chain_group)]
    first_wrong = [row.index(False) if False in row else -1 for row in labels]
    rows = label_rows(chain_group, values, "trl")
    assert [(row["completions"], row["labels"]) for row in rows] == list(zip(steps, labels, strict=True))
    assert [row["label"] for row in label_rows(chain_group, values, "processbench")] == first_wrong


def test_invariant_values_do_not_depend_on_ranks(tiny, chain_group):
    """A group on one rank, and spread over two and three: the same step rewards, also of what a step adds."""
    sampling = SamplingConfig(max_completion_length=112)
    for progress in (False, True):
        spec = RewardConfig(name="mc", monte_carlo={"continuations": 2, "progress": progress})
        reward = monte_carlo_reward(spec, tiny, sampling)
        whole = score_group(chain_group, CHAIN, [reward]).step_rewards
        assert score_group(chain_group, CHAIN, [monte_carlo_reward(spec, tiny, sampling, seed=1)]).step_rewards != whole
        if not progress:  # the last step has its completion's own outcome
            own = score_group(chain_group, CHAIN, ["answer_correctness"]).outcomes
            assert [row[-1] for row in whole] == own
        for shares in ((slice(0, 1), slice(1, 3)), (slice(0, 1), slice(1, 2), slice(2, 3))):
            parts = [replace(chain_group, rollouts=chain_group.rollouts[share]) for share in shares]
            assert [row for part in parts for row in score_group(part, CHAIN, [reward]).step_rewards] == whole


def test_the_command_labels_several_prompts_to_train_a_reward_model_on(tmp_path, capsys):
    """Soft labels are shares of two continuations, hard ones whether there is any success; both are rows of prm."""
    hard, soft = tmp_path / "hard.jsonl", tmp_path / "soft.jsonl"
    arguments = [
        "--prompts",
        "2",
        "--first",
        "1",
        "--continuations",
        "2",
        "--method.sampling.num_generations",
        "2",
        "--json",
    ]
    for file, estimation in ((hard, "hard"), (soft, "soft")):
        assert main(["step-values", *arguments, "--labels", str(file), "--estimation", estimation]) == 0
        result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["counts"]["groups"], result["counts"]["completions"]) == (4, 2, 4)
    provenance = json.loads((tmp_path / "soft.jsonl.provenance.json").read_text())
    assert provenance["completions_sampled"] == 4 + result["counts"]["continuations"] > 4
    assert provenance["peak_memory_mb"] > 0 < provenance["seconds"]
    assert provenance["labels"] == {"labels_as": "trl", "estimation": "soft", "continuations": 2}
    assert (provenance["prompts"], provenance["rewards"][0]["name"]) == ({"first": 1, "count": 2}, "answer_correctness")
    shares, verdicts = (
        [
            row.labels
            for held_out in (False, True)
            for row in load_task(str(file)).rows("labelled_steps", held_out=held_out)
        ]
        for file in (soft, hard)
    )
    assert {share for row in shares for share in row} <= {0.0, 0.5, 1.0}
    assert verdicts == [tuple(float(share > 0) for share in row) for row in shares]
    assert load_task(str(soft))[0].prompt == load_task("chain-arithmetic")[1].prompt
    assert main(["step-values", "--prompts", "2"]) == 2
    assert "give --labels FILE" in capsys.readouterr().err
