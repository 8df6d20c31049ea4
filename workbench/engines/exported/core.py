"""Steps, rewards and credit of a run, with numpy alone.

``settings.json`` says what the run was; ``workbench/`` are the modules of the workbench that it ran. An engine gives an
estimator one number a token, so steps travel as such rows (``encode``): the reward of a step at its last token, where 0
and unscored have numbers of their own, and behind the tokens the outcome. A zero is then a token where no step ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from rewards import REWARDS

from workbench.credit.assign import compute_batch
from workbench.credit.batch import Batch, GroupRewards
from workbench.credit.schemes import find_scheme
from workbench.rewards import protocol
from workbench.schema import Rollout
from workbench.steps import split as steps
from workbench.steps.pattern import StepPattern
from workbench.steps.tokens import token_texts

HERE = Path(__file__).resolve().parent
SETTINGS = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
PATTERN = StepPattern(**SETTINGS["pattern"])
FUNCTIONS = [
    (about["name"], about["kind"], protocol.as_reward(function, about["kind"]))
    for about, function in zip(SETTINGS["rewards"], REWARDS, strict=True)
]
WEIGHTS = {about["name"]: about["weight"] for about in SETTINGS["rewards"]}
SLOTS = 1 + SETTINGS["gate"]
"""Numbers behind a completion's tokens: the outcome and, under the gate, the outcome that it goes by."""
ZERO, UNSCORED, BETWEEN = 2.0**-100, 2.0**-101, 2.0**-102
"""A reward of 0; no reward; the last token before a step that belongs to none. Too small to change a sum."""


@dataclass
class Scored:
    """A completion's steps as (first, last) tokens, their rewards, and its outcome; None for unscored."""

    spans: list
    rewards: list
    outcome: float | None
    judged: float | None


def answer(tokenizer, prompt, columns, prompt_ids, ids):
    """Score a sampled completion; return its row (``encode``), whether the loss counts it, and its outcome."""
    finished = bool(ids) and ids[-1] in SETTINGS["eos_token_ids"]
    opened = tokenizer.decode(prompt_ids[-16:]).rstrip().endswith("<think>")
    scored = score(ids, token_texts(tokenizer, ids), finished, prompt, columns, opened)
    return encode(len(ids), scored), finished or not SETTINGS["mask_truncated_completions"], scored.outcome


def score(ids, texts, finished, prompt, columns, opened=False):
    """Split and score a completion: ``texts`` has one string a token, ``opened``: the prompt ends in ``<think>``."""
    rollout = Rollout(tuple(ids), tuple(texts), finished)
    [split] = steps.split_rollouts([rollout], PATTERN, steps.split_leniently, opened=[opened])
    found = split.steps if len(ids) else []
    spans = steps.align_rollout(rollout, found)
    [read] = steps.rollout_texts([rollout], PATTERN, [opened])
    given = {name: [value] for name, value in columns.items()}
    if opened and read == rollout.text:
        given["thinking_open"] = [True]
    batch = protocol.Batch(
        prompts=[prompt],
        completions=[read if isinstance(prompt, str) else [{"role": "assistant", "content": read}]],
        columns=given,
        steps=[steps.step_texts(rollout.text, found)],
        completion_ids=[list(ids)],
        step_ends=[[last for _, last in spans]],
    )
    scores = {name: protocol.call_reward(name, function, batch)[0] for name, _, function in FUNCTIONS}
    of_steps = {
        name: [None] * len(found) if split.failed else scores[name] for name, kind, _ in FUNCTIONS if kind == "step"
    }
    outcomes = {name: scores[name] for name, kind, _ in FUNCTIONS if kind == "outcome"}
    rewards = [
        protocol.weighted_sum({name: row[k] for name, row in of_steps.items()}, WEIGHTS) for k in range(len(found))
    ]
    judged = outcomes.get(SETTINGS["judge"])
    return Scored(spans, rewards, protocol.weighted_sum(outcomes, WEIGHTS), judged)


def encode(length, scored):
    """Return the row of a completion of so many tokens: one number a token, and SLOTS more."""
    row, free = [0.0] * length, 0
    for (first, last), reward in zip(scored.spans, scored.rewards, strict=True):
        if last < free:
            raise ValueError(f"two steps end in token {last}, which holds one number; use a pattern with longer steps")
        if first > free:
            row[first - 1] = BETWEEN
        row[last], free = _sent(reward), last + 1
    return [*row, *map(_sent, [scored.outcome, scored.judged][:SLOTS])]


def pad(rows):
    """Return rows of several lengths as a table, (B, T), with 0 behind each."""
    return np.array([*zip_longest(*rows, fillvalue=0.0)]).T


def _sent(reward):
    return UNSCORED if reward is None else float(reward) or ZERO


def decode(row):
    """Return a row's number of tokens, and its steps, rewards and outcome as they were given to ``encode``."""
    marked = np.flatnonzero(row)
    length = int(marked[-1]) + 1 - SLOTS
    spans, rewards, free = [], [], 0
    for token in marked[marked < length].tolist():
        if row[token] != BETWEEN:
            spans.append((free, token))
            rewards.append(_got(row[token]))
        free = token + 1
    outcome, judged = [*map(_got, row[length : length + SLOTS]), None][:2]
    return length, Scored(spans, rewards, outcome, judged)


def _got(number):
    return None if number == UNSCORED else 0.0 if number == ZERO else float(number)


def advantages(rows, index):
    """Return A of each token, (B, T) float32, of encoded rows (B, T); ``index`` says which are of one prompt.

    Rows of zeros are what an engine fills a batch up with: they are in no group and get 0.
    """
    rows = np.asarray(rows, dtype=np.float64)
    members = {}
    for i in np.flatnonzero(rows.any(axis=1)).tolist():
        members.setdefault(index[i], []).append(i)
    groups = [_group([decode(rows[i]) for i in group]) for group in members.values()]
    result = np.zeros(rows.shape, dtype=np.float32)
    if groups:
        compute, names = find_scheme(SETTINGS["scheme"]).compute, ("options", "outcome_weight", "clip")
        how = [SETTINGS[name] for name in names]
        laid_out = compute_batch(Batch.of(groups), compute, *how, is_gated=SETTINGS["gate"])
        for group, (values, _, _) in zip(members.values(), laid_out, strict=True):
            result[group, : values.shape[1]] = values
    return result


def _group(completions):
    return GroupRewards(
        steps=[scored.rewards for _, scored in completions],
        starts=[[first for first, _ in scored.spans] for _, scored in completions],
        ends=[[last for _, last in scored.spans] for _, scored in completions],
        lengths=[length for length, _ in completions],
        outcomes=[scored.outcome for _, scored in completions] if SETTINGS["has_outcome"] else None,
        judged=[scored.judged for _, scored in completions],
    )
