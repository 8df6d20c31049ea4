"""Reward functions written for a TRL script, pasted as they are: the same scores in a script, a preview and a run.

They have the shape that public recipes share: module-level patterns and helpers, chat-message completions, a column of
the data by name, ``**kwargs`` for the rest.
"""

import json

from tests.drafts import draft_of, own_row
from workbench.rewards import RewardConfig, Sandbox, score_group
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.ui.handlers.scoring import rescore

HEAD = """import re
from typing import Optional

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def extract_xml_answer(text: str) -> Optional[str]:
    found = ANSWER.search(text)
    return found.group(1).strip() if found else None


"""
CORRECT = (
    HEAD
    + """def correctness_reward_func(prompts, completions, answer, **kwargs) -> list[float]:
    responses = [completion[0]["content"] for completion in completions]
    question = prompts[0][-1]["content"]
    extracted = [extract_xml_answer(r) for r in responses]
    print("-" * 20, f"Question:\\n{question}", f"\\nAnswer:\\n{answer[0]}", f"\\nExtracted:\\n{extracted[0]}")
    return [2.0 if r == a else 0.0 for r, a in zip(extracted, answer)]
"""
)
INTEGER = (
    HEAD
    + """def int_reward_func(completions, **kwargs) -> list[float]:
    extracted = [extract_xml_answer(completion[0]["content"]) for completion in completions]
    return [0.5 if r and r.isdigit() else 0.0 for r in extracted]
"""
)
COUNT = """def count_xml(text) -> float:
    return sum(0.125 for tag in ("<reasoning>", "</reasoning>", "<answer>", "</answer>") if text.count(tag) == 1)


def xmlcount_reward_func(completions, **kwargs) -> list[float]:
    contents = [completion[0]["content"] for completion in completions]
    return [count_xml(c) for c in contents]


def _unused_helper(x):
    return x
"""
RECIPE = {"correctness_reward_func": CORRECT, "int_reward_func": INTEGER, "xmlcount_reward_func": COUNT}
PROMPT = [{"role": "system", "content": "Use the tags."}, {"role": "user", "content": "6 * 12?"}]
TEXTS = [
    "<reasoning>6 * 12 = 72</reasoning>\n<answer>72</answer>",
    "<answer>71</answer>",
    "It is 72.",
]
EXPECTED = {  # worked by hand
    "correctness_reward_func": [2.0, 0.0, 0.0],
    "int_reward_func": [0.5, 0.5, 0.0],
    "xmlcount_reward_func": [0.5, 0.25, 0.0],
}


def rollout(text: str) -> Rollout:
    return Rollout(tuple(map(ord, text)), tuple(text), finished=False)


GROUP = Group(PROMPT, tuple(rollout(text) for text in TEXTS), {"answer": "72"})
CONFIGS = [RewardConfig(name=name, kind="outcome", code=code) for name, code in RECIPE.items()]


def test_scoring_a_group_gives_the_same(worker: Sandbox) -> None:
    scored = score_group(GROUP, StepPattern(regex=r"\n", kind="ends"), CONFIGS, worker=worker)
    for name, expected in EXPECTED.items():
        assert [one.outcome_scores[name] for one in scored.scored] == expected
    # The weighted sum: 2 + 0.5 + 0.5.
    assert scored.scored[0].outcome == 3.0
    assert "Question:\n6 * 12?" in scored.rewards[0].prints[None]


def test_the_page_takes_them_in_any_row_and_names_them_itself(worker: Sandbox) -> None:
    """Pasted over the template of a step function, as people do."""
    rows = [own_row(code, f"row_{i}") for i, code in enumerate(RECIPE.values())]
    draft = draft_of(*rows, regex=r"\n", kind="ends", scheme="outcome")
    view = rescore(draft.but(group=GROUP, prompt=PROMPT, columns=GROUP.columns), worker)
    assert not any(view.rows)
    assert view.note is None
    assert [row.name for row in rows] == list(RECIPE)
    assert view.credit is not None
    assert [one.outcome for one in view.credit.scored.scored] == [3.0, 0.75, 0.0]
    assert "show" in json.loads(view.drawing)
