"""The group sampler against transformers' own generate and a plain forward pass."""

from dataclasses import replace

import pytest
import torch

from tests.forward import forward_logprobs, picked_logprobs
from workbench.config import SamplingConfig
from workbench.errors import PolicyError
from workbench.policies.prompts import encode_prompt
from workbench.policies.sampler import draw, sample_group, sample_rows, with_reference
from workbench.schema import Example, Group
from workbench.views.heatmap import group_payload

PROMPTS = ["Start with 7, add 5.\n", "Start with 12, subtract 4, multiply by 2, add 9.\n"]


def rows_of(policy, prompts, *, seed=0, **sampling):
    sampling.setdefault("max_completion_length", 24)
    extra = {k: sampling.pop(k) for k in ("first_row", "total_rows", "on_tokens", "cancelled") if k in sampling}
    return sample_rows(
        policy.model,
        [encode_prompt(policy.tokenizer, prompt) for prompt in prompts],
        SamplingConfig(**sampling),
        eos_token_ids=policy.eos_token_ids,
        pad_token_id=policy.tokenizer.pad_token_id,
        seed=seed,
        **extra,
    )


def test_logprobs_are_those_of_a_plain_forward_pass(random_policy):
    prompts = [prompt for prompt in PROMPTS for _ in range(3)]
    for prompt, row in zip(prompts, rows_of(random_policy, prompts, temperature=0.7), strict=True):
        ids = encode_prompt(random_policy.tokenizer, prompt)
        assert row.logprobs == pytest.approx(
            picked_logprobs(random_policy.model, ids, row.token_ids, 0.7).tolist(), abs=1e-4
        )
        expected = forward_logprobs(random_policy.model, ids, row.token_ids, 0.7)
        entropy = -(expected.exp() * expected).sum(-1)
        assert row.entropies == pytest.approx(entropy.tolist(), abs=1e-4)


def test_a_reference_policy_gives_the_log_probability_of_every_token(random_policy, tiny):
    """The full forward pass against the sampler's own, position by position, at the temperature of sampling."""
    group = sample_group(
        tiny, Example(PROMPTS[0]), num_generations=3, max_completion_length=80, temperature=0.7, seed=2
    )
    own = with_reference(tiny, group)
    for before, after in zip(group.rollouts, own.rollouts, strict=True):
        assert after.ref_logprobs == pytest.approx(before.logprobs, abs=1e-4)
        assert replace(after, ref_logprobs=None) == before
    other = with_reference(random_policy, group)
    assert Group.from_json(other.to_json()) == other
    # A policy that knows nothing finds what tiny says unlikely: the mean of log pi - log pi_ref estimates the KL.
    gaps = [p - q for row in other.rollouts for p, q in zip(row.logprobs, row.ref_logprobs, strict=True)]
    assert sum(gaps) / len(gaps) > 1
    foreign = replace(group, rollouts=(replace(group.rollouts[0], token_ids=(10**6,)),))
    with pytest.raises(PolicyError, match=r"rollout 1.* 1000000"):
        with_reference(tiny, foreign)
    assert with_reference(random_policy, group, cancelled=lambda: True) is group


@pytest.mark.parametrize(
    "how",
    [{}, {"repetition_penalty": 1.3}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2}, {"temperature": 0.7, "top_k": 5}],
)
def test_invariant_kl_is_0_and_the_ratio_1_where_policy_and_reference_are_one(random_policy, how):
    """Whatever the logits processors make of what is sampled from, also in the picture's numbers and after storing."""
    group = sample_group(random_policy, Example(PROMPTS[0]), num_generations=3, max_completion_length=24, **how)
    group = Group.from_json(with_reference(random_policy, group).to_json())
    for i, drawn in enumerate(group_payload(group)["rollouts"]):
        assert group.raw_logprobs(i) == pytest.approx(group.rollouts[i].ref_logprobs, abs=1e-4)
        assert drawn["raw"] == pytest.approx(drawn["reference"], abs=1e-4)
    processed = bool(set(how) - {"temperature"})
    assert (group.rollouts[0].raw_logprobs != group.rollouts[0].logprobs) == processed
    # A group of version 0.3.0 has no raw ones: those it was sampled with stand for them, or nothing does.
    old = replace(group, rollouts=tuple(replace(rollout, raw_logprobs=None) for rollout in group.rollouts))
    assert (old.raw_logprobs(0) is None) == processed


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_the_likeliest_token_each_time_is_what_generate_gives(random_policy, penalty):
    tokenizer, model = random_policy.tokenizer, random_policy.model
    rows = rows_of(random_policy, PROMPTS, top_k=1, repetition_penalty=penalty)
    for prompt, row in zip(PROMPTS, rows, strict=True):
        ids = torch.tensor([encode_prompt(tokenizer, prompt)])
        generated = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            repetition_penalty=penalty,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=random_policy.eos_token_ids,
        )
        assert row.token_ids == generated[0, ids.shape[1] :].tolist()


def test_processors_keep_only_what_generate_would(random_policy):
    with torch.no_grad():
        ids = torch.tensor([encode_prompt(random_policy.tokenizer, PROMPTS[0])])
        probabilities = random_policy.model(ids).logits[0, -1].softmax(-1)
    likeliest = set(probabilities.topk(3).indices.tolist())
    rows = rows_of(random_policy, [PROMPTS[0]] * 64, top_k=3, max_completion_length=1)
    assert {row.token_ids[0] for row in rows} <= likeliest
    allowed = set((probabilities >= 0.5 * probabilities.max()).nonzero()[:, 0].tolist())
    rows = rows_of(random_policy, [PROMPTS[0]] * 64, min_p=0.5, max_completion_length=1)
    assert {row.token_ids[0] for row in rows} <= allowed


def test_invariant_same_seed_same_samples(random_policy):
    streamed = {}

    def stream(tokens):
        for row, token in tokens:
            streamed.setdefault(row, []).append(token)

    first = rows_of(random_policy, PROMPTS * 2, seed=3, on_tokens=stream)
    assert [streamed[i] for i in range(4)] == [row.token_ids for row in first]
    assert rows_of(random_policy, PROMPTS * 2, seed=3) == first
    assert rows_of(random_policy, PROMPTS * 2, seed=4) != first


def test_a_rows_draws_are_its_own(random_policy):
    """Two ranks with four rows each sample what one process with eight does."""
    prompts = [PROMPTS[0]] * 6 + [PROMPTS[1]] * 2
    whole = rows_of(random_policy, prompts)
    halves = [
        row
        for first in (0, 4)
        for row in rows_of(random_policy, prompts[first : first + 4], first_row=first, total_rows=8)
    ]
    assert [row.token_ids for row in halves] == [row.token_ids for row in whole]


def test_each_distinct_prompt_is_prefilled_once_and_finished_rows_leave(random_policy, monkeypatch):
    shapes = []
    forward = random_policy.model.forward

    def watched(input_ids, **kwargs):
        shapes.append(tuple(input_ids.shape))
        return forward(input_ids, **kwargs)

    watched.__signature__ = __import__("inspect").signature(forward)
    monkeypatch.setattr(random_policy.model, "forward", watched)
    rows = rows_of(random_policy, [p for p in PROMPTS for _ in range(8)], max_completion_length=100)
    assert shapes[0][0] == 2  # two distinct prompts for sixteen rows
    running = [shape[0] for shape in shapes[1:]]
    assert running == sorted(running, reverse=True)
    # Row r is in the batch while it samples its tokens; the first of them comes from the prefill.
    assert running == [sum(len(row.token_ids) > t for row in rows) for t in range(1, len(running) + 1)]


def test_finished_rows_end_in_end_of_sequence_and_others_are_truncated(random_policy):
    rows = rows_of(random_policy, PROMPTS * 8, max_completion_length=60, temperature=2.0)
    eos = set(random_policy.eos_token_ids)
    assert {row.finished for row in rows} == {True, False}
    for row in rows:
        assert row.finished == (row.token_ids[-1] in eos)
        assert not eos & set(row.token_ids[:-1])
        assert row.finished or len(row.token_ids) == 60


def test_a_cancelled_group_comes_back_as_far_as_it_got(random_policy):
    calls = iter([False, False, True])
    group = sample_group(
        random_policy, Example(PROMPTS[0]), num_generations=2, max_completion_length=24, cancelled=lambda: next(calls)
    )
    assert [len(rollout) for rollout in group.rollouts] == [2, 2]
    assert all(rollout.truncated for rollout in group.rollouts)


def test_draw_inverts_the_cumulative_distribution():
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(5, -1)
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.9, 0.9999999999], dtype=torch.float64)
    assert draw(probabilities, uniform).tolist() == [1, 1, 3, 3, 3]


def test_invariant_sampled_ids_are_the_truth(tiny):
    """The texts of a sampled group join to what the tokenizer decodes from the very ids."""
    group = sample_group(tiny, Example(PROMPTS[1], {"answer": "25"}), num_generations=4, seed=1)
    for rollout in group.rollouts:
        assert "".join(rollout.texts) == tiny.tokenizer.decode(rollout.token_ids)
        assert rollout.finished
        assert rollout.text + tiny.tokenizer.eos_token == "".join(rollout.texts)
    assert group.columns == {"answer": "25"}
    assert group.sampling["seed"] == 1


def test_conversations_need_a_chat_template_and_use_it(tiny):
    conversation = [{"role": "user", "content": "Start with 7, add 5."}]
    with pytest.raises(PolicyError, match="no chat template"):
        encode_prompt(tiny.tokenizer, conversation)
    tokenizer = type(tiny.tokenizer)(tokenizer_object=tiny.tokenizer.backend_tokenizer, eos_token="<|end|>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '\n' if add_generation_prompt }}"
    assert tokenizer.decode(encode_prompt(tokenizer, conversation)) == "Start with 7, add 5.\n"
