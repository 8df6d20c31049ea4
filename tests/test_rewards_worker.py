"""Users' reward code: what loads, what is refused, and that whatever it does the worker is there for the next call."""

import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.errors import RewardCodeError, RewardError, RewardTimeout, RewardValueError
from workbench.rewards import Reward, RewardConfig, Sandbox, load_reward, score_group
from workbench.rewards.protocol import Batch
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern
from workbench.training.generation import Member, Share
from workbench.training.trainer import ProcessGRPOTrainer

HEAD = "def reward(prompt, step, **columns):\n"
BATCH = Batch(["p", "q"], ["ab", "c"], {"answer": ["1", "2"]}, [["a", "b"], ["c"]], [[5, 6], [7]])


def load(worker: Sandbox, code: str, kind: Any = "step", name: str = "mine") -> Reward:
    return load_reward(RewardConfig(name=name, kind=kind, code=code, weight=0.5), worker)


def steps(worker: Sandbox, code: str, batch: Batch = BATCH) -> list[list[float | None]]:
    return load(worker, code).score(batch)[0]


# --- what runs ----------------------------------------------------------------------------------------------------


OBJECT = "class Dummy:\n    def forward(self, prompt, step_text):\n        return len(step_text) + len(prompt)\n"
MODULE = (
    "from __future__ import annotations\nfrom dataclasses import dataclass\nimport math\n"
    "@dataclass\nclass Scale:\n    by: float\n\ndef _helper(x): return Scale(2.0).by * x\n"
    "def score(prompt, step, **columns) -> float:\n    return _helper(math.floor(1.5))\n"
    "if __name__ == '__main__': raise SystemExit\n"
)
LENGTHS = "[[len(text)] * len(texts) for text, texts in zip(completions, steps)]"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (HEAD + "    return None if step == 'b' else float(columns['answer']) + len(prompt)", [[2.0, None], [3.0]]),
        (f"def f(prompts, completions, steps, answer, **columns): return {LENGTHS}", [[2.0, 2.0], [1.0]]),
        (MODULE, 2.0),
        # which function is taken
        ("def mine(prompt, step, **c): return 1\ndef reward(prompt, step, **c): return 2", 1.0),
        ("def other(prompt, step, **c): return 1\ndef reward(prompt, step, **c): return 2", 2.0),
        ("from math import floor\ndef other(prompt, step, **c): return floor(3.5)", 3.0),
        ("def _hidden(): pass\ndef other(prompt, step, **c): return 4", 4.0),
        ("import functools\n@functools.cache\ndef mine(prompt, step, **c): return 5", 5.0),
        # two positional parameters are the prompt and the step
        ("def mine(prompt, step_text):\n    return len(step_text) + len(prompt)", 2.0),
        ("def mine(question, reasoning):\n    return len(reasoning) + len(question)", 2.0),
        ("def mine(prompt, step):\n    return len(step) + len(prompt)", 2.0),
        (
            "def mine(prompt, step_text, answer=None, **columns):\n    return len(step_text) + (answer in ('1', '2'))",
            2.0,
        ),
        ("def mine(prompt, step_text, answer='0'):\n    return len(step_text) + (answer != '0')", 2.0),
        ("async def mine(prompt, step_text):\n    return len(step_text) + len(prompt)", 2.0),
        ("mine = lambda p, s: len(s) + len(p)", 2.0),
        ("def mine(step_text, answer='0'):\n    return len(step_text) + (answer != '0')", 2.0),
        ("def mine(text):\n    return len(text)", 1.0),
        (OBJECT + "mine = Dummy().forward", 2.0),
        (OBJECT + "reward_model = Dummy()", 2.0),
        # what counts as a score
        (HEAD + "    return True", 1.0),
        (HEAD + "    return 3", 3.0),
        (HEAD + "    return -1e6", -1e6),
        (HEAD + "    return __import__('numpy').float32(0.5)", 0.5),
        (HEAD + "    return __import__('numpy').int64(7)", 7.0),
        (HEAD + "    return __import__('numpy').array(0.25)", 0.25),
        (HEAD + "    return __import__('numpy').bool_(True)", 1.0),
        (HEAD + "    return None", None),
    ],
)
def test_a_function_of_steps_scores_each(worker: Sandbox, code: str, expected: Any) -> None:
    assert steps(worker, code) == (expected if isinstance(expected, list) else [[expected, expected], [expected]])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(prompts, completions, completion_ids, **k): return [sum(ids) for ids in completion_ids]", [11.0, 7.0]),
        ("def mine(completions, step=None, **k): return [float(step is None)] * len(completions)", [1.0, 1.0]),
        ("import numpy as np\ndef f(prompts, completions, **k): return np.arange(2) / 2", [0.0, 0.5]),
        (
            "import asyncio\nasync def f(completions, **c): return await asyncio.to_thread(lambda: [1, 2])",
            [1.0, 2.0],
        ),
    ],
)
def test_a_function_of_completions_scores_each(worker: Sandbox, code: str, expected: list[float]) -> None:
    assert load(worker, code, "outcome").score(BATCH)[0] == expected


def test_functions_and_objects_of_this_process_may_take_a_prompt_and_a_step() -> None:
    module: dict[str, Any] = {}
    exec(OBJECT, module)
    for spec, name in (
        (module["Dummy"](), "Dummy"),
        (module["Dummy"]().forward, "Dummy"),
        (lambda prompt, step_text: 2, "<lambda>"),
        (lambda step_text: 2, "<lambda>"),
        (Reward("of_text", "step", lambda text: 2), "of_text"),
    ):
        reward = load_reward(spec)
        assert (reward.name, reward.kind, reward.score(BATCH)[0]) == (name, "step", [[2.0, 2.0], [2.0]])
    with pytest.raises(RewardCodeError, match=r"Dummy.*NAME\(\)"):
        load_reward(module["Dummy"])

    def fails(prompt: str, step_text: str) -> float:
        return 1 / 0

    line = fails.__code__.co_firstlineno + 1
    with pytest.raises(RewardError, match=rf"ZeroDivisionError .* at line {line}"):
        Reward("fails", "step", fails).score(BATCH)


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("math_equality", None, "outcome"),
        ("step_correctness", None, "step"),
        ("trl:think_format_reward", None, "outcome"),
        ("mine", "def mine(completions, **k): return [1]", "outcome"),
        ("mine", "def mine(completions, step=None, **k): return [1]", "outcome"),
        ("mine", "def mine(prompt, step_text): return 1", "step"),
        ("mine", "def mine(prompt, step, **k): return 1", "step"),
        ("mine", "does not parse", "step"),
    ],
)
def test_a_kind_that_is_not_given_is_the_functions(name: str, code: str | None, kind: str) -> None:
    assert RewardConfig(name=name, code=code).kind == kind
    assert RewardConfig.parse({"name": name, "code": code}).kind == kind


def test_code_from_a_file_imports_modules_that_lie_beside_it(worker: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("VALUE = 0.25\n")
    code = "import beside_it\n" + HEAD + "    return beside_it.VALUE"
    with pytest.raises(RewardCodeError, match="beside"):
        load(worker, code)
    config = RewardConfig(name="mine", code=code, folder=str(tmp_path))
    assert load_reward(config, worker).score(BATCH)[0] == [[0.25, 0.25], [0.25]]


TEXTS = Batch(["2 + 2?"], ["4"])
CHAT = Batch([[{"role": "user", "content": "2 + 2?"}]], [[{"role": "assistant", "content": "4"}]])


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        ("completion[0]['content']", TEXTS),
        ("completion[0].get('content')", TEXTS),
        ("completion.strip()", CHAT),
        ("__import__('re').match('4', completion).group()", CHAT),
    ],
)
def test_texts_taken_for_messages_are_given_as_messages_and_messages_as_texts(
    worker: Sandbox, body: str, batch: Batch
) -> None:
    code = f"def mine(completions, **k):\n    return [len({body}) for completion in completions]"
    assert load(worker, code, "outcome").score(batch)[0] == [1.0]
    wrong = code.replace(body, f"{body}['text']")  # wrong of both: told as it was first
    with pytest.raises(RewardError) as caught:
        load(worker, wrong, "outcome").score(batch)
    assert caught.value.line == 2


def test_a_configurations_reward_keeps_its_weight_and_signature(worker: Sandbox) -> None:
    reward = load(worker, "def reward(prompt, step, scale=2, **columns): return scale")
    assert (reward.name, reward.kind, reward.weight) == ("mine", "step", 0.5)
    assert list(reward.signature.parameters) == ["prompt", "step", "scale", "columns"]
    assert reward.signature.parameters["scale"].default is not inspect.Parameter.empty


# --- code that is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("def reward(:", 1, "invalid syntax"),
        ("x = 1\n\ndef f(a, **k)\n    pass", 3, "expected ':' at line 3"),
        ("\0", None, "null bytes"),
        ("import os\nimport no_such_module\n" + HEAD + "    return 1", 2, "ModuleNotFoundError"),
        ("raise SystemExit(1)", 1, "SystemExit"),
        ("x = 1", None, "'mine'"),
        ("def a(**k): pass\ndef b(**k): pass", None, "'mine'.* a, b"),
        ("from pathlib import Path\n" + OBJECT, None, r"'reward = Dummy\(\)'"),
        ("class mine:\n    pass", None, r"'reward = mine\(\)'"),
        ("def reward(prompts, completions): return [1]", None, "data's columns"),
        ("def reward(completions, step, **columns): return [1]", None, "'step'"),
        (
            "def reward(prompts, completions, completion, **columns): return [1]",
            None,
            r"'completion'.*'mine\(prompts, completions, \*\*columns\)'",
        ),
        ("def reward(prompt, step, completions, **columns): return 1", None, "'completions'"),
        ("def reward(completions, **k): return []", None, r"mine\(completions, \*\*k\)"),  # a step reward is asked for
    ],
)
def test_code_without_a_usable_function_is_refused(worker: Sandbox, code: str, line: int | None, message: str) -> None:
    with pytest.raises(RewardCodeError, match=message) as caught:
        load(worker, code)
    assert caught.value.line == line
    assert caught.value.reward == "mine"


def test_a_step_reward_is_no_outcome_reward(worker: Sandbox) -> None:
    with pytest.raises(RewardCodeError, match=r"'mine\(prompts, completions, \*\*columns\)'"):
        load(worker, HEAD + "    return 1", "outcome")


# --- code that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [HEAD, f"async {HEAD}"])
def test_what_it_raises_is_told_with_line_rollout_step_and_text(worker: Sandbox, head: str) -> None:
    code = head + "    if step == 'c':\n        raise SystemExit('no c')\n    return 1"
    with pytest.raises(RewardError, match=r"SystemExit .*\('c'\).*: no c") as e:
        steps(worker, code)
    assert (e.value.line, e.value.rollout, e.value.step) == (3, 1, 0)


@pytest.mark.parametrize(
    "code", ["def f(prompt, step, level_of, **k): return 1", "def f(prompt, step, **k): return k['level_of']"]
)
def test_a_column_that_is_missed_is_answered_with_those_there_are(worker: Sandbox, code: str) -> None:
    batch = Batch(["p"], ["a"], {"answer": ["4"], "level": [2]}, [["a"]])
    with pytest.raises(RewardError, match=r"'level_of'.* answer, level$"):
        steps(worker, code, batch)
    with pytest.raises(RewardError, match=r"KeyError.*: 'answer'$"):  # which is there
        steps(worker, "def f(prompt, step, **k): return {}['answer']", batch)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("while True:\n        pass", (3, 4)),
        ("while True:\n        try:\n            while True: pass\n        except BaseException: pass", (5,)),
        ("import threading\n    threading.Event().wait()", (4,)),
    ],
)
def test_a_hang_is_ended_at_the_deadline_and_its_line_named(
    worker: Sandbox, body: str, line: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = load(worker, HEAD + "    print('begun')\n    " + body)
    monkeypatch.setattr(worker, "deadline", 0.5)
    with pytest.raises(RewardTimeout, match=r"0\.5 s at line") as caught:
        reward.score(BATCH)
    monkeypatch.undo()
    assert caught.value.line in line
    assert caught.value.prints == {0: "begun\n"}
    assert steps(worker, HEAD + "    return 1") == [[1.0, 1.0], [1.0]]


def test_what_loading_takes_is_no_part_of_the_deadline(worker: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a process was ended over its deadline, so that the next one loads the code again."""
    code = "import time\ntime.sleep(0.7)\n" + HEAD + "    time.sleep(60 if step == 'hang' else 0)\n    return 1"
    monkeypatch.setattr(worker, "deadline", 0.5)
    reward = load(worker, code)
    with pytest.raises(RewardTimeout, match=r"0\.5 s"):
        reward.score(Batch(["p"], ["hang"], steps=[["hang"]]))
    assert reward.score(BATCH)[0] == [[1.0, 1.0], [1.0]]


# --- values that are refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("{'score': 1}", r"the dict \{'score': 1\}"),
        ("'1.0'", "the str '1.0'"),
        ("[1.0]", r"the list \[1.0\]"),
        ("float('inf')", "inf"),
        ("-float('inf')", "-inf"),
        ("float('nan')", "nan"),
        ("1e30", r"1e\+30"),
        ("1000001", "1000001"),
        ("10**400", "an integer of 1,329 bits"),
        ("10**5000", "an integer of 16,610 bits"),
        ("1j", "the complex 1j"),
        ("__import__('numpy').ones(2)", r"the ndarray array\(\[1., 1.\]\)"),
        ("'x' * 10**6", "the str 'xxx.*…, 1,000,002 characters"),
    ],
)
def test_a_value_that_is_no_score_is_shown_with_its_rollout_and_step(worker: Sandbox, value: str, shown: str) -> None:
    code = HEAD + f"    return {value} if step == 'b' else 1"
    with pytest.raises(RewardValueError, match=rf"gave {shown} for .*\('b'\)") as e:
        steps(worker, code)
    assert (e.value.reward, e.value.rollout, e.value.step) == ("mine", 0, 1)
    assert len(str(e.value)) < 400


OUTCOME, STEPS = "def f(prompts, completions, **k): return ", "def f(prompts, completions, steps, **k): return "


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (OUTCOME + "[1]", "1 values.* list of 2"),
        (OUTCOME + "{'a': 1, 'b': 2}", "the dict"),
        (OUTCOME + "1.0", "returned 1.0"),
        ("def f(prompts, completions, **k): yield 1.0", "the generator"),
        (OUTCOME + "[1, [2]]", r"the list \[2\] for rollout 2"),
        (OUTCOME + "[1, float('inf')]", "gave inf for rollout 2"),
        (STEPS + "[[1, 2]]", "1 values.* list of 2"),
        (STEPS + "[[1], [2]]", "1 values for rollout 1"),
        (STEPS + "[1, 2]", "returned 1 for"),
        (STEPS + "[[1, 2], ['3']]", r"the str '3' for rollout 2"),
        (STEPS + "[[1, 2], None]", "None for rollout 2"),
    ],
)
def test_a_batched_function_must_give_one_score_each(worker: Sandbox, code: str, message: str) -> None:
    with pytest.raises(RewardValueError, match=message):
        load(worker, code, "step" if code.startswith(STEPS) else "outcome").score(BATCH)


# --- coroutine functions, and TRL's `trainer_state`, `log_extra` and `log_metric` -------------------------------------

PATTERN = StepPattern(r";", kind="ends")
GROUP = Group("p", (Rollout((1, 2), ("a;", "bb"), False), Rollout((3,), ("ccc",), False)), {"level": 3})


def test_steps_and_functions_wait_together() -> None:
    """Each of three steps, and another function, go on only when all four are under way."""
    everybody = asyncio.Barrier(4)

    async def one(prompt: str, step: str, **columns: Any) -> float:
        await asyncio.wait_for(everybody.wait(), 30)
        return 1.0

    async def two(completions: Any, **columns: Any) -> list[float]:
        await asyncio.wait_for(everybody.wait(), 30)
        return [2.0, 2.0]

    scored = score_group(GROUP, PATTERN, [one, two])
    assert (scored.step_rewards, scored.outcomes) == ([[1.0, 1.0], [1.0]], [2.0, 2.0])


# --- what TRL's trainer passes ------------------------------------------------------------------------------------

TELLING = """
def f(prompts, completions, trainer_state, log_extra, log_metric, **columns):
    log_extra("why", [text.upper() for text in completions])
    log_metric("half", len(completions) / 2)
    return [trainer_state.global_step / trainer_state.max_steps for _ in completions]
"""
OF_STEPS = """
def f(prompts, completions, steps, log_extra, **columns):
    log_extra("first", [[step[0] for step in texts] for texts in steps])
    return [[1 for step in texts] for texts in steps]
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_a_preview_is_before_the_first_step_and_keeps_what_is_logged(worker: Sandbox, sealed: bool) -> None:
    told, of_steps = load(worker, TELLING, "outcome", "a"), load(worker, OF_STEPS, "step", "b")
    if not sealed:
        here: dict[str, Any] = {}
        exec(f"{TELLING.replace('def f', 'def a')}{OF_STEPS.replace('def f', 'def b')}", here)
        told, of_steps = here["a"], here["b"]
    scored = score_group(GROUP, PATTERN, [told, of_steps])
    assert scored.outcomes == [0.0, 0.0]
    assert [row.logged for row in scored.scored] == [
        {"a": {"why": "A;BB"}, "b": {"first": ("a", "b")}},
        {"a": {"why": "CCC"}, "b": {"first": ("c",)}},
    ]
    assert scored.rewards[0].metrics == {"half": [1.0]}
    assert [row.get("logged") for row in scored.rows(0)] == [{"b": {"first": "a"}}, {"b": {"first": "b"}}]


def test_a_trainers_state_reaches_the_worker(worker: Sandbox) -> None:
    state = SimpleNamespace(global_step=3, max_steps=4, callback=print, log_history=[{"step": i} for i in range(99)])
    reward = load(worker, TELLING, "outcome")
    assert reward.score(Batch(["p"], ["a"], trainer_state=state))[0] == [0.75]
    history = "def f(completions, trainer_state, **c): return [trainer_state.log_history[-1]['step']]"
    assert load(worker, history, "outcome").score(Batch(["p"], ["a"], trainer_state=state))[0] == [98.0]


def test_a_rank_tells_trl_what_was_logged_of_its_completions() -> None:
    def telling(completions: Any, log_extra: Any, log_metric: Any, **columns: Any) -> list[float]:
        log_extra("n", [len(text) for text in completions])
        log_metric("m", 1.0)
        return [0.0] * len(completions)

    scored = score_group(GROUP, PATTERN, [Reward("a", "outcome", telling), Reward("b", "outcome", telling)])
    members = [Member("p", {}, r, s) for r, s in zip(GROUP.rollouts, scored.scored, strict=True)]
    told: list[Any] = []
    trainer = SimpleNamespace(
        _log_completion_extra=lambda column, values: told.append((column, values)),
        _log_metric=lambda name, value: told.append((name, value)),
    )
    ProcessGRPOTrainer._tell_logs(trainer, Share(members, scored.rewards))
    # Two functions' columns of one name are told apart, where TRL would make one of twice the length.
    assert told == [("a: n", [4, 3]), ("b: n", [4, 3]), ("m", 1.0), ("m", 1.0)]
