"""What scripts may ask of a running workbench: sample, score, assign credit, list runs, read metrics.

Plain JSON values in and out; the same functions as the notebooks', reached over HTTP with the workbench's own workers
and runs. Knows nothing of how a request arrives. Raises WorkbenchError where a notebook would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workbench import credit as credits
from workbench.config import RewardConfig
from workbench.config.run import RunConfig
from workbench.data.conversations import is_conversation
from workbench.errors import ConfigError, RewardError, did_you_mean, redact_known, shown
from workbench.rewards import BUILTINS, score_group
from workbench.runs import list_runs as runs_of
from workbench.runs import open_run
from workbench.schema import Credit, Example, Group, Prompt
from workbench.ui.handlers.example import parse_prompt
from workbench.ui.handlers.sampling import progress_text
from workbench.ui.handlers.session import BackgroundWork, Services

WORKER = "api"
"""Scripts share one sandbox, apart from every tab's."""
STATUS_SECONDS = 1.0
MOST_TOKENS = 64 * 32_768
"""Of a group that is credited, each completion counted as the longest: as many as the largest group that is sampled."""
LISTED = 200
RUN_COLUMNS = ("state", "reason", "step", "total_steps", "created", "task", "policy", "scheme")
"""What ``/list_runs`` answers of a run beside its name; null in one that cannot be read."""
STEP_COLUMNS = ("text", "first_token", "last_token", "scores", "reward")
"""What ``/score`` answers of a step."""


def sample(
    services: Services,
    prompt: str | list[dict[str, str]],
    policy: str,
    columns: dict[str, Any],
    seed: int,
    options: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Each second ``{"status": text}``, then a group, as ``Group.to_json`` gives it; whoever stops listening cancels.

    Raises ConfigError or PolicyError.
    """
    config = RunConfig.parse({"policy": policy, "seed": seed, "method": {"sampling": options}})
    _check("columns", columns, dict, 'an object, {"answer": "12"} say')
    example = Example(_prompt(prompt), columns)
    cancel, due = threading.Event(), 0.0

    def ask(report: Callable[[dict[str, Any]], None]) -> Group | None:
        return services.models.sample(
            config.policy.path, example, config.sampled.sampling,
            seed=config.seed, on_event=report, cancelled=cancel.is_set,
        )  # fmt: skip

    with BackgroundWork[dict[str, Any], Group | None](ask, cancel, first={}) as work:
        for event in work:
            if time.monotonic() >= due:
                yield {"status": progress_text(event)}
                due = time.monotonic() + STATUS_SECONDS
        group = work.result()
    assert group is not None  # who cancelled does not get here
    yield group.to_json()


def score(
    services: Services,
    group: dict[str, Any],
    regex: str,
    kind: str,
    rewards: Sequence[str],
    scheme: str,
    options: dict[str, Any],
) -> dict[str, Any]:
    """A group's steps, scores and token advantages. Raises WorkbenchError; only built-in rewards are run."""
    _check("rewards", rewards, list, "a list of names")
    _check("options", options, dict, 'an object, {"scale": false} say')
    if unknown := [name for name in rewards if not isinstance(name, str) or name not in BUILTINS]:
        guess = did_you_mean(unknown[0], BUILTINS)
        raise RewardError(f"there is no built-in reward {shown(unknown[0])}{guess}; take some of {', '.join(BUILTINS)}")
    known = [RewardConfig(name=name, kind=BUILTINS[name].kind) for name in rewards]
    pattern = RunConfig.parse({"method": {"pattern": {"regex": regex, "kind": kind}}}).sampled.pattern
    sampled = _group(group)
    _check_tokens([len(rollout.token_ids) for rollout in sampled.rollouts])
    scored = score_group(sampled, pattern, known, worker=services.reward_worker(WORKER))
    return credit_data(credits.credit_group(scored, scheme, **options))


def credit_data(credit: Credit) -> dict[str, Any]:
    """A credit in plain values: for each rollout its steps, the outcome reward and one advantage a token."""
    return {name: value for name, value in credit.facts().items() if name != "options"} | {
        "rollouts": [
            {
                "text": rollout.text,
                "steps": [{name: row[name] for name in STEP_COLUMNS} for row in credit.rows(i)],
                "outcome": credit.scored.scored[i].outcome,
                "advantages": credit.of(i).tolist(),
            }
            for i, rollout in enumerate(credit.scored.group.rollouts)
        ],
    }


def assign_credit(
    step_rewards: list[list[float | None]],
    step_ends: list[list[int]],
    lengths: list[int],
    scheme: str,
    outcome_rewards: list[float | None] | None,
    options: dict[str, Any],
) -> list[list[float]]:
    """Advantages, one list a completion, as long as the completion is. Raises CreditError."""
    _check("options", options, dict, 'an object, {"scale": false} say')
    _check_tokens(lengths)
    table = credits.assign_credit(step_rewards, step_ends, lengths, scheme, outcome_rewards=outcome_rewards, **options)
    return [row[:length].tolist() for row, length in zip(table, lengths, strict=True)]


def list_runs(services: Services) -> dict[str, Any]:
    """The newest ``runs`` of the workspace, the newest first, and how many ``more`` there are. One that cannot be read
    is named, with the reason."""
    found = runs_of(services.workspace)
    summaries = [run.summary() for run in found[:LISTED]]
    rows = [{"run": summary.name, **summary.row(*RUN_COLUMNS)} for summary in summaries]
    return {"runs": rows, "more": len(found) - len(rows)}


def read_metrics(services: Services, run: str, cursor: int) -> dict[str, Any]:
    """``rows`` from byte ``cursor`` on, and the ``cursor`` to ask from next time. Raises RunError."""
    _check("run", run, str, "a run's name")
    _check("cursor", cursor, int, "0, or what the last call returned")
    opened = open_run(run, services.workspace)
    rows, end = opened.metrics_rows(cursor)
    return {"run": opened.name, "state": opened.status().state, "rows": rows, "cursor": end}


def _prompt(prompt: Any) -> Prompt:
    """A prompt as text, as a list of messages, or as the JSON text of such a list."""
    if isinstance(prompt, str):
        return parse_prompt(prompt)
    if not is_conversation(prompt):
        raise ConfigError(
            f"prompt is {shown(prompt)}; give text, or a list of messages, each with the texts 'role' and 'content'"
        )
    return [{"role": message["role"], "content": message["content"]} for message in prompt]


def _check_tokens(lengths: Sequence[Any]) -> None:
    """Raises ConfigError for a group too large to be credited while others wait, before a table is made for it."""
    _check("lengths", lengths, list, "a list of whole numbers")
    longest = max((length for length in lengths if isinstance(length, int)), default=0)  # others are refused as such
    if (tokens := len(lengths) * longest) > MOST_TOKENS:
        raise ConfigError(
            f"lengths: {len(lengths):,} completions of up to {longest:,} tokens make {tokens:,}, and at most "
            f"{MOST_TOKENS:,} are credited in a call; give fewer, or shorter ones"
        )


def _check(name: str, value: Any, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {shown(value)}; give {wanted}")


def _group(data: dict[str, Any]) -> Group:
    try:
        return Group.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = redact_known(f"{type(error).__name__}: {error}")[:200]
        raise ConfigError(f"that is not a group as sample gives it ({what})") from error
