"""Belief: how probable a policy finds the right answer after each step, a step reward without a model, labels or judge.

After the sampled ids up to a step's last token stands a text that introduces the answer, then the answer; the belief is
the answer's log-probability there, or its probability. Sampled ids are never tokenised again, only those two texts are.

What a step scores, of beliefs b_1 … b_K and b_0, that after the bare prompt:

========== ======================= ====================================================================================
value      b_k                     exp of the mean log-probability of the answer's tokens, as IGPO's code has it
                                   (arXiv 2510.14967; ``scrl/llm_agent/generation.py`` of GuoqingWang1/IGPO)
difference b_k - b_(k-1)           IGPO's turn reward, in the same file; the segment-wise progress of GRPO-VPS (arXiv
                                   2604.20659, of which the abstract was read and not the equations)
watermark  max(0, b_k - max b_<k)  MIG (arXiv 2602.01034), there of mean log-probabilities: ``log``
========== ======================= ====================================================================================

``reference`` asks for the rest of a worked solution in place of the answer: after k steps, what the solution has after
k. The Path Faithfulness Reward of P2S (arXiv 2601.20649) is of this kind. As a summary of the paper has it, it takes
the most probable of all suffixes and subtracts the same with the steps masked; here the suffix is that of the same
number of steps, and ``difference`` is what compares.

A step that only states the final answer is unscored, as IGPO's last turn is: what follows an answer says nothing of it
(the shipped policy gives a right answer that it has just given 0.0). Of a step that ends in the answer, the belief is
that before the answer.

All prefixes of a completion share one row: their answers stand behind it, each with the positions it would have after
its own prefix, and an attention mask hides the rest. Models whose attention is not known to heed such a mask read a row
a prefix.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from workbench.config import BeliefConfig, SamplingConfig
from workbench.data.chain_arithmetic import reference_of
from workbench.errors import PolicyError, RewardError
from workbench.models.weights import context_length
from workbench.policies.load import Policy, load_policy
from workbench.policies.monte_carlo import monte_carlo_reward
from workbench.policies.prompts import encode_prompt, thinking_open
from workbench.policies.step_values import StepValues, breakthroughs, differences
from workbench.rewards import Reward, RewardConfig, Score, score_group
from workbench.rewards.answers import answer_introduction, golds_of, reasoning_and_answer, texts_of
from workbench.schema import Group, Prompt, Rollout, prompt_text
from workbench.steps import StepPattern, split_leniently, step_texts, token_texts

PACKED = (
    "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
)  # fmt: skip
"""Models that take positions and an attention mask of their own for every token, and have no other memory."""
ELEMENTS = 2**28
"""Most elements of the mask and the logits of one forward pass."""
LINES = StepPattern(r"\n", "ends")
"""Cuts a reference solution where the completions' own pattern needs turns or probabilities."""


@dataclass(frozen=True)
class Tail:
    """A text that is put after the first ``cut`` ids of a row; its ids from ``first`` on are judged."""

    cut: int
    ids: tuple[int, ...]
    first: int


def beliefs(
    policy: Policy,
    group: Group,
    pattern: StepPattern,
    *,
    of: str = "answer",
    per_token: bool = True,
    log: bool = False,
    introduction: str | None = None,
) -> StepValues:
    """Return how probable ``policy`` finds the right answer after each step of a group, as values of the steps.

    ``start`` is the belief after the bare prompt; ``as_reward`` makes a step reward of ``value``, ``progress`` (the
    difference) or ``watermark``. The arguments are ``BeliefConfig``'s. Values are None where the group's columns have
    no answer (or no reference solution), or the text does not fit the policy's context.

    Raises:
        RewardError: if the policy has another tokenizer than the group's.
        PatternError: as splitting raises it.
    """
    began = time.monotonic()
    how = BeliefConfig.parse(
        {"form": "value", "of": of, "per_token": per_token, "log": log, "introduction": introduction}
    )
    scored, count = score_group(group, pattern, []), len(group)
    texts = [rollout.text for rollout in group.rollouts]
    rows = [{**group.columns, **rollout.columns} for rollout in group.rollouts]
    judged = judge(
        policy,
        how,
        [group.prompt] * count,
        texts,
        [step_texts(text, one.steps) for text, one in zip(texts, scored.scored, strict=True)],
        [rollout.token_ids for rollout in group.rollouts],
        scored.step_ends,
        {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)},
        pattern=pattern,
        template_kwargs=group.sampling.get("template_kwargs"),
    )
    return StepValues(
        values=tuple(tuple(values) for _, values in judged),
        errors=tuple((None,) * len(values) for _, values in judged),
        counts=tuple((0,) * len(values) for _, values in judged),
        successes=tuple((0,) * len(values) for _, values in judged),
        start=next((start for start, _ in judged if start is not None), None),
        k=0,
        seed=0,
        threshold=0.5,
        outcome=f"belief in the {how.of}",
        pattern=pattern,
        seconds=time.monotonic() - began,
    )


def judge(
    policy: Policy,
    how: BeliefConfig,
    prompts: Sequence[Prompt],
    completions: Sequence[Any],
    steps: Sequence[Sequence[str]],
    completion_ids: Sequence[Sequence[int]],
    step_ends: Sequence[Sequence[int]],
    columns: Mapping[str, Sequence[Any]],
    *,
    pattern: StepPattern | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[tuple[Score, list[Score]]]:
    """Return the belief after each prompt and after each step of its completion, for B completions as rewards get them.

    Raises RewardError for ids of another tokenizer than the policy's.
    """
    tokenizer, ends = policy.tokenizer, frozenset(policy.eos_token_ids)
    context = context_length(policy.model) or math.inf
    rows: list[list[int]] = []
    tails: list[list[Tail]] = []
    asked: list[list[int]] = []  # of each row, how many tails every boundary has: one a right answer
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        ids, cuts = completion_ids[i], step_ends[i]
        if min(ids, default=0) < 0:  # a probe's edit, which nobody sampled
            ids, cuts = _tokenized(tokenizer, completion, steps[i])
        so_far, most = _read_tokens(policy, ids, steps[i], i)
        prompt_ids = encode_prompt(tokenizer, prompt, template_kwargs)
        opened = thinking_open(tokenizer, prompt, template_kwargs)
        targets = _Targets(how, prompt, {name: values[i] for name, values in columns.items()}, pattern)
        own: list[list[Tail]] = []
        written = -1
        for step, end in enumerate([-1, *cuts]):
            after = min(end + 1, most)
            while after and ids[after - 1] in ends:
                after -= 1
            if after <= written:  # the answer stands already
                own.append([])
                continue
            written = after
            found = targets.tails(tokenizer, step, prompt_ids, so_far[after], after, opened)
            own.append([tail for tail in found if tail.cut + len(tail.ids) <= context])
        rows.append([*prompt_ids, *ids])
        tails.append([tail for boundary in own for tail in boundary])
        asked.append([len(boundary) for boundary in own])
    judged = []
    for counts, own_logs in zip(asked, log_probabilities(policy.model, rows, tails), strict=True):
        each = iter(_belief(how, logs) for logs in own_logs)
        first, *rest = [max((next(each) for _ in range(count)), default=None) for count in counts]
        judged.append((first, rest))
    return judged


def _tokenized(tokenizer: Any, completion: Any, steps: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the ids of a text, cut where its steps end, and the index of each step's last id."""
    text, at = texts_of([completion])[0], 0
    ids: list[int] = []
    ends: list[int] = []
    for step in steps:
        end = text.index(step, at) + len(step)
        ids += tokenizer(text[at:end], add_special_tokens=False)["input_ids"]
        ends.append(len(ids) - 1)
        at = end
    return ids, ends


def _read_tokens(policy: Policy, ids: Sequence[int], steps: Sequence[str], number: int) -> tuple[list[str], int]:
    """Return the text up to each token, from none on, and how many tokens stand before the final answer.

    Raises RewardError for ids that another tokenizer has made.
    """
    known = policy.model.get_input_embeddings().weight.shape[0]
    so_far = ["", *accumulate(token_texts(policy.tokenizer, ids) if max(ids, default=0) < known else [])]
    if not all(step in so_far[-1] for step in steps):
        raise RewardError(
            f"rollout {number + 1} was sampled with another tokenizer than that of {policy.name!r}; beliefs and "
            "importances are read off the sampled ids, so ask a policy with the tokenizer that sampled them"
        )
    reasoning, stated = reasoning_and_answer(so_far[-1])
    return so_far, len(ids) if stated is None else bisect_right(so_far, len(reasoning), key=len) - 1


def _belief(how: BeliefConfig, logs: Sequence[float]) -> float:
    total = math.fsum(logs) / (len(logs) if how.per_token else 1)
    return total if how.log else math.exp(total)


class _Targets:
    """The questions after each step of a completion: pairs of an introduction and the text that is judged."""

    def __init__(
        self, how: BeliefConfig, prompt: Prompt, columns: Mapping[str, Any], pattern: StepPattern | None
    ) -> None:
        asked = prompt if isinstance(prompt, str) else prompt_text(prompt)
        solution = columns.get("reference") or columns.get("solution") or reference_of(columns, asked)
        solution = solution if isinstance(solution, str) else ""
        self._introduction = answer_introduction(asked, solution) if how.introduction is None else how.introduction
        self._golds = golds_of(columns.get("answer"))
        self._solution, self._starts = solution, list[int]()
        self._of_reference = how.of == "reference"
        if self._of_reference and solution:
            cutter = LINES if pattern is None or pattern.by_tokens or pattern.kind == "turns" else pattern
            self._starts = [step.start for step in split_leniently([solution], cutter)[0].steps]

    def after(self, step: int, thinks: bool) -> list[tuple[str, str]]:
        """Return the pairs after so many steps; ``thinks`` closes the thinking block first."""
        if self._of_reference and step < len(self._starts):
            start = self._starts[step]
            rest = self._solution[start:].rstrip()
            return [(self._solution[:start][len(self._solution[:start].rstrip()) :], rest)]
        if self._of_reference and not self._starts:
            return []
        closing = "\n</think>\n" if thinks else ""
        return [(closing + self._introduction, gold) for gold in self._golds]

    def tails(
        self, tokenizer: Any, step: int, prompt_ids: Sequence[int], before: str, after: int, opened: bool
    ) -> list[Tail]:
        """Return the pairs as ids after a prompt and the first ``after`` ids of its answer, which read ``before``."""
        thinks = before.rfind("<think>") > before.rfind("</think>") or (opened and "</think>" not in before)
        last = before or tokenizer.decode(prompt_ids[-1:])
        return [_tail(tokenizer, len(prompt_ids) + after, last, *pair) for pair in self.after(step, thinks)]


def _tail(tokenizer: Any, cut: int, before: str, introduction: str, target: str) -> Tail:
    """Return the two texts as ids, tokenised together; a line that has ended is not ended again."""
    if before.endswith("\n"):
        introduction = introduction.removeprefix("\n")
    ids = tokenizer(introduction + target, add_special_tokens=False)["input_ids"]
    lengths = accumulate(len(text) for text in token_texts(tokenizer, ids))
    return Tail(cut, tuple(ids), sum(length <= len(introduction) for length in lengths))


# --- log-probabilities ----------------------------------------------------------------------------------------------


@torch.no_grad()
def log_probabilities(
    model: Any, rows: Sequence[Sequence[int]], tails: Sequence[Sequence[Tail]]
) -> list[list[list[float]]]:
    """Return the natural-log probability of each judged token of every row's tails, given all ids before it."""
    short = [row[: max((tail.cut for tail in own), default=0)] for row, own in zip(rows, tails, strict=True)]
    was_training = model.training
    model.eval()
    try:
        return (_packed if heeds_masks(model) else _row_by_row)(model, short, tails)
    finally:
        model.train(was_training)


def heeds_masks(model: Any) -> bool:
    """Return whether the model computes each token from the ids that a mask shows it, and from its position, alone."""
    model = model.get_base_model() if hasattr(model, "peft_config") else model
    config = model.config
    windows = {"sliding_attention", "chunked_attention"} & set(getattr(config, "layer_types", None) or ())
    windowed = windows or (type(model).__name__ == "MistralForCausalLM" and config.sliding_window is not None)
    return type(model).__name__ in PACKED and config._attn_implementation in ("sdpa", "eager") and not windowed


def _packed(model: Any, rows: Sequence[Sequence[int]], tails: Sequence[Sequence[Tail]]) -> list[list[list[float]]]:
    """One row a completion: padding, its ids, and behind them each tail after a copy of the last id before it."""
    sizes = [len(row) + sum(1 + len(tail.ids) for tail in own) for row, own in zip(rows, tails, strict=True)]
    kept = [sum(1 + len(tail.ids) for tail in own) for own in tails]
    vocabulary = model.get_input_embeddings().weight.shape[0]
    at_once = max(1, ELEMENTS // max(1, max(sizes, default=1) ** 2 + max(kept, default=1) * vocabulary))
    judged: list[list[list[float]]] = []
    for first in range(0, len(rows), at_once):
        chunk = slice(first, first + at_once)
        judged += _packed_forward(model, rows[chunk], tails[chunk], max(sizes[chunk]), max(kept[chunk]))
    return judged


def _packed_forward(
    model: Any, rows: Sequence[Sequence[int]], tails: Sequence[Sequence[Tail]], size: int, kept: int
) -> list[list[list[float]]]:
    if not kept:
        return [[] for _ in rows]
    ids = torch.zeros(len(rows), size, dtype=torch.long)
    positions = torch.zeros_like(ids)
    seen = torch.eye(size, dtype=torch.bool).repeat(len(rows), 1, 1)  # (B, S, S): padding sees itself alone
    places: list[list[int]] = []
    for b, (row, own) in enumerate(zip(rows, tails, strict=True)):
        start = size - len(row) - sum(1 + len(tail.ids) for tail in own)
        place = start + len(row)
        ids[b, start:place], positions[b, start:place] = torch.tensor(row), torch.arange(len(row))
        seen[b, start:place, start:place] = torch.ones(len(row), len(row), dtype=torch.bool).tril()
        places.append([])
        for tail in own:
            length = 1 + len(tail.ids)
            span = slice(place, place + length)
            ids[b, span] = torch.tensor([row[tail.cut - 1], *tail.ids])
            positions[b, span] = torch.arange(tail.cut - 1, tail.cut - 1 + length)
            seen[b, span, start : start + tail.cut - 1] = True
            seen[b, span, span] = torch.ones(length, length, dtype=torch.bool).tril()
            places[b].append(place)
            place += length
    device = model.device
    mask = seen[:, None].to(device)
    if model.config._attn_implementation == "eager":  # which adds it to the scores
        mask = torch.zeros(mask.shape, dtype=model.dtype, device=device).masked_fill(
            ~mask, torch.finfo(model.dtype).min
        )
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask,
        position_ids=positions.to(device),
        use_cache=False,
        logits_to_keep=kept,
    ).logits  # (B, kept, V)
    logs = _of_next(logits[:, :-1], ids[:, size - kept + 1 :].to(device))  # of the ids from size - kept + 1 on
    return [
        [
            logs[b][place - size + kept + tail.first :][: len(tail.ids) - tail.first]
            for place, tail in zip(at, own, strict=True)
        ]
        for b, (at, own) in enumerate(zip(places, tails, strict=True))
    ]


def _row_by_row(model: Any, rows: Sequence[Sequence[int]], tails: Sequence[Sequence[Tail]]) -> list[list[list[float]]]:
    """A row a tail, padded on the right, where no token before can see it."""
    each = [(row, tail) for row, own in zip(rows, tails, strict=True) for tail in own]
    size = max((tail.cut + len(tail.ids) for _, tail in each), default=0)
    at_once = max(1, ELEMENTS // max(1, size * model.get_input_embeddings().weight.shape[0]))
    found: list[list[float]] = []
    for first in range(0, len(each), at_once):
        chunk = each[first : first + at_once]
        whole = [[*row[: tail.cut], *tail.ids] for row, tail in chunk]
        longest = max(map(len, whole))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in whole], device=model.device)
        lengths = torch.tensor([len(row) for row in whole], device=model.device)
        there = (torch.arange(longest, device=model.device) < lengths[:, None]).long()
        logits = model(input_ids=ids, attention_mask=there, use_cache=False).logits  # (B, T, V)
        logs = _of_next(logits[:, :-1], ids[:, 1:])
        found += [
            logs[b][tail.cut + tail.first - 1 : tail.cut + len(tail.ids) - 1] for b, (_, tail) in enumerate(chunk)
        ]
    judged = iter(found)
    return [[next(judged) for _ in own] for own in tails]


def _of_next(logits: torch.Tensor, ids: torch.Tensor) -> list[list[float]]:
    """Return the log-probability of each id, (B, T), under the logits that predict it, (B, T, V)."""
    logits = logits.float()
    return list((logits.gather(-1, ids[..., None])[..., 0] - logits.logsumexp(-1)).tolist())


# --- which tokens the belief at the end depends on --------------------------------------------------------------------


def with_importances(policy: Policy, group: Group) -> Group:
    """Return the group with the importance of every token that stands before its completion's own final answer.

    I_t = |g_t . e_t|: e_t is the token's embedding and g_t the gradient there of the mean log-probability that
    ``policy`` gives to the tokens of the right answer, put after the completion as a belief puts it. One forward and
    one backward pass. The credit option ``oar`` makes weights of them (``credit.assign.importance_weights``).

    OAR-G (arXiv 2601.07408) with the target ``answer_joint``, ``calculate_token_importance_gradient`` in
    ``OAR-main.py`` of https://github.com/Valsure/Outcome-Grounded-Advantage-Reshaping. Left out is the noise of 1e-3
    on the embeddings, without which the gradient of its other targets, KL divergences, would be 0.

    A completion has none where the group's columns have no answer, or the texts do not fit the policy's context.
    Raises RewardError for ids of another tokenizer than the policy's.
    """
    columns = [{**group.columns, **rollout.columns} for rollout in group.rollouts]
    prompts, kwargs = [group.prompt] * len(group), group.sampling.get("template_kwargs")
    return replace(group, rollouts=tuple(find_importances(policy, prompts, group.rollouts, columns, kwargs)))


def find_importances(
    policy: Policy,
    prompts: Sequence[Prompt],
    rollouts: Sequence[Rollout],
    columns: Sequence[Mapping[str, Any]],
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[Rollout]:
    """Return the rollouts of B prompts with their importances, as ``with_importances`` does."""
    tokenizer, ends = policy.tokenizer, frozenset(policy.eos_token_ids)
    context = context_length(policy.model) or math.inf
    found, asked = list(rollouts), list[tuple[int, int, list[int], Tail]]()  # number, prompt's length, ids, tail
    for i, (prompt, rollout) in enumerate(zip(prompts, rollouts, strict=True)):
        ids = rollout.token_ids
        so_far, after = _read_tokens(policy, ids, [rollout.text], i)
        while after and ids[after - 1] in ends:
            after -= 1
        prompt_ids = encode_prompt(tokenizer, prompt, template_kwargs)
        opened = thinking_open(tokenizer, prompt, template_kwargs)
        targets = _Targets(BeliefConfig(), prompt, columns[i], None)
        for tail in targets.tails(tokenizer, 0, prompt_ids, so_far[after], after, opened)[:1]:
            if after and tail.cut + len(tail.ids) <= context:
                asked.append((i, len(prompt_ids), [*prompt_ids, *ids[:after], *tail.ids], tail))
    config, vocabulary = policy.model.config, policy.model.get_input_embeddings().weight.shape[0]
    longest = max((len(ids) for _, _, ids, _ in asked), default=0)
    a_token = vocabulary + 16 * config.hidden_size * config.num_hidden_layers  # numbers kept for the backward pass
    at_once = max(1, ELEMENTS // max(1, longest * a_token))
    for first in range(0, len(asked), at_once):
        chunk = asked[first : first + at_once]
        saliencies = _saliencies(policy.model, [(ids, tail.cut + tail.first) for _, _, ids, tail in chunk])
        for (i, start, _, tail), saliency in zip(chunk, saliencies, strict=True):
            own = [*saliency[start : tail.cut], *[-1.0] * (len(rollouts[i]) - (tail.cut - start))]
            judged = [value if rollouts[i].is_sampled(t) else -1.0 for t, value in enumerate(own)]
            found[i] = replace(rollouts[i], importances=tuple(judged))
    return found


def _saliencies(model: Any, rows: Sequence[tuple[Sequence[int], int]]) -> list[list[float]]:
    """Return |gradient . embedding| of each id of each row, the gradient that of the mean log-probability of the ids
    from the row's place on."""
    device, size = model.device, max(len(ids) for ids, _ in rows)
    padded = torch.tensor([[*ids, *[0] * (size - len(ids))] for ids, _ in rows], device=device)
    places = torch.arange(size, device=device)
    lengths = torch.tensor([len(ids) for ids, _ in rows], device=device)
    firsts = torch.tensor([first for _, first in rows], device=device)
    judged = (places >= firsts[:, None]) & (places < lengths[:, None])  # (B, S)
    was_training = model.training
    model.eval()
    try:
        with torch.enable_grad():
            embedded = model.get_input_embeddings()(padded).detach().requires_grad_(True)
            there = (places < lengths[:, None]).long()
            logits = model(inputs_embeds=embedded, attention_mask=there, use_cache=False).logits[:, :-1].float()
            logs = logits.gather(-1, padded[:, 1:, None])[..., 0] - logits.logsumexp(-1)  # (B, S - 1)
            means = (logs * judged[:, 1:]).sum(1) / judged.sum(1)
            (gradient,) = torch.autograd.grad(means.sum(), embedded)
    finally:
        model.train(was_training)
    saliencies: list[list[float]] = (gradient.float() * embedded.detach().float()).sum(-1).abs().tolist()
    return saliencies


# --- as a step reward -----------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[Sequence[Score], Score], list[Score]]] = {
    "value": lambda values, start: list(values),
    "difference": differences,
    "watermark": breakthroughs,
}
"""What a step scores, of the beliefs after the steps and that after the prompt."""


def belief_function(
    policy: Policy, how: BeliefConfig, template_kwargs: Mapping[str, Any] | None, pattern: StepPattern | None
) -> Callable[..., list[list[Score]]]:
    """Return a step reward function that asks ``policy`` as it is at the call; the same rollouts score the same."""

    def believed(
        prompts: Any, completions: Any, steps: Any, completion_ids: Any, step_ends: Any, **columns: Any
    ) -> list[list[Score]]:
        options: dict[str, Any] = {"pattern": pattern, "template_kwargs": template_kwargs}
        judged = judge(policy, how, prompts, completions, steps, completion_ids, step_ends, columns, **options)
        return [FORMS[how.form](values, start) for start, values in judged]

    return believed


def policy_reward(
    config: RewardConfig,
    policy: Policy,
    sampling: SamplingConfig,
    seed: int = 0,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    pattern: StepPattern | None = None,
) -> Reward:
    """Return the step reward of a configuration that asks ``policy``: Monte-Carlo values, or a belief.

    A belief of another policy, ``belief.policy``, loads that one onto the same device. Raises as
    ``monte_carlo_reward``, and PolicyError for another policy that cannot be loaded or has another vocabulary.
    """
    if config.belief is None:
        return monte_carlo_reward(config, policy, sampling, seed, template_kwargs=template_kwargs, pattern=pattern)
    if config.belief.policy is not None:
        other = load_policy(config.belief.policy, device=str(policy.device))
        if other.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
            raise PolicyError(
                f"reward {config.name!r}: {other.name!r} has another vocabulary than the policy that samples; take one "
                "with the policy's tokenizer"
            )
        policy = other
    function = belief_function(policy, config.belief, template_kwargs, pattern)
    return Reward(config.name, "step", function, config.weight, schedule=config.points).at(0)
