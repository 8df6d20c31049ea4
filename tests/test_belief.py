"""Beliefs in the right answer: against one plain forward pass a prefix, and by hand what a step scores of them."""

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, Qwen2Config

from tests.configs import short_run
from tests.drafts import draft_of
from tests.forward import picked_logprobs
from tests.in_this_process import trained, worker_here
from workbench.config import SamplingConfig
from workbench.credit import credit_group
from workbench.data import load_task
from workbench.errors import ConfigError, RewardCodeError, RewardError
from workbench.policies.belief import FORMS, beliefs, heeds_masks, policy_reward, with_importances
from workbench.policies.load import Policy
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import sample_group
from workbench.rewards import RewardConfig, load_reward, score_group
from workbench.rewards.answers import answer_introduction
from workbench.rundir import RunDir
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern, token_texts
from workbench.ui.handlers.page_state import builtin_row
from workbench.ui.handlers.reward_forms import row_from
from workbench.ui.handlers.scoring import rescore
from workbench.ui.handlers.sharing import inspect_code

CHAIN = StepPattern()


@pytest.fixture(scope="module")
def groups(tiny):
    """Two prompts' groups, cut short in places."""
    task = load_task("chain-arithmetic")
    return [
        sample_group(tiny, task[i], num_generations=3, max_completion_length=length, seed=i)
        for i, length in ((0, 112), (3, 40))
    ]


def small_policy(tiny, architecture, attention="sdpa"):
    """A model with random weights that reads the shipped policy's tokens."""
    torch.manual_seed(0)
    size = {"vocab_size": tiny.model.config.vocab_size, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    config = {
        "gpt2": lambda: GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=512, **size),
        "qwen2": lambda: Qwen2Config(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            **size,
        ),
        "gpt_neox": lambda: GPTNeoXConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, **size
        ),
    }[architecture]()
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    for weight in model.parameters():  # far from uniform predictions
        weight.data.mul_(6 if weight.ndim > 1 else 1)
    return Policy(architecture, model.eval(), tiny.tokenizer)


def plain_beliefs(policy, group, introduction, texts_after):
    """The log-probabilities of ``texts_after(step)`` behind each step, one forward pass a prefix, without a cache."""
    prompt, ends = encode_prompt(policy.tokenizer, group.prompt), set(policy.eos_token_ids)
    scored, found = score_group(group, CHAIN, []), []
    for rollout, cuts in zip(group.rollouts, scored.step_ends, strict=True):
        row, answered = [], rollout.text.rfind("Answer:")
        for step, cut in enumerate([-1, *cuts]):
            if step and 0 <= answered <= scored.scored[len(found)].steps[step - 1].start:
                row.append(None)
                continue
            prefix = [*rollout.token_ids[: cut + 1]]
            while prefix and prefix[-1] in ends:
                prefix.pop()
            said = "".join(token_texts(policy.tokenizer, prefix)) or group.prompt
            before, text = texts_after(step, introduction)
            before = before[1:] if said.endswith("\n") and before.startswith("\n") else before
            encoded = policy.tokenizer(before + text, add_special_tokens=False, return_offsets_mapping=True)
            logs = picked_logprobs(policy.model, [*prompt, *prefix], encoded["input_ids"]).tolist()
            ends_at = [end for _, end in encoded["offset_mapping"]]
            judged = [log for log, end in zip(logs, ends_at, strict=True) if end > len(before)]
            row.append(sum(judged) / len(judged))
        found.append(row)
    return found


@pytest.mark.parametrize(
    ("architecture", "attention", "packed"),
    [("tiny", "sdpa", True), ("gpt2", "sdpa", True), ("gpt2", "eager", True), ("qwen2", "sdpa", True),
     ("qwen2", "eager", True), ("gpt_neox", "sdpa", False)],
)  # fmt: skip
def test_a_belief_is_that_of_a_plain_forward_pass_a_prefix(tiny, groups, architecture, attention, packed):
    policy = tiny if architecture == "tiny" else small_policy(tiny, architecture, attention)
    assert heeds_masks(policy.model) is packed
    for group in groups:
        answer = group.columns["answer"]
        lines = lines_by_hand(group)

        def the_answer(step, introduction, answer=answer):
            return introduction, answer

        def the_rest(step, introduction, answer=answer, lines=lines):
            return ("\n", "\n".join(lines[step:])) if step < len(lines) else (introduction, answer)

        for of, asked in (("answer", the_answer), ("reference", the_rest)):
            slow = plain_beliefs(policy, group, "\nAnswer: ", asked)
            fast = beliefs(policy, group, CHAIN, of=of, log=True)
            assert min(value for row in slow for value in row if value is not None) < -0.5  # something to compare
            for values, (start, *rest) in zip(fast.values, slow, strict=True):
                assert fast.start == pytest.approx(start, abs=1e-4)
                assert [value is None for value in values] == [value is None for value in rest]
                assert [v for v in values if v is not None] == pytest.approx(
                    [v for v in rest if v is not None], abs=1e-4
                )


def near(one, other):
    return all((a is None) == (b is None) and abs((a or 0) - (b or 0)) < 1e-5 for a, b in zip(one, other, strict=True))


def lines_by_hand(group):
    """The reference solution's lines, worked here once more."""
    value, lines = group.columns["start"], []
    for k, (sign, operand) in enumerate(group.columns["operations"], 1):
        result = eval(f"{value} {sign} {operand}")
        lines.append(f"Step {k}: {value} {sign} {operand} = {result}")
        value = result
    return [*lines, f"Answer: {value}"]


def test_probabilities_of_the_whole_answer_and_of_a_token(tiny, groups):
    group = replace(groups[0], columns={**groups[0].columns, "answer": "12"})
    whole, each = (beliefs(tiny, group, CHAIN, per_token=flag) for flag in (False, True))
    logs = beliefs(tiny, group, CHAIN, per_token=False, log=True)
    assert len(tiny.tokenizer("Answer: 12")["input_ids"]) == len(tiny.tokenizer("Answer: ")["input_ids"]) + 2
    for total, mean, log in list(zip(whole.values[0], each.values[0], logs.values[0], strict=True))[:3]:
        assert total == pytest.approx(math.exp(log), rel=1e-5)
        assert mean == pytest.approx(math.exp(log / 2), rel=1e-4)


@pytest.mark.parametrize(
    ("form", "values", "start", "scores"),
    [
        ("value", [0.5, 0.4, 0.7, 0.65], 0.2, [0.5, 0.4, 0.7, 0.65]),
        ("difference", [0.5, 0.4, 0.7, 0.65], 0.2, pytest.approx([0.3, -0.1, 0.3, -0.05])),
        ("watermark", [0.5, 0.4, 0.7, 0.65], 0.2, pytest.approx([0.3, 0, 0.2, 0])),
        ("watermark", [None, 0.6], 0.2, [None, pytest.approx(0.4)]),
        ("watermark", [0.6, 0.7], None, [None, pytest.approx(0.1)]),
        ("difference", [None, 0.6, None, 0.5], 0.2, [None, pytest.approx(0.4), None, pytest.approx(-0.1)]),
        ("difference", [0.6, 0.5], None, [None, pytest.approx(-0.1)]),
        *((form, [], 0.2, []) for form in FORMS),
    ],
)
def test_what_a_step_scores(form, values, start, scores):
    assert FORMS[form](values, start) == scores


def test_the_most_probable_of_several_right_answers_counts(tiny, groups):
    group = groups[0]
    several, one, other = (
        beliefs(tiny, replace(group, columns={**group.columns, "answer": answer}), CHAIN)
        for answer in (["7", "8"], "7", "8")
    )
    for row, *pair in zip(several.values, one.values, other.values, strict=True):
        assert near(row, [None if None in two else max(two) for two in zip(*pair, strict=True)])


def test_without_an_answer_a_step_is_unscored_and_moves_nothing(tiny, groups):
    bare = replace(groups[0], columns={})
    for of in ("answer", "reference"):
        values = beliefs(tiny, bare, CHAIN, of=of)
        assert values.start is None
        assert {value for row in values.values for value in row} == {None}
        assert not credit_group(values.as_scores(bare, "progress")).advantages.any()
    solved = replace(bare, columns={"solution": "Step 1: 2 + 2 = 4\nAnswer: 4"})  # with no answer to fall back on
    row = beliefs(tiny, solved, CHAIN, of="reference").values[0]
    assert [value is None for value in row] == [False, *[True] * (len(row) - 1)]


def test_what_does_not_fit_the_context_is_unscored(tiny, groups, monkeypatch):
    prompt = len(encode_prompt(tiny.tokenizer, groups[0].prompt))
    ends = score_group(groups[0], CHAIN, []).step_ends[0]
    tail = len(tiny.tokenizer("Answer: " + groups[0].columns["answer"], add_special_tokens=False)["input_ids"])
    monkeypatch.setattr("workbench.policies.belief.context_length", lambda model: prompt + ends[1] + 1 + tail)
    row = beliefs(tiny, groups[0], CHAIN).values[0]
    assert [value is None for value in row] == [False, False, *[True] * (len(row) - 2)]


def test_another_tokenizers_ids_are_refused(tiny):
    group = Group("?", (Rollout((1, 2), ("not", " these"), finished=True),), {"answer": "1"})
    with pytest.raises(RewardError, match="another tokenizer"):
        beliefs(tiny, group, CHAIN)


@pytest.mark.parametrize(
    ("prompt", "solution", "introduction"),
    [
        ("Give the answer in \\boxed{}.", "… #### 4", "\n\\boxed{"),
        ("How many?", "2 + 2 = <<2+2=4>>4\n#### 4", "\n#### "),
        ("<reasoning>…</reasoning> <answer>…</answer>", "", "\n</reasoning>\n<answer>"),
        ("How many?", "", "\nAnswer: "),
    ],
)
def test_the_introduction_is_what_the_prompt_or_the_solution_asks_for(prompt, solution, introduction):
    assert answer_introduction(prompt, solution) == introduction


def test_a_reward_of_the_configuration_scores_as_the_function_does(tiny, groups):
    group = groups[0]
    for form, what in (("value", "value"), ("difference", "progress"), ("watermark", "watermark")):
        spec = RewardConfig(name="belief", belief={"form": form, "of": "reference"})
        reward = policy_reward(spec, tiny, SamplingConfig(), pattern=CHAIN)
        here = score_group(group, CHAIN, [reward]).step_rewards
        there = beliefs(tiny, group, CHAIN, of="reference").as_scores(group, what).step_rewards
        for one, other in zip(here, there, strict=True):
            assert near(one, other)
    with pytest.raises(RewardCodeError, match=r"wb\.beliefs"):
        load_reward(spec)
    with pytest.raises(ConfigError, match="kind to step"):
        RewardConfig.parse({"name": "belief", "kind": "outcome", "belief": {}})


@pytest.mark.parametrize("ending", ["Answer: ", "\\boxed{"])
def test_a_step_that_only_states_the_answer_is_unscored(tiny, groups, ending):
    """Of one that also works, the belief is that before the answer, as if it ended there."""

    def of(text):
        ids = tiny.tokenizer(text, add_special_tokens=False)["input_ids"]
        rollout = Rollout(tuple(ids), tuple(token_texts(tiny.tokenizer, ids)), finished=False)
        return beliefs(tiny, replace(groups[0], rollouts=(rollout,)), CHAIN).values[0]

    first, *_ = lines_by_hand(groups[0])
    closing = "}" if "{" in ending else ""
    worked = of(f"{first}\n")
    assert near(of(f"{first}\n{ending}7{closing}"), [worked[0], None] if ending == "Answer: " else worked)
    assert near(of(f"{first}\nAnswer: 7\n{first}\n"), [worked[0], None, None])


# -- Importances of tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [None, "gpt2", "gpt_neox"])
def test_an_importance_is_how_fast_the_answers_probability_changes_with_the_tokens_embedding(
    tiny, groups, architecture
):
    """|d log p(answer) / dh| of (1 + h) times a token's embedding, by differences, a plain forward pass each."""
    policy = tiny if architecture is None else small_policy(tiny, architecture)
    model, prompt = copy.deepcopy(policy.model).double(), encode_prompt(tiny.tokenizer, groups[0].prompt)
    embeddings, judged = model.get_input_embeddings().weight.detach(), 0
    found = with_importances(policy, groups[0])
    for rollout in found.rollouts[:2]:
        before = rollout.text.index("Answer")
        count = next(t for t in range(len(rollout)) if len("".join(rollout.texts[:t])) == before)
        gold = tiny.tokenizer("Answer: " + str(found.columns["answer"]))["input_ids"]
        first = len(gold) - len(tiny.tokenizer(" " + str(found.columns["answer"]))["input_ids"]) + 1
        ids = torch.tensor([*prompt, *rollout.token_ids[:count], *gold])

        def mean_log(embedded, ids=ids, gold=gold, first=first):
            logs = model(inputs_embeds=embedded[None]).logits[0].log_softmax(-1)
            places = range(len(ids) - len(gold) + first, len(ids))
            return sum(float(logs[place - 1, ids[place]]) for place in places) / len(places)

        assert rollout.importances[count:] == (-1.0,) * (len(rollout) - count)
        for t in range(0, count, 7):
            sides = []
            for h in (1e-2, -1e-2):  # norms are computed in float32
                embedded = embeddings[ids].clone()
                embedded[len(prompt) + t] *= 1 + h
                with torch.no_grad():
                    sides.append(mean_log(embedded))
            slope = abs(sides[0] - sides[1]) / 2e-2
            assert rollout.importances[t] == pytest.approx(slope, rel=2e-2, abs=1e-4)
            judged += 1
    assert judged > 10


def test_importances_stay_with_a_group_and_the_page_asks_for_them(tiny, groups, worker, tmp_path):
    group = with_importances(tiny, groups[0])
    assert Group.from_json(json.loads(json.dumps(group.to_json()))) == group
    assert with_importances(tiny, replace(groups[0], columns={})) == replace(groups[0], columns={})
    row = row_from("belief", {"of": "reference", "form": "difference", "introduction": "", "log": False}, ())
    listed = builtin_row("step_correctness"), builtin_row("answer_correctness"), row.with_edits({"weight": 0.5})
    draft = draft_of(*listed, oar=True, outcome_weight=1.0).but(group=groups[0])
    code = {}
    belief = beliefs(tiny, group, draft.pattern(), of="reference").as_reward("progress", 0.5)
    scored = score_group(group, draft.pattern(), ["step_correctness", "answer_correctness", belief])
    expected = credit_group(scored, "process", oar=True, outcome_weight=1.0)
    (tmp_path / "group.json").write_text(json.dumps(groups[0].to_json()))
    exec(inspect_code(draft, tmp_path / "group.json"), code)
    for one in (rescore(draft, worker, worker_here()).credit, code["credit"]):
        assert near(one.advantages.ravel().tolist(), expected.advantages.ravel().tolist())


@pytest.mark.training
def test_a_run_on_beliefs_learns_from_what_its_policy_finds_probable(tiny, tmp_path):
    reward = {"name": "belief", "belief": {"of": "reference"}}
    run = trained(short_run(method={"rewards": [reward]}), tmp_path / "workspace")
    assert run.status().state == "finished", run.status()
    assert (run.metrics()["rewards/belief/time"].dropna() > 0).all()
    moved = 0
    for credit in RunDir(run.path).rollouts.read(1):  # scored with the policy as it was before the first step
        again = beliefs(tiny, credit.scored.group, CHAIN, of="reference").progress()
        for row, values in zip(credit.scored.step_rewards, again, strict=True):
            assert near(row, values)
        moved += credit.advantages.any()
    assert moved
