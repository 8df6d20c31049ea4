"""Episodes: what is sampled between observations, how it is cut into steps and credited, and how it is stored."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.forward import picked_logprobs
from workbench.config import EnvironmentSection, SamplingConfig
from workbench.credit import credit_group
from workbench.data import load_groups
from workbench.errors import ConfigError, EpisodeError
from workbench.policies import sampler
from workbench.policies.decoding import decoders
from workbench.policies.prompts import Episodes, Observations, encode_prompt
from workbench.policies.sampler import Sampled, sample_group, sample_rows, to_rollout, with_reference
from workbench.rewards import score_group, split_group
from workbench.rewards.environments import load_environment
from workbench.rundir.rollouts import Rollouts
from workbench.schema import Example, Group, Rollout
from workbench.steps import StepPattern
from workbench.views.export import EXPORTS
from workbench.views.heatmap import heatmap

PROMPTS = ["Start with 7, add 5.\n", "Start with 12, subtract 4, multiply by 2, add 9.\n"]


def length(prompt: Any, step: str, **columns: Any) -> float:
    return float(len(step))


LINES = StepPattern(r"\n", "ends")


class Teller:
    """Tells how many turns there were, in texts of several lengths; ``last`` ends the episode."""

    stop: ClassVar[Sequence[str]] = ("1", "2", "5", "a", "e", "\n")

    def reset(self, prompt: str, last: int = 4, **columns: Any) -> None:
        self.turns, self.last = 0, last

    def reply(self, turn: str) -> str | None:
        self.turns += 1
        return None if self.turns == self.last else "\n" + f"told {self.turns}. " * (self.turns % 3) + "é\n"


class Careless(Teller):
    def reply(self, turn: str) -> str | None:
        if self.turns == 1:
            raise ValueError("no")
        return super().reply(turn)


def rows_of(policy: Any, prompts: Sequence[str], kind: type = Teller, seed: int = 3, **others: Any) -> list[Sampled]:
    settings = {name: others.pop(name) for name in ("max_turns", "max_observation_length") if name in others}
    environment = replace(load_environment(kind), settings=EnvironmentSection(name=kind.__name__, **settings))
    lasts = [Example(prompt, {"last": 3 + i % 3}) for i, prompt in enumerate(prompts)]
    return sample_rows(
        policy.model,
        [encode_prompt(policy.tokenizer, prompt) for prompt in prompts],
        SamplingConfig(max_completion_length=others.pop("max_completion_length", 90), temperature=0.8),
        eos_token_ids=others.pop("eos", policy.eos_token_ids),
        pad_token_id=policy.tokenizer.pad_token_id,
        seed=seed,
        episodes=Episodes(environment, policy.tokenizer, others.pop("examples", lasts)),
        **others,
    )


SIX = [prompt for prompt in PROMPTS for _ in range(3)]


@pytest.fixture(scope="module")
def episodes(random_policy) -> list[Sampled]:
    return rows_of(random_policy, SIX)


def test_an_observation_is_tokenised_once_and_stands_between_two_turns(random_policy, episodes):
    assert any(sum(turn.is_sampled for turn in row.turns) >= 3 for row in episodes)
    for row in episodes:
        assert [turn.start for turn in row.turns] == [0, *(turn.end for turn in row.turns[:-1])]
        assert row.turns[-1].end == len(row.token_ids) == len(row.mask) == len(row.logprobs)
        answers = [turn for turn in row.turns if not turn.is_sampled]
        for number, turn in enumerate(answers, start=1):
            told = random_policy.tokenizer("\n" + f"told {number}. " * (number % 3) + "é\n", add_special_tokens=False)
            assert row.token_ids[turn.start : turn.end] == told["input_ids"]
        for turn in row.turns:
            assert set(row.mask[turn.start : turn.end]) == {int(turn.is_sampled)}


def check_log_probabilities(policy: Any, prompts: Sequence[str], rows: Sequence[Sampled]) -> None:
    """Of every sampled token, those of one plain forward pass over prompt, turns and observations."""
    for prompt, row in zip(prompts, rows, strict=True):
        ids = encode_prompt(policy.tokenizer, prompt)
        picked = picked_logprobs(policy.model, ids, row.token_ids, 0.8)
        assert row.raw_logprobs == pytest.approx((picked * torch.tensor(row.mask)).tolist(), abs=1e-5)
        assert all(value == 0 for value, mask in zip(row.entropies, row.mask, strict=True) if not mask)


def test_invariant_log_probabilities_of_turns_are_those_of_a_plain_forward_pass(random_policy, episodes, monkeypatch):
    """By the plain decode step and by transformers' own, which give the same episodes."""
    check_log_probabilities(random_policy, SIX, episodes)
    monkeypatch.setattr(sampler, "decoders_of", lambda model, prompts, pad, most: decoders(model, prompts, pad))
    others = rows_of(random_policy, SIX)
    check_log_probabilities(random_policy, SIX, others)
    assert [row.token_ids for row in others] == [row.token_ids for row in episodes]


def test_invariant_same_seed_same_episodes_on_any_ranks_and_however_rows_finish(random_policy, episodes):
    ids = [row.token_ids for row in episodes]
    assert [(row.token_ids, row.turns) for row in rows_of(random_policy, SIX)] == [
        (row.token_ids, row.turns) for row in episodes
    ]
    assert [row.token_ids for row in rows_of(random_policy, SIX, seed=4)] != ids
    examples = [Example(prompt, {"last": 3 + i % 3}) for i, prompt in enumerate(SIX)]
    for size in (3, 1):  # ranks with so many rows each; alone, a row meets no other one's end
        parts = [
            rows_of(
                random_policy, SIX[at : at + size], examples=examples[at : at + size], first_row=at, total_rows=len(SIX)
            )
            for at in range(0, len(SIX), size)
        ]
        assert [row.token_ids for part in parts for row in part] == ids


def test_tokens_are_streamed_as_they_come_and_a_cancelled_episode_ends_where_it_got(random_policy, episodes):
    streamed: dict[int, list[int]] = {}
    rows = rows_of(
        random_policy,
        SIX,
        on_tokens=lambda tokens: [streamed.setdefault(row, []).append(token) for row, token in tokens],
    )
    assert [streamed[i] for i in range(len(SIX))] == [row.token_ids for row in rows]
    row = next(i for i, row in enumerate(rows) if len(row.turns) > 1 and row.turns[1].end - row.turns[1].start > 3)
    inside = rows[row].turns[1].start + 2
    seen: list[int] = []
    cut = rows_of(
        random_policy,
        SIX,
        on_tokens=lambda tokens: seen.extend(token for number, token in tokens if number == row),
        cancelled=lambda: len(seen) == inside,
    )[row]
    assert cut.token_ids == rows[row].token_ids[:inside]
    assert [(turn.role, turn.end) for turn in cut.turns][-1] == ("environment", inside)
    assert to_rollout(random_policy.tokenizer, cut).turn_spans == [(0, rows[row].turns[0].end - 1)]


class Listener(Teller):
    """Is asked when an end-of-sequence token came, and keeps what it heard."""

    stop: ClassVar[Sequence[str]] = ()
    heard: ClassVar[list[str]] = []

    def reply(self, turn: str) -> str | None:
        self.heard.append(turn)
        return super().reply(turn)


def test_an_end_of_sequence_token_ends_a_turn_and_is_not_told(random_policy):
    ends = range(10, 320, 12)
    Listener.heard.clear()
    rows = rows_of(random_policy, SIX, Listener, eos=ends)
    told_of = []
    for row in rows:
        texts = to_rollout(random_policy.tokenizer, row).texts
        told_of += [
            "".join(texts[turn.start : turn.end - 1])
            for turn in row.turns
            if turn.is_sampled and row.token_ids[turn.end - 1] in ends
        ]
    assert len(told_of) > len(SIX)
    assert sorted(told_of) == sorted(Listener.heard)
    assert all(row.finished == (row.token_ids[-1] in ends and row.mask[-1] == 1) for row in rows)


def test_limits_of_an_episode_are_kept_and_said(random_policy, episodes):
    most = rows_of(random_policy, SIX, max_turns=2)
    for row, whole in zip(most, episodes, strict=True):
        assert sum(turn.is_sampled for turn in row.turns) <= 2
        assert row.token_ids == whole.token_ids[: len(row.token_ids)]
    assert any(row.turns[-1].note == "environment.max_turns, 2, is reached" for row in most)
    short = rows_of(random_policy, SIX, max_observation_length=2)
    answers = [turn for row in short for turn in row.turns if not turn.is_sampled]
    assert max(turn.end - turn.start for turn in answers) == 2
    assert any(turn.note.startswith("cut to 2 tokens, ") for turn in answers)
    tight = rows_of(random_policy, SIX, max_completion_length=24)
    assert all(len(row.token_ids) <= 24 for row in tight)
    cut = [row for row in tight if "does not fit in sampling.max_completion_length, 24" in row.turns[-1].note]
    assert cut
    assert all(to_rollout(random_policy.tokenizer, row).truncated for row in cut if not row.finished)


def test_an_environment_that_fails_ends_its_row_or_the_run(random_policy):
    errors = {tuple(turn.error for turn in row.turns) for row in rows_of(random_policy, SIX, Careless)}
    assert {row for row in errors if any(row)} == {(None, None, "reply raised ValueError: no")}
    section = EnvironmentSection.parse({"name": "Careless", "on_environment_error": "run", "code": None})
    environment = replace(load_environment(Careless), settings=section)
    episodes = Episodes(environment, random_policy.tokenizer, [Example(PROMPTS[0])])
    sample_rows(
        random_policy.model, [encode_prompt(random_policy.tokenizer, PROMPTS[0])],
        SamplingConfig(max_completion_length=90), eos_token_ids=random_policy.eos_token_ids, pad_token_id=0, seed=3,
        episodes=episodes,
    )  # fmt: skip
    failure = (type(episodes.failure), str(episodes.failure))
    assert failure == (EpisodeError, "row 1, turn 2: reply raised ValueError: no")


@pytest.fixture(scope="module")
def group(random_policy) -> Group:
    example = Example(PROMPTS[1], {"last": 3})
    return sample_group(random_policy, example, num_generations=3, max_completion_length=60, environment=Teller)


def test_a_group_of_episodes_tells_of_its_environment(random_policy, group):
    assert group.sampling["environment"] == {"name": "Teller", "max_turns": 8, "max_observation_length": 256}
    assert all(rollout.is_episode for rollout in group.rollouts)
    plain = sample_group(random_policy, Example(PROMPTS[0]), num_generations=2, max_completion_length=9)
    assert [(rollout.mask, rollout.turns) for rollout in plain.rollouts] == [(None, ())] * 2
    assert "environment" not in plain.sampling


# --- steps and credit ---------------------------------------------------------------------------------------------


def written(*turns: str, finished: bool = False) -> Rollout:
    """An episode whose turns and observations take turns, a token a character, "$" the end-of-sequence token."""
    texts = [*"".join(turns), *("$" * finished)]
    mask = [int(i % 2 == 0) for i, turn in enumerate(turns) for _ in turn] + [1] * finished
    return Rollout(tuple(range(len(texts))), tuple(texts), finished, mask=tuple(mask))


def steps_of(rollout: Rollout, pattern: StepPattern) -> list[str]:
    (split,) = split_group(Group("p", (rollout,)), pattern)
    return [rollout.text[step.start : step.end] for step in split.steps]


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        (LINES, ["a\n", "b\n", "e\n", "f"]),
        (StepPattern(r"(?m)^\w"), ["a\n", "b\n", "e\n", "f"]),
        (StepPattern(r"[a-z]", "is"), ["a", "b", "e", "f"]),
        (StepPattern("3", "tokens"), ["a\nb", "\n", "e\nf"]),
        (StepPattern("b\n= c", "is"), ["a\nb\n", "e\nf"]),  # no match: a step a turn
        (StepPattern("e", "starts"), ["e\nf"]),
        (StepPattern("a", "ends"), ["a", "\nb\n", "e\nf"]),
    ],
)
def test_a_pattern_of_any_kind_never_looks_into_an_observation(pattern, steps):
    rollout = written("a\nb\n", "= c\nd\n", "e\nf", finished=True)
    assert steps_of(rollout, pattern) == steps


def test_thinking_is_left_out_of_each_turn():
    rollout = written("<think>1\n</think>a\n", "= 3\n<think>", "2\n</think>b\n")
    pattern = StepPattern(r"\n", "ends", leave_out_thinking=True)
    assert steps_of(rollout, pattern) == ["a\n", "b\n"]
    seen: list[str] = []

    def note(completions: list[str], prompts: Any, **columns: Any) -> list[float]:
        seen.extend(completions)
        return [1.0]

    score_group(Group("p", (rollout,)), pattern, [note])
    assert seen == ["a\n= 3\n<think>b\n"]


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=6), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([LINES, StepPattern("a"), StepPattern("b+", "is"), StepPattern("2", "tokens"), StepPattern("z")]),
)
def test_invariant_no_step_spans_an_observation_and_its_tokens_have_no_credit(turns, finished, pattern):
    finished = finished and len(turns) % 2 == 1
    rollout = written(*turns, finished=finished)
    other = written("a\nb")
    scored = score_group(Group("p", (rollout, other)), pattern, [length])
    spans = scored.scored[0].spans
    for first, last in spans:
        assert all(rollout.mask[first : last + 1])  # type: ignore[index]
        assert any(begin <= first and last <= end for begin, end in rollout.turn_spans)
    assert all(later[0] > earlier[1] for earlier, later in pairwise(spans))
    if finished and spans and spans[-1][0] >= rollout.turn_spans[-1][0]:
        assert spans[-1][1] == len(rollout) - 1
    advantages = credit_group(scored, scheme="process").of(0)
    assert (advantages[np.array(rollout.mask) == 0] == 0).all()


def test_process_sums_over_later_turns_across_observations():
    """Step rewards 1, 0 | 1, and 0 in the other completion: mean 1/2, std 0.57735, so that r~ is +-0.8659."""
    rollout, other = written("a\nb\n", "= 3\n", "a"), written("b\n")
    right = lambda prompt, step, **columns: float("a" in step)  # noqa: E731
    scored = score_group(Group("p", (rollout, other)), LINES, [right])
    assert scored.step_rewards == [[1.0, 0.0, 1.0], [0.0]]
    advantages = credit_group(scored, scheme="process").of(0)
    z = 0.5 / (0.57735027 + 1e-4)
    assert advantages == pytest.approx([z, z, 0, 0, 0, 0, 0, 0, z], abs=1e-6)  # z - z + z, then -z + z, then z


def test_episodes_come_back_from_a_file_bit_for_bit(group, tmp_path):
    Rollouts(tmp_path, "it").write(1, [credit_group(score_group(group, LINES, [length]))])
    (back,) = Rollouts(tmp_path, "it").read(1)
    assert back.scored.group == group


def test_a_groups_own_file_is_read_back_with_its_turns(random_policy, group, tmp_path):
    """And drawn, and exported: what was not sampled has no log-probability, no entropy and no KL there."""
    group = with_reference(random_policy, group)
    (tmp_path / "group.json").write_text(json.dumps(group.to_json()))
    (back,) = load_groups(tmp_path / "group.json")
    assert back.rollouts == group.rollouts
    for rollout in group.rollouts:
        assert rollout.logprobs is not None
        assert rollout.raw_logprobs == pytest.approx(rollout.ref_logprobs, abs=1e-4)
        assert {0.0} == {p for p, sampled in zip(rollout.ref_logprobs, rollout.mask, strict=True) if not sampled}
    credit = credit_group(score_group(group, LINES, [length]))
    rows = list(csv.DictReader(EXPORTS["tokens"][2](credit, None).splitlines()))
    sampled = [known for rollout in group.rollouts for known in rollout.mask or ()]
    assert [row["logprob"] != "" and row["entropy"] != "" for row in rows] == [known == 1 for known in sampled]
    assert all(float(row["advantage"]) == 0 and not row["step"] for row, k in zip(rows, sampled, strict=True) if not k)
    drawn = heatmap(credit).payload()["rollouts"]
    assert ["".join(row["texts"]) for row in drawn] == ["".join(rollout.texts) for rollout in group.rollouts]
    assert [row["entropies"] is not None for row in drawn] == [True] * 3


# --- conversations ------------------------------------------------------------------------------------------------

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")


class Speller:
    """A tokenizer of characters with a chat template."""

    eos_token = "<|im_end|>"

    def __init__(self, template: str) -> None:
        self.template = template

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) for character in text]}

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool = False, **_: Any) -> str:
        from jinja2 import Template

        return Template(self.template).render(messages=messages, add_generation_prompt=add_generation_prompt)


def test_in_a_conversation_an_observation_is_the_users_next_message():
    observations, chat = Observations(Speller(CHATML), EnvironmentSection()), [{"role": "user", "content": "Hi"}]
    observations.check(chat)
    between = "\n<|im_start|>user\n= 3<|im_end|>\n<|im_start|>assistant\n"
    assert observations.ids(chat, "= 3", after_eos=True) == ([ord(letter) for letter in between], "")
    ids, _ = observations.ids(chat, "= 3", after_eos=False)  # a stop string ended the turn: its end is written, too
    assert "".join(map(chr, ids)) == f"<|im_end|>{between}"
    assert observations.ids("Hi", "= 3", after_eos=True)[0] == [ord(letter) for letter in "= 3"]


def test_a_template_that_rewrites_earlier_turns_is_refused_unless_told_which_ids_count():
    chat = [{"role": "user", "content": "Hi"}]
    with pytest.raises(ConfigError, match="leaves the thinking out of earlier turns"):
        Observations(Speller(FORGETFUL), EnvironmentSection()).check(chat)
    Observations(Speller(FORGETFUL), EnvironmentSection(rewritten_turns="keep")).check(chat)
    Observations(Speller(FORGETFUL), EnvironmentSection()).check("plain")
